"""ELMo: the published size, the LSTM against torch's, what each direction may see, the joint loss, the layer mix."""

import copy
import json
import math
import warnings
from dataclasses import asdict, replace

import pytest
import torch
from torch import nn

from lmcourse import elmo as elmo_module
from lmcourse import training
from lmcourse.characters import MARKS, bidirectional_lm, characters
from lmcourse.device import Device
from lmcourse.elmo import ELMo, ELMoConfig, LayerMix, ProjectedLSTM, plain_lstm, reverse
from lmcourse.vocabulary import Vocabulary

SENTENCES = [["we", "sat", "on", "the", "bank", "of", "the", "river"], ["a", "bank"], ["bankify", "the", "river"], []]
CPU = Device("cpu", torch.device("cpu"), "CPU: for a test")
VOCABULARY = Vocabulary(("the", "bank", "of", "river", "we", "sat"))
SMALL = ELMoConfig(len(VOCABULARY) + MARKS, filters=((1, 4), (3, 8)), character_width=5, width=6, units=9, longest=20)


def made(seed=0, dtype=torch.float64, **options):
    """A model with larger weights than at the start of training, so that everything shows in what it gives."""
    g = torch.Generator().manual_seed(seed)
    model = ELMo(replace(SMALL, **options), g).to(dtype).eval()
    for p in model.parameters():
        p.data.add_(torch.empty(p.shape).normal_(0, 0.3, generator=g).to(dtype))
    return model


def batch(sentences=SENTENCES):
    ids, targets, weights = bidirectional_lm(sentences, VOCABULARY, 20)
    return ids, targets, weights.double()


def count(model, but=""):
    return sum(p.numel() for name, p in model.named_parameters() if not but or not name.startswith(but))


# ---------------------------------------------------------------------------------------------------------- sizes


def test_the_published_size_to_the_last_parameter():
    config = ELMoConfig.published()
    with torch.device("meta"):
        model = ELMo(config)
        one_highway, two_biases = ELMo(replace(config, highways=1)), nn.LSTM(512, 4096, proj_size=512)
    assert count(model, "softmax") == 93_600_864
    assert count(model) - count(model, "softmax") == 793_471 * 513
    assert count(model.tokens.characters) == 262 * 16 and count(model.tokens.convolutions) == 199_168
    assert count(model.tokens.highways) == 16_785_408 and count(model.tokens.projection) == 2048 * 512 + 512
    assert count(one_highway, "softmax") != 93_600_864
    assert {count(lstm) for d in (model.forwards, model.backwards) for lstm in d.lstms} == {18_890_752}
    assert count(two_biases) == 18_890_752 + 4 * 4096
    with torch.device("meta"):
        ids = torch.full((2, 3, 50), 97)
        assert model.states(ids).shape == (3, 2, 3, 1024)


def test_the_courses_own_size():
    with torch.device("meta"):
        assert 2_000_000 < count(ELMo(ELMoConfig(8000 + MARKS))) < 2_400_000


# ----------------------------------------------------------------------------------------------------------- LSTM


def lstm(width=3, units=5, clip=None):
    layer, g = ProjectedLSTM(width, units, clip).double(), torch.Generator().manual_seed(1)
    for p in layer.parameters():
        p.data.normal_(0, 0.8, generator=g)
    return layer


def draw(*shape, seed=0):
    return torch.empty(shape, dtype=torch.float64).normal_(generator=torch.Generator().manual_seed(seed))


def parts(layer):
    weight = layer.weight_ih_l0
    return tuple(p.detach() for p in (weight[:, :-1], layer.weight_hh_l0, weight[:, -1], layer.weight_hr_l0))


def by_numbers(x, weight_x, weight_h, bias, projection, wrong=""):
    """One sequence (T, D), one unit after the other."""
    sigma, n = (lambda z: 1 / (1 + math.exp(-z))), projection.shape[1]
    h, c, outputs = [0.0] * len(projection), [0.0] * n, []
    order = (1, 0, 2, 3) if wrong == "gates" else (0, 1, 2, 3)
    for x_t in x.tolist():
        z = [
            sum(w * v for w, v in zip(weight_x[k].tolist(), x_t)) + sum(w * v for w, v in zip(weight_h[k].tolist(), h))
            + (0 if wrong == "bias" else float(bias[k]))
            for k in range(4 * n)
        ]  # fmt: skip
        i, f, g, o = (z[k * n : (k + 1) * n] for k in order)
        c = [sigma(f[k]) * c[k] + sigma(i[k]) * math.tanh(g[k]) for k in range(n)]
        m = [sigma(o[k]) * (c[k] if wrong == "tanh" else math.tanh(c[k])) for k in range(n)]
        h = [sum(w * v for w, v in zip(row.tolist(), m)) for row in projection]
        outputs.append(h)
        h = [0.0] * len(h) if wrong == "state" else h
    return torch.tensor(outputs, dtype=torch.float64)


def test_the_equations_equal_those_number_by_number():
    layer, x = lstm(), draw(1, 6, 3)
    ours = plain_lstm(x, *parts(layer))[0]
    torch.testing.assert_close(ours, by_numbers(x[0], *parts(layer)))
    for wrong in ("gates", "bias", "tanh", "state"):
        assert (ours - by_numbers(x[0], *parts(layer), wrong)).abs().max() > 1e-2, wrong


def test_the_fast_one_equals_the_equations_in_outputs_and_gradients():
    layer, x, results = lstm(), draw(4, 7, 3).requires_grad_(), []
    for call in (layer, layer.plain):
        layer.zero_grad()
        x.grad = None
        y = call(x)
        assert y.shape == (4, 7, 3)
        (y * draw(4, 7, 3, seed=2)).sum().backward()
        results.append([y.detach(), x.grad, *(p.grad.clone() for p in layer.parameters())])
    for fast, plain in zip(*results):
        torch.testing.assert_close(fast, plain)


def test_torchs_two_biases_are_our_one():
    layer, theirs, x = lstm(), nn.LSTM(3, 5, proj_size=3, batch_first=True).double(), draw(2, 4, 3)
    weight_x, weight_h, bias, projection = parts(layer)
    state = {"weight_ih_l0": weight_x, "weight_hh_l0": weight_h, "weight_hr_l0": projection}
    theirs.load_state_dict(state | {"bias_ih_l0": bias - 1, "bias_hh_l0": torch.ones(20)})
    torch.testing.assert_close(layer(x), theirs(x)[0])


def test_states_and_cells_are_clipped():
    x, free = 3 * draw(2, 9, 3), lstm()
    clipped = lstm(clip=0.4)
    ours, loose = clipped(x), free(x)
    assert ours.abs().max() == 0.4 < loose.abs().max()
    assert (ours - loose.clamp(-0.4, 0.4)).abs().max() > 1e-2, "within the recurrence, not afterwards"
    torch.testing.assert_close(lstm(clip=100.0)(x), loose)
    one = {name: torch.full(shape, 9.0) for name, shape in {"x": (4, 1), "h": (4, 1), "p": (1, 1)}.items()}
    c_clipped = plain_lstm(torch.ones(1, 3, 1), one["x"], one["h"] * 0, torch.zeros(4), one["p"] / 9, clip=0.5)
    torch.testing.assert_close(c_clipped, torch.full((1, 3, 1), math.tanh(0.5)), rtol=0, atol=2e-4)  # not tanh(1…3)


def test_no_warning_reaches_the_reader():
    model, ids = made(dtype=torch.float32), characters(SENTENCES, 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.loss(*bidirectional_lm(SENTENCES, VOCABULARY, 20)).backward()
        model.states(ids)


# --------------------------------------------------------------------------------------------- what a state may see


def seen_by(model, place, change):
    """How far the states of the top layer at ``place`` move, left and right half, when the word at ``change`` does."""
    sentence = SENTENCES[0]
    other = [*sentence[:change], "otherwise", *sentence[change + 1 :]]
    with torch.no_grad():
        difference = model.states(characters([other, SENTENCES[1]], 20)) - model.states(
            characters([sentence, SENTENCES[1]], 20)
        )
    return difference[1:, 0, place + 1].abs().amax((0,)).view(2, -1).amax(-1).tolist()


def sees_only_its_side(model):
    for place in range(8):
        for change in range(8):
            left, right = seen_by(model, place, change)
            if (left > 1e-12) != (change <= place) or (right > 1e-12) != (change >= place):
                return False
    return True


def test_backward_states_do_not_see_the_past_and_forward_ones_not_the_future():
    assert sees_only_its_side(made())


def test_a_backward_direction_that_sees_the_past_is_found(monkeypatch):
    model = made()
    monkeypatch.setattr(elmo_module, "reverse", lambda x, lengths: x)
    assert not sees_only_its_side(model)
    left, right = seen_by(model, place=5, change=2)
    assert right > 1e-3 and left > 1e-3


def test_layers_that_read_both_sides_are_found(monkeypatch):
    """What BiLSTM taggers do: each layer reads both directions of the one below. A language model must not."""
    model = made()

    def mixed(characters):
        x, left, right, real = ELMo.read(model, characters)
        both = left[0] + right[0]
        lengths = real.sum(1)
        top = reverse(model.backwards.lstms[1](reverse(both, lengths)), lengths)
        return x, [left[0], model.forwards.lstms[1](both)], [right[0], top], real

    monkeypatch.setattr(model, "read", mixed)
    assert not sees_only_its_side(model)


def test_padding_reaches_no_state():
    model, ids = made(), characters(SENTENCES, 20)
    together = model.states(ids)
    for i, sentence in enumerate(SENTENCES):
        T = len(sentence) + 2
        torch.testing.assert_close(together[:, i, :T], model.states(characters([sentence], 20))[:, 0])
        assert not together[:, i, T:].any()


def test_reversing_padding_along_is_found(monkeypatch):
    model = made()
    right = model.states(characters(SENTENCES[1:2], 20))[:, 0]
    monkeypatch.setattr(elmo_module, "reverse", lambda x, lengths: x.flip(1))
    together = model.states(characters(SENTENCES, 20))[:, 1, :4]
    torch.testing.assert_close(together[..., :6], right[..., :6])  # the left half has padding behind it
    assert (together[1:, :, 6:] - right[1:, :, 6:]).abs().max() > 1e-2


def test_reverse():
    x = torch.arange(10.0).view(2, 5, 1)
    y = reverse(x, torch.tensor([5, 3]))
    assert y[..., 0].tolist() == [[4, 3, 2, 1, 0], [7, 6, 5, 8, 9]]
    assert torch.equal(reverse(y, torch.tensor([5, 3])), x)
    assert not torch.equal(y, x.flip(1))


# ---------------------------------------------------------------------------------------------------------- states


def test_layers_of_states():
    model, ids = made(), characters(SENTENCES[:1], 20)
    states, x = model.states(ids), model.tokens(ids)
    assert states.shape == (3, 1, 10, 12)
    torch.testing.assert_close(states[0], torch.cat([x, x], -1))
    first = model.forwards.lstms[0].plain(x)
    second = model.forwards.lstms[1].plain(first) + first
    torch.testing.assert_close(states[1, ..., :6], first)  # nothing is added to the first layer
    torch.testing.assert_close(states[2, ..., :6], second)
    assert (states[1, ..., :6] - first - x).abs().max() > 1e-2
    assert (states[2, ..., :6] - second + first).abs().max() > 1e-2
    back = model.backwards.lstms[0].plain(x.flip(1))
    torch.testing.assert_close(states[1, ..., 6:], back.flip(1))
    torch.testing.assert_close(states[2, ..., 6:], (model.backwards.lstms[1].plain(back) + back).flip(1))


def test_a_word_has_other_vectors_in_another_context():
    states = made().states(characters([["the", "bank", "of"], ["a", "bank"]], 20))
    torch.testing.assert_close(states[0, 0, 2], states[0, 1, 2])
    assert (states[1:, 0, 2] - states[1:, 1, 2]).abs().amax(-1).min() > 1e-2


# ------------------------------------------------------------------------------------------------------------ loss


def by_sentences(model, sentences, shift=1, forward=1.0, backward=1.0):
    """The mean over all predictions, sentence by sentence, without padding; weights of the two directions."""
    sums = [0.0, 0.0]
    n = 0
    for sentence in sentences:
        ids, (words,), _ = batch([sentence])
        left, right = (torch.log_softmax(scores[0], -1) for scores in model(ids))
        T = len(words)
        sums[0] -= sum(left[t, words[t + shift]] for t in range(T - 1))
        sums[1] -= sum(right[t, words[t - shift]] for t in range(1, T))
        n += T - 1
    return (forward * sums[0] + backward * sums[1]) / (2 * n)


def test_the_joint_loss_sentence_by_sentence():
    model = made()
    ours = model.loss(*batch())
    torch.testing.assert_close(ours, by_sentences(model, SENTENCES))
    slips = {"shift": 0}, {"forward": 2, "backward": 0}, {"backward": 2}
    wrong = [by_sentences(model, SENTENCES, **slip) for slip in slips]
    for other in (*wrong, 2 * ours, model.loss(batch()[0], batch()[1].flip(1), batch()[2])):
        assert abs(ours - other) > 1e-2


def test_gradients_of_the_loss_equal_those_sentence_by_sentence():
    model, gradients = made(), []
    for call in (lambda: model.loss(*batch()), lambda: by_sentences(model, SENTENCES)):
        model.zero_grad()
        call().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for ours, right in zip(*gradients):
        torch.testing.assert_close(ours, right)


def test_targets_without_weight_may_be_anything():
    model, (ids, targets, weights) = made(), batch()
    right = model.loss(ids, targets, weights)
    assert torch.equal(model.loss(ids, targets.masked_fill(weights == 0, -100), weights), right)
    torch.testing.assert_close(model.loss(ids, targets, torch.ones_like(weights)), right)  # none where no word is
    known = weights * (targets != len(VOCABULARY))
    ours = model.loss(ids, targets.masked_fill(known == 0, -100), known)
    assert torch.isfinite(ours) and abs(ours - right) > 1e-3
    assert torch.equal(model.loss(ids, targets, known > 0), ours)


def test_the_loss_in_parts_is_the_loss(monkeypatch):
    model, results = made(), []
    for rows in (10**6, 3, 1):
        monkeypatch.setattr(elmo_module, "ROWS", rows)
        model.zero_grad()
        ids, targets, weights = batch()
        loss = model.loss(ids, targets, weights * draw(*weights.shape).abs())
        loss.backward()
        results.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
    for other in results[1:]:
        for ours, right in zip(other, results[0]):
            torch.testing.assert_close(ours, right)


def test_what_the_directions_share():
    """Each direction trains the token layer, the softmax and its own LSTMs, and not the other's."""
    model, ids = made(), batch()[0]
    for side, own, other in ((0, "forwards", "backwards"), (1, "backwards", "forwards")):
        model.zero_grad(set_to_none=True)
        torch.logsumexp(model(ids)[side], -1).sum().backward()
        learned = {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
        assert learned == {"tokens", "softmax", own} and other not in learned


def test_it_learns():
    model = ELMo(SMALL, torch.Generator().manual_seed(0))
    ids, targets, weights = bidirectional_lm(SENTENCES, VOCABULARY, 20)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = model.loss(ids, targets, weights)
        loss.backward()
        losses.append(loss.item())
        optimiser.step()
    assert losses[0] == pytest.approx(math.log(SMALL.vocabulary), abs=0.3) and losses[-1] < 0.6


# ------------------------------------------------------------------------------------------------------- layer mix


def mixing(scores, scale=1.0):
    mix = LayerMix(len(scores)).double()
    mix.scores.data, mix.scale.data = torch.tensor(scores).double(), torch.tensor(scale).double()
    return mix


def test_the_mix_by_hand_and_an_unnormalised_one_rejected():
    states = draw(3, 2, 4, 6)
    mix = mixing([1.0, 0.0, -2.0], scale=1.5)
    e = [math.exp(s) for s in (1, 0, -2)]
    right = 1.5 * sum(w / sum(e) * h for w, h in zip(e, states))
    torch.testing.assert_close(mix(states), right)
    unnormalised = 1.5 * sum(s * h for s, h in zip((1, 0, -2), states))
    without_scale, by_exp = right / 1.5, right * sum(e)
    for wrong in (unnormalised, without_scale, by_exp):
        assert (mix(states) - wrong).abs().max() > 1e-2


@pytest.mark.parametrize("scores", [[0.0, 0, 0], [3.0, -1, 40], [-500.0, 500, 0], [7.0]])
def test_weights_sum_to_one_and_a_shift_changes_nothing(scores):
    states = draw(len(scores), 2, 6)
    mix, shifted = mixing(scores), mixing([s + 5 for s in scores])
    assert mix.weights.sum().item() == pytest.approx(1) and (mix.weights >= 0).all()
    torch.testing.assert_close(mix(states), shifted(states))
    same = states[:1].expand_as(states)
    torch.testing.assert_close(mix(same), states[0])  # an unnormalised mix would scale it


def test_at_first_the_mix_is_the_mean_and_it_learns():
    states, mix = draw(3, 5, 6), LayerMix(3).double()
    torch.testing.assert_close(mix(states), states.mean(0))
    (mix(states) * states[2]).sum().backward()
    assert mix.scores.grad.sum() == pytest.approx(0, abs=1e-12) and mix.scores.grad[2] > 0 and mix.scale.grad != 0


# ------------------------------------------------------------------------------------------------ weights at first


def test_weights_come_from_the_generator_alone():
    def state(seed, world):
        torch.manual_seed(world)
        return ELMo(SMALL, torch.Generator().manual_seed(seed)).state_dict()

    one, again, other = state(0, 1), state(0, 2), state(1, 1)
    assert all(torch.equal(one[name], again[name]) for name in one)
    drawn = [name for name in one if one[name].unique().numel() > 1]
    assert not any(torch.equal(one[name], other[name]) for name in drawn)
    constant = {name for name in one if name not in drawn}
    assert constant == {name for name in one if name.endswith("bias")}, "the LSTMs' are a column of their matrices"


def test_weights_at_first():
    model = ELMo(ELMoConfig(500, dropout=0.1), torch.Generator().manual_seed(0))
    tokens, layer = model.tokens, model.backwards.lstms[1]
    assert not tokens.characters.weight[0].any() and 0.9 < tokens.characters.weight.abs().max() <= 1
    assert all(0.049 < c.weight.abs().max() <= 0.05 and not c.bias.any() for c in tokens.convolutions)
    assert (tokens.highways[0].gate.bias == -2).all() and not tokens.highways[0].transform.bias.any()
    bias = layer.weight_ih_l0[:, -1].view(4, 256)
    assert (bias[1] == 1).all() and not bias[[0, 2, 3]].any()  # input, forget, cell, output
    assert model.softmax.weight.std().item() == pytest.approx(128**-0.5, rel=0.02)
    assert layer.weight_hh_l0.abs().max().item() == pytest.approx((6 / (256 + 1024)) ** 0.5, rel=0.01)


# -------------------------------------------------------------------------------------------------- types and copies


def test_dropout_works_in_training_only():
    model, (ids, targets, weights) = made(dropout=0.4), batch()
    twin = made()
    assert torch.equal(model.states(ids), twin.states(ids)) and model.loss(*batch()) == twin.loss(*batch())
    model.train()
    called = set()
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(lambda *_, name=name: called.add(name))
    assert model.loss(ids, targets, weights) != model.loss(ids, targets, weights)
    assert called == {"dropout", "forwards.dropout", "backwards.dropout"}


def test_a_configuration_comes_back_from_json():
    assert ELMoConfig(**json.loads(json.dumps(asdict(ELMoConfig.published())))) == ELMoConfig.published()


def test_state_dict_and_copies():
    model, ids = made(), batch()[0]
    twin, again = copy.deepcopy(model), ELMo(SMALL).double().eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(twin.states(ids), model.states(ids)) and torch.equal(again.states(ids), model.states(ids))
    assert {name for name, _ in model.named_parameters()} == set(model.state_dict())
    with torch.device("meta"):
        empty = ELMo(SMALL).eval()
    for name, x in model.state_dict().items():  # as lmcourse.checkpoints fills a model
        module, _, kind = name.rpartition(".")
        setattr(empty.get_submodule(module), kind, nn.Parameter(x))
    assert torch.equal(empty.states(ids), model.states(ids))


@pytest.mark.parametrize("clip", [None, 3.0])
def test_bfloat16_and_autocast(clip):
    right = made(clip=clip).states(batch()[0])
    ids, targets, weights = bidirectional_lm(SENTENCES, VOCABULARY, 20)
    model, half = made(dtype=torch.float32, clip=clip), made(dtype=torch.bfloat16, clip=clip)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = [(model, model.states(ids), model.loss(ids, targets, weights))]
    results += [(half, half.states(ids), half.loss(ids, targets, weights))]
    for owner, states, loss in results:
        assert (states.double() - right).norm() / right.norm() < 0.05
        loss.backward()
        assert all(torch.isfinite(p.grad).all() for p in owner.parameters())


# ------------------------------------------------------------------------------------------------------- bad input

IDS, TARGETS, WEIGHTS = batch()


@pytest.mark.parametrize("options, name", [
    ({"vocabulary": 0}, "vocabulary"), ({"layers": 0}, "layers"), ({"highways": 1.5}, "highways"),
    ({"width": 9}, "units"), ({"units": 6}, "units"), ({"filters": ()}, "filters"),
    ({"filters": ((30, 4),)}, "filters"), ({"filters": ((1, 0),)}, "filters"), ({"filters": [3, 4]}, "filters"),
    ({"filters": ((1, 2, 3),)}, "filters"), ({"clip": 0}, "clip"), ({"clip": -3.0}, "clip"),
    ({"dropout": 1.0}, "dropout"), ({"dropout": "a"}, "dropout"),
])  # fmt: skip
def test_wrong_configuration(options, name):
    with pytest.raises((ValueError, TypeError), match=f"^{name}: got .*expected"):
        replace(SMALL, **options)


@pytest.mark.parametrize("call, name", [
    (lambda: ELMo("small"), "config"),
    (lambda: ELMo(SMALL, 0), "generator"),
    (lambda: made().states(SENTENCES), "characters"),
    (lambda: made().states(IDS[0]), "characters"),
    (lambda: made().states(IDS.flip(1)), "characters"),
    (lambda: made().loss(IDS, TARGETS[:, 1:], WEIGHTS), "targets"),
    (lambda: made().loss(IDS, TARGETS, WEIGHTS[0]), "weights"),
    (lambda: made().loss(IDS, TARGETS, None), "weights"),
    (lambda: made().loss(IDS, TARGETS + SMALL.vocabulary, WEIGHTS), "targets"),
    (lambda: made().loss(IDS, TARGETS, WEIGHTS * 0), "weights"),
    (lambda: made().loss(IDS, TARGETS, -WEIGHTS), "weights"),
    (lambda: LayerMix(0), "layers"),
    (lambda: LayerMix(3)(torch.ones(2, 1, 4, 6)), "states"),
    (lambda: LayerMix(3)([torch.ones(4, 6)] * 3), "states"),
])  # fmt: skip
def test_bad_input_names_the_argument(call, name):
    with pytest.raises((ValueError, TypeError), match=f"^{name}: "):
        call()


def test_a_batch_in_parts_has_the_loss_and_the_gradients_of_the_whole():
    rows, found = batch(), []
    for parts in (1, 2, 4):
        model = made()
        optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
        settings = training.Settings(steps=1, parts=parts, clip=None)
        loss, norm = training._step(training.Loss(model), optimiser, rows, settings, CPU, training.World())
        found.append((loss, norm, *model.parameters()))
    each = [tuple(x[i : i + 1] for x in rows) for i in range(4)]
    held_out = [training.evaluate(training.Loss(made()), batches, CPU) for batches in ([rows], each)]
    assert held_out[0] == pytest.approx(held_out[1], rel=1e-6)
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-6, atol=1e-9)
