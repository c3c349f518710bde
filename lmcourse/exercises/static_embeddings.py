"""Checks of the assignment problems of *One word, one vector*: negatives without collisions, the mixture undone."""

import math
from collections.abc import Callable, Iterator

import torch
from torch.nn.functional import logsigmoid

from lmcourse.checks import close, raises


def check_collisions(answer: Callable) -> Iterator[tuple[str, Callable]]:
    """optimum_without_collisions(p, q, k, redraw=False) → [C] scores; negatives equal to the context are not used."""
    t = lambda *x: torch.tensor(x, dtype=torch.float64)  # noqa: E731
    inf, p = math.inf, t(1 / 2, 1 / 4, 1 / 4)

    yield "dropped, by hand", lambda: close(answer(p, p, 2), [0.0, math.log(2 / 3), math.log(2 / 3)])
    yield "drawn again, by hand", lambda: close(
        answer(p, p, 2, redraw=True), [math.log(3 / 4), math.log(3 / 8), math.log(3 / 8)]
    )
    for redraw in (False, True):
        how = "drawn again" if redraw else "dropped"
        for k in (1, 5):
            yield f"{how}, k = {k}: no score can move and lower the expected loss", (
                lambda redraw=redraw, k=k: _rests(answer, k, redraw)
            )
        yield f"{how}: a context that never occurs", lambda redraw=redraw: close(
            answer(t(0.5, 0.5, 0.0), t(0.2, 0.3, 0.5), 3, redraw=redraw)[2:], [-inf]
        )
        yield f"{how}: the only context that occurs, among three", lambda redraw=redraw: close(
            answer(t(0.0, 1.0, 0.0), t(0.2, 0.3, 0.5), 3, redraw=redraw), [-inf, inf, -inf]
        )
        for name, arguments in {
            "a context that is never drawn": (p, t(0.5, 0.5, 0.0), 2),
            "no negatives": (p, p, 0),
            "shares that do not add up to 1": (t(0.5, 0.5, 0.5), p, 2),
            "p and q of two lengths": (t(0.5, 0.5), p, 2),
        }.items():
            yield f"{how}: {name} is refused", lambda arguments=arguments, redraw=redraw: raises(
                lambda: answer(*arguments, redraw=redraw)
            )
    yield "drawn again for ever, with one word: refused", lambda: raises(lambda: answer(t(1.0), t(1.0), 2, redraw=True))


def _rests(answer: Callable, k: int, redraw: bool) -> str | None:
    """The loss is summed over every pair and draw as they would happen; its slope must vanish at the answer."""
    generator = torch.Generator().manual_seed(k)
    p, q = (torch.rand(7, generator=generator, dtype=torch.float64) + 0.05 for _ in range(2))
    p, q = p / p.sum(), q / q.sum()
    x = torch.as_tensor(answer(p, q, k, redraw=redraw)).detach().double().clone().requires_grad_()
    if x.shape != p.shape:
        return f"got shape {list(x.shape)}, expected {list(p.shape)}"
    loss = 0.0
    for c in range(7):
        draws = q.clone()
        draws[c] = 0.0
        draws = draws / draws.sum() if redraw else draws
        loss = loss - p[c] * (logsigmoid(x[c]) + k * (draws * logsigmoid(-x)).sum())
    return close(torch.autograd.grad(loss, x)[0], torch.zeros(7))


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


CHECKS = {"collisions": check_collisions, "unmix": check_unmix}
