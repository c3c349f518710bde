"""The unigram model of pieces: a word's best cut is the one whose pieces are most probable together.

Kudo (2018), "Subword regularization: improving neural network translation models with multiple subword candidates",
section 3.2: a cut of a word into pieces x_1, …, x_k has the probability p(x_1) ⋯ p(x_k). A word of n characters has
2^(n - 1) cuts; Viterbi (1967) finds the best one without going through them.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from lmcourse import arguments

__all__ = ["Unigram", "cuts"]


def cuts(word: str) -> Iterator[list[str]]:
    """All 2^(n - 1) ways to cut a word of n characters into pieces, the whole word first."""
    arguments.text("word", word)
    if not word:
        yield []
    for end in range(len(word), 0, -1):
        for rest in cuts(word[end:]):
            yield [word[:end], *rest]


@dataclass(frozen=True)
class Unigram:
    """Pieces with the logarithm of their probabilities, in nats; nothing checks that these sum to 1.

    ``continues``: what a piece is written with that does not begin a word; BERT's vocabulary has "##". With the same
    score for all pieces, such as -1, the best cut is one with the fewest pieces.
    """

    scores: Mapping[str, float]
    continues: str = ""

    def __post_init__(self):
        arguments.kind("scores", self.scores, Mapping, 'use {"low": -1.0, "er": -2.0}')
        arguments.text("continues", self.continues)
        if not self.scores:
            raise ValueError("scores: got no piece, expected one or more")
        for piece, score in self.scores.items():
            if not isinstance(piece, str) or not piece:
                raise ValueError(f"scores: got the piece {piece!r}, expected a str of one character or more")
            if not arguments.is_number(score) or not score <= 0:
                raise ValueError(f"scores[{piece!r}]: got {score!r}, expected log p, at most 0; use math.log")

    @cached_property
    def longest(self) -> int:
        """Characters in the longest piece, its mark included."""
        return max(map(len, self.scores))

    def score(self, pieces: list[str]) -> float:
        """log p of one cut: the sum of its pieces' scores, -inf if one is not known."""
        return sum(self.scores.get(self.continues * (i > 0) + piece, -math.inf) for i, piece in enumerate(pieces))

    def best_plainly(self, word: str) -> tuple[list[str], float]:
        """The best cut and its log p, from all cuts; of equals the first in the order of :func:`cuts`."""
        best = max(cuts(word), key=self.score)
        score = self.score(best)
        return (self._marked(best), score) if score > -math.inf else ([], score)

    def best(self, word: str) -> tuple[list[str], float]:
        """The best cut and its log p, by Viterbi's recursion: n · longest steps. No piece and -inf if there is none.

        best(j) = max over i < j of best(i) + log p(word[i:j]), and best(0) = 0. Of equals the one whose last piece is
        longest. Kudo 2018, section 3.2.
        """
        arguments.text("word", word)
        best, start = [0.0], [0]
        for j in range(1, len(word) + 1):
            found = [(best[i] + self._of(word, i, j), -i) for i in range(max(0, j - self.longest), j)]
            score, i = max(found)
            best.append(score)
            start.append(-i)
        if best[-1] == -math.inf:
            return [], best[-1]
        pieces, j = [], len(word)
        while j:
            pieces.append(word[start[j] : j])
            j = start[j]
        return self._marked(pieces[::-1]), best[-1]

    def _of(self, word: str, i: int, j: int) -> float:
        return self.scores.get((self.continues if i else "") + word[i:j], -math.inf)

    def _marked(self, pieces: list[str]) -> list[str]:
        return [self.continues * (i > 0) + piece for i, piece in enumerate(pieces)]
