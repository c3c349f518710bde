"""What a test of a labelled equation must do: hold for the right form and fail for a wrong one.

Use: ``from equation import equation`` and

    @pytest.mark.equation("eq-softmax")
    def test_softmax(equation):
        equation.holds(ours, oracle)        # the equation as the chapter states it
        equation.rejects(wrong, oracle)     # a plausible slip: a sign, a factor, an index
"""

import pytest
import torch


class Equation:
    """Compares in float64 and remembers which of the two directions has been checked."""

    def __init__(self):
        self.held = self.rejected = 0

    @staticmethod
    def _distance(ours, oracle) -> float:
        ours, oracle = (torch.as_tensor(x, dtype=torch.float64) for x in (ours, oracle))
        assert ours.shape == oracle.shape, f"shapes differ: {tuple(ours.shape)} and {tuple(oracle.shape)}"
        assert not torch.isnan(ours).any() and not torch.isnan(oracle).any(), "nan cannot be compared"
        same = (ours == oracle) | ((ours - oracle).abs() == 0)  # equal infinities count as equal
        gap = torch.where(same, torch.zeros_like(ours), (ours - oracle).abs())
        return float(gap.max() / oracle[oracle.isfinite()].abs().max().clamp_min(1.0))

    def holds(self, ours, oracle, tolerance: float = 1e-10) -> None:
        assert self._distance(ours, oracle) <= tolerance
        self.held += 1

    def rejects(self, wrong, oracle, tolerance: float = 1e-3) -> None:
        """The wrong variant is off by far more than rounding, so the test can tell them apart."""
        assert self._distance(wrong, oracle) > tolerance, "the wrong variant passes: this test proves nothing"
        self.rejected += 1


@pytest.fixture
def equation():
    checker = Equation()
    yield checker
    assert checker.held, "an equation's test must call equation.holds"
    assert checker.rejected, "an equation's test must call equation.rejects with a wrong variant"
