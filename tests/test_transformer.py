"""The block and what is built of it: nobody sees the future or padding, norms, tying, initial weights, the thesis."""

import copy
import math
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lmcourse import attention
from lmcourse import gpt as gpt_module
from lmcourse.attention import View, fast_attention, online_attention, plain_attention
from lmcourse.bert import BERT, Classifier
from lmcourse.configuration import Config, differences
from lmcourse.gpt import GPT, GPTClassifier
from lmcourse.initialisation import initialise
from lmcourse.masks import lengths
from lmcourse.multihead import Cache
from lmcourse.objectives import cross_entropy
from lmcourse.t5 import T5, shifted
from lmcourse.transformer import Block, Embedding, FeedForward, Head, Residual, Stack, norm
from torch import nn
from torch.nn import functional as F

V, D = 50, 16


def fused_attention(*given):
    """``fast_attention`` as it is for long texts: torch's kernel, with gradients too."""
    with mock.patch.object(attention, "SHORT", 0):
        return fast_attention(*given)


KERNELS = [plain_attention, online_attention, fused_attention, fast_attention]
POSITIONS = ["learned", "sinusoidal", "relative", "rotary"]


def config(**options):
    """Small, with weights large enough for attention to matter."""
    return Config(**dict(vocabulary=V, positions=160, layers=2, width=D, heads=4, initial=0.3) | options)


def t5_config(**options):
    return Config.t5(**dict(vocabulary=V, layers=2, width=D, heads=4) | options)


def bert_config(**options):
    return Config.bert(**dict(vocabulary=V, positions=160, layers=2, width=D, heads=4, initial=0.3) | options)


def made(kind, config, seed=0, kernel=fast_attention, dtype=torch.float32):
    """A model whose biases and norms are not 0 and 1 either."""
    generator = torch.Generator().manual_seed(seed)
    model = kind(config, generator).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator).to(dtype)
    for module in model.modules():
        if hasattr(module, "kernel"):
            module.kernel = kernel
    return model.eval()


def ids(*shape, seed=0, most=V):
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(seed))


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ------------------------------------------------------------------------------------- nobody sees the future

SEEN = [dict(position=p, kv_heads=g) for p in POSITIONS for g in (None, 2)]
SEEN += [dict(window=5), dict(window=1, position="relative")]
SEEN += [dict(norm="rms", activation="swiglu", bias=False, position="rotary", kv_heads=1), dict(norm_first=False)]


def first_change(run, tokens, t):
    """The first place whose output changes, to the last bit, when every token from ``t`` on becomes another one."""
    before, after = run(tokens), run(torch.cat([tokens[:, :t], (tokens[:, t:] + 1) % V], 1))
    differs = (before != after).flatten(2).any(-1).any(0)
    return int(differs.int().argmax()) if bool(differs.any()) else None


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("options", SEEN, ids=str)
def test_gpt_does_not_see_the_future(options, kernel, train):
    model = made(GPT, config(**options), kernel=kernel).train(train)
    with torch.set_grad_enabled(train):
        for T in (2, 17, 64, 65, 130):
            for t in {1, T // 2, T - 1}:
                assert first_change(model, ids(2, T), t) == t


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("window", [1, 2, 5])
def test_a_window_reaches_as_far_back_as_it_says_for_each_layer(window, kernel):
    model, tokens = made(GPT, config(window=window), kernel=kernel), ids(1, 20)
    changed = tokens.clone()
    changed[0, 6] = (changed[0, 6] + 1) % V
    for run, layers in ((lambda x: model.hidden(x), 2), (lambda x: one_block(model, x), 1)):
        differs = (run(tokens) != run(changed)).any(-1)[0].nonzero().flatten().tolist()
        assert differs == list(range(6, 6 + layers * (window - 1) + 1))


def one_block(model, tokens):
    x = model.embedding(tokens)
    return model.stack.blocks[0](x, model.stack.view(x, None, None))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_gpt_that_looks_ahead_is_found_out(kernel):
    model = made(GPT, config(), kernel=kernel)
    model.stack.causal = False
    assert first_change(model, ids(2, 17), 8) == 0
    off_by_one = made(GPT, config(), kernel=kernel)
    for block in off_by_one.stack.blocks:
        layer = block.attention.sublayer
        shifted_mask = lambda q, k, v, view, scale: kernel(  # noqa: E731
            q, k, v, View(mask=torch.ones(q.shape[2], k.shape[2]).tril(1).bool()), scale
        )
        layer.kernel = shifted_mask
    assert first_change(off_by_one, ids(2, 17), 8) == 6  # one place for each of the two layers


@pytest.mark.parametrize("position", POSITIONS)
def test_bert_does_see_what_comes_later(position):
    assert first_change(made(BERT, bert_config(position=position)), ids(2, 17), 8) == 0


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("options", [{}, {"kv_heads": 2}, {"position": "learned"}, {"position": "rotary"}], ids=str)
def test_the_decoder_of_t5_does_not_see_the_future_and_its_encoder_does(options, kernel):
    model, inputs = made(T5, t5_config(**options), kernel=kernel), ids(2, 9, seed=1)
    for T in (2, 17, 65):
        for t in {1, T // 2, T - 1}:
            assert first_change(lambda outputs: model(inputs, outputs), ids(2, T), t) == t
            with torch.no_grad():
                assert first_change(lambda outputs: model(inputs, outputs), ids(2, T), t) == t
    assert first_change(model.encode, inputs, 5) == 0
    assert first_change(lambda x: model(x, ids(2, 5)), inputs, 8) == 0, "every output sees the whole input"


@pytest.mark.parametrize("kind, options", [(GPT, config()), (BERT, bert_config())])
def test_rows_of_a_batch_do_not_see_each_other(kind, options):
    model, tokens = made(kind, options), ids(3, 9)
    with torch.no_grad():
        before, changed = model(tokens), tokens.clone()
        changed[1] = (changed[1] + 1) % V
        after = model(changed)
    assert torch.equal(before[[0, 2]], after[[0, 2]]) and not torch.equal(before[1], after[1])


# ------------------------------------------------------------------------------------------- nobody sees padding

LENGTHS = [5, 9, 3, 1]
PADDED = [(GPT, config(position=p)) for p in POSITIONS] + [(GPT, config(kv_heads=2, position="rotary"))]
PADDED += [(GPT, config(window=3))]
PADDED += [(BERT, bert_config()), (BERT, bert_config(position="rotary"))]
ATOL = 1e-13  # float64; measured: 2e-14


def padded(rows, left, fill):
    """Rows of several lengths → (B, T) ids and the attention mask."""
    T = max(map(len, rows))
    pads = [torch.full((T - len(row),), fill) for row in rows]
    tokens = torch.stack([torch.cat([p, r] if left else [r, p]) for p, r in zip(pads, rows)])
    mask = lengths(torch.tensor([len(row) for row in rows]), T)
    return tokens, mask.flip(1) if left else mask


def gradients(model, loss):
    names, parameters = zip(*model.named_parameters())
    return dict(zip(names, torch.autograd.grad(loss, parameters, allow_unused=True)))


def same_gradients(ours, right):
    for name, g in right.items():
        assert (g is None) == (ours[name] is None), name
        assert g is None or torch.allclose(ours[name], g, rtol=1e-10, atol=ATOL), name


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind, options", PADDED)
def test_a_padded_batch_equals_its_rows_alone(kind, options, kernel, left):
    model = made(kind, options, kernel=kernel, dtype=torch.float64)
    rows = [ids(n, seed=n) for n in LENGTHS]
    tokens, mask = padded(rows, left, fill=7)
    scores = model(tokens, mask)
    for i, row in enumerate(rows):
        torch.testing.assert_close(scores[i, mask[i]], model(row[None])[0], rtol=0, atol=ATOL)
    unmasked = model(tokens)
    assert not torch.allclose(unmasked[2, mask[2]], model(rows[2][None])[0], atol=1e-3) or (kind is GPT and not left)

    targets = ids(*tokens.shape, seed=3)
    ours = gradients(model, model.loss(tokens, targets, mask.double(), mask))
    alone = [model.loss(r[None], targets[i, mask[i]][None], torch.ones(1, len(r)).double()) for i, r in enumerate(rows)]
    same_gradients(ours, gradients(model, sum(n * loss for n, loss in zip(LENGTHS, alone)) / sum(LENGTHS)))
    everything = gradients(model, model.loss(tokens, targets, torch.ones_like(mask).double(), mask))
    assert not torch.allclose(everything["embedding.tokens.weight"], ours["embedding.tokens.weight"], atol=1e-4)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_t5_with_padded_inputs_equals_its_rows_alone(kernel, left):
    model = made(T5, t5_config(), kernel=kernel, dtype=torch.float64)
    rows = [ids(n, seed=n) for n in LENGTHS]
    inputs, mask = padded(rows, left, fill=7)
    outputs = [ids(n, seed=n + 20) for n in (4, 2, 6, 3)]
    targets, counted = padded(outputs, False, fill=0)
    scores = model(inputs, shifted(targets), mask)
    for i, (row, out) in enumerate(zip(rows, outputs)):
        torch.testing.assert_close(scores[i, counted[i]], model(row[None], shifted(out[None]))[0], rtol=0, atol=ATOL)
    assert not torch.allclose(model(inputs, shifted(targets))[2], scores[2], atol=1e-3)

    ours = gradients(model, model.loss(inputs, targets, counted.double(), mask))
    alone = [model.loss(r[None], o[None], torch.ones(1, len(o)).double()) for r, o in zip(rows, outputs)]
    right = sum(len(o) * loss for o, loss in zip(outputs, alone)) / sum(map(len, outputs))
    same_gradients(ours, gradients(model, right))


@pytest.mark.parametrize("fill", [0, 7, V - 1])
@pytest.mark.parametrize("kind, options", PADDED)
def test_what_stands_at_padding_changes_nothing(kind, options, fill):
    model, rows = made(kind, options), [ids(n, seed=n) for n in LENGTHS]
    with torch.no_grad():
        for left in (False, True):
            (tokens, mask), (other, _) = padded(rows, left, fill), padded(rows, left, fill=3)
            assert torch.equal(model(tokens, mask)[mask], model(other, mask)[mask])


def test_padding_gets_no_gradient():
    model = made(GPT, config(tied=False))
    tokens, mask = padded([ids(n, seed=n, most=V - 1) for n in LENGTHS], False, fill=V - 1)
    model.loss(tokens, ids(*tokens.shape), mask.float(), mask).backward()
    assert (model.embedding.tokens.weight.grad[V - 1] == 0).all()
    assert (model.embedding.positions.weight.grad[9:] == 0).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind, options", PADDED)
def test_a_row_of_padding_alone_is_finite_and_harms_nobody(kind, options, kernel):
    model, tokens = made(kind, options, kernel=kernel).train(), ids(2, 6)
    mask = torch.tensor([[True] * 6, [False] * 6])
    scores = model(tokens, mask)
    assert torch.isfinite(scores).all()
    torch.testing.assert_close(scores[:1], model(tokens[:1]), rtol=0, atol=1e-5)
    ours = gradients(model, model.loss(tokens, tokens, mask.float(), mask))
    alone = gradients(model, model.loss(tokens[:1], tokens[:1], torch.ones(1, 6)))
    for name, g in ours.items():
        assert g is None or torch.allclose(g, alone[name], rtol=1e-3, atol=1e-5), name
    model.zero_grad()
    scores.sum().backward()  # also where somebody asks for a gradient at padding
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


# ------------------------------------------------------------------------------------------ norms, block equations


@pytest.mark.parametrize("D", [2, 3, 16])
@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
def test_layer_norm_is_its_equation(D, epsilon):
    """(x - mean) / √(population variance + ε) · w + b."""
    layer = norm(Config(V, width=D, heads=1, epsilon=epsilon)).double()
    with torch.no_grad():
        layer.weight.copy_(draw(D, seed=1)), layer.bias.copy_(draw(D, seed=2))
    x = draw(4, D) * 2 + 1
    deviation = x - x.mean(-1, keepdim=True)
    right = lambda variance, eps=epsilon: deviation / (variance + eps).sqrt() * layer.weight + layer.bias  # noqa: E731
    population, sample = (x.var(-1, correction=c, keepdim=True) for c in (0, 1))
    torch.testing.assert_close(layer(x), right(population))
    outside = deviation / (population.sqrt() + epsilon) * layer.weight + layer.bias
    for wrong in (right(sample), right(population, 0), outside):
        assert not torch.allclose(layer(x), wrong, rtol=0, atol=1e-7)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
def test_rms_norm_is_its_equation(epsilon):
    """x / √(mean square + ε) · w, nothing subtracted, no bias."""
    layer = norm(config(norm="rms", epsilon=epsilon)).double()
    with torch.no_grad():
        layer.weight.copy_(draw(D, seed=1))
    x = draw(4, D) * 2 + 1
    square = x.square().mean(-1, keepdim=True)
    torch.testing.assert_close(layer(x), x / (square + epsilon).sqrt() * layer.weight)
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    for wrong in (
        x / (square.sqrt() + epsilon) * layer.weight,
        x / (x.square().sum(-1, keepdim=True) + epsilon).sqrt() * layer.weight,
        (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + epsilon).sqrt() * layer.weight,
        x / square.sqrt() * (1 + layer.weight),
    ):
        assert not torch.allclose(layer(x), wrong, rtol=0, atol=1e-8)


def test_a_model_without_biases_has_none():
    llama = Config.llama(V, layers=1, width=D, heads=4)
    for kind, options in ((GPT, llama), (T5, t5_config()), (GPT, config(bias=False))):
        assert not [name for name, _ in kind(options).named_parameters() if name.endswith("bias")]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_residual_before_and_after(dropout):
    x = draw(2, 3, D)
    sublayer = nn.Linear(D, D).double()
    for norm_first in (True, False):
        layer = Residual(config(norm_first=norm_first, dropout=dropout), sublayer).double().eval()
        with torch.no_grad():
            layer.norm.weight.copy_(draw(D, seed=1))
        before, after = x + sublayer(layer.norm(x)), layer.norm(x + sublayer(x))
        right, wrong = (before, after) if norm_first else (after, before)
        torch.testing.assert_close(layer(x), right)
        assert not torch.allclose(layer(x), wrong, atol=1e-2)
        assert not torch.allclose(layer(x), x + layer.norm(sublayer(x)), atol=1e-2)
        if dropout:
            out = layer.train()(x)
            if norm_first:  # the residual itself is never dropped, what is added is dropped or doubled
                added = (out - x) / sublayer(layer.norm(x))
                assert set(added.round(decimals=6).unique().tolist()) == {0, 2}


GELU = lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))  # noqa: E731
TANH = lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))  # noqa: E731
FUNCTIONS = {
    "gelu": GELU,
    "gelu_tanh": TANH,
    "relu": lambda x: x.clamp(min=0),
    "geglu": TANH,
    "swiglu": lambda x: x / (1 + torch.exp(-x)),
}


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_feed_forward_is_its_equation(activation):
    torch.manual_seed(0)
    layer, x = FeedForward(config(activation=activation, hidden=24)).double(), 3 * draw(2, 3, D)
    f, z = FUNCTIONS[activation], x @ layer.up.weight.T + layer.up.bias
    finish = lambda h: h @ layer.down.weight.T + layer.down.bias  # noqa: E731
    gated = activation in ("geglu", "swiglu")
    assert z.shape[-1] == (48 if gated else 24)
    torch.testing.assert_close(layer(x), finish(f(z[..., :24]) * z[..., 24:] if gated else f(z)))
    if gated:
        assert not torch.allclose(layer(x), finish(z[..., :24] * f(z[..., 24:])), atol=1e-3), "the gate's other half"
    for other in FUNCTIONS.values():
        wrong = finish(other(z[..., :24]) * (z[..., 24:] if gated else 1))
        assert other is f or not torch.allclose(layer(x), wrong, atol=1e-5)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("cross", [False, True])
def test_block_is_its_sublayers_in_order(norm_first, cross):
    torch.manual_seed(0)
    block, x, memory = Block(config(norm_first=norm_first), cross).double(), draw(2, 5, D), draw(2, 7, D, seed=1)

    def residual(layer, x, *rest):
        return x + layer.sublayer(layer.norm(x), *rest) if norm_first else layer.norm(x + layer.sublayer(x, *rest))

    right = residual(block.attention, x, View(causal=True))
    if cross:
        right = residual(block.cross_attention, right, View(), memory)
    right = residual(block.feed_forward, right)
    torch.testing.assert_close(block(x, View(causal=True), memory), right)
    assert not torch.allclose(block(x, View(), memory), right, atol=1e-3)
    assert not cross or not torch.allclose(block(x, View(causal=True), 2 * memory), right, atol=1e-3)


@pytest.mark.parametrize("kind, options", PADDED)
def test_states_are_the_input_and_the_output_of_each_block(kind, options):
    model, tokens, states = made(kind, options), ids(2, 5), []
    with torch.no_grad():
        out = model.hidden(tokens, states=states)
        assert len(states) == model.config.layers + 1 and all(s.shape == (2, 5, D) for s in states)
        assert torch.equal(states[-1], out) and torch.equal(states[0], model.embedding(tokens))
        block = model.stack.blocks[0](states[0], model.stack.view(states[0], None, None))
        assert torch.equal(states[1], block)
        assert torch.equal(model.hidden(tokens), out)
        last = model.stack.blocks[1](states[1], model.stack.view(states[1], None, None))
        assert torch.equal(out, model.stack.norm(last))
        assert torch.equal(last, out) != model.config.norm_first, "a norm at the end where it comes first in each block"


def test_positions_enter_where_they_should():
    """The same token everywhere: without positions all states would be equal."""
    tokens = torch.full((1, 6), 3)
    for position in POSITIONS:
        x = made(GPT, config(position=position)).embedding(tokens)
        assert torch.equal(x[0, 0], x[0, 5]) == (position in ("relative", "rotary"))
    rows = made(BERT, bert_config(first_position=2, norm_first=True, segments=0)).embedding
    right = rows.tokens(tokens) + rows.positions.weight[2:8]
    torch.testing.assert_close(rows(tokens), right)


def test_segments():
    embedding = made(BERT, bert_config()).embedding
    tokens, segments = ids(2, 5), torch.tensor([[0, 0, 1, 1, 1], [0, 1, 0, 1, 0]])
    x = embedding.tokens(tokens) + embedding.positions.weight[:5] + embedding.segments.weight[segments]
    torch.testing.assert_close(embedding(tokens, segments=segments), embedding.norm(x))
    assert torch.equal(embedding(tokens), embedding(tokens, segments=torch.zeros_like(tokens)))
    assert not torch.allclose(embedding(tokens), embedding(tokens, segments=segments), atol=1e-3)


# ------------------------------------------------------------------------------------------------ head, tying, loss

MODELS = [(GPT, config()), (BERT, bert_config()), (T5, t5_config()), (GPT, config(tied=False))]


def count(model, head=True):
    return sum(p.numel() for name, p in model.named_parameters() if head or not name.startswith("head."))


def run(model, tokens):
    return model(tokens, tokens) if isinstance(model, T5) else model(tokens)


@pytest.mark.parametrize("kind, options", MODELS)
def test_a_tied_head_is_the_embedding_itself(kind, options):
    model = kind(options)
    table, matrix = model.embedding.tokens.weight, model.head.vocabulary.weight
    assert (table is matrix) == (table.data_ptr() == matrix.data_ptr()) == options.tied
    both = kind(Config(**{**vars(options), "tied": not options.tied}))
    assert abs(count(both) - count(model)) == V * D
    model.embedding.tokens.weight.data[3] = 5.0
    assert bool((model.head.vocabulary.weight[3] == 5).all()) == options.tied


@pytest.mark.parametrize("kind, options", MODELS[:3])
def test_a_tied_matrix_gets_its_gradient_from_both_uses(kind, options):
    tied = made(kind, options, dtype=torch.float64)
    apart = kind(Config(**{**vars(options), "tied": False})).double().eval()
    apart.head.scale = tied.head.scale  # T5 drops the factor where the head has a matrix of its own
    apart.load_state_dict(tied.state_dict())
    tokens, targets = ids(2, 6, most=20), ids(2, 6, seed=1)
    for model in (tied, apart):
        model.loss(tokens, targets, torch.ones(2, 6).double()).backward()
    use, score = apart.embedding.tokens.weight.grad, apart.head.vocabulary.weight.grad
    assert use.abs().max() > 0 and score.abs().max() > 0
    torch.testing.assert_close(tied.embedding.tokens.weight.grad, use + score)
    assert not torch.allclose(tied.embedding.tokens.weight.grad, score, atol=1e-5)
    assert not torch.allclose(tied.embedding.tokens.weight.grad, use, atol=1e-5)


def test_heads_are_their_equations():
    x = draw(2, 3, D)
    plain = made(GPT, config(), dtype=torch.float64)
    torch.testing.assert_close(plain.head(x), x @ plain.embedding.tokens.weight.T)
    scaled = made(T5, t5_config(), dtype=torch.float64)
    torch.testing.assert_close(scaled.head(x), x @ scaled.embedding.tokens.weight.T / math.sqrt(D))
    bert = made(BERT, bert_config(), dtype=torch.float64)
    linear, _, layer_norm = bert.head.transform
    z = layer_norm(GELU(x @ linear.weight.T + linear.bias))
    torch.testing.assert_close(bert.head(x), z @ bert.embedding.tokens.weight.T + bert.head.vocabulary.bias)
    assert bert.head.vocabulary.bias.shape == (V,) and plain.head.vocabulary.bias is None


@pytest.mark.parametrize("kind, options", MODELS)
@pytest.mark.parametrize("shares", ["ones", "some", "fractions", "one"])
def test_loss_is_the_weighted_mean_over_all_positions(kind, options, shares):
    model = made(kind, options, dtype=torch.float64)
    x, targets = draw(3, 7, D), ids(3, 7, seed=2)
    weights = {
        "ones": torch.ones(3, 7),
        "some": (ids(3, 7, seed=3) < 10).double(),
        "fractions": draw(3, 7, seed=4).clamp(min=0),
        "one": torch.eye(7)[:3] * torch.tensor([0.0, 1.0, 0.0])[:, None],
    }[shares].double()
    results = []
    for loss in (model.head.loss, by_definition(model.head)):
        leaf = x.clone().requires_grad_()
        value = loss(leaf, targets, weights)
        results.append((value, *torch.autograd.grad(value, [leaf, *model.head.parameters()])))
    for ours, right in zip(*results, strict=True):
        torch.testing.assert_close(ours, right)
    assert (results[0][1][weights == 0] == 0).all()
    value, scores = results[0][0], model.head(x)
    entropy = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none").view(3, 7)
    if shares != "ones":
        assert not torch.allclose(value, (weights * entropy).mean())  # divided by B·T
        assert not torch.allclose(value, entropy.mean() * weights.mean())  # a scalar multiplied afterwards
    moved = torch.where(weights == 0, (targets + 1) % V, targets)
    assert torch.equal(model.head.loss(x, moved, weights), value)
    assert not torch.equal(model.head.loss(x, (targets + 1) % V, weights), value)


def by_definition(head):
    def loss(x, targets, weights):
        log_p = torch.log_softmax(head(x), -1)
        return sum(
            -weights[b, t] * log_p[b, t, targets[b, t]] for b in range(len(x)) for t in range(x.shape[1])
        ) / weights.sum()

    return loss


def test_targets_are_shifted_behind_the_start():
    assert shifted(torch.tensor([[5, 6, 7], [8, 9, 1]]), start=2).tolist() == [[2, 5, 6], [2, 8, 9]]
    model = made(T5, t5_config(), dtype=torch.float64)
    inputs, targets = ids(2, 5), ids(2, 4, seed=1)
    scores = model(inputs, torch.cat([torch.full((2, 1), 3), targets[:, :-1]], 1))
    right = F.cross_entropy(scores.flatten(0, 1), targets.flatten())
    torch.testing.assert_close(model.loss(inputs, targets, torch.ones(2, 4).double(), start=3), right)
    leaking = F.cross_entropy(model(inputs, targets).flatten(0, 1), targets.flatten())
    assert not torch.allclose(leaking, right, atol=1e-3)


@pytest.mark.parametrize("kind, options", [
    (GPT, config()), (BERT, bert_config()), (T5, t5_config()),
])  # fmt: skip
def test_a_target_that_does_not_count_may_be_anything(kind, options):
    model, targets = made(kind, options), ids(2, 6, seed=1)
    weights = lengths(torch.tensor([6, 4]), 6).float()
    right = model.loss(ids(2, 6), targets, weights)
    assert torch.equal(model.loss(ids(2, 6), targets.masked_fill(weights == 0, -100), weights), right)


# ------------------------------------------------------------------------------------------------------ published


@pytest.mark.parametrize("kind, options, published", [
    (GPT, Config.gpt2("small"), 124_439_808), (GPT, Config.gpt2("medium"), 354_823_168),
    (GPT, Config.gpt2("large"), 774_030_080), (GPT, Config.gpt2("xl"), 1_557_611_200),
    (GPT, Config.gpt2(tied=False), 163_037_184),
    (BERT, Config.bert("base"), 109_482_240), (BERT, Config.bert("large"), 335_141_888),
    (BERT, Config.roberta("base"), 124_645_632), (BERT, Config.roberta("large"), 355_359_744),
    (BERT, Config.roberta("base", pooler=False), 124_055_040),
    (BERT, Config.roberta("large", pooler=False), 354_310_144),
    (T5, Config.t5("small"), 60_506_624), (T5, Config.t5("base"), 222_903_552), (T5, Config.t5("large"), 737_668_096),
])  # fmt: skip
def test_published_numbers_of_parameters(kind, options, published):
    with torch.device("meta"):
        model = kind(options)
    assert count(model, head=kind is not BERT) == published
    D, V = options.width, options.vocabulary
    head = D * D + 3 * D + V if kind is BERT else 0 if options.tied else V * D  # BERT: transform, bias, norm; bias
    assert count(model) - count(model, head=False) == head


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_llama_of_transformers_with_the_same_weights_gives_the_same(groups):
    """RMSNorm, SwiGLU, rotary positions and groups against another implementation."""
    transformers = pytest.importorskip("transformers")
    sizes = dict(vocab_size=V, hidden_size=D, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4)
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**sizes, num_key_value_heads=groups, rms_norm_eps=1e-5, tie_word_embeddings=False)
    ).double().eval()  # fmt: skip
    options = Config.llama(V, layers=2, width=D, heads=4, kv_heads=groups, hidden=40)
    model = made(GPT, options, dtype=torch.float64)
    ours = model.state_dict()
    names = {
        "model.embed_tokens.weight": ours["embedding.tokens.weight"],
        "model.norm.weight": ours["stack.norm.weight"],
        "lm_head.weight": ours["head.vocabulary.weight"],
    }
    for i in range(2):
        block, layer = f"stack.blocks.{i}.", f"model.layers.{i}."
        parts = ours[block + "attention.sublayer.query_key_value.weight"].split([D, 4 * groups, 4 * groups])
        gate, up = ours[block + "feed_forward.sublayer.up.weight"].chunk(2)
        names |= {layer + f"self_attn.{n}_proj.weight": part for n, part in zip("qkv", parts)}
        names |= {
            layer + "self_attn.o_proj.weight": ours[block + "attention.sublayer.output.weight"],
            layer + "mlp.gate_proj.weight": gate,
            layer + "mlp.up_proj.weight": up,
            layer + "mlp.down_proj.weight": ours[block + "feed_forward.sublayer.down.weight"],
            layer + "input_layernorm.weight": ours[block + "attention.norm.weight"],
            layer + "post_attention_layernorm.weight": ours[block + "feed_forward.norm.weight"],
        }
    theirs.load_state_dict(names)
    tokens = ids(2, 40)
    with torch.no_grad():
        right = theirs(tokens).logits
        torch.testing.assert_close(model(tokens), right, rtol=0, atol=1e-5)  # their angles are float32's, too
        for wrong in (dict(activation="geglu"), dict(epsilon=1e-2), dict(position="learned")):
            other = GPT(Config(**{**vars(options), **wrong})).double()
            other.load_state_dict(ours, strict=False)
            assert not torch.allclose(other(tokens), right, atol=1e-3)


# --------------------------------------------------------------------------------------------------- initial weights


def deviations(model):
    """{last part of the name: standard deviations of the matrices}."""
    found: dict = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            found.setdefault(name.rpartition(".")[2], []).append(float(module.weight.detach().std()))
    return found


def agree(measured, right):
    assert measured, "found"
    for value in measured:
        assert value == pytest.approx(right, rel=0.06)


WIDE = dict(vocabulary=300, positions=128, layers=3, width=64, heads=4)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("kind", [GPT, BERT])
def test_initial_weights_of_gpt_and_bert(kind, norm_first):
    found = deviations(kind(Config(**WIDE, norm_first=norm_first), torch.Generator().manual_seed(0)))
    added = 0.02 / math.sqrt(2 * 3) if norm_first else 0.02
    for name in ("query_key_value", "up", "tokens", "positions"):
        agree(found[name], 0.02)
    for name in ("output", "down"):
        agree(found[name], added)
        assert len(found[name]) == 3


def test_initial_weights_of_t5():
    model = T5(Config.t5(**WIDE), torch.Generator().manual_seed(0))
    found = deviations(model)
    agree(found["tokens"], 1)
    stacks = (model.encoder, model.decoder)
    both = [block.attention.sublayer.query_key_value.weight.detach() for stack in stacks for block in stack.blocks]
    agree(found["query"] + [float(w[:64].std()) for w in both], (64 * 16) ** -0.5)
    agree([float(w[part].std()) for w in both for part in (slice(64, 128), slice(128, 192))], 64**-0.5)
    for name in ("key_value", "up", "output"):
        agree(found[name], 64**-0.5)
    agree(found["down"], 256**-0.5)
    with torch.no_grad():  # what the small queries are for: scores of variance 1 without 1/√d
        layer, x = model.encoder.blocks[0].attention.sublayer, torch.randn(8, 32, 64)
        q, k, _ = (layer.split(part) for part in layer.query_key_value(x).chunk(3, -1))
        assert float((q @ k.mT).var()) == pytest.approx(1, rel=0.25)


def test_queries_start_like_keys_where_scores_are_scaled():
    model = GPT(Config(**WIDE, initial=None), torch.Generator().manual_seed(0))
    weights = [block.attention.sublayer.query_key_value.weight.detach() for block in model.stack.blocks]
    agree([float(part.std()) for w in weights for part in w.chunk(3)], 64**-0.5)


def test_initial_relative_bias_of_t5():
    model = T5(Config.t5(**WIDE | {"heads": 16}), torch.Generator().manual_seed(0))
    assert deviations(model)["table"] == pytest.approx([64**-0.5] * 2, rel=0.15)


@pytest.mark.parametrize("kind, options", MODELS)
def test_biases_start_at_0_and_norms_at_1(kind, options):
    for name, module in kind(options).named_modules():
        if isinstance(module, nn.LayerNorm | nn.RMSNorm):
            assert (module.weight == 1).all(), name
        if getattr(module, "bias", None) is not None and not isinstance(module, Stack):
            assert (module.bias == 0).all(), name


def test_initialise_leaves_norms_and_draws_all_else_anew():
    model = made(GPT, config())
    used = copy.deepcopy(model)
    initialise(model, config(), torch.Generator().manual_seed(0))
    fresh = dict(GPT(config(), torch.Generator().manual_seed(0)).named_parameters())
    for (name, ours), before in zip(model.named_parameters(), used.parameters(), strict=True):
        assert torch.equal(ours, before if "norm" in name else fresh[name]), name
    assert model.head.vocabulary.weight is model.embedding.tokens.weight


@pytest.mark.parametrize("kind, options", MODELS)
def test_the_generator_decides_the_weights_and_nothing_else_does(kind, options):
    def weights(seed, other):
        torch.manual_seed(other)
        model = kind(options, torch.Generator().manual_seed(seed))
        return torch.cat([p.flatten() for p in model.parameters()])

    assert torch.equal(weights(1, 2), weights(1, 3)) and not torch.equal(weights(1, 2), weights(2, 2))


def test_an_untied_head_is_drawn_too():
    model = GPT(Config(**WIDE, tied=False), torch.Generator().manual_seed(0))
    agree(deviations(model)["vocabulary"], 0.02)
    assert not torch.equal(model.head.vocabulary.weight, model.embedding.tokens.weight)


# ----------------------------------------------------------------------------------------------------------- cache


CHUNKS = st.lists(st.integers(1, 40), min_size=1, max_size=4)


@given(CHUNKS, st.sampled_from(POSITIONS), st.sampled_from([None, 2]), st.sampled_from([None, 3]))
@settings(max_examples=40, deadline=None)
def test_chunks_with_a_cache_equal_the_whole(chunks, position, groups, window):
    options = config(position=position, kv_heads=groups, window=window)
    model, tokens = made(GPT, options, dtype=torch.float64), ids(2, sum(chunks))
    with torch.no_grad():
        whole, cache = model(tokens), Cache()
        parts = [model(part, cache=cache) for part in tokens.split(chunks, 1)]
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=ATOL)
        assert cache.length == sum(chunks)
        if len(chunks) > 1 and position == "learned":  # places counted from 0 in each chunk
            anew = torch.cat([model(part) for part in tokens.split(chunks, 1)], 1)
            assert not torch.allclose(anew, whole, atol=1e-3)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_chunks_with_a_cache_and_padding_on_the_left(position, kernel):
    model = made(GPT, config(position=position), kernel=kernel, dtype=torch.float64)
    tokens, mask = padded([ids(n, seed=n) for n in LENGTHS], True, fill=7)
    with torch.no_grad():
        cache, parts = Cache(), []
        for start, end in ((0, 2), (2, 7), (7, 8), (8, 9)):
            parts.append(model(tokens[:, start:end], mask[:, :end], cache))
        scores = torch.cat(parts, 1)
        torch.testing.assert_close(scores[mask], model(tokens, mask)[mask], rtol=0, atol=ATOL)
        assert torch.equal(model.next_scores(tokens, mask), model(tokens, mask)[:, -1])


@pytest.mark.parametrize("kernel", KERNELS)
def test_chunks_of_t5_equal_the_whole(kernel):
    model = made(T5, t5_config(), kernel=kernel, dtype=torch.float64)
    inputs, mask = padded([ids(n, seed=n) for n in LENGTHS], False, fill=7)
    outputs = ids(4, 9, seed=5)
    with torch.no_grad():
        memory, cache = model.encode(inputs, mask), Cache()
        parts = [model.decode(part, memory, mask, cache) for part in outputs.split([3, 1, 5], 1)]
        torch.testing.assert_close(torch.cat(parts, 1), model.decode(outputs, memory, mask), rtol=0, atol=ATOL)
        last = model.next_scores(outputs, memory, mask)
        torch.testing.assert_close(last, model(inputs, outputs, mask)[:, -1], rtol=0, atol=ATOL)


def test_a_cache_after_an_interrupted_call():
    model, cache = made(GPT, config()), Cache()
    with torch.no_grad():
        model(ids(2, 3), cache=cache)
        with mock.patch.object(model.stack.blocks[1], "forward", side_effect=KeyboardInterrupt):
            with pytest.raises(KeyboardInterrupt):
                model(ids(2, 3), cache=cache)
        with pytest.raises(ValueError, match="^cache: got .*expected"):
            model(ids(2, 3), cache=cache)


def test_the_cache_of_a_model_with_fewer_layers():
    cache = Cache()
    with torch.no_grad():
        GPT(config())(X, cache=cache)
        with pytest.raises(ValueError, match="^cache: got .*expected"):
            GPT(config(layers=3))(X, cache=cache)


# ----------------------------------------------------------------------------------------------------------- thesis


def shapes(model):
    return {name: tuple(p.shape) for name, p in model.state_dict().items()}


BOTH = [options for options in SEEN if options.get("position") != "relative"]  # these: the next test
BOTH += [dict(dropout=0.1, segments=2, head_transform=True, head_bias=True)]


@pytest.mark.parametrize("options", BOTH, ids=str)
def test_gpt_and_bert_of_one_configuration_are_one_model_but_for_the_mask(options):
    """The course's thesis: one block, another mask (and another objective, which is outside the model)."""
    gpt, bert = made(GPT, config(**options)), made(BERT, config(**options), seed=1)
    assert shapes(gpt) == shapes(bert)
    bert.load_state_dict(gpt.state_dict())
    tokens = ids(2, 20)
    mask = lengths(torch.tensor([20, 11]), 20)
    with torch.no_grad():
        assert not torch.allclose(gpt(tokens), bert(tokens), atol=1e-2)
        bert.stack.causal = True
        assert torch.equal(gpt(tokens), bert(tokens))
        assert torch.equal(gpt(tokens, mask), bert(tokens, mask))
        assert torch.equal(gpt.loss(tokens, tokens, mask.float(), mask), bert.loss(tokens, tokens, mask.float(), mask))
        gpt.stack.causal = bert.stack.causal = False
        assert torch.equal(gpt(tokens), bert(tokens))


def test_relative_positions_are_the_same_table_read_on_one_side_or_both():
    """An encoder's buckets of distances reach to both sides, a decoder's do not."""
    options = config(position="relative")
    gpt, bert = made(GPT, options), made(BERT, options)
    assert shapes(gpt) == shapes(bert)
    bert.load_state_dict(gpt.state_dict())
    bert.stack.causal, bert.stack.bias.both_sides = True, False
    assert torch.equal(gpt(ids(2, 20)), bert(ids(2, 20)))


@pytest.mark.parametrize("options", SEEN, ids=str)
def test_the_decoder_of_t5_adds_cross_attention_only(options):
    t5, gpt = T5(config(**options)), GPT(config(**options))
    rename = lambda model, stack: {n.replace(stack, "stack."): s for n, s in shapes(model).items()}  # noqa: E731
    encoder = {n: s for n, s in rename(t5, "encoder.").items() if not n.startswith("decoder.")}
    decoder = {n: s for n, s in rename(t5, "decoder.").items() if not n.startswith("encoder.")}
    assert encoder == shapes(gpt)
    added = set(decoder) - set(shapes(gpt))
    assert added and all(".cross_attention." in name for name in added)
    assert {n: s for n, s in decoder.items() if n not in added} == shapes(gpt)
    rows: dict = {}
    for name in added:  # the same layer once more; its queries and keys come from two places, so in two products
        own = name.replace(".cross_attention.", ".attention.").replace(".key_value.", ".query.")
        rows.setdefault(own.replace(".query.", ".query_key_value."), []).append(decoder[name])
    for own, parts in rows.items():
        assert decoder[own] == (sum(part[0] for part in parts), *parts[0][1:])


def test_t5s_parts_with_gpts_weights_are_bert_and_gpt():
    options = config()
    t5, gpt = made(T5, options), made(GPT, options, seed=1)
    weights = {name.replace("stack.", "encoder."): w for name, w in gpt.state_dict().items()}
    assert all(name.startswith("decoder.") for name in t5.load_state_dict(weights, strict=False).missing_keys)
    bert = BERT(options).eval()
    bert.load_state_dict(gpt.state_dict())
    assert torch.equal(t5.encode(ids(2, 9)), bert.hidden(ids(2, 9)))
    t5.encoder.causal = True
    assert torch.equal(t5.encode(ids(2, 9)), gpt.hidden(ids(2, 9)))


def test_the_two_published_models_differ_in_what_is_stated_beside_the_mask():
    names = set(differences(Config.gpt2(), Config.bert()))
    assert names == {
        "vocabulary", "positions", "norm_first", "epsilon", "activation", "segments",
        "head_transform", "head_bias", "pooler",
    }  # fmt: skip


# ---------------------------------------------------------------------------------------- types, copies, files, devices


@pytest.mark.parametrize("kind, options", MODELS)
def test_state_dict_comes_back(kind, options):
    model, tokens = made(kind, options), ids(2, 5)
    again = kind(options)
    again.load_state_dict(copy.deepcopy(model.state_dict()))
    assert torch.equal(run(again.eval(), tokens), run(model, tokens))
    assert (again.embedding.tokens.weight is again.head.vocabulary.weight) == options.tied
    wrong = {name: value for name, value in model.state_dict().items() if "query_key_value" not in name}
    with pytest.raises(RuntimeError, match="query"):
        again.load_state_dict(wrong)


@pytest.mark.parametrize("kind, options", MODELS)
def test_copies_are_tied_to_themselves(kind, options):
    model, tokens = made(kind, options), ids(2, 5)
    twin = copy.deepcopy(model)
    assert torch.equal(run(twin, tokens), run(model, tokens))
    assert (twin.embedding.tokens.weight is twin.head.vocabulary.weight) == options.tied
    with torch.no_grad():
        twin.embedding.tokens.weight.zero_()
    assert not torch.equal(run(twin, tokens), run(model, tokens)) and (model.embedding.tokens.weight != 0).any()


@pytest.mark.parametrize("kind, options", MODELS)
def test_safetensors_without_pickle(kind, options, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    model, tokens = made(kind, options), ids(2, 5)
    safetensors.save_model(model, tmp_path / "model.safetensors")
    again = kind(options).eval()
    safetensors.load_model(again, tmp_path / "model.safetensors")
    assert torch.equal(run(again, tokens), run(model, tokens))
    assert (again.embedding.tokens.weight is again.head.vocabulary.weight) == options.tied


ALL = MODELS + [(GPT, config(position=p)) for p in POSITIONS[1:]] + [(BERT, config(position="relative"))]


@pytest.mark.parametrize("kind, options", ALL)
@pytest.mark.parametrize("kernel", KERNELS)
def test_double_and_bfloat16(kind, options, kernel):
    model, tokens = made(kind, options, kernel=kernel), ids(2, 9)
    right = run(model, tokens).detach()
    for dtype, tolerance in ((torch.float64, 1e-4), (torch.bfloat16, 0.1)):
        other = copy.deepcopy(model).to(dtype)
        scores = run(other, tokens)
        assert scores.dtype == dtype
        error = (scores - right).norm() / right.norm()
        assert error < tolerance
        other.loss(tokens, tokens, torch.ones(2, 9)).backward()
        learned = [p.grad for p in other.parameters() if p.grad is not None]
        assert learned and all(torch.isfinite(g).all() and g.dtype == dtype for g in learned)


@pytest.mark.parametrize("kind, options", ALL)
@pytest.mark.parametrize("kernel", KERNELS)
def test_autocast(kind, options, kernel):
    model, tokens, mask = made(kind, options, kernel=kernel), ids(2, 9), lengths(torch.tensor([9, 4]), 9)
    right = run(model, tokens).detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = run(model, tokens)
        loss = model.loss(tokens, tokens, mask.float(), mask)
    assert scores.dtype == torch.bfloat16 and (scores - right).norm() / right.norm() < 0.1
    loss.backward()
    learned = [p.grad for p in model.parameters() if p.grad is not None]
    assert learned and all(torch.isfinite(g).all() and g.dtype == torch.float32 for g in learned)
    if kind is GPT:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            cache = Cache()
            parts = torch.cat([model(part, cache=cache) for part in tokens.split([4, 5], 1)], 1)
        assert (parts - right).norm() / right.norm() < 0.1


@pytest.mark.parametrize("kind, options", ALL)
def test_meta_device(kind, options):
    with torch.device("meta"):
        model, tokens = kind(options), torch.zeros(2, 5, dtype=torch.int64)
        assert run(model, tokens).shape == (2, 5, V)
    assert all(p.device.type == "meta" for p in model.parameters())


@pytest.mark.parametrize("kind, options", MODELS)
def test_dropout_works_in_training_only(kind, options):
    model, tokens = kind(Config(**{**vars(options), "dropout": 0.3})), ids(2, 9)
    assert not torch.equal(run(model, tokens), run(model, tokens))
    model.eval()
    assert torch.equal(run(model, tokens), run(model, tokens))
    twin = kind(options)
    twin.load_state_dict(model.state_dict())
    assert torch.equal(run(twin, tokens), run(model, tokens))


def test_every_dropout_is_used():
    """Each nn.Dropout of a model is called in a forward pass."""
    for kind, options in MODELS[:3]:
        model, called = kind(options), set()
        layers = {name: m for name, m in model.named_modules() if isinstance(m, nn.Dropout)}
        for name, module in layers.items():
            module.register_forward_hook(lambda *_, name=name: called.add(name))
        run(model, ids(2, 5))
        assert called == set(layers)


# --------------------------------------------------------------------------------------------------------- bad input

SMALL = config(positions=16)
X = ids(2, 6)
TRUE = torch.ones(2, 6, dtype=torch.bool)


def described(x):
    return f"{getattr(x, 'dtype', type(x).__name__)} {list(getattr(x, 'shape', ()))}"


@pytest.mark.parametrize("tokens", [
    X + V, X - V, X.int(), X.float(), X.bool(), X[0], X[None], X[:0], X[:, :0], X.tolist(), None, torch.tensor(3),
    X.numpy(),
], ids=described)  # fmt: skip
def test_wrong_tokens(tokens):
    gpt, bert, t5 = GPT(SMALL), BERT(bert_config()), T5(t5_config())
    for call in (gpt, gpt.next_scores, bert, t5.encode, lambda x: t5.decode(x, torch.ones(2, 3, D))):
        with pytest.raises((ValueError, TypeError), match="^tokens: got .*expected .*"):
            call(tokens)


@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
def test_too_long(position):
    model, cache = GPT(config(positions=16, position=position)), Cache()
    model(ids(1, 16))
    with pytest.raises(ValueError, match="^tokens: got 17 in a row, expected at most 16"):
        model(ids(1, 17))
    with torch.no_grad():
        model(ids(1, 10), cache=cache)
        with pytest.raises(ValueError, match="^tokens: got 17 in a row"):
            model(ids(1, 7), cache=cache)
        assert cache.length == 10
        model(ids(1, 6), cache=cache)
    for position in ("rotary", "relative"):
        assert GPT(config(positions=16, position=position))(ids(1, 40)).shape == (1, 40, V)
    shorter = BERT(bert_config(positions=16, first_position=2))
    shorter(ids(1, 14))
    with pytest.raises(ValueError, match="expected at most 14"):
        shorter(ids(1, 15))


@pytest.mark.parametrize("mask", [
    TRUE.long(), TRUE.float(), TRUE[:, :5], TRUE[:1], TRUE[0], TRUE[None], TRUE[:, None, None],
    TRUE.numpy(), TRUE.tolist(),
], ids=described)  # fmt: skip
def test_wrong_attention_mask(mask):
    for model in (GPT(SMALL), BERT(bert_config())):
        with pytest.raises((ValueError, TypeError), match="^attention_mask: got .*expected"):
            model(X, mask)
    with pytest.raises((ValueError, TypeError), match="^attention_mask: got .*expected"):
        T5(t5_config())(X, X, mask)


@pytest.mark.parametrize("segments", [
    X * 0 + 2, X * 0 - 1, torch.zeros(2, 6), torch.zeros(2, 6).bool(), torch.zeros(2, 6).int(),
    X[0] * 0, X[:, :1] * 0, X[:1] * 0, X[:, :5] * 0, (X * 0).tolist(),
], ids=described)  # fmt: skip
def test_wrong_segments(segments):
    with pytest.raises((ValueError, TypeError), match="^segments: got .*expected"):
        BERT(bert_config())(X, None, segments)


def test_segments_for_a_model_without():
    with pytest.raises((ValueError, TypeError), match="^segments: got .*expected None"):
        BERT(config())(X, None, torch.zeros_like(X))


MEMORY = torch.ones(2, 4, D)


@pytest.mark.parametrize("memory, mask, name", [
    (None, None, "memory"), (MEMORY[..., :8], None, "memory"), (MEMORY[:1], None, "memory"),
    (MEMORY[0], None, "memory"),
    (MEMORY.tolist(), None, "memory"), (MEMORY, TRUE[:, :5], "memory_mask"), (MEMORY, TRUE[:1, :4], "memory_mask"),
    (MEMORY, TRUE[0, :4], "memory_mask"), (MEMORY, TRUE[:, :4].long(), "memory_mask"),
    (MEMORY, TRUE[:, :4].tolist(), "memory_mask"),
])  # fmt: skip
def test_wrong_memory(memory, mask, name):
    with pytest.raises((ValueError, TypeError), match=f"^{name}: got .*expected"):
        T5(t5_config()).decode(X, memory, mask)


@pytest.mark.parametrize("before, after", [(1, 2), (2, 1), (2, 3)])
@pytest.mark.parametrize("length", [3, 64])
def test_a_cache_of_another_batch(before, after, length):
    model, cache = GPT(config()), Cache()
    with torch.no_grad():
        model(ids(before, length), cache=cache)
        with pytest.raises(ValueError, match=f"^cache: got .*{after}, expected {before}"):
            model(ids(after, 2), cache=cache)
        assert cache.length == length, "what was read stays as it was"


@pytest.mark.parametrize("cache", [{}, [], True])
def test_something_else_for_a_cache(cache):
    with torch.no_grad(), pytest.raises(TypeError, match="^cache: got .*expected"):
        GPT(config())(X, cache=cache)


def test_a_cache_while_gradients_are_kept():
    """Either it is refused, or gradients flow: not torch's "modified by an inplace operation" in the backward pass."""
    model, cache = GPT(config()), Cache()
    try:
        loss = sum(model(part, cache=cache).sum() for part in X.split(3, 1))
    except ValueError as error:
        assert str(error).startswith("cache: got")
        return
    loss.backward()


@pytest.mark.parametrize("config", [None, {}, "gpt2", Config])
@pytest.mark.parametrize("kind", [GPT, BERT, T5])
def test_something_else_for_a_configuration(kind, config):
    with pytest.raises(TypeError, match="^config: got .*expected a Config"):
        kind(config)


def test_next_scores_after_padding_on_the_right():
    tokens, mask = padded([ids(n, seed=n) for n in LENGTHS], False, fill=7)
    with pytest.raises(ValueError, match="^attention_mask: got .*expected .*left"):
        GPT(SMALL).next_scores(tokens, mask)


@pytest.mark.parametrize("targets, weights, name", [
    (X[:, :5], torch.ones(2, 6), "targets"), (X, torch.ones(2, 5), "weights"), (X + V, torch.ones(2, 6), "targets"),
    (X.float(), torch.ones(2, 6), "targets"), (X - V, torch.ones(2, 6), "targets"), (X, torch.zeros(2, 6), "weights"),
    (X, -torch.ones(2, 6), "weights"), (X, torch.full((2, 6), math.nan), "weights"), (X[0], torch.ones(6), "targets"),
])  # fmt: skip
def test_wrong_targets_and_weights(targets, weights, name):
    with pytest.raises((ValueError, TypeError), match=f"^{name}: "):
        GPT(SMALL).loss(X, targets, weights)


def test_an_embedding_and_a_head_of_another_size_do_not_fit():
    with pytest.raises(RuntimeError, match="size mismatch"):
        GPT(config()).load_state_dict(GPT(config(vocabulary=V + 1)).state_dict())
    assert Head(config(tied=False), Embedding(config())).vocabulary.weight.shape == (V, D)


def test_t5_reads_targets_that_do_not_count():
    """Their loss is not wanted, but the next target is predicted from them."""
    g = torch.Generator().manual_seed(0)
    model = T5(Config.t5(vocabulary=30, layers=1, width=16, heads=2), g).double()
    inputs, targets = torch.randint(1, 30, (2, 6), generator=g), torch.randint(1, 30, (2, 5), generator=g)
    weights = torch.tensor([[0.0, 0.0, 1.0, 0.0, 1.0]] * 2, dtype=torch.float64)
    read = torch.cat([torch.zeros_like(targets[:, :1]), targets[:, :-1]], dim=1)
    right = cross_entropy(model(inputs, read), targets, weights)
    torch.testing.assert_close(model.loss(inputs, targets, weights), right)
    hidden = model(inputs, read * torch.tensor([1, 0, 0, 1, 0]))
    assert not torch.allclose(cross_entropy(hidden, targets, weights), right), "weight 0 does not mean unread"


def test_a_row_of_padding_only_has_no_last_token():
    mask = torch.tensor([[True, True], [False, False]])
    with pytest.raises(ValueError, match="attention_mask: got a row that is False throughout"):
        gpt_module.last(torch.ones(2, 2, 4), mask)


def test_a_cache_belongs_to_one_memory():
    model = T5(Config.t5(vocabulary=30, layers=1, width=16, heads=2)).eval()
    tokens, cache = torch.ones(1, 1, dtype=torch.int64), Cache()
    with torch.no_grad():
        first, second = (model.encode(torch.full((1, 3), i)) for i in (4, 5))
        model.next_scores(tokens, first, cache=cache)
        with pytest.raises(ValueError, match="cache: got another memory"):
            model.next_scores(tokens, second, cache=cache)


# ------------------------------------------------------------------------------- where values are not there


@pytest.mark.parametrize("kind", [GPT, BERT, T5])
def test_a_training_step_looks_at_no_value(kind):
    """Tensors on "meta" have no values, and reading one raises; on XLA it would run half a step."""
    model = kind(Config(16, positions=8, layers=1, width=8, heads=2)).to("meta")
    ids = torch.zeros(2, 4, dtype=torch.int64, device="meta")
    loss = model.loss(ids, ids, ids.float(), ids == 0)
    loss.backward()
    assert loss.shape == () and all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("kind, more", [(Classifier, dict(pooler=True)), (GPTClassifier, {})])
def test_nor_does_one_of_a_classifier(kind, more):
    config = Config(16, positions=8, layers=1, width=8, heads=2, **more)
    model = kind((BERT if more else GPT)(config), 2).to("meta")
    ids = torch.zeros(2, 4, dtype=torch.int64, device="meta")
    assert model.loss(ids, ids[:, 0], ids == 0).shape == ()
