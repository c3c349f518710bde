"""Sampling rules: distributions by hand, what is excluded has probability 0, ties, limits, and the draw."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lmcourse.sampling import distribution, draw, keep_top_k, keep_top_p, temper

LOGS = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64).log()  # scores whose softmax is known by hand


def close(ours, expected, **options):
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=ours.dtype), **options)


# ---------------------------------------------------------------------------------------------- by hand


def test_temperature_by_hand():
    close(distribution(LOGS), [1 / 2, 1 / 4, 1 / 8, 1 / 8])
    close(distribution(LOGS, 0.5), [16 / 22, 4 / 22, 1 / 22, 1 / 22])  # p² over its sum
    square_roots = [2**-0.5, 0.5, 8**-0.5, 8**-0.5]
    close(distribution(LOGS, 2.0), [p / sum(square_roots) for p in square_roots])
    assert not torch.allclose(distribution(LOGS, 2.0), torch.softmax(LOGS * 2, -1)), "τ divides, it does not multiply"


def test_top_k_by_hand():
    close(distribution(LOGS, top_k=1), [1, 0, 0, 0])
    close(distribution(LOGS, top_k=2), [2 / 3, 1 / 3, 0, 0])
    close(distribution(LOGS, top_k=3), [4 / 7, 2 / 7, 1 / 7, 0])  # of the two equal ones the lower id
    close(distribution(LOGS, top_k=4), [1 / 2, 1 / 4, 1 / 8, 1 / 8])


@pytest.mark.parametrize(
    ("p", "kept"), [(0.01, 1), (0.49, 1), (0.5, 1), (0.51, 2), (0.75, 2), (0.76, 3), (0.875, 3), (0.88, 4), (1.0, 4)]
)
def test_top_p_keeps_the_token_that_crosses(p, kept):
    expected = torch.softmax(LOGS[:kept], -1).tolist() + [0.0] * (4 - kept)
    close(distribution(LOGS, top_p=p), expected)


def test_top_p_without_the_crossing_token_is_another_distribution():
    def wrong(scores, p):
        mass, ids = torch.softmax(scores, -1).sort(descending=True)
        return scores.masked_fill(~torch.zeros(4).bool().scatter(-1, ids, mass.cumsum(-1) <= p), -torch.inf)

    assert wrong(LOGS, 0.4).isinf().all(), "it may keep none"
    assert not torch.equal(keep_top_p(LOGS, 0.6), wrong(LOGS, 0.6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_top_p_of_equal_tokens_keeps_as_many_as_reach_p(dtype):
    for V in (4, 10, 100):
        for i in range(1, V + 1):
            kept = distribution(torch.zeros(V, dtype=dtype), top_p=i / V) > 0
            assert kept.tolist() == [True] * i + [False] * (V - i)


def test_order_is_temperature_then_top_k_then_top_p():
    scores = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64).log()
    close(distribution(scores, 1.0, top_k=2, top_p=0.57), [1, 0, 0, 0])  # of the two kept, the first has 4/7 > 0.57
    close(torch.softmax(keep_top_k(keep_top_p(scores, 0.57), 2), -1), [4 / 7, 3 / 7, 0, 0])  # the other order
    close(distribution(scores, 0.25, top_p=0.7), [1, 0, 0, 0])  # p⁴: 256/354 > 0.7
    assert (keep_top_p(scores, 0.7) / 0.25).isfinite().sum() == 2  # the other order


# ------------------------------------------------------------------------------- excluded means probability 0


def test_excluded_tokens_have_probability_exactly_0(generator):
    scores = torch.randn(50, 1000, generator=generator) * 3
    for probabilities, most in ((distribution(scores, top_k=5), 5), (distribution(scores, 3.0, 40, 0.9), 40)):
        kept = (probabilities != 0).sum(-1)
        assert (kept <= most).all() and (kept >= 1).all()
        torch.testing.assert_close(probabilities.sum(-1), torch.ones(50))

    def wrong(scores, k, fill=-10.0):
        return scores.masked_fill(scores < scores.topk(k).values[:, -1:], fill)

    assert (torch.softmax(wrong(scores, 5), -1) != 0).all(), "filled with a small number, all still have mass"
    leak = 1 - torch.softmax(wrong(scores - 15, 5), -1).topk(5).values.sum(-1)
    assert (leak > 0.9).any(), "and scores have no zero point: moved down, -10 becomes the greatest"
    torch.testing.assert_close(distribution(scores - 15, top_k=5), distribution(scores, top_k=5), rtol=1e-4, atol=1e-6)


def test_scores_excluded_before_stay_excluded(generator):
    scores = torch.randn(20, generator=generator).index_fill(0, torch.tensor([3, 7]), -torch.inf)
    for rule in (lambda z: temper(z, 1e-30), lambda z: temper(z, 1e30), lambda z: keep_top_k(z, 20), lambda z: keep_top_p(z, 1)):
        probabilities = torch.softmax(rule(scores), -1)
        assert probabilities[[3, 7]].tolist() == [0, 0] and probabilities.sum().isclose(torch.tensor(1.0))


def test_shapes_and_inputs_are_kept(generator):
    scores = torch.randn(2, 3, 4, 9, generator=generator)
    before = scores.clone()
    for rule in (lambda z: temper(z, 0.7), lambda z: keep_top_k(z, 4), lambda z: keep_top_p(z, 0.5), distribution):
        assert rule(scores).shape == scores.shape and rule(scores).dtype == scores.dtype
        torch.testing.assert_close(rule(scores)[1, 2, 3], rule(scores[1, 2, 3]))
    assert torch.equal(scores, before)
    assert distribution(scores.half(), 0.5).dtype == torch.float32


# ---------------------------------------------------------------------------------------- ties and limits


def test_of_equal_scores_the_lower_ids():
    scores = torch.tensor([1.0, 2.0, 0.0, 2.0, 1.0, 2.0, 1.0])
    ranked = [1, 3, 5, 0, 4, 6, 2]
    for k in range(1, 8):
        assert keep_top_k(scores, k).isfinite().nonzero()[:, 0].tolist() == sorted(ranked[:k])
    mass = torch.softmax(scores, -1)[ranked].cumsum(-1)
    for k in range(1, 8):
        assert keep_top_p(scores, float(mass[k - 1])).isfinite().nonzero()[:, 0].tolist() == sorted(ranked[:k])
    assert distribution(scores, 0).tolist() == [0, 1, 0, 0, 0, 0, 0]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12), st.data())
def test_rules_against_a_sort_by_loops(scores, data):
    V = len(scores)
    k, p = data.draw(st.integers(1, V)), data.draw(st.floats(0.01, 0.99))
    ranked = sorted(range(V), key=lambda i: (-scores[i], i))
    total = sum(map(math.exp, scores))
    nucleus, mass = [], 0.0
    for i in ranked:
        if nucleus and mass >= p - 1e-6:
            break
        nucleus.append(i)
        mass += math.exp(scores[i]) / total
    z = torch.tensor(scores, dtype=torch.float64)
    assert keep_top_k(z, k).isfinite().nonzero()[:, 0].tolist() == sorted(ranked[:k])
    assert keep_top_p(z, p).isfinite().nonzero()[:, 0].tolist() == sorted(nucleus)


def test_limits_of_temperature(generator):
    scores = torch.randn(5, 30, generator=generator) * 100
    greedy = distribution(scores, 0)
    assert torch.equal(greedy.argmax(-1), scores.argmax(-1)) and torch.equal(greedy.sum(-1), torch.ones(5))
    for small in (1e-3, 1e-30, 1e-44, 5e-324):
        torch.testing.assert_close(distribution(scores, small), greedy)
    torch.testing.assert_close(distribution(scores, 1e9), torch.full((5, 30), 1 / 30))
    assert torch.equal(distribution(scores, 0), distribution(scores, 1.0, top_k=1))
    assert torch.equal(distribution(scores, 0), distribution(scores, 1.0, top_p=1e-9))
    torch.testing.assert_close(distribution(scores, 0.5), torch.softmax(scores / 0.5, -1))


# ------------------------------------------------------------------------------------------------- draws


def test_draws_follow_the_distribution(generator):
    """Pearson's chi-square over 200,000 draws: below its 99.9 % point for the stated distribution, far above for others."""
    scores, n = torch.randn(20, generator=generator), 200_000
    stated = distribution(scores, 0.8, top_k=10, top_p=0.95)
    drawn = draw(stated.expand(n, -1), torch.rand(n, dtype=torch.float64, generator=generator))
    counts = drawn.bincount(minlength=20).double()
    assert (counts[stated == 0] == 0).all()

    def statistic(probabilities):
        expected = n * probabilities[stated > 0].double()
        return float(((counts[stated > 0] - expected) ** 2 / expected).sum())

    assert statistic(stated) < 27.9  # 9 degrees of freedom at most
    for other in (distribution(scores, 0.78, 10, 0.95), distribution(scores, 0.8, 11), distribution(scores, 0.8)):
        assert statistic(other) > 60


def test_a_draw_is_where_the_sum_first_exceeds_the_number():
    probabilities = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.25, 0.0]])
    almost = 1 - 2**-53  # the greatest that torch.rand gives
    for u, token in ((0.0, 1), (0.2499, 1), (0.25, 3), (0.7499, 3), (0.75, 4), (almost, 4)):
        assert draw(probabilities, torch.tensor([u], dtype=torch.float64)).tolist() == [token]
    for total in (0.3, 0.9999999, 1.0, 1.0000001, 3.0):  # sums that are not quite 1
        assert draw(probabilities * total, torch.tensor([almost], dtype=torch.float64)).tolist() == [4]


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(temperature=-0.1), "temperature: got -0.1"),
        (dict(temperature=math.inf), "temperature: got inf"),
        (dict(temperature=math.nan), "temperature: got nan"),
        (dict(temperature="1"), "temperature: got '1'"),
        (dict(top_k=0), "top_k: got 0"),
        (dict(top_k=1.5), "top_k: got 1.5"),
        (dict(top_k=True), "top_k: got True"),
        (dict(top_k=5), "top_k: got 5, expected at most 4"),
        (dict(top_p=0), "top_p: got 0,"),
        (dict(top_p=-0.5), "top_p: got -0.5"),
        (dict(top_p=1.01), "top_p: got 1.01"),
        (dict(top_p=math.nan), "top_p: got nan"),
        (dict(top_p=True), "top_p: got True"),
    ],
)
def test_bad_rules(options, message):
    with pytest.raises(ValueError, match=message):
        distribution(LOGS, **options)


def test_bad_scores():
    for bad in ([1.0, 2.0], torch.tensor([1, 2]), torch.tensor(1.0), torch.zeros(3, 0)):
        for rule in (lambda z: temper(z, 1.0), lambda z: keep_top_k(z, 1), lambda z: keep_top_p(z, 0.5), distribution):
            with pytest.raises(TypeError, match="scores: got"):
                rule(bad)
    with pytest.raises(ValueError, match="temperature: got 0, expected a number above 0; distribution"):
        temper(LOGS, 0)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(1)


@pytest.mark.parametrize(
    "probabilities, uniform",
    [([[float("nan"), 0.5]], [0.3]), ([[0.5, 0.5]], [1.0]), ([[0.0, 0.0]], [0.3]), ([[0.5, 0.5]] * 2, [0.3])],
)
def test_nothing_outside_the_vocabulary_is_drawn(probabilities, uniform):
    with pytest.raises(ValueError, match="expected"):
        draw(torch.tensor(probabilities), torch.tensor(uniform))
