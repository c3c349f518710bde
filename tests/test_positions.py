"""Places: sinusoids by hand and as rotations, RoPE's invariants, T5's buckets against hand values and transformers."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lmcourse.positions import RelativeBias, relative_bucket, rotary, rotate, sinusoidal

# ------------------------------------------------------------------------------------------------- sinusoids


def by_hand(t, D, exponent=lambda i, D: 2 * i / D, base=10_000):
    """PE(t, 2i) = sin(t / base^(2i/D)), PE(t, 2i+1) = cos of the same, in Python's floats."""
    angles = [t / base ** exponent(i, D) for i in range(D // 2)]
    return torch.tensor([f(a) for a in angles for f in (math.sin, math.cos)], dtype=torch.float64)


@pytest.mark.parametrize("D", [2, 4, 6, 64])
def test_sinusoids_by_hand(D):
    places = torch.tensor([0, 1, 2, 7, 100, 511])
    ours = sinusoidal(places, D).double()
    right = torch.stack([by_hand(t, D) for t in places.tolist()])
    torch.testing.assert_close(ours, right, rtol=0, atol=3e-5)  # an angle of 511 is 3e-5 apart from the next in float32
    halves = torch.cat([right[:, 0::2], right[:, 1::2]], 1)
    turned = torch.stack([by_hand(t, D, lambda i, D: -2 * i / D) for t in places.tolist()])
    stray = torch.stack([by_hand(t, D, lambda i, D: i / D) for t in places.tolist()])
    shifted = torch.stack([by_hand(t + 1, D) for t in places.tolist()])
    assert not torch.allclose(ours, shifted, atol=0.1)
    assert D == 2 or not any(torch.allclose(ours, wrong, atol=0.1) for wrong in (halves, turned, stray))


def test_sinusoids_take_any_shape():
    places = torch.tensor([[0, 3], [5, 1]])
    assert sinusoidal(places, 8).shape == (2, 2, 8)
    assert torch.equal(sinusoidal(places, 8)[1, 0], sinusoidal(torch.tensor(5), 8))
    assert sinusoidal(torch.tensor(0), 6).tolist() == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("k", [1, 3, 40])
def test_a_shift_of_places_is_one_linear_map(k):
    """PE(t + k) = R(k) PE(t) with the same rotation R(k) for each t: Vaswani et al. 2017, section 3.5."""
    D, t = 16, torch.arange(60)
    R = torch.zeros(D, D, dtype=torch.float64)
    for i in range(D // 2):
        a = k / 10_000 ** (2 * i / D)
        R[2 * i, 2 * i : 2 * i + 2] = torch.tensor([math.cos(a), math.sin(a)], dtype=torch.float64)
        R[2 * i + 1, 2 * i : 2 * i + 2] = torch.tensor([-math.sin(a), math.cos(a)], dtype=torch.float64)
    moved = sinusoidal(t, D).double() @ R.T
    torch.testing.assert_close(moved, sinusoidal(t + k, D).double(), rtol=0, atol=1e-5)
    torch.testing.assert_close(R @ R.T, torch.eye(D, dtype=torch.float64))
    assert not torch.allclose(sinusoidal(t, D).double() @ R, sinusoidal(t + k, D).double(), atol=0.05), "the other way"


# ------------------------------------------------------------------------------------------------------ RoPE


def turned(x, t, **options):
    return rotate(x, *rotary(torch.as_tensor(t), x.shape[-1], **options))


def inner(q, m, k, n, turn=turned):
    return float(turn(q[None], [m])[0].double() @ turn(k[None], [n])[0].double())


@pytest.fixture
def pair():
    generator = torch.Generator().manual_seed(4)
    return torch.randn(8, generator=generator), torch.randn(8, generator=generator)


def test_rope_inner_product_depends_on_the_distance_alone(pair):
    q, k = pair
    for m, n in ((3, 1), (10, 0), (2, 9), (5, 5)):
        for shift in (1, 17, 300):
            assert inner(q, m, k, n) == pytest.approx(inner(q, m + shift, k, n + shift), abs=2e-4)
    assert abs(inner(q, 3, k, 1) - inner(q, 4, k, 1)) > 1e-2 and abs(inner(q, 3, k, 1) - inner(q, 1, k, 3)) > 1e-2
    assert inner(q, 5, k, 5) == pytest.approx(float(q @ k), abs=1e-5)


def test_adding_instead_of_turning_does_not_depend_on_the_distance_alone(pair):
    add = lambda x, t: x + sinusoidal(torch.as_tensor(t), 8)  # noqa: E731
    assert abs(inner(*(pair[0], 3, pair[1], 1), add) - inner(*(pair[0], 20, pair[1], 18), add)) > 1e-2


def test_rope_keeps_lengths(pair):
    x = torch.stack(pair)
    for t in (0, 1, 50, 5000):
        torch.testing.assert_close(turned(x, [t, t]).norm(dim=-1), x.norm(dim=-1))
    cos, sin = rotary(torch.tensor([3]), 8)
    first, second = x.chunk(2, -1)
    for wrong in (
        torch.cat([first * cos + second * sin, second * cos + first * sin], -1),  # a sign: no rotation
        torch.cat([first * cos - second * sin, second * sin + first * cos], -1),  # sine and cosine mixed up
        rotate(x, 2 * cos, 2 * sin),  # a stray factor
    ):
        assert not torch.allclose(wrong.norm(dim=-1), x.norm(dim=-1), rtol=1e-2)


def test_rope_turns_forwards_and_by_the_papers_angles():
    """Equation 13 in two dimensions: (1, 0) at place t becomes (cos t, sin t)."""
    x = torch.tensor([[1.0, 0.0]])
    assert turned(x, [2])[0].tolist() == pytest.approx([math.cos(2), math.sin(2)])
    assert turned(x, [2])[0].tolist() != pytest.approx([math.cos(2), -math.sin(2)])
    cos, sin = rotary(torch.arange(50), 6)
    for t in range(50):
        for i in range(3):
            angle = t * 10_000 ** (-2 * i / 6)
            assert (float(cos[t, i]), float(sin[t, i])) == pytest.approx((math.cos(angle), math.sin(angle)), abs=1e-5)
    assert not torch.allclose(sin[7, 1], torch.tensor(7 * 10_000 ** (2 / 6)).sin(), atol=1e-2), "the exponent's sign"
    assert not torch.allclose(sin[7, 1], torch.tensor(7 * 10_000 ** (-1 / 6)).sin(), atol=1e-2), "the exponent's 2"
    other = rotary(torch.tensor([7]), 6, base=500_000.0)[1]
    assert float(other[0, 1]) == pytest.approx(math.sin(7 * 500_000 ** (-2 / 6)), abs=1e-6)


def interleaved(x, t):
    """The paper's pairing, equation 34: component 2i goes with 2i + 1."""
    cos, sin = rotary(torch.as_tensor(t), x.shape[-1])
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)


def test_half_split_is_a_permutation_of_interleaved(pair):
    x, t = torch.stack(pair), [3, 11]
    permutation = torch.arange(8).view(4, 2).T.flatten()  # 0 2 4 6 1 3 5 7
    assert torch.equal(turned(x[:, permutation], t), interleaved(x, t)[:, permutation])
    assert not torch.allclose(turned(x, t), interleaved(x, t), atol=1e-2)
    (a, b), (c, d) = turned(x[:, permutation], t), interleaved(x, t)
    assert float(a @ b) == pytest.approx(float(c @ d), abs=1e-5)


def test_rope_broadcasts_over_batch_and_heads():
    x = torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(0))
    whole = turned(x, range(5))
    for b in range(2):
        for h in range(3):
            for t in range(5):
                torch.testing.assert_close(whole[b, h, t], turned(x[b, h, t][None], [t])[0])


# --------------------------------------------------------------------------------------------------- buckets


def test_buckets_by_hand():
    """32 buckets to 128, both sides: 16 a side, 8 exact, 8 that grow by a factor 16^(1/8) = √2."""
    later = {1: 17, 7: 23, 8: 24, 11: 24, 12: 25, 15: 25, 16: 26, 22: 26, 23: 27, 31: 27, 32: 28, 64: 30, 90: 30}
    later |= {91: 31, 128: 31, 129: 31, 5000: 31}
    for distance, bucket in later.items():
        assert int(relative_bucket(torch.tensor(distance))) == bucket, distance
        assert int(relative_bucket(torch.tensor(-distance))) == bucket - 16, -distance
    assert int(relative_bucket(torch.tensor(0))) == 0
    alone = {0: 0, -1: 1, -15: 15, -16: 16, -18: 16, -19: 17, -128: 31, -1000: 31, 1: 0, 77: 0}
    for distance, bucket in alone.items():
        assert int(relative_bucket(torch.tensor(distance), both_sides=False)) == bucket, distance


@pytest.mark.parametrize("both_sides", [True, False])
@pytest.mark.parametrize("buckets, furthest", [(32, 128), (32, 20), (16, 64), (8, 128), (64, 1000), (4, 9)])
def test_buckets_equal_transformers(buckets, furthest, both_sides):
    attention = pytest.importorskip("transformers.models.t5.modeling_t5").T5Attention
    distance = torch.arange(-2000, 2001)
    theirs = attention._relative_position_bucket(distance, both_sides, buckets, furthest)
    assert torch.equal(relative_bucket(distance, buckets, furthest, both_sides), theirs)
    assert not torch.equal(relative_bucket(-distance, buckets, furthest, both_sides), theirs), "query minus key"


@given(st.integers(1, 32).map(lambda n: 4 * n), st.integers(1, 2000), st.booleans())
def test_buckets_grow_with_the_distance(buckets, more, both_sides):
    furthest = buckets + more
    n = torch.arange(0, 3000)
    for sign in (-1, 1) if both_sides else (-1,):
        got = relative_bucket(sign * n, buckets, furthest, both_sides)
        assert (torch.diff(got[1:]) >= 0).all() and (0 <= got).all() and (got < buckets).all()
    assert relative_bucket(torch.tensor(-furthest), buckets, furthest, False) == buckets - 1


def test_the_bias_is_one_number_for_each_head_and_distance():
    bias = RelativeBias(3, both_sides=True)
    B = bias(5, 5)
    assert B.shape == (1, 3, 5, 5)
    for i in range(5):
        for j in range(5):
            assert torch.equal(B[0, :, i, j], bias.table.weight[relative_bucket(torch.tensor(j - i))])
    assert not torch.equal(B, B.mT)
    assert torch.equal(bias(2, 5), B[:, :, 3:]), "queries stand at the end of the keys"
    assert not torch.equal(bias(2, 5), B[:, :, :2])


def test_a_decoders_bias_does_not_use_the_buckets_of_later_keys():
    bias = RelativeBias(2, both_sides=False)
    assert torch.equal(bias(4, 4)[0, :, 0], bias.table.weight[0][:, None].expand(2, 4))


# ------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("call, name", [
    (lambda: sinusoidal(torch.arange(3), 5), "width"),
    (lambda: sinusoidal(torch.arange(3), 0), "width"),
    (lambda: sinusoidal(torch.arange(3), 4.0), "width"),
    (lambda: sinusoidal([0, 1], 4), "places"),
    (lambda: rotary(torch.arange(3), 5), "width"),
    (lambda: rotary(torch.arange(3), -2), "width"),
    (lambda: rotary(torch.arange(3), 4, -1.0), "base"),
    (lambda: rotary(torch.arange(3), 4, 0.0), "base"),
    (lambda: rotate(torch.ones(3, 5), torch.ones(3, 2), torch.ones(3, 2)), "cos"),
    (lambda: rotate(torch.ones(3, 6), torch.ones(2, 3), torch.ones(2, 3)), "cos"),
    (lambda: relative_bucket(torch.arange(4), 1), "buckets"),
    (lambda: relative_bucket(torch.arange(4), 3), "buckets"),
    (lambda: relative_bucket(torch.arange(4), 0), "buckets"),
    (lambda: relative_bucket(torch.arange(4), 32, 8), "furthest"),
    (lambda: relative_bucket(torch.arange(4.0)), "distance"),
    (lambda: relative_bucket([1, 2]), "distance"),
])  # fmt: skip
def test_bad_input_names_the_argument(call, name):
    with pytest.raises((ValueError, TypeError), match=rf"{name}.*: got .*expected"):
        call()
