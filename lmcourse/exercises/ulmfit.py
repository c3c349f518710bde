"""Checks of the assignment problems of *Fine-tuning as a recipe*: a triangle an epoch, what one dropped matrix does."""

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from lmcourse.checks import close, raises

T = lambda *x: torch.tensor(x, dtype=torch.float64)  # noqa: E731


def check_phases(phase_travel: Callable) -> Iterator[tuple[str, Callable]]:
    """phase_travel(rates, steps, cut_frac, ratio) → the travel of each layer, from the top."""
    yield "one layer, one phase of 10 steps: the mean rate is 33/64", lambda: (
        close(phase_travel(T(0.64), [10], 0.1, 32), [0.64 * 10 * 33 / 64])
    )
    yield "two layers: the lower one learns in the second phase only", lambda: (
        close(phase_travel(T(0.64, 0.32), [10, 10], 0.1, 32), [0.64 * 20 * 33 / 64, 0.32 * 10 * 33 / 64])
    )
    yield "the cut does not matter where it is whole", lambda: (
        close(phase_travel(T(1.0, 1.0), [10, 20], 0.5, 3), [30 * 2 / 3, 20 * 2 / 3])
    )
    yield "more phases than layers: all learn in the last ones", lambda: (
        close(phase_travel(T(1.0, 0.5), [10, 10, 10], 0.1, 1), [30.0, 10.0])
    )
    yield "fewer phases than layers: the lowest never learn", lambda: (
        close(phase_travel(T(1.0, 0.5, 0.25), [10, 10], 0.1, 1), [20.0, 5.0, 0.0])
    )
    # Four steps: the cut is 1 at least, 1/32 and then 1, and p falls by 1/9 a step.
    falls = [1 / 32, *((1 + 31 * (1 - k / 9)) / 32 for k in range(3))]
    yield "4 steps, where the printed triangle divides by zero", lambda: (
        close(phase_travel(T(1.0), [4], 0.1, 32), [sum(falls)])
    )
    nineteen = [1 / 32, *((1 + 31 * max(0.0, 1 - k / 9)) / 32 for k in range(18))]
    yield "19 steps, where the printed triangle turns negative", lambda: (
        close(phase_travel(T(1.0), [19], 0.1, 32), [sum(nineteen)])
    )
    # Seven steps, cut_frac 0.3: the cut is 2, then p falls by 3/14 a step. With the ratio 8, r = (1 + 7 p) / 8.
    seven = [(1 + 7 * p / 14) / 8 for p in (0, 7, 14, 11, 8, 5, 2)]
    yield "7 steps with cut_frac 0.3, whose cut is not whole", lambda: (
        close(phase_travel(T(1.0), [7], 0.3, 8), [sum(seven)])
    )
    yield "the rates are left as they were", lambda: _left_alone(phase_travel)
    yield "a phase without steps is refused", lambda: raises(phase_travel, T(1.0), [10, 0], 0.1, 32)


def check_moments(weight_drop_moments: Callable) -> Iterator[tuple[str, Callable]]:
    """weight_drop_moments(U, h, rate) → mean (T, D) and covariance (T, T, D) of (Ξ ⊙ U) h_t, one Ξ for all t."""
    U, h = T(*[[2.0, 1.0], [0.0, -3.0]]), T(*[[1.0, 1.0], [2.0, 0.0]])

    yield "the mean is the undropped product", lambda: close(weight_drop_moments(U, h, 0.5)[0], [[3, -3], [4, 0]])
    # ρ/(1-ρ) = 1: variances are sums of squares; unit 0: (4 + 1, 16), together 2·2·1·2 = 8; unit 1: (9, 0), 0.
    yield "variances and covariance by hand, rate 1/2", lambda: (
        close(weight_drop_moments(U, h, 0.5)[1], [[[5, 9], [8, 0]], [[8, 0], [16, 0]]])
    )
    yield "states that point apart: a negative covariance", lambda: (
        close(weight_drop_moments(U, h * T(1.0, -1.0)[:, None], 0.5)[1][0, 1], [-8, 0])
    )
    yield "rate 0 leaves nothing to chance", lambda: close(weight_drop_moments(U, h, 0.0)[1], torch.zeros(2, 2, 2))
    yield "all masks, each with its probability, three times and three units", lambda: _enumerated(weight_drop_moments)
    for rate in (1.0, -0.1, math.nan):
        yield f"a rate of {rate:g} is refused", lambda rate=rate: raises(weight_drop_moments, U, h, rate)


def _enumerated(weight_drop_moments: Callable) -> str | None:
    generator, rate = torch.Generator().manual_seed(0), 0.3
    U, h = (torch.rand(3, 3, generator=generator, dtype=torch.float64) - 0.5 for _ in range(2))
    first, second = torch.zeros(3, 3).double(), torch.zeros(3, 3, 3).double()
    for kept in itertools.product((0, 1), repeat=9):
        probability = math.prod(1 - rate if k else rate for k in kept)
        x: Tensor = h @ (torch.tensor(kept).view(3, 3) / (1 - rate) * U).T  # (T, D)
        first += probability * x
        second += probability * x[:, None] * x[None]
    mean, covariance = weight_drop_moments(U, h, rate)
    return close(mean, first) or close(covariance, second - first[:, None] * first[None])


def _left_alone(phase_travel: Callable) -> str | None:
    rates = T(0.64, 0.32)
    phase_travel(rates, [10, 10], 0.1, 32)
    return close(rates, [0.64, 0.32])


CHECKS = {"phases": check_phases, "weight-drop": check_moments}
