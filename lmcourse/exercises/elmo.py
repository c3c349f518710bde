"""Checks of the assignment problems of *The context decides the vector*: the best sum, words that are twins."""

from collections.abc import Callable, Iterator

import torch

from lmcourse.checks import close, raises


def check_additive(additive_fit: Callable) -> Iterator[tuple[str, Callable]]:
    """additive_fit(table [I, J], weights [I, J]) → (a [I], b [J]): weighted least squares, weights.sum(1) @ a = 0."""
    t = lambda *rows: torch.tensor(rows, dtype=torch.float64)  # noqa: E731
    ones, both = torch.ones(2, 2, dtype=torch.float64), lambda *x: torch.cat(tuple(additive_fit(*x)))  # noqa: E731

    yield "the exclusive or, by hand: 1/2 everywhere", lambda: close(
        both(t([0, 1], [1, 0]), ones), [0.0, 0.0, 0.5, 0.5]
    )
    yield "the and, by hand", lambda: close(both(t([0, 0], [0, 1]), ones), [-0.25, 0.25, 0.0, 0.5])
    # Weights 3 1 / 1 1 and a table that is additive: whatever the weights, it is met; a = (0, 1) - 1/3.
    skew = t([3, 1], [1, 1])
    yield "an additive table is met under any weights", lambda: close(
        both(t([0, 2], [1, 3]), skew), [-1 / 3, 2 / 3, 1 / 3, 7 / 3]
    )
    # One cell without weight: the other three determine a and b, and it is predicted.
    hole = t([1, 1], [1, 0])
    yield "a cell without weight does not count", lambda: close(
        both(t([0, 2], [1, 999]), hole), [-1 / 3, 2 / 3, 1 / 3, 7 / 3]
    )
    for seed, shape in ((0, (2, 2)), (1, (3, 5)), (2, (6, 4)), (3, (1, 4))):
        yield f"what is left over is orthogonal to rows and columns, shape {list(shape)}", (
            lambda seed=seed, shape=shape: _orthogonal(additive_fit, seed, shape)
        )
    apart = t([1, 0], [0, 1])
    yield "rows and columns that the weights do not connect are refused", lambda: raises(additive_fit, ones, apart)
    yield "a row without weight is refused", lambda: raises(additive_fit, ones, t([1, 1], [0, 0]))
    yield "a column without weight is refused", lambda: raises(additive_fit, ones, t([1, 0], [1, 0]))
    blocks = t([1, 1, 0], [1, 1, 0], [0, 0, 1])
    yield "two blocks of weights are refused", lambda: raises(additive_fit, torch.zeros_like(blocks), blocks)
    yield "weights below 0 are refused", lambda: raises(additive_fit, ones, t([1, 1], [1, -1]))
    yield "another shape of weights is refused", lambda: raises(additive_fit, ones, t([1, 1, 1], [1, 1, 1]))
    yield "one row of weights for two is refused", lambda: raises(additive_fit, ones, t([1, 1]))


def _orthogonal(additive_fit: Callable, seed: int, shape: tuple[int, int]) -> str | None:
    generator = torch.Generator().manual_seed(seed)
    table, weights = torch.rand(2, *shape, generator=generator, dtype=torch.float64)
    weights = weights**3 + 1e-2  # uneven: the means of rows and columns are not the answer
    a, b = additive_fit(table, weights)
    left = weights * (table - a[:, None] - b[None, :])
    found = torch.cat([left.sum(1), left.sum(0), (weights.sum(1) @ a)[None]])
    return close(found, torch.zeros(sum(shape) + 1), 1e-8)


def check_twins(twins: Callable) -> Iterator[tuple[str, Callable]]:
    """twins(first, second, widest) → bool: no character CNN with filters up to ``widest`` can tell the two apart."""

    def says(expected: bool, *arguments) -> str | None:
        got = twins(*arguments)
        if not isinstance(got, bool):
            return f"got {type(got).__name__}, expected True or False"
        return None if got == expected else f"got {got}, expected {expected}"

    for expected, first, second, widest, what in (
        (True, "bank", "bank", 5, "a word and itself"),
        (True, "taaaaasty", "taaaaaaaaasty", 5, "five a's and nine"),
        (False, "taaasty", "taaaaaaaaasty", 5, "three a's and nine, filters up to five"),
        (True, "taaasty", "taaaaaaaaasty", 3, "three a's and nine, filters up to three"),
        (False, "tasty", "taasty", 2, "one a and two: only the two hold aa"),
        (True, "abab", "ababab", 3, "a repeated pair"),
        (False, "ab", "ba", 2, "order within a filter's width"),
        (True, "ab", "ba", 1, "order beyond a filter's width"),
        (False, "ab", "abc", 1, "another letter"),
        (False, "ab", "ba", 9, "words shorter than the widest filter"),
        (False, "aba", "bab", 2, "the same pieces inside, but other edges"),
        (False, "abab", "ababa", 2, "the same pieces inside, but another end"),
        (False, "abab", "babab", 2, "the same pieces inside, but another beginning"),
        (True, "abcab", "abcabcab", 3, "a repeated triple"),
        (False, "bank", "Bank", 1, "capitals are other characters"),
        (False, "caf\u00e9", "cafe", 1, "letters beyond ASCII are several bytes"),
        (True, "\u00e9\u00e9\u00e9", "\u00e9\u00e9\u00e9\u00e9", 5, "three times two bytes"),
        (False, "\u00e9\u00e9", "\u00e9\u00e9\u00e9", 5, "two times two bytes and three times"),
    ):
        yield f"{what}: {first!r}, {second!r}, {widest}", (
            lambda expected=expected, given=(first, second, widest): says(expected, *given)
        )
    for first, second in (("taaaaasty", "taaasty"), ("abab", "ababab"), ("banana", "bananana")):
        yield f"both ways round the same: {first!r}, {second!r}", (
            lambda pair=(first, second): says(twins(*pair, 4), *reversed(pair), 4)
        )
    for widest in (0, -1, 2.5):
        yield f"widest {widest} is refused", lambda widest=widest: raises(twins, "ab", "ba", widest)


CHECKS = {"additive": check_additive, "twins": check_twins}
