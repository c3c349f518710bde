"""Attention: plain, online and fused agree, rows without a key, heads and groups, the cache, what is recorded."""

import math
from dataclasses import replace
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lmcourse import attention, masks
from lmcourse.attention import (
    View,
    attention_weights,
    fast_attention,
    masked_scores,
    online_attention,
    plain_attention,
)
from lmcourse.configuration import Config
from lmcourse.gpt import GPT
from lmcourse.multihead import Attention, Cache, LayerCache, recorded
from lmcourse.positions import rotary, rotate
from lmcourse.t5 import T5



def fused_attention(*given, **options):
    """``fast_attention`` as it is for long texts: torch's kernel, with gradients too."""
    with mock.patch.object(attention, "SHORT", 0):
        return fast_attention(*given, **options)


KERNELS = [plain_attention, online_attention, fused_attention, fast_attention]
TOLERANCE = {torch.float64: 1e-13, torch.float32: 1e-5}


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def problem(B=2, H=4, G=4, T=7, S=7, d=6, dtype=torch.float64, seed=0):
    shapes = ((B, H, T, d), (B, G, S, d), (B, G, S, d))
    return tuple(draw(*shape, seed=seed + i, dtype=dtype).requires_grad_() for i, shape in enumerate(shapes))


def outcome(kernel, leaves, view=View(), scale=None, **options):
    """Values and the gradients of every leaf (and the bias) for one fixed upstream gradient."""
    leaves = tuple(leaves) + ((view.bias,) if view.bias is not None and view.bias.requires_grad else ())
    out = kernel(*leaves[:3], view, scale, **options)
    upstream = draw(*out.shape, seed=99, dtype=out.dtype)
    return (out, *torch.autograd.grad(out, leaves, upstream))


def loops(q, k, v, view=View(), scale=None):
    """The equation, number by number."""
    (B, H, T, d), (G, S) = q.shape, k.shape[1:3]
    q, k, v, scale = q.detach(), k.detach(), v.detach(), d**-0.5 if scale is None else scale
    mask = torch.ones(B, H, T, S, dtype=torch.bool) if view.mask is None else view.mask.expand(B, H, T, S)
    bias = torch.zeros(B, H, T, S) if view.bias is None else view.bias.detach().expand(B, H, T, S)
    out = torch.zeros(B, H, T, d, dtype=torch.float64)
    for b, h, t in ((b, h, t) for b in range(B) for h in range(H) for t in range(T)):
        g = h // (H // G)
        keys = [s for s in range(S) if mask[b, h, t, s] and not (view.causal and s > t + S - T)]
        scores = [float(q[b, h, t] @ k[b, g, s]) * scale + float(bias[b, h, t, s]) for s in keys]
        odds = [math.exp(x - max(scores)) for x in scores]
        for s, odd in zip(keys, odds):
            out[b, h, t] += odd / sum(odds) * v[b, g, s]
    return out


# ------------------------------------------------------------------------------------------ three ways, one result


def views(B, H, T, S, dtype):
    some = torch.rand(B, 1, T, S, generator=torch.Generator().manual_seed(5)) < 0.6
    real = torch.ones(B, S, dtype=torch.bool)
    real[0, : S // 2] = False
    bias = draw(1, H, T, S, seed=6, dtype=dtype).requires_grad_()
    return {
        "all": View(),
        "causal": View(causal=True),
        "mask": View(mask=some),
        "padding": View(mask=masks.padding(real)),
        "bias": View(bias=bias),
        "column": View(mask=some[..., :1], bias=bias[..., :1]),
        "causal, mask": View(causal=True, mask=some),
        "causal, bias": View(causal=True, bias=bias),
        "everything": View(causal=True, mask=some, bias=bias),
    }


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("G", [4, 2, 1])
@pytest.mark.parametrize("T, S", [(7, 7), (3, 11), (1, 5), (1, 1)])
@pytest.mark.parametrize("kind", list(views(1, 1, 1, 1, torch.float64)))
def test_plain_online_and_fused_agree(kind, T, S, G, dtype):
    leaves = problem(G=G, T=T, S=S, dtype=dtype)
    view = views(2, 4, T, S, dtype)[kind]
    right = outcome(plain_attention, leaves, view)
    torch.testing.assert_close(right[0].double(), loops(*leaves, view), rtol=0, atol=TOLERANCE[dtype])
    others = [outcome(fused_attention, leaves, view), outcome(fast_attention, leaves, view)]
    others += [outcome(online_attention, leaves, view, size=size) for size in (1, 2, 3, 5, S, S + 1, 64)]
    for other in others:
        for ours, theirs in zip(other, right, strict=True):
            assert torch.isfinite(ours).all()
            torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE[dtype])
    with torch.no_grad():  # torch has other kernels where no gradient is asked for
        torch.testing.assert_close(fast_attention(*leaves, view), right[0], rtol=0, atol=TOLERANCE[dtype])


def test_short_and_long_texts_take_the_two_ways_of_fast_attention(monkeypatch):
    taken = []
    kept, torchs = attention._kept_attention, torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(attention, "_kept_attention", lambda *a: taken.append("kept") or kept(*a))
    spy = lambda *a, **o: taken.append("torch's") or torchs(*a, **o)  # noqa: E731
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    short, long = problem(B=1, H=1, G=1, T=2, S=512), problem(B=1, H=1, G=1, T=2, S=513)
    fast_attention(*short), fast_attention(*long), fused_attention(*short)
    with torch.no_grad():
        fast_attention(*short)
    assert taken == ["kept", "torch's", "torch's", "torch's"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_wrong_variants_differ(kernel):
    q, k, v = problem(T=3, S=5, G=2)
    view = View(causal=True, bias=draw(1, 4, 3, 5, seed=7))
    right = kernel(q, k, v, view)
    torch.testing.assert_close(right, loops(q, k, v, view))
    early = View(mask=torch.ones(3, 5).tril().bool(), bias=view.bias)  # queries at the start of the keys
    for wrong in (
        kernel(q, k, v, view, scale=24**-0.5),  # 1/√D instead of 1/√d
        kernel(q, k, v, view, scale=1.0),
        kernel(q, k, v, replace(view, causal=False)),
        kernel(q, k, v, replace(view, bias=-view.bias)),
        kernel(q, k.flip(1), v.flip(1), view),  # the other group's keys
        kernel(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1), view),  # groups dealt out in turn
        kernel(q, k, v, early),
    ):
        assert not torch.allclose(wrong, right, atol=1e-3)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_equal_finite_differences(kernel):
    view = View(causal=True, bias=draw(1, 2, 3, 4, seed=8))
    leaves = problem(B=1, H=2, G=1, T=3, S=4, d=2)
    assert torch.autograd.gradcheck(lambda q, k, v: kernel(q, k, v, view), leaves)


@given(st.integers(1, 6), st.integers(0, 6), st.integers(1, 9), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_online_equals_plain_for_random_sizes_and_masks(T, before, size, seed):
    q, k, v = (x.detach() for x in problem(B=1, H=2, G=2, T=T, S=T + before, d=2, seed=seed))
    mask = torch.rand(1, 2, T, T + before, generator=torch.Generator().manual_seed(seed)) < 0.4
    view = View(causal=seed % 2 == 0, mask=mask)
    torch.testing.assert_close(online_attention(q, k, v, view, size=size), plain_attention(q, k, v, view))


# ----------------------------------------------------------------------------------------------- the factor 1/√d


@pytest.mark.parametrize("d", [4, 64])
def test_scores_of_unit_variance_have_variance_1(d):
    H = 4
    q, k = draw(8, H, 64, d, seed=1), draw(8, H, 64, d, seed=2)
    variance = masked_scores(q, k).var()
    assert variance == pytest.approx(1, abs=0.15)
    by_width = masked_scores(q, k, scale=(H * d) ** -0.5).var()  # the mistake that others shipped: √D
    assert by_width == pytest.approx(1 / H, abs=0.05) and by_width < 0.5
    assert masked_scores(q, k, scale=1.0).var() == pytest.approx(d, rel=0.15)
    assert masked_scores(q, k, scale=1 / d).var() < 0.5


def test_variance_with_means():
    """d (1 + μ_q² + μ_k²) before the factor, for components with means: the book's statement."""
    d, a, b = 16, 0.5, 1.0
    q, k = draw(32, 1, 64, d, seed=1) + a, draw(32, 1, 64, d, seed=2) + b
    variance = masked_scores(q, k).var(dim=(0,)).mean()  # over the draws: the means themselves are constant
    assert variance == pytest.approx(1 + a**2 + b**2, rel=0.1)


# ------------------------------------------------------------------------------------------- rows without any key


def blind(T=4, S=6):
    """Row 1 sees nothing; row 2 sees the last key only, so online's first blocks are empty for it."""
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[1], mask[2, :-1] = False, False
    return mask


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_query_without_a_key_gets_zeros_and_a_zero_gradient(kernel, dtype):
    q, k, v = problem(T=4, S=6, dtype=dtype)
    for options in [{"size": n} for n in (1, 2, 5, 6, 64)] if kernel is online_attention else [{}]:
        out, dq, dk, dv = outcome(kernel, (q, k, v), View(mask=blind()), **options)
        assert (out[:, :, 1] == 0).all() and (dq[:, :, 1] == 0).all()
        assert all(torch.isfinite(x).all() for x in (out, dq, dk, dv))
        torch.testing.assert_close(out[:, :, 2], v[:, :, -1], rtol=0, atol=0)
        seeing = [0, 2, 3]
        rest = kernel(q[:, :, seeing], k, v, View(mask=blind()[seeing]), **options)
        torch.testing.assert_close(rest, out[:, :, seeing])
        assert (rest != 0).any(-1).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_large_gradient_at_a_blind_query_reaches_nobody(kernel, dtype):
    q, k, v = problem(T=4, S=6, dtype=dtype)
    gradients = torch.autograd.grad(1e12 * kernel(q, k, v, View(mask=blind()))[:, :, 1].sum(), (q, k, v))
    assert all((g == 0).all() for g in gradients)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_bias_of_minus_infinity_is_a_mask(kernel):
    q, k, v = problem(T=4, S=6)
    bias = masks.additive(blind(), torch.float64)
    by_bias, by_mask = (outcome(kernel, (q, k, v), view) for view in (View(bias=bias), View(mask=blind())))
    for ours, right in zip(by_bias, by_mask):
        torch.testing.assert_close(ours, right)
        assert torch.isfinite(ours).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("size", [1e3, 1e15])
def test_very_large_scores(kernel, size):
    """exp of any of these scores overflows; the largest wins, as it should."""
    q, k, v = problem(T=5, S=5, dtype=torch.float32)
    out, *gradients = outcome(kernel, (q * size, k * size, v), View(causal=True))
    assert all(torch.isfinite(x).all() for x in (out, *gradients))
    best = masked_scores(q.double(), k.double(), View(causal=True)).argmax(-1)
    winner = v.gather(2, best[..., None].expand_as(v))
    torch.testing.assert_close(out, winner, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        naive = (q * size @ (k * size).mT).exp()
        assert not torch.isfinite(naive / naive.sum(-1, keepdim=True)).all()


@pytest.mark.parametrize("offset", [-1e4, -1e30, 1e4])
def test_a_constant_added_to_all_scores_changes_nothing(offset):
    q, k, v = (x.detach() * 0 for x in problem(T=3, S=5, dtype=torch.float32))
    v = draw(*v.shape, dtype=torch.float32)
    for kernel in KERNELS:
        out = kernel(q, k, v, View(bias=torch.full((1, 1, 3, 5), offset)))
        torch.testing.assert_close(out, v.mean(2, keepdim=True).expand_as(out))


# ------------------------------------------------------------------------------------------------------- weights


def test_weights_are_distributions_over_the_keys():
    q, k, v = problem(T=4, S=6)
    weights = attention_weights(q, k, View(mask=blind()))
    sums = torch.tensor([1, 0, 1, 1], dtype=torch.float64).expand(2, 4, 4)
    torch.testing.assert_close(weights.sum(-1), sums)
    assert (weights >= 0).all() and (weights[:, :, ~blind()] == 0).all()
    over_queries = torch.softmax(masked_scores(q, k), -2)  # the wrong axis
    assert not torch.allclose(over_queries.sum(-1), torch.ones(2, 4, 4, dtype=torch.float64))
    torch.testing.assert_close(attention_weights(q, k), torch.softmax(q @ k.mT / 6**0.5, -1))


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_positions_a_permutation_of_tokens_permutes_the_output(kernel):
    q, k, v = problem()
    order = torch.randperm(7, generator=torch.Generator().manual_seed(3))
    permuted = [x[:, :, order] for x in (q, k, v)]
    torch.testing.assert_close(kernel(*permuted), kernel(q, k, v)[:, :, order])
    torch.testing.assert_close(kernel(q, *permuted[1:]), kernel(q, k, v))  # keys are a set
    causal = View(causal=True)
    assert not torch.allclose(kernel(*permuted, causal), kernel(q, k, v, causal)[:, :, order], atol=1e-3)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("G", [1, 2])
def test_groups_equal_heads_with_repeated_keys_and_values(kernel, G):
    q, k, v = problem(G=G)
    repeated = tuple(torch.cat([x[:, h // (4 // G)][:, None] for h in range(4)], 1) for x in (k, v))
    torch.testing.assert_close(kernel(q, k, v), kernel(q, *repeated))


# --------------------------------------------------------------------------------------------------------- layer


def config(**options):
    return Config(**dict(vocabulary=50, positions=200, layers=2, width=16, heads=4) | options)


def projections(layer, x, memory=None):
    """Queries of ``x``, keys and values of ``memory`` or of ``x``: rows of the matrices in this order."""
    if hasattr(layer, "query_key_value"):
        assert memory is None or memory is x
        weight, bias = layer.query_key_value.weight, layer.query_key_value.bias
    else:
        weight = torch.cat([layer.query.weight, layer.key_value.weight])
        bias = None if layer.query.bias is None else torch.cat([layer.query.bias, layer.key_value.bias])
    n = layer.output.in_features
    G = (len(weight) - n) // 2
    parts = zip(weight.split([n, G, G]), [None] * 3 if bias is None else bias.split([n, G, G]))
    return [torch.nn.functional.linear(y, *part) for y, part in zip((x, *[x if memory is None else memory] * 2), parts)]


def by_the_paper(layer, x, memory=None, causal=False):
    """Concat(head_1 … head_H) W_O, one head after the other: section 3.2.2."""
    memory = x if memory is None else memory
    d, H = layer.d, layer.output.in_features // layer.d
    queries, keys, values = projections(layer, x, memory)
    G = keys.shape[-1] // d
    heads = []
    for h in range(H):
        g = h // (H // G)
        mine, shared = slice(h * d, (h + 1) * d), slice(g * d, (g + 1) * d)
        q, k, v = queries[..., mine], keys[..., shared], values[..., shared]
        scores = q @ k.mT / math.sqrt(d) if layer.scale is None else q @ k.mT
        if causal:
            scores = scores + masks.additive(masks.causal(x.shape[1]), x.dtype)
        heads.append(torch.softmax(scores, -1) @ v)
    return layer.output(torch.cat(heads, -1))


@pytest.mark.parametrize("options", [
    {}, {"kv_heads": 2}, {"kv_heads": 1}, {"head_width": 6}, {"scale_scores": False}, {"bias": False},
])  # fmt: skip
@pytest.mark.parametrize("cross", [False, True])
def test_layer_equals_the_paper_head_by_head(options, cross):
    torch.manual_seed(0)
    layer = Attention(config(**options), cross).double()
    x, memory = draw(2, 5, 16), draw(2, 7, 16, seed=1) if cross else None
    torch.testing.assert_close(layer(x, memory=memory), by_the_paper(layer, x, memory))
    if not cross:
        torch.testing.assert_close(layer(x, View(causal=True)), by_the_paper(layer, x, causal=True))
        assert not torch.allclose(layer(x, View(causal=True)), by_the_paper(layer, x), atol=1e-3)


def test_grouped_layer_equals_a_multi_head_layer_with_repeated_weights():
    torch.manual_seed(0)
    grouped, full = Attention(config(kv_heads=2)).double(), Attention(config()).double()
    state = grouped.state_dict()
    for name in ("query_key_value.weight", "query_key_value.bias"):
        queries, shared = state[name].split([16, 16])
        rows = shared.unflatten(0, (2, 2, 4))  # keys and values, groups, d
        state[name] = torch.cat([queries, rows.repeat_interleave(2, 1).flatten(0, 2)])
    full.load_state_dict(state)
    x = draw(2, 5, 16)
    torch.testing.assert_close(grouped(x, View(causal=True)), full(x, View(causal=True)))
    state["query_key_value.weight"] = state["query_key_value.weight"].flip(0)
    full.load_state_dict(state)
    assert not torch.allclose(grouped(x), full(x), atol=1e-3)


def test_rotation_turns_queries_and_keys_but_not_values():
    torch.manual_seed(0)
    layer, x = Attention(config()).double(), draw(2, 5, 16)
    turn = tuple(part.double() for part in rotary(torch.arange(5), 4))
    q, k, v = (layer.split(part) for part in projections(layer, x))
    join = lambda heads: layer.output(heads.transpose(1, 2).flatten(2))  # noqa: E731
    right = join(plain_attention(rotate(q, *turn), rotate(k, *turn), v))
    torch.testing.assert_close(layer(x, View(rotation=turn)), right)
    for wrong in (
        plain_attention(q, rotate(k, *turn), v),
        plain_attention(rotate(q, *turn), rotate(k, *turn), rotate(v, *turn)),
    ):
        assert not torch.allclose(layer(x, View(rotation=turn)), join(wrong), atol=1e-4)


@pytest.mark.parametrize("kernel", [plain_attention, fused_attention, fast_attention])
def test_dropout_works_in_training_only(kernel):
    torch.manual_seed(0)
    layer, x = Attention(config(dropout=0.5)).double(), draw(2, 5, 16)
    layer.kernel = kernel
    assert not torch.allclose(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    torch.testing.assert_close(layer(x), by_the_paper(layer, x))


@pytest.mark.parametrize("kernel", [plain_attention, fused_attention, fast_attention])
def test_dropout_drops_weights_and_keeps_their_mean(kernel):
    """3,000 draws at once, as a batch; with v = 1 for one key the output is that key's weight."""
    q, k, v = (x.detach()[:1].expand(3000, -1, -1, -1).clone() for x in problem(B=1, H=1, G=1, T=2, S=3))
    v = torch.eye(6)[:3].double().expand_as(v).clone().requires_grad_()
    torch.manual_seed(0)
    out = kernel(q.requires_grad_(), k, v, View(dropout=0.25)).detach()[..., :3]
    weights = attention_weights(q, k).detach()
    kept = out / weights
    assert set(kept.round(decimals=6).unique().tolist()) == {0, round(4 / 3, 6)}
    assert (kept == 0).double().mean() == pytest.approx(0.25, abs=0.02)
    torch.testing.assert_close(out.mean(0), weights[0], rtol=0, atol=0.05)


# --------------------------------------------------------------------------------------------------------- cache


@given(st.lists(st.integers(1, 70), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_what_a_cache_returns_is_all_that_was_put_in(chunks):
    T = sum(chunks)
    k, v = draw(2, 3, T, 4), draw(2, 3, T, 4, seed=1)
    cache, start = LayerCache(), 0
    for chunk in chunks:
        got = cache.extend(k[:, :, start : start + chunk], v[:, :, start : start + chunk])
        start += chunk
        assert cache.length == start
        assert torch.equal(got[0], k[:, :, :start]) and torch.equal(got[1], v[:, :, :start])
        assert got[0].shape[2] <= cache.buffers[0].shape[2] <= max(64, 2 * T)


@pytest.mark.parametrize("dtype, bytes", [(torch.float32, 4), (torch.float64, 8), (torch.bfloat16, 2)])
@pytest.mark.parametrize("G", [1, 2, 4])
def test_bytes_of_a_cache(dtype, bytes, G):
    """2·layers·B·G·T·d numbers: groups save what heads do not share."""
    model, cache = GPT(config(kv_heads=G)).to(dtype).eval(), Cache()
    for block in model.stack.blocks:
        block.attention.sublayer.kernel = plain_attention  # torch's, in bfloat16, needs what the processor has
    assert cache.bytes == 0 and cache.length == 0
    with torch.no_grad():
        for n in (3, 1, 66):
            model(torch.ones(5, n, dtype=torch.int64), cache=cache)
    assert cache.length == 70 and sorted(cache) == [0, 1]
    assert cache.bytes == 2 * 2 * 5 * G * 70 * 4 * bytes
    assert cache.bytes != 2 * 2 * 5 * 4 * 70 * 4 * bytes or G == 4


def test_memory_is_read_once():
    torch.manual_seed(0)
    layer, cache = Attention(config(), cross=True), LayerCache()
    x, memory = draw(2, 3, 16, dtype=torch.float32), draw(2, 7, 16, seed=1, dtype=torch.float32)
    with torch.no_grad():
        right = layer(x, memory=memory)
        assert torch.equal(layer(x, memory=memory, cache=cache), right)
        memory.fill_(float("nan"))  # the same tensor, which is not read again
        assert torch.equal(layer(x, memory=memory, cache=cache), right)
        with pytest.raises(ValueError, match="cache: got another memory"):
            layer(x, memory=memory.clone(), cache=cache)
    assert cache.length == 0 and cache.memory[1].shape == (2, 4, 7, 4)


# ------------------------------------------------------------------------------------------------------- recorded


def test_recorded_weights_equal_those_by_hand():
    generator = torch.Generator().manual_seed(0)
    model = GPT(config(initial=0.3), generator).double().eval()
    ids = torch.randint(0, 50, (2, 6), generator=generator)
    with recorded(model) as weights:
        scores = model(ids)
    torch.testing.assert_close(scores, model(ids))
    assert [w.shape for w in weights] == [(2, 4, 6, 6)] * 2 and not any(w.requires_grad for w in weights)
    states: list = []
    model.hidden(ids, states=states)
    for block, x, got in zip(model.stack.blocks, states, weights):
        layer, x = block.attention.sublayer, block.attention.norm(x)
        q, k, _ = (layer.split(part) for part in projections(layer, x))
        right = torch.softmax((q @ k.mT / 2).masked_fill(~masks.causal(6), -math.inf), -1)
        torch.testing.assert_close(got, right)
        by_width = torch.softmax((q @ k.mT / 4).masked_fill(~masks.causal(6), -math.inf), -1)
        assert not any(torch.allclose(got, wrong, atol=1e-4) for wrong in (torch.softmax(q @ k.mT / 2, -1), by_width))


def test_recorded_names_every_call_of_an_encoder_and_decoder():
    model = T5(Config.t5(vocabulary=50, layers=2, width=16, heads=4), torch.Generator().manual_seed(0)).double().eval()
    inputs = torch.arange(5)[None]
    with torch.no_grad(), recorded(model) as weights:
        model(inputs, torch.ones(1, 3, dtype=torch.int64))
        assert [tuple(w.shape[-2:]) for w in weights] == [(5, 5)] * 2 + [(3, 3), (3, 5)] * 2
        first = model.encoder.blocks[0].attention
        layer, x = first.sublayer, first.norm(model.embedding(inputs))
        q, k, _ = (layer.split(part) for part in projections(layer, x))
        bias = model.encoder.bias(5, 5)
        torch.testing.assert_close(weights[0], torch.softmax(q @ k.mT + bias, -1))  # T5 has no 1/√d
        for wrong in (q @ k.mT / 2 + bias, q @ k.mT, (q @ k.mT + bias) / 2):
            assert not torch.allclose(weights[0], torch.softmax(wrong, -1), atol=1e-3)


def test_recorded_gives_every_layer_its_kernel_back():
    model = GPT(config())
    first, second = (block.attention.sublayer for block in model.stack.blocks)
    first.kernel = online_attention
    with recorded(model):
        assert first.kernel is second.kernel is not plain_attention
    assert first.kernel is online_attention and second.kernel is fast_attention
    with pytest.raises(RuntimeError, match="within"), recorded(model):
        raise RuntimeError("within")
    assert first.kernel is online_attention and second.kernel is fast_attention
    with recorded(model) as outer:
        with recorded(model) as inner:
            model(torch.ones(1, 3, dtype=torch.int64))
        model(torch.ones(1, 3, dtype=torch.int64))
    assert (len(outer), len(inner)) == (2, 2) and first.kernel is online_attention


# ------------------------------------------------------------------------------------------------------ bad input

ONE = torch.ones(1, 2, 3, 4)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("q, k, v, name", [
    (ONE[0], ONE, ONE, "q"),
    (ONE, ONE[0], ONE, "k"),
    (ONE, ONE, ONE[0], "v"),
    ([[1.0]], ONE, ONE, "q"),
    (ONE, ONE[..., :2], ONE, "q, k, v"),
    (ONE, ONE, ONE[..., :2], "q, k, v"),
    (ONE, ONE, ONE[:, :, :2], "q, k, v"),
    (ONE, ONE[:, :1], ONE, "q, k, v"),
    (ONE.repeat(1, 2, 1, 1)[:, :3], ONE, ONE, "q, k, v"),
    (ONE, ONE.repeat(2, 1, 1, 1), ONE.repeat(2, 1, 1, 1), "q, k, v"),
])  # fmt: skip
def test_wrong_shapes_are_named(kernel, q, k, v, name):
    with pytest.raises(ValueError, match=f"^{name}: got .*expected"):
        kernel(q, k, v)


@pytest.mark.parametrize("kernel", KERNELS)
def test_causal_with_more_queries_than_keys(kernel):
    with pytest.raises(ValueError, match="S: got 3 keys for 5 queries"):
        kernel(torch.ones(1, 2, 5, 4), ONE, ONE, View(causal=True))


@pytest.mark.parametrize("call, name", [
    (lambda: online_attention(ONE, ONE, ONE, size=0), "size"),
    (lambda: online_attention(ONE, ONE, ONE, size=-1), "size"),
    (lambda: online_attention(ONE, ONE, ONE, View(dropout=0.1)), "view"),
    (lambda: plain_attention(ONE, ONE, ONE, View(mask=torch.ones(3, 3))), "mask"),
    (lambda: plain_attention(ONE, ONE, ONE, View(mask=torch.ones(3, 2).bool())), "mask"),
    (lambda: fast_attention(ONE, ONE, ONE, View(mask=torch.ones(2, 1, 3, 3).bool())), "mask"),
    (lambda: fast_attention(ONE, ONE, ONE, View(bias=torch.ones(3, 3).bool())), "bias"),
    (lambda: online_attention(ONE, ONE, ONE, View(bias=torch.ones(1, 3, 3, 3))), "bias"),
    (lambda: Attention(config())(torch.ones(1, 3, 8)), "x"),
    (lambda: Attention(config())(torch.ones(1, 3, 16), memory=ONE[0]), "memory"),
    (lambda: Attention(config(), cross=True)(torch.ones(1, 3, 16)), "memory"),
])  # fmt: skip
def test_bad_input_names_the_argument(call, name):
    with pytest.raises((ValueError, TypeError), match=rf"{name}.*: got .*expected"):
        call()
