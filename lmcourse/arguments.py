"""Checks of what callers pass: each message names the argument, what came, what was expected and the cure."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from numbers import Integral, Real

import torch
from torch import Tensor

_LETTERS = (str, bytes)  # iterable too, but letter by letter


def text(name: str, value) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name}: got {type(value).__name__}, expected str")


def whole(name: str, value) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}: got {value!r}, expected a whole number from 1 on")


def is_number(value) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def positive(name: str, value) -> None:
    if not is_number(value) or not 0 < value < math.inf:
        raise ValueError(f"{name}: got {value!r}, expected a number above 0")


def listed(name: str, value, expected: str) -> None:
    """``value`` can be gone through, and not letter by letter."""
    if isinstance(value, _LETTERS) or not isinstance(value, Iterable):
        raise TypeError(f"{name}: got {type(value).__name__}, expected {expected}")


def can_look(value: Tensor) -> bool:
    """Whether values can be checked, or rows chosen by their values.

    XLA would run all that is waiting and compile anew what follows, and a "meta" tensor has no values.
    """
    return value.device.type not in ("xla", "meta")


def came(value) -> str:
    """A tensor by its type and shape, a class by its name, anything else by its type."""
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else _type(value)


def _type(value) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def kind(name: str, value, expected: type, cure: str) -> None:
    if not isinstance(value, expected):
        raise TypeError(f"{name}: got {_type(value)}, expected a {expected.__name__}; {cure}")


def cpu_generator(value) -> None:
    if not isinstance(value, torch.Generator) or value.device.type != "cpu":
        raise TypeError(f"generator: got {value!r}, expected a CPU torch.Generator; use lmcourse.device.seed(0)")


def lists_of_words(name: str, given) -> Iterator[Sequence[str]]:
    """The sentences one after the other, each checked to be a list of words."""
    expected = "lists of words; use data.sentences(documents) or [data.words(text)]"
    listed(name, given, expected)
    for i, sentence in enumerate(given):
        if isinstance(sentence, (*_LETTERS, Set, Mapping)) or not isinstance(sentence, Iterable):
            raise TypeError(f"{name}[{i}]: got {type(sentence).__name__}, expected {expected}")
        sentence = sentence if isinstance(sentence, Sequence) else list(sentence)
        for word in sentence:
            if not isinstance(word, str):
                raise TypeError(f"{name}[{i}]: got a {type(word).__name__} for a word, expected {expected}")
        yield sentence


def table(wv, expected: type, k: int | None = None) -> None:
    """``wv`` is a finite table of vectors of the type ``expected``, in which a word has ``k`` others."""
    kind("wv", wv, expected, "use WordVectors(vocabulary, vectors)")
    if not wv.vectors.is_floating_point():
        raise TypeError(f"wv: got {wv.vectors.dtype} vectors, expected floating point; use vectors.float()")
    if not torch.isfinite(wv.vectors).all():
        raise ValueError("wv: some entries are NaN or infinite; train again, with a smaller learning rate")
    if k is None:
        return
    if len(wv) < 2:
        raise ValueError(f"wv: got {len(wv)} words, expected two or more, so that one can be near another")
    if not isinstance(k, int) or not 1 <= k < len(wv):
        raise ValueError(f"k: got {k!r}, expected 1 to {len(wv) - 1}, one less than the words that there are")


def rated_pairs(pairs) -> list[tuple[str, str, float]]:
    listed("pairs", pairs, "a list of (word, word, rating); use data.word_similarities()")
    pairs = list(pairs)
    for i, row in enumerate(pairs):
        words = _words_of(row, 3, 2)
        if not (words and isinstance(row[2], (Real, Tensor)) and math.isfinite(row[2])):
            raise ValueError(f"pairs[{i}]: got {row!r}, expected (word, word, rating) with a finite number as rating")
    return pairs


def questions(sections) -> None:
    if not isinstance(sections, Mapping):
        came = type(sections).__name__
        raise TypeError(f"questions: got {came}, expected a mapping from section to questions; use {{'name': […]}}")
    for name, rows in sections.items():
        if isinstance(rows, _LETTERS) or not isinstance(rows, Sequence):
            raise TypeError(f"questions[{name!r}]: got {type(rows).__name__}, expected a list of (a, b, c, d)")
        for i, row in enumerate(rows):
            if not _words_of(row, 4, 4):
                raise ValueError(f"questions[{name!r}][{i}]: got {row!r}, expected four words (a, b, c, d)")


def _words_of(row, length: int, words: int) -> bool:
    """Whether ``row`` has ``length`` parts, of which the first ``words`` are words."""
    right = isinstance(row, Sequence) and not isinstance(row, _LETTERS) and len(row) == length
    return right and all(isinstance(word, str) for word in row[:words])


def sentence_vectors(vectors: Tensor, items: Sequence, expected: type) -> None:
    """One finite row of ``vectors`` for each of ``items``, which are all of the type ``expected``."""
    cure = "use probes.probe_sentences()"
    if isinstance(items, _LETTERS) or not isinstance(items, Sequence):
        raise TypeError(f"items: got {type(items).__name__}, expected a list of {expected.__name__}; {cure}")
    for i, item in enumerate(items):
        kind(f"items[{i}]", item, expected, cure)
    if not isinstance(vectors, Tensor) or vectors.ndim != 2 or len(vectors) != len(items) or not len(items):
        got = tuple(getattr(vectors, "shape", ()))
        raise ValueError(f"vectors: got shape {got}, expected a tensor [{len(items)}, D]: one row a sentence")
    if vectors.is_complex():
        raise TypeError(f"vectors: got {vectors.dtype}, expected real numbers; use vectors.real")
    if not torch.isfinite(vectors).all():
        raise ValueError("vectors: some entries are NaN or infinite")


# --------------------------------------------------------------------------------- what Transformers are given


def token_ids(name: str, value, vocabulary: int, longest: int | None = None, past: int = 0) -> None:
    """int64 ids (B, T) below ``vocabulary``; with ``past`` tokens read before, at most ``longest`` in a row."""
    if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.ndim != 2 or not value.numel():
        raise ValueError(f"{name}: got {came(value)}, expected int64 ids (B, T), not empty; use torch.tensor([ids])")
    if longest is not None and past + value.shape[1] > longest:
        raise ValueError(f"{name}: got {past + value.shape[1]} in a row, expected at most {longest}; cut the text")
    if not can_look(value):
        return
    low, high = (int(x) for x in torch.aminmax(value))
    if low < 0 or high >= vocabulary:
        raise ValueError(f"{name}: got ids from {low} to {high}, expected 0 to {vocabulary - 1}; use its own tokenizer")


def real_tokens(name: str, value, shape: tuple[int, int]) -> None:
    """Booleans (B, S), True at real tokens, False at padding."""
    if not isinstance(value, Tensor) or value.dtype != torch.bool:
        raise TypeError(f"{name}: got {came(value)}, expected booleans, True at real tokens; use .bool()")
    if value.shape != shape:
        raise ValueError(f"{name}: got shape {list(value.shape)}, expected {list(shape)}: one for each token so far")


def no_padding_last(value: Tensor | None) -> None:
    """The mask of a batch whose last token is to be followed; anything but a mask (B, S) is for ``real_tokens``."""
    if isinstance(value, Tensor) and value.ndim == 2 and can_look(value) and not bool(value[:, -1:].all()):
        raise ValueError("attention_mask: got padding on the right, expected it on the left; use generation.pad_left")


def states(name: str, value, B: int, D: int) -> None:
    if not isinstance(value, Tensor) or value.ndim != 3 or value.shape[0] != B or value.shape[2] != D:
        raise ValueError(f"{name}: got {came(value)}, expected states ({B}, length, {D}) of the encoder; use encode(…)")
