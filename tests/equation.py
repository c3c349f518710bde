"""What a test of a labelled equation must do: hold for the right form and fail for a wrong one.

Use: ``from equation import equation`` and

    @pytest.mark.equation("eq-softmax")
    def test_softmax(equation):
        equation.holds(ours, oracle)        # the equation as the chapter states it
        equation.rejects(wrong, oracle)     # a plausible slip: a sign, a factor, an index

A test that carries several labels says which it means, and does both for each: ``equation("eq-softmax").holds(…)``.
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


class Equations:
    """The equations of one test by their labels; where there is only one, it need not be named."""

    def __init__(self, labels):
        self.each = {label: Equation() for label in labels or ["the equation"]}

    def __call__(self, label: str) -> Equation:
        assert label in self.each, f"{label} is not among the labels of this test's mark: {', '.join(self.each)}"
        return self.each[label]

    def _only(self) -> Equation:
        assert len(self.each) == 1, f"this test has {len(self.each)} labels, so say equation({next(iter(self.each))!r})"
        return next(iter(self.each.values()))

    def holds(self, ours, oracle, tolerance: float = 1e-10) -> None:
        self._only().holds(ours, oracle, tolerance)

    def rejects(self, wrong, oracle, tolerance: float = 1e-3) -> None:
        self._only().rejects(wrong, oracle, tolerance)

    def finish(self) -> None:
        """Each equation has been checked in both directions."""
        for label, one in self.each.items():
            assert one.held, f"{label}: its test must call equation.holds"
            assert one.rejected, f"{label}: its test must call equation.rejects with a wrong variant"


@pytest.fixture
def equation(request):
    checker = Equations([label for mark in request.node.iter_markers("equation") for label in mark.args])
    yield checker
    checker.finish()
