"""Learning rates: values by hand, the repaired slanted triangle, what all schedules share."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lmcourse.schedules import constant, slanted_triangular, warmup_cosine, warmup_linear

ALL = [constant, lambda s, n: warmup_linear(s, n, n // 4), lambda s, n: warmup_cosine(s, n, n // 4), slanted_triangular]


def printed(t, T, cut_frac=0.1, ratio=32):
    """Howard & Ruder 2018, equation 3, as it stands."""
    cut = math.floor(T * cut_frac)
    p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
    return (1 + p * (ratio - 1)) / ratio


def test_values_by_hand():
    assert [constant(s, 10) for s in (0, 9)] == [1, 1]
    assert [constant(s, 10, 4) for s in (0, 1, 3, 4, 9)] == [0.25, 0.5, 1, 1, 1]
    assert [warmup_linear(s, 8, 4) for s in range(9)] == [0.25, 0.5, 0.75, 1, 1, 0.75, 0.5, 0.25, 0]
    assert [warmup_cosine(s, 8, 4, 0.2) for s in (0, 3, 4, 8)] == pytest.approx([0.25, 1, 1, 0.2])
    assert warmup_cosine(6, 8, 4, 0.2) == pytest.approx(0.6)  # halfway, the mean of 1 and 0.2
    assert warmup_cosine(5, 8, 4, 0.0) == pytest.approx((1 + math.sqrt(0.5)) / 2)
    assert [slanted_triangular(s, 20) for s in (0, 1, 2, 11, 20)] == pytest.approx([1 / 32, 33 / 64, 1, 33 / 64, 1 / 32])


def test_the_slanted_triangle_is_the_papers_where_that_works():
    for steps in (10, 20, 50, 130):
        ours = [slanted_triangular(s, steps) for s in range(steps)]
        assert ours == pytest.approx([printed(s, steps) for s in range(steps)], abs=1e-12)


@pytest.mark.parametrize("steps", [19, 99, 109])
def test_as_printed_the_rate_would_be_negative(steps):
    assert printed(steps - 1, steps) < 0 < 1 / 32 == slanted_triangular(steps - 1, steps)


def test_as_printed_nine_steps_divide_by_zero():
    with pytest.raises(ZeroDivisionError):
        printed(0, 9)
    assert [slanted_triangular(s, 9) for s in (0, 1)] == pytest.approx([1 / 32, 1])


def test_the_cut_is_counted_exactly():
    assert max(range(101), key=lambda s: slanted_triangular(s, 100, 0.29)) == 29  # floor(28.999…) would be 28


@given(st.integers(1, 400), st.data())
def test_factors_lie_between_0_and_1_and_no_step_is_wasted(steps, data):
    step = data.draw(st.integers(0, steps - 1))
    assert all(0 < schedule(step, steps) <= 1 for schedule in ALL)
    assert 1 / 32 <= slanted_triangular(step, steps) <= 1
    assert all(0 <= schedule(steps, steps) <= 1 for schedule in ALL)


@given(st.integers(10, 400), st.sampled_from(ALL))
def test_up_to_the_peak_then_down(steps, schedule):
    factors = [schedule(s, steps) for s in range(steps)]
    top = factors.index(max(factors))
    assert max(factors) == 1
    assert factors[: top + 1] == sorted(factors[: top + 1]) and factors[top:] == sorted(factors[top:], reverse=True)


@pytest.mark.filterwarnings("error")
def test_torch_schedulers_can_use_them():
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: warmup_linear(step, 4, 2))
    rates = []
    for _ in range(4):
        rates += scheduler.get_last_lr()
        optimiser.step()
        scheduler.step()
    assert rates == [1, 2, 2, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: constant(-1, 4),
        lambda: constant(5, 4),
        lambda: constant(0.5, 4),
        lambda: constant(0, 0),
        lambda: constant(0, 4, 4),
        lambda: warmup_linear(0, 4, 9),
        lambda: warmup_linear(0, 4, True),
        lambda: warmup_cosine(0, 4, 1, least=2),
        lambda: slanted_triangular(0, 4, cut_frac=1),
        lambda: slanted_triangular(0, 4, ratio=0.5),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError, match="got .*, expected"):
        call()
