"""Which pieces WordPiece should have: merge the two neighbours that raise a language model's likelihood most.

The words of a corpus are sequences of pieces, at first single characters. The model is a unigram model of the N
pieces, n_x of them x: its log likelihood is Σ n_x log(n_x / N) = Σ n_x log n_x − N log N. Merging the neighbours a, b
at all the m places where they meet leaves n_a − m, n_b − m and N − m, and m new pieces; so the gain is known exactly
without going through the corpus. With m small beside n_a and n_b it is **m (PMI(a, b) − 1)**, where PMI is
log(m N / (n_a n_b)): m · PMI if the other pieces kept their probabilities, less m because they make room for a new one.

What is known: the WordPieceModel of Schuster & Nakajima 2012 adds the unit that raises the likelihood of the training
data most, until there are enough or the rise is too small. What is not: Google's trainer for BERT was never released.
The often told quotient m / (n_a n_b) is a later guess, and the trainer named WordPiece in the ``tokenizers`` library is
its BPE trainer, which takes the largest m. All three are here by name: "likelihood", "quotient", "count".
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

CONTINUES = "##"  # in front of a piece that does not begin a word
_LEAST = {"likelihood": 1e-6, "count": 0, "quotient": 0}  # a score not above this is none
_TIE = 1e-9  # scores this near, relative to the best, are equal but for rounding


def characters(word: str) -> list[str]:
    return [CONTINUES * (i > 0) + c for i, c in enumerate(word)]


def joined(left: str, right: str) -> str:
    return left + right.removeprefix(CONTINUES)


def neighbours(pieces: list) -> Iterator[tuple]:
    """The pairs next to each other that one merge could join; of a, a, a only the first two."""
    previous = None
    for pair in zip(pieces, pieces[1:], strict=False):
        overlaps = pair[0] == pair[1] and pair == previous
        previous = None if overlaps else pair
        if not overlaps:
            yield pair


def merged(pieces: list, pair: tuple, new) -> list:
    """``pieces`` with ``new`` for each ``pair``, from left to right."""
    out: list = []
    for piece in pieces:
        if out and (out[-1], piece) == pair:
            out[-1] = new
        else:
            out.append(piece)
    return out


# ---------------------------------------------------------------------------------- the plain version


def _xlogx(n: float) -> float:
    return n * math.log(n) if n else 0.0


def likelihood_gain(m: int, left: int, right: int, total: int, same: bool = False) -> float:
    """How much the log likelihood rises, in nats, when ``m`` pairs are merged.

    ``left``, ``right``: counts of the two pieces, ``total`` of all; ``same``: the two are one piece, of which a merge
    uses up two. The merged piece is a new one: equal strings grow in equal steps, as no merge has crossed their ends.
    """
    gain = _xlogx(m) + _xlogx(total) - _xlogx(total - m)
    if same:
        return gain + _xlogx(left - 2 * m) - _xlogx(left)
    return gain + _xlogx(left - m) - _xlogx(left) + _xlogx(right - m) - _xlogx(right)


def plain_merges(words: Mapping[str, int], criterion: str = "likelihood") -> Iterator[tuple[str, str]]:
    """The merges one after the other, everything counted afresh for each: the algorithm as it is described.

    ``words``: how often each word occurs. Scores that differ by less than rounding tie; of these the pair that comes
    first in alphabetical order wins. It ends where no merge scores above 0. Raises ``ValueError`` for an unknown
    ``criterion`` or no words. Source: Schuster & Nakajima 2012, the model by counts of single pieces.
    """
    _check(words, criterion)
    cut = {word: characters(word) for word in words}
    while True:
        counts, pairs = _counted(cut, words)
        scores = {pair: _score(criterion, pair, m, counts) for pair, m in pairs.items()}
        best = max(scores.values(), default=0)
        if best <= _LEAST[criterion]:
            return
        pair = min(pair for pair, score in scores.items() if score >= best * (1 - _TIE))
        yield pair
        cut = {word: merged(pieces, pair, joined(*pair)) for word, pieces in cut.items()}


def _counted(cut: Mapping[str, list[str]], words: Mapping[str, int]) -> tuple[Counter, Counter]:
    """How often each piece occurs, and each pair of neighbours, in words that are cut so and occur so often."""
    counts, pairs = Counter(), Counter()
    for word, pieces in cut.items():
        for piece in pieces:
            counts[piece] += words[word]
        for pair in neighbours(pieces):
            pairs[pair] += words[word]
    return counts, pairs


def _score(criterion: str, pair: tuple[str, str], m: int, counts: Counter) -> float:
    left, right, total = counts[pair[0]], counts[pair[1]], counts.total()
    if criterion == "likelihood":
        return likelihood_gain(m, left, right, total, pair[0] == pair[1])
    return m if criterion == "count" else m * total / (left * right)


# ----------------------------------------------------------------------------------- the fast version


def merges(words: Mapping[str, int], criterion: str = "likelihood") -> Iterator[tuple[str, str]]:
    """The same merges as :func:`plain_merges`: only the words that hold the pair are cut again, and the scores of all
    pairs, which every merge changes through N, come from a few tensor operations.
    """
    _check(words, criterion)
    corpus = _Corpus(words)
    while (pair := corpus.best(criterion)) is not None:
        yield corpus.names[pair[0]], corpus.names[pair[1]]
        corpus.merge(pair)


class _Corpus:
    """The words as lists of piece numbers; counts of P pieces and S pairs in tensors, kept up to date."""

    def __init__(self, words: Mapping[str, int]):
        self.names: list[str] = []  # of the pieces
        self.number: dict[str, int] = {}
        self.pairs: list[tuple[int, int]] = []
        self.slot: dict[tuple[int, int], int] = {}
        self.where: defaultdict[tuple[int, int], set[int]] = defaultdict(set)  # words that hold, or once held, a pair
        self.count = torch.zeros(0, dtype=torch.float64)  # [P]
        self.m = torch.zeros(0, dtype=torch.float64)  # [S]
        self.left = self.right = torch.zeros(0, dtype=torch.int64)  # [S] piece numbers
        self.words = [[self._piece(c) for c in characters(word)] for word in words]
        self.times = list(words.values())
        self._first_count()

    def _first_count(self) -> None:
        pieces, pairs = Counter(), Counter()
        for w, word in enumerate(self.words):
            for piece in word:
                pieces[piece] += self.times[w]
            self._add(pairs, word, w)
        self._apply(pieces, pairs)

    def _piece(self, name: str) -> int:
        if name not in self.number:
            self.number[name] = len(self.names)
            self.names.append(name)
        return self.number[name]

    def _add(self, pairs: Counter, word: list[int], w: int) -> None:
        for pair in neighbours(word):
            pairs[pair] += self.times[w]
            self.where[pair].add(w)

    def merge(self, pair: tuple[int, int]) -> None:
        pieces, pairs = Counter(), Counter()  # changes of the counts
        new = self._piece(joined(self.names[pair[0]], self.names[pair[1]]))
        for w in self.where.pop(pair):
            old, times = self.words[w], self.times[w]
            self.words[w] = merged(old, pair, new)
            for piece, change in ((pair[0], -times), (pair[1], -times), (new, times)):
                pieces[piece] += change * (len(old) - len(self.words[w]))
            for gone in neighbours(old):
                pairs[gone] -= times
            self._add(pairs, self.words[w], w)
        self._apply(pieces, pairs)

    def _apply(self, pieces: Counter, pairs: Counter) -> None:
        fresh = [pair for pair in pairs if pair not in self.slot]
        self.slot.update((pair, len(self.pairs) + i) for i, pair in enumerate(fresh))
        self.pairs += fresh
        self.left = torch.cat([self.left, self.left.new_tensor([a for a, _ in fresh])])
        self.right = torch.cat([self.right, self.right.new_tensor([b for _, b in fresh])])
        self.m = _changed(self.m, {self.slot[pair]: n for pair, n in pairs.items()}, len(self.pairs))
        self.count = _changed(self.count, pieces, len(self.names))

    def best(self, criterion: str) -> tuple[int, int] | None:
        scores = self._scores(criterion)
        best = scores.max().item() if len(scores) else 0
        if best <= _LEAST[criterion]:
            return None
        tied = (scores >= best * (1 - _TIE)).nonzero().flatten().tolist()
        return min((self.pairs[slot] for slot in tied), key=lambda pair: (self.names[pair[0]], self.names[pair[1]]))

    def _scores(self, criterion: str) -> Tensor:
        """[S]; pairs that are gone score 0."""
        m, left, right, total = self.m, self.count[self.left], self.count[self.right], self.count.sum()
        if criterion == "count":
            return m
        if criterion == "quotient":
            return m * total / (left * right).clamp(min=1)
        same = self.left == self.right  # then the left one gives 2m and the right one nothing
        taken = _released(left, m * (1 + same.double())) + _released(right, m * ~same)
        return torch.special.xlogy(m, m) + _released(total, m) - taken


def _changed(counts: Tensor, changes: Mapping[int, int], length: int) -> Tensor:
    counts = torch.cat([counts, counts.new_zeros(length - len(counts))])
    places, values = list(changes), list(changes.values())
    return counts.index_add_(0, torch.tensor(places, dtype=torch.int64), counts.new_tensor(values))


def _released(n: Tensor, m: Tensor) -> Tensor:
    """n log n − (n − m) log(n − m), with 0 log 0 = 0 and without subtracting two large numbers."""
    return torch.special.xlogy(m, n) - torch.special.xlog1py(n - m, -m / n.clamp(min=1))


def _check(words: Mapping[str, int], criterion: str) -> None:
    if not isinstance(criterion, str) or criterion not in _LEAST:
        raise ValueError(f"criterion: got {criterion!r}, expected one of {', '.join(_LEAST)}")
    if not words:
        raise ValueError("words: got none, expected one or more; give text that holds a letter")
    if "" in words:
        raise ValueError("words: got an empty word, expected one character or more")
