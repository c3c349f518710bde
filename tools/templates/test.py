"""The labelled equations of ``book/@@SLUG@@.md``: each holds, and a plausible slip is rejected."""

import pytest
import torch
from equation import equation  # noqa: F401  (a fixture)


@pytest.mark.equation("eq-@@SLUG@@-example")
def test_the_derivative_of_the_log_sum_exp(equation):  # noqa: F811
    x = torch.tensor([0.0, 1.0, -2.0], dtype=torch.float64, requires_grad=True)
    x.logsumexp(0).backward()  # the oracle does not use the formula
    ours = x.detach().exp() / x.detach().exp().sum()
    equation.holds(ours, x.grad)
    equation.rejects(-ours, x.grad)  # the sign
    equation.rejects(x.detach().exp(), x.grad)  # without the normaliser


# TODO The worked example and the short solutions: their numbers as the page gives them.
