"""Recurrent networks: the plain loops are torch's, what a state carries, and the language model around them."""

import math

import pytest
import torch
from lmcourse import generation, objectives
from lmcourse.recurrent import FAST, PLAIN, Recurrent, RecurrentConfig, RecurrentLM, Weights, lstm_step, rnn_step
from torch import nn

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
V = 17


def generator(n=0):
    return torch.Generator().manual_seed(n)


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.empty(*shape, dtype=dtype).normal_(generator=generator(seed))


def layer(kind, inputs=5, width=7, dtype=torch.float64):
    """With both biases drawn, so that none hides behind zeros."""
    new = Recurrent(kind, inputs, width, generator=generator(1)).to(dtype)
    for i, bias in enumerate((new.bias_ih, new.bias_hh)):
        bias.data.copy_(draw(*bias.shape, seed=i, dtype=dtype))
    return new


def theirs(ours):
    """Torch's own layer with the same weights."""
    kind = nn.RNN if ours.kind == "rnn" else nn.LSTM
    reference = kind(ours.inputs, ours.width, batch_first=True).to(ours.weight_hh.dtype)
    reference.load_state_dict({f"{k}_l0": v for k, v in ours.state_dict().items()})
    return reference


def outcome(run, module, x, state):
    """Outputs, last state, and the gradients of inputs, first state and parameters for one upstream gradient."""
    leaves = [x, *state, *module.parameters()]
    outputs, last = run(x, state)
    last = last if isinstance(last, tuple) else (last,)
    loss = sum((part * draw(*part.shape, seed=i, dtype=x.dtype)).sum() for i, part in enumerate((outputs, *last)))
    return [outputs, *last, *torch.autograd.grad(loss, leaves)]


def distance(a, b):
    return max(float((x.detach().squeeze() - y.detach().squeeze()).abs().max()) for x, y in zip(a, b, strict=True))


def compared(kind, kernel, dtype=torch.float64):
    ours = layer(kind, dtype=dtype)
    reference = theirs(ours)
    ours.kernel = kernel
    x = draw(3, 11, 5, seed=5, dtype=dtype).requires_grad_()
    state = tuple(draw(3, 7, seed=i, dtype=dtype).requires_grad_() for i in range(6, 7 + (kind == "lstm")))

    def run(x, state):
        state = tuple(part[None] for part in state)
        return reference(x, state if kind == "lstm" else state[0])

    return distance(outcome(ours, ours, x, state), outcome(run, reference, x, state))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kernels", [PLAIN, FAST])
@pytest.mark.parametrize("kind", ["rnn", "lstm"])
@pytest.mark.filterwarnings("error")
def test_outputs_and_gradients_are_torchs(kind, kernels, dtype):
    assert compared(kind, kernels[kind], dtype) < TOLERANCE[dtype]


def slipped(step):
    """A loop over a step that is wrong."""

    def kernel(x, state, weights):
        outputs = []
        for t in range(x.shape[1]):
            state = step(x[:, t], state, weights)
            outputs.append(state[0])
        return torch.stack(outputs, 1), state

    return kernel


def wrong_order(x, state, weights):
    """Gates in the order i, f, o, g."""
    halves = [part.chunk(4) for part in weights]
    return lstm_step(x, state, Weights(*(torch.cat([p[0], p[1], p[3], p[2]]) for p in halves)))


def no_tanh(x, state, weights):
    """h = o ⊙ c."""
    h, c = lstm_step(x, state, weights)
    return h / c.tanh() * c, c


def coupled(x, state, weights):
    """i + f = 1."""
    i, f, g, o = (x @ weights.input.mT + state[0] @ weights.recurrent.mT + weights.bias).chunk(4, -1)
    c = f.sigmoid() * state[1] + (1 - f.sigmoid()) * g.tanh() + 0 * i
    return o.sigmoid() * c.tanh(), c


@pytest.mark.parametrize("wrong", [wrong_order, no_tanh, coupled])
def test_a_slip_in_the_lstm_is_found(wrong):
    assert compared("lstm", slipped(lstm_step)) < 1e-12
    assert compared("lstm", slipped(wrong)) > 1e-2


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, s, w: (torch.sigmoid(x @ w.input.mT + s[0] @ w.recurrent.mT + w.bias),),
        lambda x, s, w: (torch.tanh(x @ w.input.mT + s[0] @ w.recurrent + w.bias),),  # not transposed
    ],
)
def test_a_slip_in_the_tanh_network_is_found(wrong):
    assert compared("rnn", slipped(rnn_step)) < 1e-12
    assert compared("rnn", slipped(wrong)) > 1e-2


def test_one_step_by_hand():
    """W, U, b = 1, 0, 0 in one dimension; the gates of x = 0 are 1/2, the candidate 0."""
    zero, one = torch.zeros(4, 1), torch.ones(4, 1)
    h, c = lstm_step(torch.zeros(1, 1), (torch.ones(1, 1), torch.tensor([[2.0]])), Weights(one, zero, zero[:, 0]))
    assert float(c) == 1 and float(h) == pytest.approx(math.tanh(1) / 2)
    (h,) = rnn_step(torch.tensor([[0.5]]), (torch.tensor([[3.0]]),), Weights(one[:1], 2 * one[:1], one[0]))
    assert float(h) == pytest.approx(math.tanh(0.5 + 6 + 1))


# --------------------------------------------------------------------------------------------- the layer


@pytest.mark.parametrize("bias", [0, 1, 3])
def test_the_forget_gate_starts_at_its_bias(bias):
    ours = Recurrent("lstm", 4, 6, forget_bias=bias, generator=generator())
    assert ours.weights.bias.tolist() == [0] * 6 + [bias] * 6 + [0] * 12
    assert Recurrent("rnn", 4, 6, forget_bias=bias).weights.bias.tolist() == [0] * 6


def test_weights_come_from_the_generator_within_their_bounds():
    first, again, other = (Recurrent("lstm", 30, 25, generator=generator(n)) for n in (1, 1, 2))
    assert torch.equal(first.weight_ih, again.weight_ih) and torch.equal(first.weight_hh, again.weight_hh)
    assert not torch.equal(first.weight_hh, other.weight_hh)
    for matrix in (first.weight_ih, first.weight_hh):
        assert 0.19 < float(matrix.detach().abs().max()) <= 0.2  # 1/√25


@pytest.mark.parametrize("kind", ["rnn", "lstm"])
def test_a_sequence_in_two_parts_is_the_whole(kind):
    ours, x = layer(kind), draw(2, 9, 5)
    whole, last = ours(x)
    first, state = ours(x[:, :4])
    second, state = ours(x[:, 4:], state)
    assert distance([torch.cat([first, second], 1), *state], [whole, *last]) < 1e-14


def test_another_recurrent_matrix_stands_for_its_own():
    ours, x, other = layer("lstm"), draw(2, 9, 5), draw(28, 7)
    given, own = ours(x, recurrent=other)[0], ours(x)[0]
    ours.weight_hh.data.copy_(other)
    assert torch.equal(given, ours(x)[0]) and not torch.allclose(given, own)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Recurrent("gru", 3, 4),
        lambda: Recurrent("rnn", 0, 4),
        lambda: Recurrent("rnn", 3, 4.0),
        lambda: Recurrent("lstm", 3, 4, forget_bias="1"),
        lambda: layer("rnn")(draw(3, 5)),
        lambda: layer("rnn")(draw(2, 3, 4)),
        lambda: layer("rnn")(draw(2, 0, 5)),
        lambda: layer("lstm")(draw(2, 3, 5), (draw(2, 7),)),
        lambda: layer("lstm")(draw(2, 3, 5), draw(2, 7)),
        lambda: layer("rnn")(draw(2, 3, 5), (draw(3, 7),)),
        lambda: RecurrentConfig(0),
        lambda: RecurrentConfig(9, layers=0),
        lambda: RecurrentConfig(9, kind="LSTM"),
        lambda: RecurrentConfig(9, tied=1),
        lambda: RecurrentLM(9),
        lambda: model()(torch.zeros(2, 3)),
        lambda: model()(torch.full((2, 3), V)),
        lambda: model()(torch.zeros(2, 3).long(), torch.ones(2, 3).bool()),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises((ValueError, TypeError), match="got .*expected"):
        call()


# ------------------------------------------------------------------------------------ the language model


def model(**more):
    return RecurrentLM(RecurrentConfig(V, **(dict(width=6, hidden=10) | more)), generator(3)).double()


def ids(B=3, T=12, seed=0):
    return torch.randint(V, (B, T), generator=generator(seed))


def test_sizes_and_tying():
    assert RecurrentConfig(V, 6, 10, 3).sizes == [6, 10, 10, 6]
    assert RecurrentConfig(V, 6, 10, 1).sizes == [6, 6]
    assert RecurrentConfig(V, 6, 10, 2, tied=False).sizes == [6, 10, 10]
    tied, free = model(), model(tied=False)
    assert tied.head.weight is tied.embedding.weight and free.head.weight.shape == (V, 10)
    layers = 4 * (10 * (6 + 10 + 2) + 10 * (10 + 10 + 2) + 6 * (10 + 6 + 2))
    assert sum(p.numel() for p in tied.parameters()) == V * 6 + layers + V


@pytest.mark.parametrize("kind", ["rnn", "lstm"])
def test_no_token_sees_the_future(kind):
    lm, tokens = model(kind=kind), ids()
    changed = tokens.clone()
    changed[:, 7] = (tokens[:, 7] + 1) % V
    scores, other = lm(tokens), lm(changed)
    assert torch.equal(scores[:, :7], other[:, :7]) and not torch.allclose(scores[:, 7], other[:, 7])


@pytest.mark.parametrize("kind", ["rnn", "lstm"])
def test_the_state_is_carried_and_its_past_is_cut(kind):
    lm, tokens, state = model(kind=kind, tied=False), ids(), {}
    parts = [lm(part, state) for part in tokens.split(5, dim=1)]
    assert distance([torch.cat(parts, 1)], [lm(tokens)]) < 1e-14
    assert sorted(state) == [0, 1, 2] and not any(part.requires_grad for parts in state.values() for part in parts)
    reached = torch.autograd.grad(parts[1].sum(), lm.embedding.weight)[0].abs().sum(1).nonzero()[:, 0]
    assert set(reached.tolist()) == set(tokens[:, 5:10].flatten().tolist()) < set(tokens.flatten().tolist())


def test_the_loss_is_the_mean_of_log_probabilities():
    lm = model()
    inputs, targets, weights = objectives.causal_lm(ids())
    by_hand = -torch.log_softmax(lm(inputs), -1).gather(-1, targets[..., None]).mean()
    assert lm.loss(inputs, targets, weights).item() == pytest.approx(by_hand.item(), abs=1e-14)
    state = {}
    lm.loss(inputs, targets, weights, state)
    assert torch.equal(state[2][0], lm.hidden(inputs)[:, -1])


def test_each_layers_states_are_given():
    lm, tokens, states = model(), ids(), []
    top = lm.hidden(tokens, states=states)
    assert [s.shape[-1] for s in states] == [6, 10, 10, 6] and states[-1] is top
    assert torch.equal(states[0], lm.embedding(tokens))
    assert torch.equal(states[1], lm.layers[0](states[0])[0])


@pytest.mark.parametrize("kind", ["rnn", "lstm"])
def test_generation_reads_each_token_once_with_the_same_text(kind):
    lm, prompt = model(kind=kind), ids(2, 4)
    cached = generation.generate(lm.next_scores, prompt, 9, temperature=1.0, generator=generator(8))
    again = generation.generate(lm.next_scores, prompt, 9, temperature=1.0, generator=generator(8), cached=False)
    assert torch.equal(cached, again) and cached.shape == (2, 13)
    assert generation.score(lm, prompt).tokens == 6


def test_it_learns():
    """A cycle of five tokens: after 60 steps the next one is known."""
    lm = RecurrentLM(RecurrentConfig(5, 8, 16, 2), generator(0))
    tokens = (torch.arange(24) % 5).repeat(4, 1)
    optimiser = torch.optim.Adam(lm.parameters(), 0.02)
    for _ in range(60):
        optimiser.zero_grad()
        loss = lm.loss(*objectives.causal_lm(tokens))
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.1
