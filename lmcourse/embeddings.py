"""Word vectors, and skip-gram's training: with the full softmax, and with negative sampling (Mikolov et al. 2013).

The losses and their gradients stand in :mod:`lmcourse.skipgram` and can be had from here too.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lmcourse import _inputs, arguments, descent, tiles
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
    window_counts,
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
    "window_counts",
]

_MOST_ROWS = 10_000_000


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
    # In a text so small that every row is shortened (descent.Table), the learning rate has no effect.
    learning_rate: float = 0.05  # falls linearly to a ten-thousandth; on the course's text 0.1 no longer learns

    def __post_init__(self):
        _inputs.whole("width", self.width, most=100_000)
        _inputs.whole("window", self.window, most=40, cure="; the masks of a larger one would take gigabytes")
        _inputs.whole("epochs", self.epochs, most=1_000_000)
        _inputs.number("negatives", self.negatives, most=10_000)
        _inputs.rate(self.learning_rate)
        for name in ("noise_power", "subsample"):
            _inputs.number(name, getattr(self, name), 0)

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
    arguments.cpu_generator(generator)
    for name, value in (("centres", centres), ("contexts", contexts), ("width", width)):
        _inputs.whole(name, value)
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
    depends on the seed alone; on CUDA sums are taken in a changing order. ``ValueError`` where subsampling
    leaves an epoch without a pair, as it does in short text.
    ``progress``: True draws a line on stderr; a function is called with the share done.
    """
    centre_stream = stream if centre_stream is None else centre_stream
    _check_training(stream, vocabulary, config, generator, centre_stream)
    report = _inputs.reporter(progress)
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
    blocks = [tiles.BlockGradient(v.values, u.values, plan) for _ in range(tiles.WORKERS)]
    text, losses = tiles.Text.from_stream(stream, centre_stream, keep), []
    for e in range(config.epochs):
        epoch = tiles.draw_epoch(text, noise, plan, generator)
        if not epoch.pairs.any():
            left = f"{config.subsample} left no pair of {len(words)} words in epoch {e + 1}"
            raise ValueError(f"subsample: {left}, expected some in every epoch; use subsample=0 for short text")
        rate = lambda done, e=e: config.learning_rate * max(1e-4, 1 - (e + done) / config.epochs)  # noqa: E731
        tell = lambda done, e=e: report((e + done) / config.epochs)  # noqa: E731
        losses.append(descent.train_epoch(epoch, blocks, v, u, rate, tell))
    report(1.0)
    # No bound on the loss: rows are shortened, so that a learning rate that is too large ends in poor tables at worst.
    _inputs.learned((v.values, u.values), config.learning_rate, losses[-1], float("inf"))
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
    _check_training(stream, vocabulary, config, generator, stream)
    V = len(vocabulary)
    if V > 5000:
        raise ValueError(f"vocabulary: got {V:,} words, at most 5,000 fit here; make it with max_size=2000")
    counts = pair_counts(skipgram_pairs(stream, vocabulary.boundary, config.window), V, V).float()
    tables = tuple(t.to(stream.device) for t in initial_tables(V, V, config.width, generator))
    squares, report, losses = tuple(torch.zeros_like(t) for t in tables), _inputs.reporter(progress), []
    for epoch in range(config.epochs):
        loss, *gradients = _softmax_step(*tables, counts)
        losses.append(loss)
        for table, square, gradient in zip(tables, squares, gradients):
            square += gradient**2
            table -= config.learning_rate * gradient / (square.sqrt() + 1e-10)
        report((epoch + 1) / config.epochs)
    last, *_ = _softmax_step(*tables, counts)  # the last step's outcome, which no later epoch has seen
    _inputs.learned(tables, config.learning_rate, last, losses[0])
    return SkipGram(*tables, tuple(losses))


def _softmax_step(v: Tensor, u: Tensor, counts: Tensor) -> tuple[float, Tensor, Tensor]:
    """The loss and gradients of :func:`softmax_loss` over all pairs that ``counts`` [V, C] counts."""
    log_p = torch.log_softmax(v @ u.T, dim=1)
    total = counts.sum()
    error = (counts.sum(1, keepdim=True) * log_p.exp() - counts) / total  # expected minus observed
    return float(-(counts * log_p).sum() / total), error @ u, error.T @ v


# -------------------------------------------------------------------------------------- bad input


def _check_training(stream, vocabulary, config, generator, centre_stream) -> None:
    arguments.cpu_generator(generator)
    _inputs.vocabulary(vocabulary)
    arguments.kind("config", config, SkipGramConfig, "use SkipGramConfig()")
    for name, ids in (("stream", stream), ("centre_stream", centre_stream)):
        _inputs.stream(name, ids)
    _inputs.same_length(stream, centre_stream)
    is_word = stream != vocabulary.boundary
    if not (is_word[1:] & is_word[:-1]).any():
        raise ValueError("stream: no sentence has two known words, so there is no pair to learn from; give more text")
    _inputs.in_vocabulary(stream, vocabulary.boundary)
    low, high = int(centre_stream[is_word].min()), int(centre_stream[is_word].max())
    if low < 0:
        raise ValueError("centre_stream: got a negative id, expected ids from 0 on")
    if high >= _MOST_ROWS:
        raise ValueError(f"centre_stream: got id {high}, expected ids below {_MOST_ROWS:,}: v has a row for each")
