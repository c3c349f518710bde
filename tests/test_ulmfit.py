"""The equations of the chapter *Fine-tuning as a recipe*, each against an oracle and with a wrong variant."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from equation import equation  # noqa: F401  (a fixture)
from lmcourse import schedules
from lmcourse.ulmfit import concat_pool, discriminative

B1, B2 = 0.7, 0.99  # ULMFiT's


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def drawn(generator, *shape):
    return torch.rand(*shape, generator=generator, dtype=torch.float64) - 0.5


# -------------------------------------------------------------------------------------------- forgetting


@pytest.mark.equation("eq-forgetting")
def test_forgetting_to_second_order(equation, generator):
    """What is left shrinks with the cube of the drift: half of it leaves an eighth."""
    inputs, targets, start, direction = (drawn(generator, *s) for s in ((30, 5), (30,), (5,), (5,)))
    loss = lambda theta: ((inputs @ theta).tanh() - targets).square().mean()  # noqa: E731
    g, Q = torch.autograd.functional.jacobian(loss, start), torch.autograd.functional.hessian(loss, start)

    def order(linear, quadratic):
        """log2 of by how much what is left shrinks when the drift is halved."""
        left = [
            loss(start + scale * direction)
            - loss(start)
            - linear * scale * (g @ direction)
            - quadratic * scale**2 * (direction @ Q @ direction)
            for scale in (2e-2, 1e-2)
        ]
        return torch.log2(left[0] / left[1])

    equation.holds(order(1, 0.5), 3.0, tolerance=0.05)
    equation.rejects(order(1, 1), 3.0, tolerance=0.3)  # the factor
    equation.rejects(order(-1, 0.5), 3.0, tolerance=0.3)  # the sign
    equation.rejects(order(0, 0.5), 3.0, tolerance=0.3)  # as if θ̂ were a minimum


@pytest.mark.equation("eq-forgetting-layers")
def test_layers_share_the_cost_by_the_triangle_inequality(equation, generator):
    root = drawn(generator, 6, 6)
    Q, blocks = root @ root.T, torch.tensor([0, 0, 1, 1, 2, 2])

    def worst(Q, power=0.5, count=2000):
        """The greatest of left side less right side over drifts."""
        drift = drawn(generator, count, 6)
        left = torch.einsum("ni,ij,nj->n", drift, Q, drift).clamp_min(0) ** power
        parts = [drift * (blocks == layer) for layer in range(3)]
        right = sum(torch.einsum("ni,ij,nj->n", x, Q, x).clamp_min(0) ** power for x in parts)
        return (left - right).max().clamp_min(0)

    equation.holds(worst(Q), 0.0)
    equation.rejects(worst(Q, power=1.0), 0.0)  # without the roots it does not hold
    indefinite = torch.zeros(6, 6).double()
    indefinite[0, 2] = indefinite[2, 0] = 1.0
    equation.rejects(worst(indefinite), 0.0)  # nor where a direction has negative curvature
    # Equality where both layers push alike.
    x = torch.tensor([0.3, -0.2], dtype=torch.float64)
    same = torch.kron(torch.ones(2, 2), torch.tensor([[2.0, 1.0], [1.0, 3.0]])).double()
    both = torch.cat([x, x])
    one = torch.cat([x, torch.zeros(2)])
    equation.holds((both @ same @ both).sqrt(), 2 * (one @ same @ one).sqrt())


# ------------------------------------------------------------------------------------------------ travel


def quotient(grads, b1=B1, b2=B2):
    """m̂ / √v̂ after these gradients, by Adam's recursion."""
    m = v = 0.0
    for g in grads:
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    return m / (1 - b1 ** len(grads)) / math.sqrt(v / (1 - b2 ** len(grads)))


def constant(b1=B1, b2=B2):
    return math.sqrt((1 - b1) ** 2 / ((1 - b2) * (1 - b1**2 / b2)))


@pytest.mark.equation("eq-adam-step")
def test_the_longest_step_of_adam(equation, generator):
    # Gradients that grow by β2/β1 a step reach the bound: an oracle that does not know the formula.
    growing = [(B2 / B1) ** n for n in range(1500)]
    growing = [g / growing[-1] for g in growing]
    equation.holds(constant(), quotient(growing), tolerance=1e-5)
    equation.rejects((1 - B1) / math.sqrt(1 - B2), quotient(growing))  # what Kingma & Ba state
    assert quotient([0.0] * 1500 + [1.0]) == pytest.approx(3.0, abs=1e-4)  # their case
    worst = [math.sqrt(sum(a * a / b for a, b in zip(*_weights(n)))) for n in (1, 2, 5, 20, 100, 500, 2000)]
    assert worst == sorted(worst) and worst[0] == pytest.approx(1) and worst[-1] < constant() + 1e-9
    assert round(constant(), 2) == 4.22
    for b1, b2, n in ((0.9, 0.999, 7), (0.9, 0.85, 40), (0.5, 0.26, 3), (0.0, 0.9, 5)):  # whatever the two rates
        x = b1**2 / b2
        assert (1 - x**n) * (1 - b2**n) <= (1 - b1**n) ** 2 + 1e-12
    for n in (1, 3, 30, 300):  # and no gradients that are drawn get beyond it
        assert abs(quotient(drawn(generator, n).tolist())) <= constant()


def _weights(n):
    a = [(1 - B1) * B1**k / (1 - B1**n) for k in range(n)]
    return a, [(1 - B2) * B2**k / (1 - B2**n) for k in range(n)]


@pytest.mark.equation("eq-travel")
def test_no_weight_gets_further_than_its_travel(equation):
    """Torch's own Adam, driven by the gradients that push hardest, under a schedule, frozen at first."""
    M, first, rate = 40, 10, 0.01
    share = [schedules.slanted_triangular(n, M) for n in range(M)]
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimiser = torch.optim.AdamW([weight], lr=rate, betas=(B1, B2), weight_decay=0.0)
    for n in range(first, M):
        optimiser.param_groups[0]["lr"] = rate * share[n]
        weight.grad = torch.full_like(weight, (B2 / B1) ** (n - M))
        optimiser.step()
    travel = rate * sum(share[first:])
    beyond = lambda bound: torch.tensor(max(0.0, float(weight.detach().abs()) - bound) / rate)  # noqa: E731
    equation.holds(beyond(constant() * travel), 0.0)
    equation.rejects(beyond(travel), 0.0)  # without C it is no bound
    equation.rejects(beyond(constant() * rate * sum(share[M - first :])), 0.0)  # the last n_l steps only


@pytest.mark.equation("eq-discriminative")
def test_discriminative_rates(equation):
    groups = [[torch.nn.Parameter(torch.zeros(1))] for _ in range(4)]  # from the bottom
    ours = [g["lr"] for g in discriminative(groups, 0.01)][::-1]
    oracle = [0.01, float(Fraction(1, 100) / Fraction(26, 10))]
    oracle += [float(Fraction(1, 100) / Fraction(26, 10) ** power) for power in (2, 3)]
    equation.holds([0.01 * 2.6**-layer for layer in range(4)], oracle)
    equation.holds(ours, oracle, tolerance=1e-12)
    equation.rejects([100 * 0.01 / (1 + 1.6 * layer) for layer in range(4)], [100 * x for x in oracle])  # arithmetic
    equation.rejects([100 * x for x in ours[::-1]], [100 * x for x in oracle])  # upside down


def printed(n, M, cut_frac=Fraction(1, 10), ratio=32):
    """The chapter's equation as it is printed, in exact fractions."""
    cut = math.floor(M * cut_frac)
    p = Fraction(n, cut) if n < cut else 1 - Fraction(n - cut) / (cut * (1 / cut_frac - 1))
    return (1 + p * (ratio - 1)) / ratio


@pytest.mark.equation("eq-slanted-triangle")
def test_slanted_triangle(equation):
    M = 50  # corners by hand: 1/32 at 0, 1 at the cut, 1/32 again where the fall would end; straight between
    oracle = [1 / 32 + 31 / 32 * (n / 5 if n < 5 else (50 - n) / 45) for n in range(M)]
    equation.holds([float(printed(n, M)) for n in range(M)], oracle)
    equation.holds([schedules.slanted_triangular(n, M) for n in range(M)], oracle)
    with_ratio = lambda n: (1 + (n / 5 if n < 5 else 1 - (n - 5) / (5 * (32 - 1))) * 31) / 32  # noqa: E731
    equation.rejects([with_ratio(n) for n in range(M)], oracle)  # the ratio where 1/cut_frac belongs
    no_cut = lambda n: (1 + (n / 5 if n < 5 else 1 - n / 45) * 31) / 32  # noqa: E731
    equation.rejects([no_cut(n) for n in range(M)], oracle)  # n instead of n - cut


def test_where_the_printed_triangle_breaks():
    with pytest.raises(ZeroDivisionError):
        printed(0, 9)
    assert printed(18, 19) == Fraction(1 - Fraction(8, 9) * 31, 32)
    assert round(float(printed(18, 19)), 2) == -0.83
    negative = [M for M in range(10, 500) if printed(M - 1, M) < 0]
    assert {19, 99, 109} <= set(negative) and max(negative) == 279
    assert sum(M <= 120 for M in negative) == 74
    assert min(range(10, 500), key=lambda M: printed(M - 1, M)) == 19
    assert all(31 * (M % 10 - 1) <= 9 * (M // 10) for M in range(280, 5000))  # so r is never below 0 from there on
    assert all(schedules.slanted_triangular(n, M) > 0 for M in (5, 19, 99, 109) for n in range(M))


@pytest.mark.equation("eq-slanted-mean")
@pytest.mark.parametrize("cut_frac", [Fraction(1, 50), Fraction(1, 10), Fraction(3, 10), Fraction(1, 2)])
def test_the_mean_rate_does_not_depend_on_the_cut(equation, cut_frac):
    M, ratio = 100, 32
    oracle = float(sum(printed(n, M, cut_frac) for n in range(M)) / M)
    equation.holds((ratio + 1) / (2 * ratio), oracle)
    equation.rejects((ratio - 1) / (2 * ratio), oracle)
    equation.rejects(0.5 * (1 + float(cut_frac)), oracle)


def travel(rate, factor, M, each, layers):
    share = [printed(n, M) for n in range(M)]
    return [float(rate / factor**layer * sum(share[each * layer :])) for layer in range(layers)]


@pytest.mark.equation("eq-worked-travel")
def test_worked_travel(equation):
    oracle = travel(Fraction(1, 100), Fraction(26, 10), 20, 5, 4)
    equation.holds([0.1031, 0.02664, 0.004841, 0.0005482], oracle, tolerance=3e-5)
    equation.holds([x / y for x, y in zip([0.1031, 0.02664, 0.004841, 0.0005482], oracle)], [1.0] * 4, tolerance=5e-4)
    from_the_start = travel(Fraction(1, 100), Fraction(26, 10), 20, 0, 4)
    equation.rejects(from_the_start, oracle, tolerance=1e-3)
    assert round(oracle[0] / oracle[3]) == 188 and round(2.6**3, 1) == 17.6
    assert round(oracle[0] / oracle[3] / 2.6**3, 1) == 10.7
    sums = [float(sum(printed(n, 20) for n in range(first, 20))) for first in (0, 5, 10, 15)]
    assert [float(f"{s:.4g}") for s in sums] == [10.31, 6.927, 3.273, 0.9635]


# --------------------------------------------------------------------------------------------- the head


@pytest.mark.equation("eq-concat-pool", "eq-pool-gradient")
def test_pooling_and_its_gradient(equation, generator):
    h, u = drawn(generator, 1, 5, 3).requires_grad_(), drawn(generator, 9)
    rows = h[0].tolist()
    columns = list(zip(*rows))
    by_hand = [*rows[-1], *map(max, columns), *(sum(column) / 5 for column in columns)]
    z = concat_pool(h)[0]
    equation("eq-concat-pool").holds(z.detach(), by_hand)
    equation("eq-concat-pool").rejects(torch.cat([z[:3], z[6:], z[3:6]]).detach(), by_hand)  # another order
    equation("eq-concat-pool").rejects(torch.cat([h[0, 0], z[3:]]).detach(), by_hand)  # the first state
    (oracle,) = torch.autograd.grad(z @ u, h)
    last, most, mean = u.view(3, 3)
    where = h.detach()[0].argmax(0)  # [3]: at which time each component is greatest
    direct = torch.stack([(t == 4) * last + (where == t) * most + mean / 5 for t in range(5)])
    equation("eq-pool-gradient").holds(direct, oracle[0])
    equation("eq-pool-gradient").rejects(direct + mean * 4 / 5, oracle[0])  # the sum in place of the mean
    whole = torch.stack([(t == 4) * last + (int(where[0]) == t) * most + mean / 5 for t in range(5)])
    equation("eq-pool-gradient").rejects(whole, oracle[0])  # one time for all components


# --------------------------------------------------------------------------------------------- dropouts


def masks(rate, n=4):
    """(probability, mask) of every way to drop n entries."""
    for kept in itertools.product((0, 1), repeat=n):
        probability = math.prod(1 - rate if k else rate for k in kept)
        yield probability, torch.tensor(kept, dtype=torch.float64) / (1 - rate)


@pytest.mark.equation("eq-weight-drop", "eq-weight-drop-product")
def test_one_mask_twice_is_not_two_masks(equation, generator):
    rate, U, h = 0.2, drawn(generator, 2, 2) * 4, drawn(generator, 2)
    once = sum(p * (mask.view(2, 2) * U) @ h for p, mask in masks(rate))
    equation("eq-weight-drop").holds(U @ h, once)
    equation("eq-weight-drop").rejects((1 - rate) * U @ h, once)  # as if nothing were divided
    twice = sum(p * (mask.view(2, 2) * U) @ (mask.view(2, 2) * U) for p, mask in masks(rate))
    equation("eq-weight-drop-product").holds(U @ U + rate / (1 - rate) * torch.diag(U.diagonal() ** 2), twice)
    equation("eq-weight-drop-product").rejects(U @ U, twice)  # right for fresh masks only
    of_the_square = torch.diag((U @ U).diagonal())
    equation("eq-weight-drop-product").rejects(U @ U + rate / (1 - rate) * of_the_square, twice)
    fresh = sum(p * q * (a.view(2, 2) * U) @ (b.view(2, 2) * U) for p, a in masks(rate) for q, b in masks(rate))
    equation("eq-weight-drop-product").holds(U @ U, fresh)
