"""Checks of the assignment problems of *One word, one vector*: noise-contrastive estimation, the mixture undone."""

import math
from collections.abc import Callable, Iterator

import torch

from lmcourse.checks import close, raises


def check_nce(nce_gradients: Callable) -> Iterator[tuple[str, Callable]]:
    """nce_gradients(v, u, centres, contexts, negatives, noise) → (grad_v, grad_u) of the mean over pairs."""
    ids, half = lambda *x: torch.tensor(x), torch.tensor([0.5, 0.5], dtype=torch.float64)  # noqa: E731
    table = lambda *rows: torch.tensor(rows, dtype=torch.float64)[:, None]  # noqa: E731
    v, zero = table(3.0, 0.0), table(0.0, 0.0)
    one_draw = (ids(0), ids(0), ids(1)[None])

    yield "shapes of the tables", lambda: (
        close(torch.stack([torch.tensor(g.shape) for g in nce_gradients(v, zero, *one_draw, half)]), [[2, 1], [2, 1]])
    )
    # k q = 1/2, so a score of 0 counts as log 2, and σ(log 2) = 2/3.
    yield "scores 0, by hand", lambda: close(nce_gradients(v, zero, *one_draw, half)[1], [[-1.0], [2.0]])
    # u_c = log 2 under v = 1: log 2 + log 2 = log 4, σ = 4/5, minus 1.
    yield "one score log 2, by hand", lambda: close(
        nce_gradients(table(1.0, 0.0), table(math.log(2), 0.0), *one_draw, half)[0], [[-math.log(2) / 5], [0.0]]
    )
    # Two draws: k q = 1, the correction vanishes; the same word drawn twice is pushed twice.
    yield "a word drawn twice counts twice", lambda: close(
        nce_gradients(v, zero, ids(0), ids(0), ids(1, 1)[None], half)[1], [[-1.5], [3.0]]
    )
    yield "the mean over pairs, not the sum", lambda: close(
        nce_gradients(v, zero, ids(0, 0), ids(0, 0), torch.tensor([[1], [1]]), half)[1], [[-1.0], [2.0]]
    )
    for power in (0.0, 0.75, 2.0):
        yield f"at log p(c|w) the expected gradient is 0, noise ∝ count^{power}", (
            lambda power=power: _rests_at_log_conditional(nce_gradients, power)
        )


def _rests_at_log_conditional(nce_gradients, power: float) -> str | None:
    counts = torch.tensor([[4, 1, 3], [1, 2, 5], [6, 2, 2]])
    noise = counts.sum(0).double() ** power
    noise = noise / noise.sum()
    conditional = counts.double() / counts.sum(1, keepdim=True)
    v, u = torch.eye(3, dtype=torch.float64), torch.log(conditional).T.contiguous()  # so that u_c · v_w = log p(c|w)
    centres, contexts = (i.repeat_interleave(counts.flatten()) for i in torch.cartesian_prod(*[torch.arange(3)] * 2).T)
    total = torch.zeros(2, 3, 3, dtype=torch.float64)
    for n in range(3):  # every possible draw, weighted by its probability
        draw = torch.full((len(centres), 1), n)
        total += noise[n] * torch.stack(tuple(nce_gradients(v, u, centres, contexts, draw, noise)))
    return close(total, torch.zeros(2, 3, 3))


def check_unmix(answer: Callable) -> Iterator[tuple[str, Callable]]:
    """unmix(x, x1, p1) → x2 with x = log(p1 exp x1 + (1 − p1) exp x2)."""
    t = lambda *x: torch.tensor(x, dtype=torch.float64)  # noqa: E731
    inf = math.inf

    yield "shares of one half, by hand", lambda: close(answer(t(math.log(1.5)), t(0.0), 0.5), [math.log(2)])
    yield "share 1/4, by hand", lambda: close(answer(t(math.log(7)), t(0.0), 0.25), [math.log(9)])
    yield "an impossible first sense leaves log(1 − p) to add", lambda: close(
        answer(t(1.0), t(-inf), 0.9), [1.0 - math.log(0.1)]
    )
    yield "the first sense explains everything", lambda: close(answer(torch.log(t(0.5)), t(0.0), 0.5), [-inf])
    yield "the word and its first sense never have this context", lambda: close(answer(t(-inf), t(-inf), 0.5), [-inf])
    yield "each context by its own case, four in one call", lambda: close(
        answer(t(math.log(1.5), math.log(0.5), 1.0, -inf), t(0.0, 0.0, -inf, -inf), 0.5),
        [math.log(2), -inf, 1.0 + math.log(2), -inf],
    )
    for offset in (0.0, 1000.0, -1000.0):
        yield f"mixing and unmixing give back x2, scores near {offset:g}", (
            lambda offset=offset: _round_trip(answer, offset)
        )
    for dtype in (torch.float64, torch.float32):
        yield f"a second sense lost in rounding is no error, {str(dtype)[6:]}", (
            lambda dtype=dtype: _lost_in_rounding(answer, dtype)
        )
    zeros = torch.zeros(2, 3).double()
    yield "shapes are kept", lambda: close(answer(zeros, zeros.clone(), 0.3), [[0.0] * 3] * 2)
    yield "no second sense can exist: x below x1 + log p1", lambda: raises(answer, t(-1.0), t(0.0), 0.5)
    yield "below by a millionth is below", lambda: raises(answer, torch.log(t(0.5)) - 1e-6, t(0.0), 0.5)
    yield "one impossible context among three is refused", lambda: raises(answer, t(1, -1, 0), t(0, 0, 0), 0.5)
    yield "a context that only the first sense has is refused", lambda: raises(answer, t(-inf), t(0.0), 0.5)
    for p1 in (0.0, 1.0, -0.1, 1.5):
        yield f"a share of {p1:g} is refused", lambda p1=p1: raises(answer, t(0.0), t(0.0), p1)


def _mixed(x1: torch.Tensor, x2: torch.Tensor, p1: float) -> torch.Tensor:
    return torch.logaddexp(x1 + math.log(p1), x2 + math.log1p(-p1))


def _round_trip(answer: Callable, offset: float) -> str | None:
    x2 = torch.linspace(-6, 6, 13, dtype=torch.float64) + offset
    x1 = torch.full_like(x2, offset)
    for p1 in (0.1, 0.5, 0.9):
        if problem := close(answer(_mixed(x1, x2, p1), x1, p1), x2):
            return f"share {p1}: {problem}"
    return None


def _lost_in_rounding(answer: Callable, dtype: torch.dtype) -> str | None:
    """60 below the first sense the second adds nothing, and rounding may leave x a little short of x1 + log p1."""
    x1 = torch.cat([torch.linspace(-20, 20, 41), torch.linspace(-1000, 1000, 41)]).to(dtype)
    rounding = 4 * torch.finfo(dtype).eps * x1.abs().clamp_min(1)
    for p1 in (0.1, 0.3, 0.5, 0.7, 0.9):
        x = _mixed(x1, x1 - 60, p1)
        for moved, limit in ((x - rounding, -math.inf), (x, x1 - 4), (x + rounding, x1 - 4)):
            if not bool((answer(moved, x1, p1) <= limit).all()):
                return f"share {p1}: expected −∞ where x is short by rounding, and far below x1 where it is over"
    return None


CHECKS = {"nce": check_nce, "unmix": check_unmix}
