"""The labelled equations of ``book/recurrence.md``: each holds, and a plausible slip is rejected."""

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from equation import equation  # noqa: F401  (a fixture)
from lmcourse import data, device, memory
from lmcourse.bits import bits_per_byte
from lmcourse.jacobians import cell_jacobians, decay, jacobians, log_forget, log_norms, trajectory
from lmcourse.recurrent import Recurrent, RecurrentConfig, RecurrentLM, Weights, lstm_step, rnn_step

T, E, D = 6, 3, 4


@pytest.fixture
def draw():
    generator = torch.Generator().manual_seed(5)
    return lambda *shape: torch.empty(*shape, dtype=torch.float64).normal_(generator=generator)


def network(kind, scale=1.0, bias=1.0):
    layer = Recurrent(kind, E, D, bias, torch.Generator().manual_seed(2)).double()
    layer.weight_hh.data.mul_(scale)
    return layer


# ------------------------------------------------------------------------------------ language models

# The joint probabilities of all texts of three tokens over {0, 1}, as exact fractions.
JOINT = dict(zip(itertools.product((0, 1), repeat=3), (Fraction(k, 36) for k in (1, 2, 3, 4, 5, 6, 7, 8))))


def conditional(text, t, length):
    """p(w_t | the up to ``length`` tokens before it), from the table."""
    same = lambda other, upto: all(other[i] == text[i] for i in range(max(0, t - length), upto))  # noqa: E731
    return Fraction(sum(p for x, p in JOINT.items() if same(x, t + 1)), 1) / sum(
        p for x, p in JOINT.items() if same(x, t)
    )


@pytest.mark.equation("eq-chain-rule")
def test_chain_rule(equation):  # noqa: F811
    product = lambda x, length: math.prod(conditional(x, t, length) for t in range(3))  # noqa: E731
    oracle = [float(p) for p in JOINT.values()]
    equation.holds([float(product(x, 3)) for x in JOINT], oracle)
    equation.rejects([float(product(x, 0)) for x in JOINT], oracle)  # independent tokens
    equation.rejects([float(product(x, 1)) for x in JOINT], oracle)  # one token of memory


@pytest.mark.equation("eq-cross-entropy")
def test_cross_entropy_is_entropy_plus_divergence(equation):  # noqa: F811
    p = torch.tensor([float(x) for x in JOINT.values()], dtype=torch.float64)
    q = torch.linspace(4.0, 0.2, 8, dtype=torch.float64)
    q = q / q.sum()
    oracle = -(p * q.log()).sum()
    equation.holds(torch.special.entr(p).sum() + (p * (p / q).log()).sum(), oracle)
    equation.rejects(torch.special.entr(p).sum() - (p * (p / q).log()).sum(), oracle)  # sign
    equation.rejects(torch.special.entr(p).sum() + (q * (q / p).log()).sum(), oracle)  # the other divergence


@pytest.mark.equation("eq-perplexity")
def test_perplexity(equation):  # noqa: F811
    p = torch.tensor([0.5, 0.1, 0.25, 0.9], dtype=torch.float64)
    oracle = float(1 / p.prod()) ** (1 / 4)  # the inverse geometric mean
    equation.holds(torch.exp(-p.log().mean()), oracle)
    equation.rejects(torch.exp(-p.log().sum()), oracle)  # not divided by T
    equation.rejects(2 ** (-p.log().mean()), oracle)  # bases mixed
    equation.rejects((1 / p).mean(), oracle)  # the arithmetic mean
    uniform = torch.full((7,), 1 / 50).double()
    assert float(torch.exp(-uniform.log().mean())) == pytest.approx(50)


@pytest.mark.equation("eq-recurrence-bits-per-byte")
def test_bits_per_byte_do_not_depend_on_the_cut(equation):  # noqa: F811
    text, p = "river", Fraction(1, 64)
    cut = [torch.tensor([1 / 64]), torch.tensor([1 / 4, 1 / 16]), torch.tensor([1 / 2] * 4 + [1 / 4])]
    bits = [bits_per_byte([x.double().log()], [text]) for x in cut]
    equation.holds(bits, [math.log2(1 / p) / 5] * 3)
    perplexity = [float(torch.exp(-x.double().log().mean())) for x in cut]
    beta = [5 / len(x) for x in cut]  # bytes a token
    sums = [-x.double().log2().sum() / (b * len(x)) for x, b in zip(cut, beta)]
    equation.holds([float(x) for x in sums], bits)
    ours = [math.log(P) / (b * math.log(2)) for b, P in zip(beta, perplexity)]
    equation.holds(ours, bits)
    equation.rejects([math.log2(P) for P in perplexity], bits)  # bits a token


# --------------------------------------------------------------------------------- through time


@pytest.mark.equation("eq-rnn")
def test_the_tanh_network(equation, draw):  # noqa: F811
    W, U, b, x, h = draw(D, E), draw(D, D), draw(D), draw(E), draw(D).tanh()
    dot = lambda row, v: sum(float(p * q) for p, q in zip(row, v))  # noqa: E731
    oracle = [math.tanh(dot(W[i], x) + dot(U[i], h) + float(b[i])) for i in range(D)]
    equation.holds(torch.tanh(W @ x + U @ h + b), oracle)
    equation.holds(rnn_step(x[None], (h[None],), Weights(W, U, b))[0][0], oracle)
    equation.rejects(torch.tanh(W @ x + U.T @ h + b), oracle)


def losses(U, W, xs, targets):
    """h_1 … h_T and the loss of each step, ½ ‖h_t - y_t‖²."""
    h, states, each = torch.zeros(D, dtype=torch.float64), [], []
    for x, y in zip(xs, targets):
        h = torch.tanh(W @ x + U @ h)
        states.append(h)
        each.append(0.5 * (h - y).square().sum())
    return states, each


@pytest.fixture
def unrolled(draw):
    """U with its graph, what else the network needs, and the sum of partial derivatives carried forward."""
    U, W, xs, ys = 0.7 * draw(D, D), draw(D, E), draw(T, E), draw(T, D)
    U.requires_grad_()
    states, each = losses(U, W, xs, ys)
    h = [torch.zeros(D).double(), *(s.detach() for s in states)]  # h[t] is the state after t steps
    A = [None, *(torch.diag(1 - h[t] ** 2) @ U.detach() for t in range(1, T + 1))]

    def total(reach=T, shift=0, order=1):
        found = torch.zeros(D, D).double()
        for t in range(1, T + 1):
            for k in range(max(1, t - reach + 1), t + 1):
                row = h[t] - ys[t - 1]  # ∂L_t/∂h_t
                for j in range(t, k + shift, -1)[::order]:
                    row = row @ A[j]
                found += torch.outer(row * (1 - h[k] ** 2), h[k - 1])  # the partial derivative ∂⁺h_k/∂U
        return found

    return U, W, xs, ys, h, sum(each), total


@pytest.mark.equation("eq-bptt")
def test_back_propagation_through_time(equation, unrolled):  # noqa: F811
    U, *_, loss, total = unrolled
    (oracle,) = torch.autograd.grad(loss, U)
    equation.holds(total(), oracle)
    equation.rejects(total(shift=-1), oracle)  # one Jacobian too many
    equation.rejects(total(order=-1), oracle)  # the product in the other order
    equation.rejects(total(reach=1), oracle)  # partial derivatives alone


@pytest.mark.equation("eq-truncated")
def test_truncated_back_propagation(equation, unrolled):  # noqa: F811
    """For each loss, states further back than n steps are constants."""
    U, W, xs, ys, h, _, total = unrolled
    n, oracle = 2, torch.zeros(D, D).double()
    for t in range(1, T + 1):
        short = slice(max(0, t - n), t)
        _, each = losses_from(h[short.start], U, W, xs[short], ys[short])
        oracle += torch.autograd.grad(each[-1], U)[0]
    equation.holds(total(reach=n), oracle)
    equation.rejects(total(reach=n + 1), oracle)
    equation.rejects(total(), oracle)


def losses_from(h, U, W, xs, ys):
    states, each = [], []
    for x, y in zip(xs, ys):
        h = torch.tanh(W @ x + U @ h)
        states.append(h)
        each.append(0.5 * (h - y).square().sum())
    return states, each


@pytest.mark.equation("eq-two-steps")
def test_the_worked_example(equation):  # noqa: F811
    u = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    h1 = torch.tanh(u * 1.0 + (math.atanh(0.5) - 1))
    h2 = torch.tanh(u * h1 - 0.5)
    assert float(h1.detach()) == pytest.approx(0.5) and float(h2.detach()) == pytest.approx(0)
    (total,) = torch.autograd.grad(h2, u, retain_graph=True)
    (gradient,) = torch.autograd.grad(0.5 * (h2 - 1) ** 2, u)
    first = (1 - 0.25) * 1  # dh_1/du
    equation.holds([1 * (0.5 + 1 * first), (0 - 1) * 1.25], [total, gradient])
    equation.rejects([1 * 0.5, (0 - 1) * 0.5], [total, gradient])  # the partial derivative
    equation.rejects([1 * (0.5 + 1 * first), (1 - 0) * 1.25], [total, gradient])  # sign of the loss's slope


# ------------------------------------------------------------------------------------ the bound


@pytest.mark.equation("eq-factors")
def test_the_factors_of_a_distant_gradient(equation, draw):  # noqa: F811
    layer, xs, v = network("rnn"), draw(T, E).requires_grad_(), draw(D)
    h = layer(xs[None])[0][0, -1]
    (oracle,) = torch.autograd.grad(h @ v, xs)
    states = trajectory(layer, xs.detach())[1][0]
    A, W = jacobians(layer, xs.detach()), layer.weight_ih.detach()

    def first_input(start, order):
        row = v
        for t in range(T, start, -1)[::order]:
            row = row @ A[t - 1]  # A[t - 1] is that of step t
        return row @ ((1 - states[1] ** 2)[:, None] * W)

    equation.holds(first_input(1, 1), oracle[0])
    equation.rejects(first_input(0, 1), oracle[0])  # T Jacobians instead of T - 1
    equation.rejects(first_input(1, -1), oracle[0])


@pytest.mark.equation("eq-bound")
def test_the_bound_is_tight_for_scaled_rotations(equation, draw):  # noqa: F811
    """Rotations stretch all directions alike; the last factor is one whose direction of largest gain the product meets."""
    for gammas in ((0.8,) * 11, tuple(0.5 + 0.04 * t for t in range(11))):  # equal norms, and norms that differ
        last = row = draw(D)
        for gamma in gammas:
            row = row @ (gamma * torch.linalg.qr(draw(D, D))[0])
        first = 3.0 * torch.outer(row / row.norm(), torch.full((E,), 1 / math.sqrt(E)).double())  # norm 3, largest gain along the row
        measured = (row @ first).norm()
        ends, most = last.norm() * torch.linalg.matrix_norm(first, 2), max(gammas)
        equation.holds(ends * math.prod(gammas), measured)  # the product of norms: equality
        if len(set(gammas)) == 1:
            equation.holds(ends * most**11, measured)  # γ^(T-1): equality where all norms are γ
        else:
            assert measured < ends * most**11  # larger otherwise
            equation.rejects(ends * sum(gammas), measured)
        equation.rejects(ends * math.prod(gammas) * most, measured)  # T factors in place of T - 1
        equation.rejects(math.prod(gammas) * 3.0, measured)  # the last loss's gradient forgotten
        equation.rejects(last.norm() * math.prod(gammas), measured)  # the first step's Jacobian forgotten


def test_the_bound_holds_for_real_networks(draw):
    for kind in ("rnn", "lstm"):
        for scale in (0.5, 1.0, 3.0):
            J = jacobians(network(kind, scale), draw(40, E))
            found = decay(J, draw(J.shape[1]))
            assert (found.gradient <= found.norms + 1e-9).all() and (found.norms <= found.gamma + 1e-9).all()


@pytest.mark.equation("eq-slopes")
def test_the_slopes_bound_a_step(equation, draw):  # noqa: F811
    U, a = draw(D, D), torch.linspace(-4, 4, 2001).double()
    norm = torch.linalg.matrix_norm(U, 2)
    norms = lambda slope: max(torch.linalg.matrix_norm(slope(x) * U, 2) for x in a[::100])  # noqa: E731
    tanh, sigmoid = norms(lambda x: 1 - torch.tanh(x) ** 2), norms(lambda x: torch.sigmoid(x) * torch.sigmoid(-x))
    equation.holds(tanh, norm)  # attained at 0, where the slope is 1
    equation.holds(sigmoid, norm / 4)
    equation.rejects(sigmoid, norm)
    equation.rejects(tanh, torch.linalg.eigvals(U).abs().max())  # the spectral radius is not the bound
    for _ in range(50):
        assert torch.linalg.matrix_norm(torch.diag(1 - torch.tanh(draw(D)) ** 2) @ U, 2) <= norm + 1e-12


@pytest.mark.equation("eq-nilpotent")
def test_a_spectral_radius_of_zero_does_not_prevent_growth(equation):  # noqa: F811
    U = torch.tensor([[2.0, 2.0], [-2.0, -2.0]], dtype=torch.float64)
    equation.holds(U @ U, torch.zeros(2, 2))
    equation.holds(torch.linalg.eigvals(U).abs(), torch.zeros(2), tolerance=1e-7)
    for n in (1, 5, 9):
        slope = 0.01
        A = torch.diag(torch.tensor([1.0, slope], dtype=torch.float64)) @ U
        product = torch.linalg.matrix_power(A, n)
        equation.holds(product, (2 * (1 - slope)) ** (n - 1) * A)
    equation.rejects(torch.linalg.matrix_power(torch.eye(2).double() @ U, 5), product)  # no slopes: it vanishes
    equation.rejects((2 * (1 + slope)) ** (n - 1) * A, product)  # sign


@pytest.mark.equation("eq-clipping")
def test_clipping(equation, draw):  # noqa: F811
    for scale in (0.01, 10.0):
        g, most = scale * draw(7), 1.0
        parameter = torch.nn.Parameter(torch.zeros(7).double())
        parameter.grad = g.clone()
        torch.nn.utils.clip_grad_norm_([parameter], most)
        equation.holds(min(1.0, most / float(g.norm())) * g, parameter.grad, tolerance=1e-6)
    equation.rejects(g.clamp(-most, most), parameter.grad)  # clipped by component: another direction
    equation.rejects(max(1.0, most / float(g.norm())) * g, parameter.grad)


# ------------------------------------------------------------------------------------- the LSTM


@pytest.mark.equation("eq-lstm")
def test_the_lstm(equation, draw):  # noqa: F811
    layer, x, h, c = network("lstm"), draw(1, E), draw(1, D).tanh(), draw(1, D)
    cell = torch.nn.LSTMCell(E, D).double()
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(cell, name).data = getattr(layer, name).data
    oracle = torch.stack([part.detach() for part in cell(x, (h, c))])
    weights = type(layer.weights)(*(part.detach() for part in layer.weights))
    a = (x @ weights.input.T + h @ weights.recurrent.T + weights.bias).chunk(4, 1)
    i, f, g, o = a[0].sigmoid(), a[1].sigmoid(), a[2].tanh(), a[3].sigmoid()
    new = f * c + i * g
    equation.holds(torch.stack([o * new.tanh(), new]), oracle)
    equation.holds(torch.stack(lstm_step(x, (h, c), weights)), oracle)
    equation.rejects(torch.stack([o * new, new]), oracle)  # without the second tanh
    coupled = f * c + (1 - f) * g
    equation.rejects(torch.stack([o * coupled.tanh(), coupled]), oracle)


@pytest.mark.equation("eq-cell-path")
def test_the_full_cell_path(equation, draw):  # noqa: F811
    layer, xs = network("lstm", 2.0), draw(T, E)
    weights, (h, c) = trajectory(layer, xs)
    t = 4  # one step in the middle
    part = lambda s, x: (x @ weights.input.T + s @ weights.recurrent.T + weights.bias).chunk(4, -1)  # noqa: E731
    o_before = part(h[t - 2], xs[t - 2])[3].sigmoid()

    def step(before):
        i, f, g, _ = part(o_before * before.tanh(), xs[t - 1])
        return f.sigmoid() * before + i.sigmoid() * g.tanh()

    oracle = torch.autograd.functional.jacobian(step, c[t - 1])
    i, f, g, _ = part(h[t - 1], xs[t - 1])
    i, f, g, before = i.sigmoid(), f.sigmoid(), g.tanh(), c[t - 1]
    U_i, U_f, U_g, _ = weights.recurrent.chunk(4)
    rows = torch.diag(before * f * (1 - f)) @ U_f, torch.diag(g * i * (1 - i)) @ U_i, torch.diag(i * (1 - g**2)) @ U_g
    through = torch.diag(o_before * (1 - before.tanh() ** 2))
    equation.holds(torch.diag(f) + sum(rows) @ through, oracle)
    equation.holds(cell_jacobians(layer, xs)[t - 2], oracle)
    equation.rejects(torch.diag(f), oracle)  # the direct path alone
    equation.rejects(torch.diag(f) + sum(rows), oracle)  # h forgotten on the way
    for dropped in range(3):
        equation.rejects(torch.diag(f) + sum(r for n, r in enumerate(rows) if n != dropped) @ through, oracle)


@pytest.mark.equation("eq-direct-path")
def test_the_direct_path(equation, draw):  # noqa: F811
    xs = draw(T, E)
    alone = network("lstm", 0.0)
    product = torch.linalg.multi_dot(list(cell_jacobians(alone, xs).flip(0)))
    f = log_forget(alone, xs).exp()
    equation.holds(torch.diag(f[1:].prod(0)), product)
    equation.rejects(torch.diag(f.prod(0)), product)  # f_1 does not belong to it
    full = network("lstm", 3.0)
    other = torch.linalg.multi_dot(list(cell_jacobians(full, xs).flip(0)))
    equation.rejects(torch.diag(log_forget(full, xs)[1:].exp().prod(0)), other)  # with recurrent weights
    for sign in (1, -1):  # one unit, U_g alone: above or below the product of the gates, by its sign
        one = Recurrent("lstm", E, 1, 1.0, torch.Generator().manual_seed(2)).double()
        one.weight_hh.data = torch.tensor([[0.0], [0.0], [0.1 * sign], [0.0]], dtype=torch.float64)
        product, gates = cell_jacobians(one, xs).prod(), log_forget(one, xs)[1:].sum().exp()
        assert sign * (product - gates) > 1e-4 and product > 0


@pytest.mark.equation("eq-arithmetic")
def test_the_arithmetic_of_forget_gates(equation):  # noqa: F811
    ours = [511 * math.log10(1 / (1 + math.exp(-b))) for b in (0, 1, 3)] + [511 * math.log10(0.9)]
    product = lambda b: log_norms(cell_jacobians(network("lstm", 0.0, b), torch.zeros(512, E)))[-1]  # noqa: E731
    oracle = [float(product(b)) / math.log(10) for b in (0, 1, 3)]
    equation.holds(ours, [*oracle, math.log10(float(Fraction(9, 10) ** 511))])
    equation.holds(ours, [-153.8, -69.5, -10.8, -23.4], tolerance=1e-3)
    equation.rejects([512 / 511 * x for x in ours], [*oracle, math.log10(0.9**511)])  # one step too many
    half = 0.5 ** (1 / 511)
    assert half == pytest.approx(0.99864, abs=5e-6)
    assert math.log(half / (1 - half)) == pytest.approx(6.60, abs=5e-3)


@pytest.mark.equation("eq-scan")
def test_steps_compose(equation):  # noqa: F811
    (a1, b1), (a2, b2), (a3, b3) = ((Fraction(x, 7), Fraction(y, 5)) for x, y in ((3, 4), (-2, 6), (5, -1)))
    after = lambda second, first: (second[0] * first[0], second[0] * first[1] + second[1])  # noqa: E731
    h0 = Fraction(2, 3)
    oracle = a3 * (a2 * (a1 * h0 + b1) + b2) + b3
    left = after(after((a3, b3), (a2, b2)), (a1, b1))
    right = after((a3, b3), after((a2, b2), (a1, b1)))
    equation.holds([float(x * h0 + y) for x, y in (left, right)], [float(oracle)] * 2)
    assert left == right
    swapped = lambda second, first: (second[0] * first[0], first[0] * second[1] + first[1])  # noqa: E731
    x, y = swapped((a3, b3), swapped((a2, b2), (a1, b1)))
    equation.rejects(float(x * h0 + y), float(oracle))


# ------------------------------------------------------------------------------------- exercises, log


def test_the_third_step():
    u = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)

    def loss(cut):
        h = torch.ones((), dtype=torch.float64)
        for x in (math.atanh(0.5) - 1, -0.5, 0.0):
            h = torch.tanh(u * (h.detach() if cut else h) + x)
        return 0.5 * (h - 1) ** 2

    gradients = [float(torch.autograd.grad(loss(cut), u)[0]) for cut in (False, True)]
    assert gradients == pytest.approx([-1.25, 0.0])


def test_the_values_of_the_exercises():
    per_byte = 47.5 ** (1 / 3.01)
    assert [round(per_byte, 2), round(math.log2(per_byte), 2)] == [3.61, 1.85]
    of = lambda n: (-math.log(2 ** (1 / n) - 1), math.log(n / math.log(2)), math.log(n - 1))  # noqa: E731
    bias = [round(x, 2) for n in (64, 511) for x in of(n)]
    assert bias == [4.52, 4.53, 4.14, 6.60, 6.60, 6.23]
    A = torch.tensor([[0.9, 1.0], [0.0, 0.9]], dtype=torch.float64)
    norm = [float(torch.linalg.matrix_norm(torch.linalg.matrix_power(A, n), 2)) for n in range(51)]
    assert [round(norm[n], 3) for n in (10, 50)] == [3.905, 0.286] and round(max(norm), 2) == 3.91
    assert [norm[1] ** 10, norm[1] ** 50] == pytest.approx([70.09, 1.692e9], rel=1e-3)
    assert next(n for n in range(1, 51) if norm[n] < 1) == 35


def test_an_orthogonal_start():
    text = "\n\n".join(d.text for d in data.documents("novels", "validation")).encode()[:513]
    row, found = torch.tensor(list(text)), []
    for seed in range(3):
        g = device.seed(seed)
        model = RecurrentLM(RecurrentConfig(256, 106, layers=1, kind="rnn"), g)
        model.layers[0].weight_hh.data = torch.linalg.qr(torch.rand(106, 106, generator=g) - 0.5)[0]
        chain = memory.chain(model, row)
        followed = decay(chain.jacobians[1:], chain.last)
        found.append([memory.slope(x, 64, 448) for x in (followed.gradient, followed.norms)])
    assert all(-0.03 < measured < -0.02 and -1e-4 < bound <= 1e-6 for measured, bound in found)


def test_the_log_in_the_package_is_the_recipes():
    committed = Path(__file__).parent.parent / "recipes" / "logs" / "recurrence.jsonl"
    assert committed.read_text(encoding="utf-8") == data.read_asset("recurrence.jsonl")
    runs = [json.loads(line) for line in data.read_asset("recurrence.jsonl").splitlines()]
    assert {(r["task"], r["model"], r["seed"]) for r in runs} == {
        (task, model, seed)
        for task in ("language", "copy")
        for model in ("RNN", "LSTM, bias 0", "LSTM, bias 1", "LSTM, bias 3", "Transformer")
        for seed in range(3)
    }
    parameters = [r["parameters"] for r in runs if r["task"] == "language"]
    assert max(parameters) < 1.02 * min(parameters)
