"""AWD-LSTM, its dropouts, the classifier, and how both are fine-tuned; equal to fastai's by a saved example."""

import math

import pytest
import torch
from fixtures import make_awd as parity
from lmcourse import objectives
from lmcourse.recurrent import PLAIN, RecurrentLM
from lmcourse.ulmfit import (
    RATES,
    AWDClassifier,
    AWDConfig,
    AWDLSTM,
    concat_pool,
    discriminative,
    embedding_dropout,
    layer_groups,
    locked_dropout,
    unfreeze,
)
from safetensors.torch import load_file

V = 17
NONE = dict.fromkeys(RATES, 0.0)


def generator(n=0):
    return torch.Generator().manual_seed(n)


def config(**more):
    return AWDConfig(V, **(dict(width=6, hidden=10) | more))


def model(seed=3, **more):
    """With larger weights than it starts with, so that each part of it matters."""
    new = AWDLSTM(config(**more), generator(seed)).double()
    new.embedding.weight.data.mul_(10)
    for layer in new.layers:
        layer.weight_ih.data.mul_(3), layer.weight_hh.data.mul_(2)
    return new


def ids(B=3, T=12, seed=0):
    return torch.randint(V, (B, T), generator=generator(seed))


def batch(**more):
    return objectives.causal_lm(ids(**more))


# ---------------------------------------------------------------------------------------------- fastai's


def our_name(name):
    """fastai's name of a parameter → ours."""
    for old, new in (
        ("0.encoder", "embedding"),
        ("1.decoder", "head"),
        ("0.rnns", "layers"),
        (".module", ""),
        ("_raw", ""),
        ("_l0", ""),
    ):
        name = name.replace(old, new)
    return name


@pytest.fixture(scope="module")
def theirs():
    return load_file(parity.FILE)


def group(tensors, name):
    return {k.partition("/")[2]: v for k, v in tensors.items() if k.startswith(name)}


@pytest.fixture
def ours(theirs):
    new = AWDLSTM(AWDConfig(parity.V, parity.WIDTH, parity.HIDDEN, parity.LAYERS))
    weights = {our_name(k): v for k, v in group(theirs, "weights").items()}
    assert set(weights) == {k for k, _ in new.named_parameters()}
    new.load_state_dict(weights | {"head.weight": weights["embedding.weight"]})
    return new.eval()


def test_scores_states_and_gradients_are_fastais(ours, theirs):
    state, parts, expected = {}, [], group(theirs, "expected")
    for i, tokens in enumerate(group(theirs, "inputs")["tokens"].split(5, dim=1)):
        before = dict(state)
        assert (ours.hidden(tokens, before) - expected[f"states.{i}"]).abs().max() < 1e-6
        parts.append(ours(tokens, state))
        assert (parts[i] - expected[f"scores.{i}"]).abs().max() < 1e-5
    parity.loss(parts).backward()
    found = dict(ours.named_parameters())
    wrong = {k: float((found[our_name(k)].grad - g).abs().max()) for k, g in group(theirs, "gradients").items()}
    assert len(wrong) == 14 and max(wrong.values()) < 1e-6


def test_without_the_state_that_is_carried_it_is_not_fastais(ours, theirs):
    second = group(theirs, "inputs")["tokens"][:, 5:]
    assert (ours(second) - group(theirs, "expected")["scores.1"]).abs().max() > 1e-2


def test_pooling_is_fastais(ours, theirs):
    inputs = group(theirs, "inputs")
    pooled = concat_pool(ours.hidden(inputs["tokens"]), inputs["attention_mask"])
    assert (pooled - group(theirs, "expected")["pooled"]).abs().max() < 1e-6


# ----------------------------------------------------------------------------------------------- AWD-LSTM


def test_the_published_sizes():
    assert AWDConfig.published(9).sizes == [400, 1150, 1150, 400]
    with torch.device("meta"):
        small, large = (AWDLSTM(AWDConfig.published(n)) for n in (10_000, 33_278))  # Penn Treebank, WikiText-2
    layers = sum(4 * b * (a + b + 2) for a, b in ((400, 1150), (1150, 1150), (1150, 400)))
    for lm, words, paper in ((small, 10_000, 24e6), (large, 33_278, 33e6)):  # Merity et al. 2018, tables 1 and 2
        count = sum(p.numel() for p in lm.parameters())
        assert count == layers + words * 400 + words
        assert count == pytest.approx(paper, abs=1e6)
    assert sum(p.numel() for p in small.parameters()) == 24_221_600


@pytest.mark.parametrize("rates", [NONE, {}])
def test_in_evaluation_it_is_the_recurrent_language_model(rates):
    lm = model(**rates).eval()
    plain = RecurrentLM(lm.config).double()
    plain.load_state_dict(lm.state_dict())
    assert torch.equal(lm(ids()), plain(ids()))
    assert torch.equal(lm.loss(*batch()), plain.loss(*batch()))
    if rates:
        assert torch.equal(lm.train()(ids()), plain(ids()))


@pytest.mark.parametrize("rate", RATES)
def test_each_dropout_alone_changes_the_scores_while_training(rate):
    lm = model(**(NONE | {rate: 0.5}))
    assert not torch.allclose(lm(ids()), lm(ids()))
    assert torch.equal(lm.eval()(ids()), lm(ids()))


def outcome(lm, seed=7):
    torch.manual_seed(seed)
    state = {}
    lm.loss(*batch(), state=state)
    loss = lm.loss(*batch(seed=1), state=state)
    return [loss, *torch.autograd.grad(loss, list(lm.parameters())), *(s for part in state.values() for s in part)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_plain_and_fast_agree_with_the_same_dropouts(dtype, tolerance):
    lm = model().to(dtype).train()
    fast = outcome(lm)
    for layer in lm.layers:
        layer.kernel = PLAIN["lstm"]
    plain = outcome(lm)
    assert max(float((a - b).detach().abs().max()) for a, b in zip(fast, plain, strict=True)) < tolerance
    assert abs((outcome(lm, seed=8)[0] - plain[0]).item()) > 1e-3


def test_a_locked_mask_is_one_for_all_times_and_differs_between_texts():
    torch.manual_seed(0)
    out = locked_dropout(torch.ones(50, 7, 40), 0.3, True)
    assert bool((out == out[:, :1]).all()) and not bool((out == out[:1]).all())
    assert set(out.unique().tolist()) == {0, float(torch.tensor(1) / torch.tensor(0.7))}
    assert (out == 0).float().mean().item() == pytest.approx(0.3, abs=0.04)
    assert locked_dropout(out, 0.3, False) is out


def test_embedding_dropout_drops_words_wherever_they_stand():
    torch.manual_seed(0)
    tokens = torch.randint(400, (30, 50), generator=generator())
    out = embedding_dropout(torch.ones(30, 50, 4), tokens, 400, 0.25, True)
    assert bool((out == out[..., :1]).all())
    kept = {(t, v) for t, v in zip(tokens.flatten().tolist(), out[..., 0].flatten().tolist())}
    assert len(kept) == len(tokens.unique())  # one value for each word
    assert sum(v == 0 for _, v in kept) / len(kept) == pytest.approx(0.25, abs=0.07)
    assert out.max().item() == pytest.approx(4 / 3)


def test_embedding_dropout_is_that_of_the_tables_rows():
    lm, tokens = model(**(NONE | {"embedding_dropout": 0.5})), ids()
    torch.manual_seed(4)
    x = lm.embed(tokens)
    torch.manual_seed(4)
    rows = torch.nn.functional.dropout(torch.ones(V).double(), 0.5)[:, None]
    assert torch.equal(x, torch.nn.functional.embedding(tokens, lm.embedding.weight * rows))


def test_weights_are_dropped_from_state_to_state_only_and_once_for_the_sequence():
    lm, seen = model(**(NONE | {"weight_dropout": 0.5})), []
    for layer in lm.layers:
        layer.kernel = lambda x, state, weights: (seen.append(weights), PLAIN["lstm"](x, state, weights))[1]
    lm(ids())
    for layer, used in zip(lm.layers, seen, strict=True):
        dropped = used.recurrent == 0
        assert 0.3 < dropped.float().mean() < 0.7
        assert torch.equal(used.recurrent[~dropped], 2 * layer.weight_hh[~dropped])
        assert used.input is layer.weight_ih and torch.equal(used.bias, layer.weights.bias)


def test_the_regularisers_by_hand():
    lm = model(**NONE, alpha=3.0, beta=5.0)
    x = lm.hidden(batch()[0])
    added = lm.loss(*batch()) - lm.eval().loss(*batch())
    ar, tar = x.pow(2).mean(), (x[:, 1:] - x[:, :-1]).pow(2).mean()
    assert added.item() == pytest.approx((3 * ar + 5 * tar).item(), abs=1e-14)
    assert abs(added.item() - (5 * ar + 3 * tar).item()) > 1e-4
    assert math.isfinite(lm.train().loss(*batch(T=2)).item())  # one time: nothing changes


def test_the_first_regulariser_sees_the_dropout_and_the_second_does_not():
    lm = model(**(NONE | {"output_dropout": 0.5}), alpha=0.0, beta=1.0)
    plain = model(**NONE, alpha=0.0, beta=0.0)
    x = lm.hidden(batch()[0])
    torch.manual_seed(2)
    loss = lm.loss(*batch())
    torch.manual_seed(2)
    scores = plain.head(locked_dropout(x, 0.5, True))
    expected = objectives.cross_entropy(scores, *batch()[1:]) + (x[:, 1:] - x[:, :-1]).pow(2).mean()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-14)


# ----------------------------------------------------------------------------------------------- classifier


def padded(B=4, T=9):
    mask = torch.arange(T) < torch.tensor([[T], [5], [2], [1]])
    return ids(B, T), mask


def test_pooling_by_hand():
    x = torch.tensor([[[1.0, -5], [4, -7], [100, 100]]])
    mask = torch.tensor([[True, True, False]])
    assert concat_pool(x, mask).tolist() == [[4, -7, 4, -5, 2.5, -6]]
    assert concat_pool(x[:, :2]).tolist() == concat_pool(x, mask).tolist()


@pytest.mark.parametrize("training", [False, True])
def test_padding_changes_nothing(training):
    classifier = AWDClassifier(model(**NONE), 3, generator=generator()).double().train(training)
    for part in classifier.output:
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    tokens, mask = padded()
    scores = classifier(tokens, mask)
    other = tokens.masked_fill(~mask, 3)
    longer = torch.nn.functional.pad(other, (0, 4), value=5), torch.nn.functional.pad(mask, (0, 4))
    assert torch.equal(classifier(other, mask), scores)
    assert torch.allclose(classifier(*longer), scores, rtol=0, atol=1e-13)
    if not training:
        alone = [classifier(tokens[i : i + 1, : int(mask[i].sum())]) for i in range(4)]
        assert torch.allclose(torch.cat(alone), scores, rtol=0, atol=1e-13)
        assert not torch.allclose(classifier(tokens), scores)


def test_the_head_and_its_loss():
    classifier = AWDClassifier(model(), 3).double().eval()
    assert [type(m).__name__ for m in classifier.output] == [
        *("BatchNorm1d", "Dropout", "Linear", "ReLU"),
        *("BatchNorm1d", "Dropout", "Linear"),
    ]
    assert classifier.output[2].weight.shape == (50, 18) and classifier.output[6].weight.shape == (3, 50)
    tokens, labels = ids(), torch.tensor([0, 2, 1])
    by_hand = -classifier(tokens).log_softmax(-1)[torch.arange(3), labels].mean()
    assert classifier.loss(tokens, labels).item() == pytest.approx(by_hand.item(), abs=1e-14)


# ---------------------------------------------------------------------------------------------- fine-tuning


def test_the_groups_hold_each_parameter_that_learns_once():
    lm = model()
    for net in (lm, model(tied=False), classifier := AWDClassifier(lm, 2)):
        groups = layer_groups(net)
        assert len(groups) == 5
        flat = [id(p) for group in groups for p in group]
        unused = {id(p) for p in lm.head.parameters()} - {id(lm.embedding.weight)} if net is classifier else set()
        assert sorted(flat) == sorted({id(p) for p in net.parameters()} - unused)
    groups = layer_groups(classifier)
    assert groups[0][0] is lm.embedding.weight and groups[2][0] is lm.layers[1].weight_ih
    assert groups[4] == list(classifier.output.parameters())


def test_rates_fall_by_the_factor_from_the_top():
    found = discriminative(layer_groups(model()), 0.01)
    assert [g["lr"] for g in found] == pytest.approx([0.01 / 2.6**n for n in (4, 3, 2, 1, 0)])
    assert found[-1]["lr"] == 0.01
    torch.optim.Adam(found)  # an optimiser takes them
    assert [g["lr"] for g in discriminative([[], []], 1.0, 4.0)] == [0.25, 1]


@pytest.mark.parametrize("stage", [1, 2, 5, 9])
def test_unfreezing_starts_at_the_top(stage):
    classifier = AWDClassifier(model(), 2).double()
    groups = layer_groups(classifier)
    optimiser = torch.optim.SGD(discriminative(groups, 0.1), weight_decay=0.1)
    unfreeze(groups, stage)
    assert [all(p.requires_grad for p in g) for g in groups] == [i >= 5 - stage for i in range(5)]
    before = [[p.detach().clone() for p in group] for group in groups]
    classifier.loss(ids(), torch.tensor([0, 1, 1])).backward()
    optimiser.step()
    moved = [any(not torch.equal(a, b) for a, b in zip(*pair)) for pair in zip(before, groups)]
    assert moved == [i >= 5 - stage for i in range(5)]


@pytest.mark.parametrize(
    "call",
    [
        lambda: config(weight_dropout=1.0),
        lambda: config(input_dropout=-0.1),
        lambda: config(output_dropout="0.1"),
        lambda: config(alpha=-1),
        lambda: config(beta=math.inf),
        lambda: config(kind="gru"),
        lambda: AWDLSTM(RecurrentLM),
        lambda: AWDLSTM(super(AWDConfig, config()).__class__),
        lambda: AWDClassifier(RecurrentLM(config()), 2),
        lambda: AWDClassifier(model(), 0),
        lambda: concat_pool(torch.ones(2, 3, 4), torch.ones(2, 3)),
        lambda: concat_pool(torch.ones(2, 3, 4), torch.ones(2, 4).bool()),
        lambda: concat_pool(torch.ones(1, 3, 4), torch.tensor([[False, True, True]])),
        lambda: concat_pool(torch.ones(1, 3, 4), torch.zeros(1, 3).bool()),
        lambda: layer_groups(torch.nn.LSTM(2, 2)),
        lambda: discriminative([[]], 0.0),
        lambda: unfreeze([[]], 0),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises((ValueError, TypeError), match="got .*expected"):
        call()
