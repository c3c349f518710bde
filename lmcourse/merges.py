"""Byte-pair encoding's two loops, learning merges and applying them: each first as the algorithm says, then fast.

Gage (1994), "A new algorithm for data compression"; Sennrich et al. (2016), "Neural machine translation of rare
words with subword units", algorithm 1. A *word* is a tuple of symbols, the strings that it starts out from, or a str
whose characters are the symbols.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from operator import add

__all__ = ["Merge", "apply_merges", "apply_merges_plainly", "learn_merges", "learn_merges_plainly", "merge_words",
           "pair_counts", "sorted_symbols"]  # fmt: skip

Pair = tuple[str, str]
Words = Mapping[str | tuple[str, ...], int]
_LAST = 0x10FFFF  # the last code point there is


@dataclass(frozen=True)
class Merge:
    """``left`` and ``right`` became one piece; side by side they stood ``count`` times at that moment."""

    left: str
    right: str
    count: int


def sorted_symbols(words: Iterable[Sequence[str]]) -> list[str]:
    """The different symbols of the words: characters in the order of their code points, then longer symbols."""
    return _sorted(set().union(*words))


def _sorted(symbols: Iterable[str]) -> list[str]:
    return sorted(symbols, key=lambda symbol: (len(symbol), symbol))


# -------------------------------------------------------------------------------------- learning


def learn_merges_plainly(words: Words, pieces: int, forbidden: Collection[str] = ()) -> list[Merge]:
    """Counts all pairs, merges the most frequent one in all words, and repeats until ``pieces`` pieces are new.

    ``words``: how often each word occurs, ``{("l", "o", "w", "</w>"): 5}``. A tie goes to the pair whose left
    piece is older, then to the one whose right piece is; the symbols are the oldest, in the order of
    :func:`sorted_symbols`. So neither the order of the words nor that of a dictionary matters, and the merges are
    those of the ``tokenizers`` library, which compares ids. No piece of ``forbidden`` is made. It ends early when no
    pair is left. Raises ``ValueError`` or ``TypeError`` for words that are not sequences of symbols with a count.
    """
    age = {symbol: i for i, symbol in enumerate(_symbols(words, pieces))}
    merges = []
    while len(merges) < pieces:
        counts = pair_counts(words)
        allowed = [pair for pair in counts if "".join(pair) not in forbidden]
        if not allowed:
            break
        best = min(allowed, key=lambda pair: (-counts[pair], age[pair[0]], age[pair[1]]))
        words = merge_words(words, best)
        age[_new("".join(best), age)] = len(age)
        merges.append(Merge(*best, counts[best]))
    return merges


def pair_counts(words: Words) -> Counter[Pair]:
    """How often each pair of neighbours stands in the words; in "aaa" it stands twice."""
    counts = Counter()
    for word, n in words.items():
        for pair in pairwise(word):
            counts[pair] += n
    return counts


def merge_words(words: Words, pair: Pair) -> Words:
    """The words with ``pair`` merged wherever it stands, from left to right: in "aaa" once."""
    merged = Counter()
    for word, n in words.items():
        merged[tuple(_merge_in_word(word, pair))] += n
    return merged


def _new(piece: str, known: Collection[str]) -> str:
    """No piece is made in two ways, since merges within a piece come in one order, unless a symbol looks like it."""
    if piece in known:
        raise ValueError(f"words: the symbol {piece!r} reads like other symbols together; use a different one")
    return piece


def _merge_in_word(word: Sequence[str], pair: Pair) -> Iterable[str]:
    """From left to right, so that "aaa" becomes "aa a"."""
    i = 0
    while i < len(word):
        found = tuple(word[i : i + 2]) == pair
        yield "".join(pair) if found else word[i]
        i += 1 + found


def learn_merges(words: Words, pieces: int, forbidden: Collection[str] = ()) -> list[Merge]:
    """The merges of :func:`learn_merges_plainly`, in time that grows with what changes and not with the text.

    A piece is one character inside, the one whose code point is the piece's age plus 1: a word is a string, a pair
    is two characters, and to merge is to split and join. Counts are kept up to date; ``where`` says in which words a
    pair stands or stood. The heap holds every pair at its count or more; a pair taken at an old count goes back.
    """
    learner = _Learner(words, _symbols(words, pieces))
    merges = []
    if len(learner.pieces) + pieces >= _LAST:
        raise ValueError(f"pieces: got {pieces:,}, expected fewer, so that there are at most {_LAST:,} in all")
    while len(merges) < pieces and (pair := learner.best()):
        left, right = (learner.pieces[ord(c)] for c in pair)
        if left + right not in forbidden:
            merges.append(Merge(left, right, learner.counts[pair]))
            learner.merge(pair, left + right)
    return merges


class _Learner:
    """The words under way, how often each pair stands in them, where, and a heap of the pairs."""

    def __init__(self, words: Words, symbols: list[str]):
        self.pieces = ["", *symbols]  # by code point; "\0" stands at both ends of a word
        self.code = {piece: chr(i) for i, piece in enumerate(self.pieces)}
        code = self.code.__getitem__
        self.words = ["\0" + "".join(map(code, word)) + "\0" for word in words]
        self.times = list(words.values()).__getitem__
        self.where = where = defaultdict(list)
        for i, word in enumerate(self.words):
            for pair in map(add, word[1:-1], word[2:-1]):
                where[pair].append(i)
        self.counts = defaultdict(int, {pair: sum(map(self.times, at)) for pair, at in self.where.items()})
        self.heap = [(-n, pair) for pair, n in self.counts.items()]
        heapify(self.heap)

    def best(self) -> str | None:
        """The pair with the highest count, the oldest of several; None where no pair is left."""
        while self.heap:
            n, pair = heappop(self.heap)
            if self.counts[pair] == -n:
                return pair
            if 0 < self.counts[pair] < -n:
                heappush(self.heap, (-self.counts[pair], pair))
        return None

    def merge(self, pair: str, piece: str) -> None:
        new = self.code[_new(piece, self.code)] = chr(len(self.pieces))
        self.pieces.append(piece)
        (first, second), words = pair, self.words
        before, after, twice = defaultdict(list), defaultdict(list), []  # words, by the pair's neighbour there
        for i in dict.fromkeys(self.where.pop(pair)):  # once each, even if the pair stands in it a million times
            parts = words[i].split(pair)
            for left, right in pairwise(parts):
                (before[left[-1]] if left else twice).append(i)  # nothing between two: "abab"
                if right:
                    after[right[0]].append(i)
            words[i] = new.join(parts)
        for c, at in before.items():
            self._replace(c + first, c + new, at)
        for c, at in after.items():
            self._replace(second + c, new + c, at)
        self._replace(second + first, new + new, twice)

    def _replace(self, old: str, new: str, at: list[int]) -> None:
        """In the words ``at``, a pair has become another."""
        if at and "\0" not in old:
            n = sum(map(self.times, at))
            self.counts[old] -= n
            self.counts[new] += n
            self.where[new] += at
            heappush(self.heap, (-self.counts[new], new))


def _symbols(words: Words, pieces: int) -> list[str]:
    """The sorted symbols of words that can be learned from."""
    expected = 'a mapping from sequences of symbols to counts; use {("l", "o", "w", "</w>"): 5}'
    if not isinstance(words, Mapping):
        raise TypeError(f"words: got {type(words).__name__}, expected {expected}")
    if not isinstance(pieces, int) or isinstance(pieces, bool) or pieces < 0:
        raise ValueError(f"pieces: got {pieces!r}, expected a whole number from 0 on")
    if wrong := [kind.__name__ for kind in set(map(type, words)) if not issubclass(kind, (str, tuple))]:
        raise TypeError(f"words: got a word of type {wrong[0]}, expected {expected}")
    symbols = set().union(*words)
    if wrong := [symbol for symbol in symbols if not isinstance(symbol, str) or not symbol]:
        raise TypeError(f"words: got the symbol {wrong[0]!r}, expected {expected}")
    if not set(map(type, words.values())) <= {int} or min(words.values(), default=1) < 1:
        word, n = next((word, n) for word, n in words.items() if type(n) is not int or n < 1)
        raise ValueError(f"words[{word!r}]: got {n!r}, expected how often it occurs, a whole number from 1 on")
    return _sorted(symbols)


# -------------------------------------------------------------------------------------- applying


def apply_merges_plainly(word: Sequence[str], ranks: Mapping[Pair, int]) -> list[str]:
    """The pieces of a word: of the pairs that can be merged, the one learned first, the leftmost of several; repeat.

    ``ranks``: the place of each pair in the list of merges. Time grows with the square of the word's length.
    """
    pieces = list(word)
    while len(pieces) > 1:
        found = [ranks.get(pair, math.inf) for pair in pairwise(pieces)]
        first = min(found)
        if first == math.inf:
            break
        i = found.index(first)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
    return pieces


def apply_merges(word: Sequence[str], ranks: Mapping[Pair, int]) -> list[str]:
    """The pieces of :func:`apply_merges_plainly`, in time n log n: a heap of the pairs, and links to neighbours."""
    pieces, n = list(word), len(word)
    following, preceding = list(range(1, n + 1)), list(range(-1, n))
    heap = [(rank, i) for i, pair in enumerate(pairwise(pieces)) if (rank := ranks.get(pair)) is not None]
    heapify(heap)
    while heap:
        rank, i = heappop(heap)
        j = following[i]
        if j == n or ranks.get((pieces[i], pieces[j])) != rank:
            continue  # one of the two has been merged in the meantime: it is longer, or empty
        pieces[i], pieces[j] = pieces[i] + pieces[j], ""
        following[i] = following[j]
        preceding[following[j]] = i
        for a in (preceding[i], i):
            b = following[a]
            if a >= 0 and b < n and (rank := ranks.get((pieces[a], pieces[b]))) is not None:
                heappush(heap, (rank, a))
    return [piece for piece in pieces if piece]
