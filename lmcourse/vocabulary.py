"""The vocabulary: a fixed list of words, and text turned into their ids.

It can be had from :mod:`lmcourse.data` too.
"""

import difflib
import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from lmcourse import arguments


@dataclass(frozen=True, eq=False)  # its own __eq__, since a comparison of tensors is a tensor
class Vocabulary:
    """A fixed list of words; a word's id is its place in the list.

    Made from text it is sorted by falling count, ties in alphabetical order, so the same text always
    gives the same ids.
    """

    words: tuple[str, ...]
    counts: torch.Tensor | None = None  # [V] int64, occurrences in the text; None where it is not known

    def __post_init__(self):
        self._check_types()
        if self.counts is not None and len(self.words) != len(self.counts):
            raise ValueError(f"counts: got {len(self.counts)} for {len(self.words)} words, expected one a word")
        if len(set(self.words)) != len(self.words):
            raise ValueError("words: a word stands twice")

    def _check_types(self) -> None:
        if not isinstance(self.words, tuple):
            came = type(self.words).__name__
            raise TypeError(f"words: got {came}, expected a tuple of words; use tuple(words) of a list of words")
        for i, word in enumerate(self.words):
            if not isinstance(word, str):
                raise TypeError(f"words[{i}]: got {type(word).__name__}, expected str")
        if self.counts is not None and (not isinstance(self.counts, torch.Tensor) or self.counts.ndim != 1):
            came = list(getattr(self.counts, "shape", ())) or type(self.counts).__name__
            expected = f"a tensor [{len(self.words)}] or None; use torch.tensor(counts)"
            raise TypeError(f"counts: got {came}, expected {expected}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        ours, theirs = (None if v.counts is None else v.counts.tolist() for v in (self, other))
        return self.words == other.words and ours == theirs

    def __hash__(self) -> int:
        return hash(self.words)

    @classmethod
    def from_sentences(
        cls, sentences: Iterable[Sequence[str]], min_count: int = 5, max_size: int | None = None
    ) -> "Vocabulary":
        """Every word seen at least ``min_count`` times; at most ``max_size`` of the most frequent."""
        arguments.whole("min_count", min_count)
        if max_size is not None:
            arguments.whole("max_size", max_size)
        tally = Counter(w for s in arguments.lists_of_words("sentences", sentences) for w in s)
        kept = sorted((w for w, n in tally.items() if n >= min_count), key=lambda w: (-tally[w], w))[:max_size]
        if not kept:
            raise ValueError(f"sentences: no word occurs {min_count} times or more; give more text or lower min_count")
        return cls(tuple(kept), torch.tensor([tally[w] for w in kept]))

    @functools.cached_property
    def index(self) -> dict[str, int]:
        return {w: i for i, w in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        arguments.text("word", word)
        return word in self.index

    def id(self, word: str) -> int:
        """The id of a known word; an unknown one raises ``ValueError`` with the nearest spellings."""
        if word not in self:
            near = difflib.get_close_matches(word, self.words, n=3)
            hint = f"; close: {', '.join(near)}" if near else ""
            raise ValueError(f"word: {word!r} is not among the {len(self):,} words of the vocabulary{hint}")
        return self.index[word]

    def ids(self, words: Iterable[str]) -> torch.Tensor:
        """[N] ids of N known words."""
        arguments.listed("words", words, "a list of words; use data.words(text), or id(word) for one")
        return torch.tensor([self.id(w) for w in words], dtype=torch.int64)

    @property
    def boundary(self) -> int:
        """The id that :meth:`stream` puts between sentences: one past the last word's."""
        return len(self)

    def stream(self, sentences: Iterable[Sequence[str]]) -> torch.Tensor:
        """[T] ids of running text: unknown words left out, :attr:`boundary` after each sentence."""
        ids: list[int] = []
        for s in arguments.lists_of_words("sentences", sentences):
            ids.extend(i for w in s if (i := self.index.get(w)) is not None)
            ids.append(self.boundary)
        return torch.tensor(ids, dtype=torch.int64)
