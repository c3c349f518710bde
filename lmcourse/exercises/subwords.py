"""Checks of the assignment problems of *From UNK to pieces*: the best merges, and what a piece is worth."""

import math
from collections.abc import Callable, Iterator

import torch

from lmcourse.checks import close, raises


def check_fewest_after(answer: Callable) -> Iterator[tuple[str, Callable]]:
    """answer(words, k) → the fewest symbols that k merges or fewer leave."""
    five = {tuple(w): n for w, n in {"ab": 2, "abc": 2, "bc": 1, "bcd": 2, "cd": 2}.items()}
    tries = [
        ("no merge leaves what there was", five, 0, 22),
        ("one merge: here the most frequent pair is best", five, 1, 17),
        ("two merges: greedy would leave 15", five, 2, 14),
        ("in aaa a pair is merged once, not twice", {tuple("aaa"): 1}, 1, 2),
        ("a new piece can be merged with itself", {tuple("aaaa"): 3}, 2, 3),
        ("pairs that overlap: greedy would leave 4", {tuple("baaaba"): 1}, 2, 3),
        ("three merges: a best first step and greedy ones leave 16",
         {tuple("dddb"): 3, tuple("cb"): 2, tuple("ddddb"): 3}, 3, 13),
        ("a pair that overlaps itself is better second: first it would leave 6",
         {tuple("abbbab"): 1, tuple("bb"): 2}, 2, 5),
        ("merges go from left to right: from the right 5", {tuple("abb"): 1, tuple("bbabbb"): 1}, 2, 4),
        ("words that become the same keep both counts", {("ab", "c"): 2, tuple("abc"): 3}, 2, 5),
        ("counts weigh", {tuple("ab"): 1, tuple("bc"): 10}, 1, 12),
        ("a symbol may be longer than a character", {("low", "</w>"): 2}, 1, 2),
        ("merges may be left over", {tuple("ab"): 3}, 5, 3),
        ("no word, no symbol", {}, 2, 0),
    ]  # fmt: skip
    for name, words, k, expected in tries:
        yield name, lambda words=words, k=k, expected=expected: _whole(answer(dict(words), k), expected)
    yield "the words that were given stay as they were", lambda: _untouched(answer, five)
    yield "fewer than no merges are refused", lambda: raises(answer, dict(five), -1)


def _whole(got: object, expected: int) -> str | None:
    return None if type(got) is int and got == expected else f"got {got!r}, expected {expected}"


def _untouched(answer: Callable, words: dict) -> str | None:
    given = dict(words)
    found = answer(given, 1)
    return _whole(found, 17) or (None if given == words else f"afterwards they were {given!r}")


def check_removal_losses(answer: Callable) -> Iterator[tuple[str, Callable]]:
    """answer(words, scores) → {piece: log p of the words less their log p without the piece}."""
    of = lambda **p: {piece: math.log(x) for piece, x in p.items()}  # noqa: E731
    three, inf = of(a=1 / 4, b=1 / 4, ab=1 / 2), math.inf
    # With all three p(ab) = 1/2 + 1/16 = 9/16; without "ab" 1/4, without "a" (1/2) / (3/4) = 2/3.
    hand = {"a": math.log(27 / 32), "b": math.log(27 / 32), "ab": math.log(9 / 4)}
    yield "all cuts count, the rest is shared out", lambda: _same(answer({"ab": 1}, three), hand)
    yield "a word three times counts three times", lambda: (
        _same(answer({"ab": 3}, three), {piece: 3 * loss for piece, loss in hand.items()})
    )
    # p(a) = 1/4, without "b" 1/3, without "ab" 1/2.
    yield "no cut without the piece: infinite", lambda: (
        _same(answer({"a": 1}, three), {"a": inf, "b": math.log(3 / 4), "ab": math.log(1 / 2)})
    )
    yield "several words add up", lambda: (
        _same(answer({"a": 2, "ab": 1}, three),
              {"a": inf, "b": 2 * math.log(3 / 4) + hand["b"], "ab": 2 * math.log(1 / 2) + hand["ab"]})
    )  # fmt: skip
    yield "one piece alone", lambda: _same(answer({"aa": 1}, {"a": 0.0}), {"a": inf})
    yield "a word of probability 2^-3722, by a closed form", lambda: _long(answer, 400)
    yield "a word that cannot be cut is refused", lambda: raises(answer, {"ac": 1}, dict(three))


def _same(got: object, expected: dict[str, float]) -> str | None:
    if not isinstance(got, dict) or got.keys() != expected.keys():
        return f"got {got!r}, expected {sorted(expected)}"
    numbers = [got[piece] for piece in expected]
    if not all(isinstance(x, float) for x in numbers):
        return f"got {numbers!r}, expected floats"
    return close(torch.tensor(numbers, dtype=torch.float64), list(expected.values()))


def _long(answer: Callable, n: int) -> str | None:
    """p("a" × n) is q^n F(n + 1), F being Fibonacci's numbers; without "z" it is q^n (3/4 · 2^n + (−2/3)^n / 4)."""
    q = 2.0**-10
    scores = {"a": math.log(q), "aa": math.log(q**2), "z": math.log(1 / 4)}
    log_fibonacci = (n + 1) * math.log((1 + math.sqrt(5)) / 2) - math.log(5) / 2
    got = answer({"a" * n: 1}, scores)
    if not isinstance(got, dict) or not isinstance(got.get("z"), float):
        return f"got {got!r}, expected a dict with 'z'"
    expected = log_fibonacci - n * math.log(2) - math.log(3 / 4)
    return close(torch.tensor([got["z"]], dtype=torch.float64), [expected])


CHECKS = {"beat-the-greedy": check_fewest_after, "worth-of-a-piece": check_removal_losses}
