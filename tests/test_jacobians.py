"""Gradients along a recurrent network: closed forms, automatic and finite differences; products, bounds, logarithms."""

import math

import pytest
import torch
from lmcourse.jacobians import (
    autograd_jacobians,
    cell_jacobians,
    decay,
    input_jacobians,
    jacobians,
    log_forget,
    log_norms,
    trajectory,
)
from lmcourse.recurrent import STEPS, Recurrent, lstm_gates

T, E, D = 6, 3, 4


def draw(*shape, seed=0):
    return torch.empty(*shape, dtype=torch.float64).normal_(generator=torch.Generator().manual_seed(seed))


def layer(kind, scale=1.0, forget_bias=1.0, width=D, inputs=E):
    new = Recurrent(kind, inputs, width, forget_bias, torch.Generator().manual_seed(2)).double()
    new.weight_hh.data.mul_(scale)
    return new


XS = draw(T, E, seed=1)
START = {"rnn": (draw(1, D, seed=2).tanh(),), "lstm": (draw(1, D, seed=2).tanh(), draw(1, D, seed=3))}


def step_of(net, t):
    """The step at t from a flat state and an input."""
    weights, states = trajectory(net, XS, START[net.kind])
    s = torch.cat([part[t] for part in states])

    def step(s, x):
        return torch.cat(STEPS[net.kind](x[None], tuple(s[None].chunk(len(states), 1)), weights), 1)[0]

    return step, s


def finite(f, at, size=1e-6):
    columns = [(f(at + size * e) - f(at - size * e)) / (2 * size) for e in torch.eye(len(at)).double()]
    return torch.stack(columns, dim=1)


# ---------------------------------------------------------------------------------------------- one step


@pytest.mark.parametrize("kind", ["rnn", "lstm"])
def test_closed_form_is_autograds_and_that_of_finite_differences(kind):
    net = layer(kind)
    closed, inputs = jacobians(net, XS, START[kind]), input_jacobians(net, XS, START[kind])
    assert closed.shape == ((T, D, D) if kind == "rnn" else (T, 2 * D, 2 * D)) and closed.dtype == torch.float64
    assert torch.allclose(closed, autograd_jacobians(net, XS, START[kind]), rtol=0, atol=1e-14)
    for t in range(T):
        step, s = step_of(net, t)
        assert torch.allclose(closed[t], finite(lambda v: step(v, XS[t]), s), rtol=0, atol=1e-9)
        assert torch.allclose(inputs[t], finite(lambda v: step(s, v), XS[t]), rtol=0, atol=1e-9)


def test_slips_in_the_tanh_networks_jacobian_are_found():
    net = layer("rnn")
    right, h, U = jacobians(net, XS, START["rnn"]), trajectory(net, XS, START["rnn"])[1][0], net.weight_hh.detach()
    assert torch.allclose(right, torch.diag_embed(1 - h[1:] ** 2) @ U, atol=1e-14)
    wrong = [
        torch.diag_embed(h[1:] * (1 - h[1:])) @ U,  # σ' for tanh'
        torch.diag_embed(1 - h[:-1] ** 2) @ U,  # the index off by one
        torch.diag_embed(1 - h[1:] ** 2) @ U.T,
        U @ torch.diag_embed(1 - h[1:] ** 2),
    ]
    assert all(float((right - other).abs().max()) > 1e-2 for other in wrong)


@pytest.mark.parametrize("kind", ["rnn", "lstm"])
def test_partial_derivatives_multiply_to_the_total_one(kind):
    """∂s_T/∂s_k through the whole sequence is the product of the one-step Jacobians k + 1 … T, in that order."""
    net, k = layer(kind), 2
    steps, s = [step_of(net, t)[0] for t in range(T)], step_of(net, k)[1]

    def last(v):
        for t in range(k, T):
            v = steps[t](v, XS[t])
        return v

    J = jacobians(net, XS, START[kind])
    total = torch.autograd.functional.jacobian(last, s)
    assert torch.allclose(torch.linalg.multi_dot(list(J[k:].flip(0))), total, rtol=0, atol=1e-14)
    for wrong in (J[k - 1 :].flip(0), J[k + 1 :].flip(0), J[k:]):
        assert float((torch.linalg.multi_dot(list(wrong)) - total).abs().max()) > 1e-3


# --------------------------------------------------------------------------------------- from cell to cell


def cells_by_autograd(net, xs, state):
    """∂c_t/∂c_{t-1} with h_{t-1} = o_{t-1} ⊙ tanh(c_{t-1}), o_{t-1} a constant."""
    weights, (h, c) = trajectory(net, xs, state)
    found = []
    for t in range(2, len(xs) + 1):
        o = lstm_gates(xs[t - 2][None], (h[t - 2][None], c[t - 2][None]), weights)[3]

        def step(before, x=xs[t - 1], o=o):
            return STEPS["lstm"](x[None], (o * before.tanh(), before[None]), weights)[1][0]

        found.append(torch.autograd.functional.jacobian(step, c[t - 1]))
    return torch.stack(found)


def test_the_full_cell_path_is_autograds():
    net = layer("lstm")
    right = cells_by_autograd(net, XS, START["lstm"])
    assert torch.allclose(cell_jacobians(net, XS, START["lstm"]), right, rtol=0, atol=1e-14)
    gates = torch.diag_embed(log_forget(net, XS, START["lstm"])[1:].exp())
    assert float((gates - right).abs().max()) > 1e-2  # the direct path is not all
    shifted = cells_by_autograd(net, XS[1:], tuple(part[1:2] for part in trajectory(net, XS, START["lstm"])[1]))
    assert torch.allclose(shifted, right[1:], atol=1e-14)


def test_without_recurrent_weights_the_cell_path_is_the_forget_gates():
    net = layer("lstm", scale=0.0)
    J, logs = cell_jacobians(net, XS), log_forget(net, XS)
    assert torch.allclose(torch.linalg.multi_dot(list(J.flip(0))), torch.diag(logs[1:].sum(0).exp()), atol=1e-15)


def test_the_forget_gates_alone_bound_the_cell_path_on_neither_side():
    above, below = [], []
    for scale in (3.0, -3.0):
        net = layer("lstm", scale)
        product = torch.linalg.multi_dot(list(cell_jacobians(net, XS).flip(0)))
        ratio = product.diagonal() / log_forget(net, XS)[1:].sum(0).exp()
        above.append(bool((ratio > 1).any())), below.append(bool((ratio.abs() < 1).any()))
    assert any(above) and any(below)


@pytest.mark.parametrize("bias, power", [(0, -153.8), (1, -69.5), (3, -10.8)])
def test_how_much_of_a_cell_is_left_after_511_steps(bias, power):
    net = layer("lstm", 0.0, bias, inputs=1)
    logs = log_forget(net, torch.zeros(511, 1)).sum(0) / math.log(10)
    assert logs.tolist() == pytest.approx([power] * D, abs=0.05)
    J = cell_jacobians(net, torch.zeros(512, 1))  # 511 steps from cell to cell
    assert log_norms(J)[-1].item() / math.log(10) == pytest.approx(power, abs=0.05)


def test_the_familiar_power_and_the_bias_that_keeps_half():
    assert 0.9**511 == pytest.approx(4.15e-24, rel=1e-3)
    assert log_norms(0.9 * torch.eye(3).double().repeat(511, 1, 1))[-1].exp().item() == pytest.approx(4.15e-24, rel=1e-3)
    net = layer("lstm", 0.0, 6.6, inputs=1)
    assert log_forget(net, torch.zeros(511, 1)).sum(0).exp().tolist() == pytest.approx([0.5] * D, abs=5e-3)


# ------------------------------------------------------------------------------------------- over a distance


def test_norms_of_products_are_those_of_the_products():
    J = jacobians(layer("lstm"), XS)
    direct = [torch.linalg.multi_dot([torch.eye(2 * D).double(), *J[T - d :].flip(0)]) for d in range(1, T + 1)]
    expected = torch.stack([torch.linalg.matrix_norm(m, ord=2) for m in direct]).log()
    assert torch.allclose(log_norms(J), expected, rtol=0, atol=1e-13)
    assert float((log_norms(J.flip(0)) - expected).abs().max()) > 1e-2


@pytest.mark.parametrize("kind", ["rnn", "lstm"])
def test_the_gradient_of_the_last_loss_and_its_bounds(kind):
    net, upstream = layer(kind), draw(D, seed=9)
    x = XS.clone().requires_grad_()
    (net(x[None])[0][0, -1] @ upstream).backward()
    J, gradient = jacobians(net, XS), torch.cat([upstream, torch.zeros(D if kind == "lstm" else 0).double()])
    found = decay(J[1:], gradient)
    v = gradient
    for d in range(T):
        assert found.gradient[d].item() == pytest.approx(v.norm().log().item(), abs=1e-13)
        at = T - 1 - d
        assert torch.allclose(v @ input_jacobians(net, XS)[at], x.grad[at], rtol=0, atol=1e-14)
        v = v @ J[at]
    assert bool((found.gradient <= found.norms + 1e-12).all() and (found.norms <= found.gamma + 1e-12).all())
    sizes = torch.linalg.matrix_norm(J[1:], ord=2)
    assert found.norms[-1].item() == pytest.approx((gradient.norm() * sizes.prod()).log().item(), abs=1e-12)
    assert found.gamma[-1].item() == pytest.approx((gradient.norm() * sizes.max() ** (T - 1)).log().item(), abs=1e-12)


def test_the_bounds_are_tight_for_a_scaled_rotation_and_need_the_norm_not_the_radius():
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    found = decay(0.5 * turn.repeat(7, 1, 1), torch.tensor([1.0, 2.0]).double())
    expected = math.log(5) / 2 + torch.arange(8) * math.log(0.5)
    for part in (found.gradient, found.norms, found.gamma):
        assert torch.allclose(part, expected.double(), atol=1e-14)
    shear = torch.tensor([[0.5, 9.0], [0.0, 0.5]], dtype=torch.float64)  # spectral radius 0.5
    assert log_norms(shear.repeat(3, 1, 1))[-1] > 0


def test_the_tanh_networks_norms_are_at_most_that_of_the_recurrent_matrix():
    net = layer("rnn", 2.0)
    bound = torch.linalg.matrix_norm(net.weight_hh.detach(), ord=2)
    assert bool((torch.linalg.matrix_norm(jacobians(net, XS), ord=2) <= bound).all())


def test_a_distance_of_512_at_which_float64_underflows():
    xs = draw(512, E, seed=4)
    J = jacobians(layer("rnn", 0.1), xs)
    assert float(torch.linalg.multi_dot(list(J.flip(0))).abs().max()) == 0
    logs, found = log_norms(J), decay(J, draw(D, seed=5))
    assert bool(logs.isfinite().all() and found.gradient.isfinite().all())
    assert logs[-1] < -745 and bool((logs <= torch.linalg.matrix_norm(J, ord=2).flip(0).log().cumsum(0) + 1e-9).all())
    assert abs((found.gradient[-1] - logs[-1]).item()) < 10


def test_a_gradient_of_zero_is_minus_infinity():
    J = jacobians(layer("rnn", 0.0), XS)
    assert log_norms(J).tolist() == [-math.inf] * T
    found = decay(J, draw(D))
    for logs in (found.gradient, found.norms, found.gamma):
        assert logs[0] == found.gradient[0] and logs[0].isfinite() and logs[1:].tolist() == [-math.inf] * T


@pytest.mark.parametrize(
    "call",
    [
        lambda: jacobians(torch.nn.LSTM(E, D), XS),
        lambda: jacobians(layer("rnn"), XS[None]),
        lambda: jacobians(layer("rnn"), XS[:, :2]),
        lambda: cell_jacobians(layer("rnn"), XS),
        lambda: cell_jacobians(None, XS),
        lambda: trajectory(layer("rnn"), XS, (torch.zeros(2, D),)),
        lambda: jacobians(layer("lstm"), XS, (torch.zeros(1, D),)),
        lambda: log_norms(torch.ones(0, 3, 3).double()),
        lambda: log_norms(torch.eye(3).double()),
        lambda: log_norms(torch.ones(2, 3, 4).double()),
        lambda: log_norms(torch.ones(2, 3, 3)),
        lambda: decay(torch.ones(2, 3, 3).double(), torch.ones(2)),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises((ValueError, TypeError), match="got .*expected"):
        call()
