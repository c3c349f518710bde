"""Masks against definitions by loops, what Child et al. claim of theirs, how many scores each keeps, bad input."""

import math

import pytest
import torch
from lmcourse import masks

SHAPES = [(T, S) for S in (1, 2, 3, 5, 8, 13) for T in (1, 2, 3, 5, 8, 13) if T <= S]


def by_loops(T, S, sees):
    """(T, S): ``sees(i, j)`` for query place i = S - T … S - 1 and key place j, both counted from the first key."""
    return torch.tensor([[bool(sees(S - T + t, j)) for j in range(S)] for t in range(T)])


def equals(mask, T, S, sees):
    return mask.dtype == torch.bool and mask.shape == (T, S) and torch.equal(mask, by_loops(T, S, sees))


# --------------------------------------------------------------------------------------------- causal, window


@pytest.mark.parametrize("T, S", SHAPES)
def test_causal(T, S):
    mask = masks.causal(T, S)
    assert equals(mask, T, S, lambda i, j: j <= i)
    assert not equals(mask, T, S, lambda i, j: j < i), "a query sees itself"
    assert S == 1 or T == 1 or not equals(mask, T, S, lambda i, j: j >= i), "the other triangle"
    assert T == 1 or not equals(mask, T, S, lambda i, j: j <= i + 1), "one key of the future"
    assert T == S or not equals(mask, T, S, lambda i, j: j <= i - (S - T)), "queries at the start of the keys"


def test_causal_by_hand():
    assert masks.causal(2, 4).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert masks.causal(3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize("T, S", SHAPES)
@pytest.mark.parametrize("width", [1, 2, 3, 40])
def test_window(T, S, width):
    mask = masks.window(T, width, S)
    assert equals(mask, T, S, lambda i, j: 0 <= i - j < width)
    if S > width:
        assert not equals(mask, T, S, lambda i, j: 0 <= i - j <= width), "one key too many"
    if T > 1:
        assert not equals(mask, T, S, lambda i, j: abs(i - j) < max(width, 2)), "both sides"


def test_a_window_as_wide_as_the_text_is_causal_and_one_of_width_1_the_diagonal():
    assert torch.equal(masks.window(7, 7), masks.causal(7)) and not torch.equal(masks.window(7, 6), masks.causal(7))
    assert torch.equal(masks.window(7, 1), torch.eye(7, dtype=torch.bool))


# --------------------------------------------------------------------------------------------- sparse patterns


@pytest.mark.parametrize("T, S", SHAPES)
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_strided(T, S, stride):
    mask = masks.strided(T, stride, S)
    assert equals(mask, T, S, lambda i, j: j <= i and (i - j < stride or (i - j) % stride == 0))
    # Child et al. write the first head with t = max(0, i - l), one key more, which the second head has anyway
    assert equals(mask, T, S, lambda i, j: j <= i and (j >= max(0, i - stride) or (i - j) % stride == 0))
    if stride > 1 and T >= 8:
        by_place = by_loops(T, S, lambda i, j: j <= i and (i - j < stride or j % stride == 0))
        assert not torch.equal(mask, by_place)


@pytest.mark.parametrize("T, S", SHAPES)
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_fixed(T, S, stride):
    mask = masks.fixed(T, stride, S)
    assert equals(mask, T, S, lambda i, j: j <= i and (i // stride == j // stride or (j + 1) % stride == 0))
    if stride > 1 and S > 2 * stride:
        by_first = by_loops(T, S, lambda i, j: j <= i and (i // stride == j // stride or j % stride == 0))
        assert not torch.equal(mask, by_first)


def heads(kind, T, stride):
    """The two heads that Child et al. join, section 4.3, each by its own formula."""
    if kind == masks.strided:
        second = by_loops(T, T, lambda i, j: j <= i and (i - j) % stride == 0)
        return by_loops(T, T, lambda i, j: max(0, i - stride) <= j <= i), second
    second = by_loops(T, T, lambda i, j: j <= i and j % stride == stride - 1)
    return by_loops(T, T, lambda i, j: j <= i and i // stride == j // stride), second


@pytest.mark.parametrize("kind", [masks.strided, masks.fixed])
@pytest.mark.parametrize("T, stride", [(1, 1), (9, 3), (16, 4), (20, 4), (23, 5), (7, 9)])
def test_every_earlier_key_is_reached_within_two_steps(kind, T, stride):
    """Child et al. 2019, section 4.2: the criterion that the factorised patterns are built for."""
    mask, pair = kind(T, stride), heads(kind, T, stride)
    assert torch.equal(mask, pair[0] | pair[1])
    two_steps = (mask.float() @ mask.float()) > 0
    assert torch.equal(two_steps, masks.causal(T))
    if 1 < stride < T - 1:
        assert not torch.equal(mask, masks.causal(T)), "one step is not enough"
        for head in pair:  # nor is one head alone, however often it is applied twice
            assert not torch.equal((head.float() @ head.float()) > 0, masks.causal(T))


def test_a_window_alone_does_not_reach_every_key_in_two_steps():
    window = masks.window(16, 4).float()
    assert not torch.equal((window @ window) > 0, masks.causal(16))


@pytest.mark.parametrize("T", [64, 256, 1024])
def test_how_many_scores_are_left(T):
    root = math.isqrt(T)
    assert masks.causal(T).sum() == T * (T + 1) // 2
    for width in (1, 5, root):
        assert masks.window(T, width).sum() == T * width - width * (width - 1) // 2  # O(T·w); first rows are shorter
    for kind in (masks.strided, masks.fixed):
        count = int(kind(T, root).sum())
        assert T * root / 2 < count < 2 * T * root  # O(T√T)
    assert int(masks.causal(T).sum()) > 2 * T * root or T < 256


# ------------------------------------------------------------------------------------------- padding, lengths


def test_padding_hides_keys_and_not_queries():
    real = torch.tensor([[True, True, False], [True, True, True]])
    mask = masks.padding(real)
    assert mask.shape == (2, 1, 1, 3)
    seen = mask.expand(2, 4, 3, 3)
    for b in range(2):
        for i in range(3):
            assert torch.equal(seen[b, 2, i], real[b])
    queries = real[:, None, :, None].expand(2, 4, 3, 3)  # the wrong axis
    assert not torch.equal(seen, queries)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_lengths(dtype):
    mask = masks.lengths(torch.tensor([0, 1, 3, 4], dtype=dtype), 4)
    assert mask.int().tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert mask.dtype == torch.bool and mask.sum(1).tolist() == [0, 1, 3, 4]
    off = torch.arange(4) <= torch.tensor([0, 1, 3, 4])[:, None]
    assert not torch.equal(mask, off)


def test_joined_masks():
    real = masks.lengths(torch.tensor([2, 3]), 3)
    joined = masks.causal(3) & masks.padding(real)
    assert joined.shape == (2, 1, 3, 3)
    assert joined[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 0]]
    assert torch.equal(joined[1, 0], masks.causal(3))


# --------------------------------------------------------------------------------------------------- additive


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_additive_is_zero_where_a_query_may_look(dtype):
    mask = masks.causal(4)
    M = masks.additive(mask, dtype)
    assert M.dtype == dtype and M.shape == (4, 4)
    for i in range(4):
        for j in range(4):
            assert M[i, j] == (0 if i >= j else -math.inf)  # the book's causal mask
    assert not torch.equal(M, masks.additive(~mask, dtype))


def test_a_large_negative_number_is_not_minus_infinity():
    """Two scores that are both far below: with -1e9 the forbidden one still gets a share."""
    scores = torch.tensor([-2e9, 0.0])
    mask = torch.tensor([True, False])
    assert torch.softmax(scores + masks.additive(mask), 0).tolist() == [1, 0]
    assert torch.softmax(scores - 1e9 * ~mask, 0)[1] > 0


# -------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("call, name", [
    (lambda: masks.causal(0), "T"),
    (lambda: masks.causal(-1), "T"),
    (lambda: masks.causal(2.0), "T"),
    (lambda: masks.causal(True), "T"),
    (lambda: masks.causal(3, 2), "S"),
    (lambda: masks.causal(2, 3.5), "S"),
    (lambda: masks.causal(1, "2"), "S"),
    (lambda: masks.window(3, 0), "width"),
    (lambda: masks.window(3, 1.5), "width"),
    (lambda: masks.window(3, 2, 2), "S"),
    (lambda: masks.strided(3, 0), "stride"),
    (lambda: masks.fixed(3, -2), "stride"),
    (lambda: masks.padding(torch.ones(2, 3)), "mask"),
    (lambda: masks.padding(torch.ones(2, 3, dtype=torch.int64)), "mask"),
    (lambda: masks.padding([[True]]), "mask"),
    (lambda: masks.padding(torch.ones(3, dtype=torch.bool)), "mask"),
    (lambda: masks.padding(torch.ones(1, 1, 1, 3, dtype=torch.bool)), "mask"),
    (lambda: masks.additive(torch.ones(2, 2)), "mask"),
    (lambda: masks.additive(torch.ones(2, 2, dtype=torch.bool), torch.int64), "dtype"),
    (lambda: masks.lengths([1, 2], 3), "lengths"),
    (lambda: masks.lengths(torch.tensor([1.0]), 3), "lengths"),
    (lambda: masks.lengths(torch.tensor([1j]), 3), "lengths"),
    (lambda: masks.lengths(torch.tensor([True]), 3), "lengths"),
    (lambda: masks.lengths(torch.tensor([[1]]), 3), "lengths"),
    (lambda: masks.lengths(torch.tensor([4]), 3), "lengths"),
    (lambda: masks.lengths(torch.tensor([-1]), 3), "lengths"),
    (lambda: masks.lengths(torch.tensor([1]), 2.5), "T"),
])  # fmt: skip
def test_bad_input_names_the_argument(call, name):
    with pytest.raises((ValueError, TypeError), match=rf"{name}.*: got .*expected") as error:
        call()
    assert len(str(error.value)) < 200


def test_a_mask_lies_where_it_is_asked_for():
    for mask in (masks.causal(3, device="meta"), masks.window(3, 2, device="meta"), masks.strided(3, 2, 4, "meta")):
        assert mask.device.type == "meta"
    assert masks.additive(masks.fixed(3, 2, device="meta")).device.type == "meta"
