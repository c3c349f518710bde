"""Two tasks with few labels and much text without: passages with labels, the text, and the classifiers to beat.

Each has four labels and documents of its own for training, validation and test:

* "eras": when was this passage of an address spoken? Text without labels: the addresses;
* "glosses": is this definition WordNet's of a noun, a verb, an adjective or an adverb? Text: the definitions.

The classifiers count pieces and pairs of neighbours, and know no other text than the labelled passages.
"""

import bisect
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmcourse import arguments, course, data
from lmcourse.linear import minimise
from lmcourse.rows import joined

ERAS = (1850, 1900, 1950)  # where the second, third and fourth era begin
TASKS = {
    "eras": ("1790 to 1849", "1850 to 1899", "1900 to 1949", "1950 to 2020"),
    "glosses": ("noun", "verb", "adjective", "adverb"),
}
SPLITS = ("train", "validation", "test")
LENGTH = {"eras": 48, "glosses": 24}  # pieces of a passage, [SEP] at its beginning counted


# ------------------------------------------------------------------------------------------------- the tasks


@dataclass(frozen=True)
class Passages:
    """Texts with labels: ``tokens`` (N, T), ``labels`` (N,), ``mask`` (N, T), True at tokens that are not padding."""

    tokens: Tensor
    labels: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows) -> "Passages":
        return Passages(self.tokens[rows], self.labels[rows], self.mask[rows])


@functools.cache
def _texts(task: str, split: str) -> list[tuple[int, str]]:
    """(label, text) of each document of a split. Of every ten synsets the fifth and the tenth are held out, too."""
    if task == "eras":
        return [(bisect.bisect(ERAS, d.year), d.text) for d in data.documents("addresses", split)]
    splits = {4: "validation", 9: "test"}
    glosses = {e.gloss: e for e in data.wordnet_examples()}  # each definition once
    chosen = (e for e in glosses.values() if splits.get(int(e.synset) % 10, "train") == split)
    return [("nvar".index(e.pos), e.gloss) for e in chosen]


@functools.cache
def _encoded(task: str, split: str) -> list[tuple[int, list[int]]]:
    encode = course.tokenizer().encode
    return [(label, encode(text)) for label, text in _texts(task, split)]


@functools.cache
def unlabelled(task: str, split: str = "train") -> Tensor:
    """The task's text without labels, as ids (N,), [SEP] after each document."""
    _check(task, split)
    return joined((ids for _, ids in _encoded(task, split)), lambda ids: ids, course.SEP)


@functools.cache
def _all(task: str, split: str) -> Passages:
    """Each text cut into passages that begin with [SEP]. What is left over is dropped, unless a text is shorter."""
    rows, labels, length = [], [], LENGTH[task] - 1
    for label, ids in _encoded(task, split):
        starts = range(0, len(ids) - length + 1, length) or [0]
        rows += [torch.tensor([course.SEP, *ids[i : i + length]]) for i in starts]
        labels += [label] * len(starts)
    return padded(rows, labels)


def padded(rows: Sequence[Tensor], labels: Sequence[int]) -> Passages:
    """Texts of different lengths, each a row of ids, side by side."""
    lengths = torch.tensor([len(row) for row in rows])
    tokens = nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=course.PAD)
    return Passages(tokens, torch.tensor(labels), torch.arange(tokens.shape[1]) < lengths[:, None])


def passages(task: str, split: str, count: int, generator: torch.Generator) -> Passages:
    """``count`` passages, equally many of each label, in an order that goes through the labels in turn.

    A smaller ``count`` with a generator in the same state gives the first of them.
    """
    _check(task, split)
    return balanced(_all(task, split), len(TASKS[task]), count, generator)


def balanced(found: Passages, labels: int, count: int, generator: torch.Generator) -> Passages:
    """``count`` of the passages ``found``, drawn as :func:`passages` says."""
    arguments.whole("count", count), arguments.cpu_generator(generator)
    of_label = [(found.labels == label).nonzero()[:, 0] for label in range(labels)]
    most = labels * min(map(len, of_label))
    if count % labels or count > most:
        raise ValueError(f"count: got {count}, expected a multiple of {labels} up to {most}: as many of each label")
    drawn = [rows[torch.randperm(len(rows), generator=generator)][: count // labels] for rows in of_label]
    return found[torch.stack(drawn, dim=1).flatten()]


def _check(task: str, split: str) -> None:
    for name, value, known in (("task", task, tuple(TASKS)), ("split", split, SPLITS)):
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"{name}: got {value!r}, expected one of {', '.join(known)}")


# ------------------------------------------------------------------------------------------------- baselines


def counts(texts: Passages) -> Tensor:
    """Which pieces, and which pairs of neighbours, are in each text: 0 or 1, (N, V + 16,384); pairs share places."""
    V, buckets = course.SIZE, 2**14
    pairs = (texts.tokens[:, :-1] * 40_503 + texts.tokens[:, 1:] * 2_654_435) % buckets + V
    ids = torch.cat([texts.tokens, pairs], dim=1)
    real = torch.cat([texts.mask, texts.mask[:, 1:]], dim=1)
    return torch.zeros(len(texts), V + buckets).scatter_reduce(1, ids, real.float(), "amax")


def naive_bayes(texts: Passages, labels: int, others: Sequence[Passages]) -> list[Tensor]:
    """Bernoulli counts plus 1, multinomial scores: the labels of each of ``others``, from :func:`counts`."""
    x, y = counts(texts), F.one_hot(texts.labels, labels).float()
    logs = torch.log((y.T @ x + 1) / (y.T @ x + 1).sum(1, keepdim=True))
    return [(counts(o) @ logs.T + torch.log(y.mean(0))).argmax(-1) for o in others]


def logistic_regression(texts: Passages, labels: int, others: Sequence[Passages], decay: float) -> list[Tensor]:
    """The labels of each of ``others``: softmax regression on :func:`counts`, and half ``decay`` times their square."""
    x = F.normalize(counts(texts))
    weights = torch.zeros(x.shape[1], labels, requires_grad=True)
    minimise(lambda: F.cross_entropy(x @ weights, texts.labels) + decay / 2 * weights.square().sum(), [weights], 20)
    with torch.no_grad():
        return [(F.normalize(counts(o)) @ weights).argmax(-1) for o in others]
