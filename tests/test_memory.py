"""The last loss's gradient by each input, its factors in a recurrent network, and the copy task."""

import pytest
import torch
from lmcourse.configuration import Config
from lmcourse.gpt import GPT
from lmcourse.jacobians import decay
from lmcourse.memory import chain, copy_rows, input_gradients, slope
from lmcourse.recurrent import RecurrentConfig, RecurrentLM
from torch.nn import functional as F

V, T = 11, 9
SIZES = dict(width=6, layers=1, forget_bias=1.0)


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def network(kind="lstm", **sizes):
    return RecurrentLM(RecurrentConfig(V, kind=kind, **SIZES | sizes), draw()).double()


TEXT = torch.randint(V, (3, T + 1), generator=draw(1))


def by_differences(model, row, t, size=1e-6):
    """ln of the norm of the last loss's gradient by the vector at place t, the vector changed by hand."""
    x = model.embedding(row[None, :-1]).detach()
    found = []
    for e in torch.eye(x.shape[2], dtype=x.dtype):
        losses = []
        for sign in (1, -1):
            moved = x.clone()
            moved[0, t] += sign * size * e
            h = moved
            for i in range(len(model.layers)):
                h = model.layer(i, h, None)[0]
            losses.append(F.cross_entropy(model.head(h[:, -1]), row[-1:]))
        found.append((losses[0] - losses[1]) / (2 * size))
    return float(torch.stack(found).detach().norm().log())


@pytest.mark.parametrize("kind, layers", [("rnn", 1), ("lstm", 1), ("lstm", 2)])
def test_input_gradients_are_those_of_finite_differences(kind, layers):
    model = network(kind, layers=layers, hidden=5)
    found = input_gradients(model, TEXT)
    assert found.shape == (3, T) and found.dtype == torch.float64
    for t in (0, 4, T - 1):
        assert float(found[1, t]) == pytest.approx(by_differences(model, TEXT[1], t), abs=1e-6)


def test_a_transformer_has_them_too_and_the_future_has_none():
    model = GPT(Config(V, layers=1, width=8, heads=2, position="rotary"), draw()).double()
    found = input_gradients(model, TEXT)
    assert torch.isfinite(found).all()
    assert not model.embedding._forward_hooks  # nothing is left behind
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("kind", ["rnn", "lstm"])
def test_the_factors_multiply_to_the_gradient_by_the_input(kind):
    model = network(kind)
    factors, found = chain(model, TEXT[0]), input_gradients(model, TEXT[:1])[0]
    states = decay(factors.jacobians[1:], factors.last)
    row = factors.last
    for t in reversed(range(T)):
        assert float((row @ factors.first[t]).norm().log()) == pytest.approx(float(found[t]), abs=1e-9)
        assert float(row.norm().log()) == pytest.approx(float(states.gradient[T - 1 - t]), abs=1e-9)
        row = row @ factors.jacobians[t]


def test_slope_is_that_of_a_line_and_of_numpys_fit():
    import numpy

    logs = torch.tensor([5.0, 1.0, -1.0, -3.5, -5.0, 7.0]).double()
    assert slope(-0.3 * torch.arange(20.0), 4, 12) == pytest.approx(-0.3)
    assert slope(logs, 1, 4) == pytest.approx(numpy.polyfit([1, 2, 3, 4], logs[1:5].numpy(), 1)[0])


def test_copy_rows():
    rows = copy_rows(400, 5, draw())
    assert rows.shape == (400, 12) and torch.equal(rows[:, :3], rows[:, -3:])
    assert (rows[:, 3:8] == 8).all() and (rows[:, 8] == 9).all()
    counts = rows[:, :3].flatten().bincount(minlength=8)
    assert len(counts) == 8 and float(((counts - 150.0) ** 2 / 150).sum()) < 24.3  # chi-square, 7 degrees, 0.1 %
    assert torch.equal(rows, copy_rows(400, 5, draw())) and not torch.equal(rows, copy_rows(400, 5, draw(1)))


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda: input_gradients(3, TEXT), TypeError, "model"),
        (lambda: input_gradients(torch.nn.Linear(2, 2), TEXT), TypeError, "embedding"),
        (lambda: input_gradients(network(), TEXT[0]), ValueError, r"tokens: .*\(B, T \+ 1\)"),
        (lambda: chain(network(layers=2), TEXT[0]), ValueError, "2 layers"),
        (lambda: chain(network(), TEXT), ValueError, r"tokens: .*\(T \+ 1,\)"),
        (lambda: slope(torch.zeros(5), 3, 3), ValueError, "first, last"),
        (lambda: slope(torch.zeros(5), 0, 5), ValueError, "first, last"),
        (lambda: copy_rows(4, 0, draw()), ValueError, "delay"),
        (lambda: copy_rows(4, 3, 7), TypeError, "generator"),
    ],
)
def test_bad_arguments(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_gradients_whose_squares_are_zero_in_float64_keep_their_logarithms():
    model = network("rnn", width=4)
    model.layers[0].weight_hh.data *= 1e-3
    text = torch.randint(V, (1, 90), generator=draw(2))
    factors, found = chain(model, text[0]), input_gradients(model, text)[0]
    row, logs = factors.last, 0.0
    for J in factors.jacobians[30:].flip(0):  # A_T … A_31
        row = row @ J
        logs, row = logs + row.norm().log(), row / row.norm()
    expected = float(logs + (row @ factors.first[29]).norm().log())
    assert -700 < expected < -380  # below 1e-162, above 1e-308
    assert float(found[29]) == pytest.approx(expected, rel=1e-9)
    model.layers[0].weight_hh.data.zero_()
    assert float(input_gradients(model, text)[0, 0]) == -torch.inf
