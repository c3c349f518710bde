"""Reference solutions of the assignment problems of *The context decides the vector*, and answers that must fail.

This folder is left out of the public tree.
"""

import torch


def additive_fit(table, weights):
    """The normal equations, with one equation more to fix the constant that rows and columns can exchange."""
    if table.shape != weights.shape or table.ndim != 2 or (weights < 0).any():
        raise ValueError("weights: expected the shape of table, none below 0")
    rows, columns = weights.sum(1), weights.sum(0)
    system = torch.cat(
        [torch.cat([torch.diag(rows), weights], 1), torch.cat([weights.T, torch.diag(columns)], 1)]
    )
    if torch.linalg.matrix_rank(system) < sum(table.shape) - 1:
        raise ValueError("weights: some rows and columns are not connected, so their constants are free")
    fix = torch.cat([rows, torch.zeros_like(columns)])[None]
    right = torch.cat([(weights * table).sum(1), (weights * table).sum(0), torch.zeros(1, dtype=table.dtype)])
    found = torch.linalg.lstsq(torch.cat([system, fix]), right[:, None], driver="gelsd").solution[:, 0]
    return found[: len(rows)], found[len(rows) :]


def _windows(word, wide):
    """The sets of windows: begin mark 256, bytes, end mark 257, and pads 258 after it."""
    marked = [256, *word.encode("utf-8"), 257, *[258] * wide]
    return {tuple(marked[i : i + wide]) for i in range(len(marked) - wide + 1)}


def twins(first, second, widest):
    if not isinstance(widest, int) or widest < 1:
        raise ValueError(f"widest: got {widest!r}, expected a whole number from 1 on")
    return all(_windows(first, wide) == _windows(second, wide) for wide in range(1, widest + 1))


def _means(table, weights):
    """Means of rows and columns: right for equal weights only."""
    additive_fit(table, weights)
    total = table.mean()
    return table.mean(1) - total, table.mean(0)


def _weighted_means(table, weights):
    additive_fit(table, weights)
    total = (weights * table).sum() / weights.sum()
    return (weights * table).sum(1) / weights.sum(1) - total, (weights * table).sum(0) / weights.sum(0)


def _unweighted_constraint(table, weights):
    a, b = additive_fit(table, weights)
    return a - a.mean(), b + a.mean()


def _never_refuses(table, weights):
    weights = weights[:, : table.shape[1]].clamp_min(0)
    try:
        return additive_fit(table, weights)
    except ValueError:
        return torch.zeros(table.shape[0]).double(), torch.zeros(table.shape[1]).double()


def _ignores_weights(table, weights):
    additive_fit(table, weights)
    return additive_fit(table, torch.ones_like(weights))


def _broadcasts(table, weights):
    """Lets one row of weights stand for all."""
    return additive_fit(table, weights.expand(table.shape) if weights.shape[-1] == table.shape[-1] else weights)


def _counts_cells(table, weights):
    """Counts the cells with weight, as many as there are unknowns, and does not ask whether they connect."""
    if weights.shape == table.shape and (weights >= 0).all() and int((weights > 0).sum()) >= sum(table.shape) - 1:
        weights = weights + 1e-9
    return additive_fit(table, weights)


def _letters(first, second, widest):
    """Windows of letters instead of bytes."""
    def windows(word, wide):
        marked = f"\x01{word}\x02" + "\x03" * wide
        return {marked[i : i + wide] for i in range(len(marked) - wide + 1)}

    twins(first, second, widest)
    return all(windows(first, wide) == windows(second, wide) for wide in range(1, widest + 1))


def _no_marks(first, second, widest):
    twins(first, second, widest)
    a, b = first.encode(), second.encode()
    of = lambda w, n: {w[i : i + n] for i in range(len(w) - n + 1)}  # noqa: E731
    return all(of(a, n) == of(b, n) for n in range(1, widest + 1))


def _counts(first, second, widest):
    """Compares how often each window occurs, which a maximum cannot see."""
    twins(first, second, widest)
    of = lambda w, n: sorted(w[i : i + n] for i in range(len(w) - n + 1))  # noqa: E731
    return all(of(f"<{first}>", n) == of(f"<{second}>", n) for n in range(1, widest + 1))


def _subset(first, second, widest):
    twins(first, second, widest)
    return all(_windows(first, wide) <= _windows(second, wide) for wide in range(1, widest + 1))


def _any_width(first, second, widest):
    return twins(first, second, 5 if widest else 0)


def _widest_alone(first, second, widest):
    """The widest windows only and no padding: a word shorter than that has none."""
    twins(first, second, widest)
    of = lambda w, n: {w[i : i + n] for i in range(len(w) - n + 1)}  # noqa: E731
    first, second = (b"\1" + w.encode() + b"\2" for w in (first, second))
    return of(first, widest) == of(second, widest)


def _one_mark(first, second, widest, begin):
    """One of the two marks only."""
    twins(first, second, widest)
    marked = lambda w: bytes([1]) * begin + w.encode() + bytes([2]) * (not begin)  # noqa: E731
    of = lambda w, n: {marked(w)[i : i + n] for i in range(len(marked(w)) - n + 1)}  # noqa: E731
    return all(of(first, n) == of(second, n) for n in range(1, widest + 1))


def _no_end(first, second, widest):
    return _one_mark(first, second, widest, True)


def _no_begin(first, second, widest):
    return _one_mark(first, second, widest, False)


SOLUTIONS = {"elmo/additive": additive_fit, "elmo/twins": twins}
WRONG = {
    "elmo/additive": [
        _means, _weighted_means, _unweighted_constraint, _never_refuses, _ignores_weights, _broadcasts, _counts_cells
    ],  # fmt: skip
    "elmo/twins": [_letters, _no_marks, _counts, _subset, _any_width, _no_end, _no_begin, _widest_alone],
}
