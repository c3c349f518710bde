"""Word vectors, and skip-gram's training: with the full softmax, and with negative sampling (Mikolov et al. 2013).

The losses and their gradients stand in :mod:`lmcourse.skipgram` and can be had from here too.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lmcourse import descent, tiles
from lmcourse.data import Vocabulary
from lmcourse.skipgram import (
    expected_negative_sampling_loss,
    keep_probability,
    negative_sampling_gradients,
    negative_sampling_loss,
    negative_sampling_optimum,
    noise_distribution,
    pair_counts,
    skipgram_pairs,
    softmax_gradients,
    softmax_loss,
)

__all__ = [
    "SkipGram",
    "SkipGramConfig",
    "WordVectors",
    "expected_negative_sampling_loss",
    "initial_tables",
    "keep_probability",
    "negative_sampling_gradients",
    "negative_sampling_loss",
    "negative_sampling_optimum",
    "noise_distribution",
    "pair_counts",
    "skipgram_pairs",
    "softmax_gradients",
    "softmax_loss",
    "train_negative_sampling",
    "train_softmax",
]


@dataclass(frozen=True)
class WordVectors:
    """One vector a word: ``wv["bank"]`` is [D]; an unknown word raises ``ValueError``."""

    vocabulary: Vocabulary
    vectors: Tensor  # [V, D]

    def __post_init__(self):
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.vocabulary):
            shape = tuple(self.vectors.shape)
            raise ValueError(f"vectors: got shape {shape}, expected [{len(self.vocabulary)}, D]: one row a word")

    def __getitem__(self, word: str) -> Tensor:
        return self.vectors[self.vocabulary.id(word)]

    def __contains__(self, word: str) -> bool:
        return word in self.vocabulary

    def __len__(self) -> int:
        return len(self.vocabulary)


@dataclass(frozen=True)
class SkipGramConfig:
    width: int = 100  # D
    window: int = 5  # the largest distance; each centre draws its own from 1..window
    negatives: int = 5  # k: what the negatives of one pair weigh together, in pairs
    noise_power: float = 0.75  # noise ∝ count^power: the paper's choice, found by trial
    subsample: float = 1e-3  # the C code's default t; 0 keeps every word (the mixture identity needs that)
    epochs: int = 3
    learning_rate: float = 0.05  # falls linearly to a ten-thousandth; on the course's text 0.1 no longer learns

    def __post_init__(self):
        for name in ("width", "window", "epochs"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: got {value!r}, expected a whole number from 1 on")
        for name in ("negatives", "learning_rate"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name}: got {getattr(self, name)!r}, expected a number above 0")
        for name in ("noise_power", "subsample"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name}: got {getattr(self, name)!r}, expected 0 or more")

    @classmethod
    def softmax(cls, **changes) -> "SkipGramConfig":
        """For :func:`train_softmax`: an epoch is one full-batch step, so it takes many more."""
        return cls(**{"width": 50, "window": 2, "epochs": 200, "learning_rate": 0.1, "subsample": 0.0} | changes)


@dataclass(frozen=True)
class SkipGram:
    """Both tables and the mean loss per pair of each epoch."""

    v: Tensor  # [V, D] centres
    u: Tensor  # [C, D] contexts
    losses: tuple[float, ...]

    def word_vectors(self, vocabulary: Vocabulary) -> WordVectors:
        """The centres' vectors, those that word2vec writes to its file."""
        return WordVectors(vocabulary, self.v)


# -------------------------------------------------------------------------------------- training


def initial_tables(centres: int, contexts: int, width: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(v [centres, width], u [contexts, width]) before training, as in word2vec.c.

    v is uniform in ±0.5/width and u is zero: every score is 0, so every model starts from the same known
    loss, and the rows of v differ, without which two words that see the same contexts would stay equal.
    """
    v = (torch.rand(centres, width, generator=generator) - 0.5) / width
    return v, torch.zeros(contexts, width)


def train_negative_sampling(
    stream: Tensor,
    vocabulary: Vocabulary,
    config: SkipGramConfig,
    generator: torch.Generator,
    centre_stream: Tensor | None = None,
    progress: bool | Callable[[float], None] = False,
) -> SkipGram:
    """Skip-gram with negative sampling, by gradient steps on the loss summed over mini-batches of text.

    ``stream``: [T] int64 ids, ``vocabulary.boundary`` between sentences. Counts, for subsampling and for
    the noise, are the stream's own. Each epoch drops frequent words, draws each centre's window from
    1..window, and draws the negatives, shared by a group of centres: see :mod:`lmcourse.tiles`.

    ``centre_stream``: [T] ids to use on the input side where they differ, such as pseudo-words merged on
    that side only. Where ``stream`` has a boundary it is ignored. v gets max(V, largest id + 1) rows.
    Subsampling goes by the ids of ``stream``.

    The rows of words that fill a step take shorter ones (:class:`lmcourse.descent.Table`). On the CPU the result
    depends on the seed alone; on CUDA sums are taken in a changing order. A loss is NaN where subsampling
    left no pair.
    ``progress``: True draws a line on stderr; a function is called with the share done.
    """
    centre_stream = stream if centre_stream is None else centre_stream
    _check_training(stream, vocabulary, generator, centre_stream)
    device, boundary = stream.device, vocabulary.boundary
    words, centres = stream[stream != boundary], centre_stream[stream != boundary]
    counts = torch.bincount(words, minlength=boundary).cpu()
    keep = keep_probability(counts, config.subsample).to(device)
    noise = noise_distribution(counts, config.noise_power).cumsum(0).to(device)
    kept = [torch.bincount(ids, keep[words], boundary) for ids in (centres, words)]  # expected counts
    values = [t.to(device) for t in initial_tables(len(kept[0]), boundary, config.width, generator)]
    plan = tiles.Plan.for_text(float(kept[1].sum()), config.window, config.negatives)
    expected = descent.expected_pairs(*kept, noise, plan)
    v, u = (descent.Table(t, n, config.learning_rate) for t, n in zip(values, expected))
    blocks = [tiles.Block(v.values, u.values, plan) for _ in range(tiles.WORKERS)]
    text, report, losses = tiles.Text.from_stream(stream, centre_stream, keep), _reporter(progress), []
    for e in range(config.epochs):
        epoch = tiles.draw_epoch(text, noise, plan, generator)
        rate = lambda done, e=e: config.learning_rate * max(1e-4, 1 - (e + done) / config.epochs)  # noqa: E731
        tell = lambda done, e=e: report((e + done) / config.epochs)  # noqa: E731
        losses.append(descent.train_epoch(epoch, blocks, v, u, rate, tell))
    report(1.0)
    _check_finite(v.values, u.values, config)
    return SkipGram(v.values.clone(), u.values.clone(), tuple(losses))  # without the spare rows


def train_softmax(
    stream: Tensor,
    vocabulary: Vocabulary,
    config: SkipGramConfig,
    generator: torch.Generator,
    progress: bool | Callable[[float], None] = False,
) -> SkipGram:
    """Skip-gram with the full softmax, for a small vocabulary: its cost grows with V².

    The sum over pairs is a sum over the matrix of their counts, so an epoch is one step on the exact
    gradient, taken by AdaGrad (Duchi et al. 2011). The window is fixed: every pair within it counts, and
    ``negatives``, ``noise_power`` and ``subsample`` play no part. See :meth:`SkipGramConfig.softmax`.
    """
    _check_training(stream, vocabulary, generator, stream)
    V = len(vocabulary)
    if V > 5000:
        raise ValueError(f"vocabulary: got {V:,} words, at most 5,000 fit here; make it with max_size=2000")
    counts = pair_counts(skipgram_pairs(stream, vocabulary.boundary, config.window), V, V).float()
    tables = tuple(t.to(stream.device) for t in initial_tables(V, V, config.width, generator))
    squares, report, losses = tuple(torch.zeros_like(t) for t in tables), _reporter(progress), []
    for epoch in range(config.epochs):
        loss, *gradients = _softmax_step(*tables, counts)
        losses.append(loss)
        for table, square, gradient in zip(tables, squares, gradients):
            square += gradient**2
            table -= config.learning_rate * gradient / (square.sqrt() + 1e-10)
        report((epoch + 1) / config.epochs)
    _check_finite(*tables, config)
    return SkipGram(*tables, tuple(losses))


def _softmax_step(v: Tensor, u: Tensor, counts: Tensor) -> tuple[float, Tensor, Tensor]:
    """The loss and gradients of :func:`softmax_loss` over all pairs that ``counts`` [V, C] counts."""
    log_p = torch.log_softmax(v @ u.T, dim=1)
    total = counts.sum()
    error = (counts.sum(1, keepdim=True) * log_p.exp() - counts) / total  # expected minus observed
    return float(-(counts * log_p).sum() / total), error @ u, error.T @ v


# -------------------------------------------------------------------------------------- bad input


def _check_training(stream: Tensor, vocabulary: Vocabulary, generator: torch.Generator, centre_stream: Tensor) -> None:
    if not isinstance(generator, torch.Generator) or generator.device.type != "cpu":
        raise TypeError(f"generator: got {generator!r}, expected a CPU torch.Generator; use lmcourse.device.seed(0)")
    for name, ids in (("stream", stream), ("centre_stream", centre_stream)):
        if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.ndim != 1:
            came = f"{ids.dtype} {list(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
            raise TypeError(f"{name}: got {came}, expected a [T] int64 tensor of ids; use vocabulary.stream(sentences)")
    if stream.shape != centre_stream.shape or stream.device != centre_stream.device:
        raise ValueError(
            f"centre_stream: got {len(centre_stream)} ids on {centre_stream.device}, expected one for each of "
            f"stream's {len(stream)} on {stream.device}; start from stream.clone()"
        )
    is_word = stream != vocabulary.boundary
    if not (is_word[1:] & is_word[:-1]).any():
        raise ValueError("stream: no sentence has two known words, so there is no pair to learn from; give more text")
    low, high = int(stream.min()), int(stream.max())
    if low < 0 or high > vocabulary.boundary:
        raise ValueError(
            f"stream: got ids from {low} to {high}, expected 0 to {vocabulary.boundary} (the boundary); "
            "make the stream with the same vocabulary"
        )
    if int(centre_stream[is_word].min()) < 0:
        raise ValueError("centre_stream: got a negative id, expected ids from 0 on")


def _check_finite(v: Tensor, u: Tensor, config: SkipGramConfig) -> None:
    if not (torch.isfinite(v).all() and torch.isfinite(u).all()):
        raise ValueError(f"learning_rate: training diverged at {config.learning_rate}; lower it")


def _reporter(progress: bool | Callable[[float], None]) -> Callable[[float], None]:
    if callable(progress):
        return progress
    return _draw_line if progress else lambda done: None


def _draw_line(done: float) -> None:
    print(f"\rtraining {done:4.0%}", end="\n" if done >= 1 else "", file=sys.stderr, flush=True)
