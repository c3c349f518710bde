"""Held-out bits per byte: what is foreseen, from what, over which bytes; the baseline asked for the same tokens."""

import math

import pytest
import torch
from lmcourse import batches, course, data, heldout
from lmcourse.bert import BERT
from lmcourse.characters import MARKS
from lmcourse.configuration import Config
from lmcourse.elmo import ELMo, ELMoConfig
from lmcourse.gpt import GPT
from lmcourse.ngram import KneserNey
from lmcourse.t5 import T5
from lmcourse.ulmfit import AWDConfig, AWDLSTM

SMALL = Config(course.SIZE, positions=256, layers=1, width=16, heads=2)
TEXT = data.documents("novels", "validation")[0].text[:6000]
IDS = torch.tensor(course.tokenizer().encode(TEXT))


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


MODELS = [GPT(SMALL, draws()), AWDLSTM(AWDConfig(course.SIZE, width=8, hidden=8), draws()), BERT(SMALL, draws())]
MODELS += [T5(SMALL, draws())]
WORDS = ELMo(ELMoConfig(len(course.words()) + MARKS, ((1, 4), (2, 4)), width=6, units=8), draws())


@pytest.fixture(scope="module")
def baseline() -> KneserNey:
    """Of a little text: what is tested is which tokens it is asked for."""
    return KneserNey.fit([IDS], 3, vocabulary=course.SIZE)


def level(model: torch.nn.Module) -> torch.nn.Module:
    """The model with a head that knows nothing: all scores 0."""
    for name, p in model.named_parameters():
        if "head" in name or "embedding" in name or "softmax" in name:
            p.data.zero_()
    return model


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_a_model_that_knows_nothing_pays_the_size_of_the_vocabulary(model, baseline):
    import copy

    found = heldout.measure(level(copy.deepcopy(model)), baseline, [TEXT])
    with torch.inference_mode():
        parts = list(heldout.FORESEEN[type(model)](model, IDS))
    places = torch.cat([place for _, place in parts])
    tokens = sum(len(costs) for costs, _ in parts)
    size = len(b"".join(course.tokenizer().decode([i]).encode("utf-8", "ignore") for i in IDS[places].tolist()))
    assert found.bytes == pytest.approx(size, rel=0.02)  # a piece of half a character decodes to more bytes
    assert found.bits == pytest.approx(tokens * math.log2(course.SIZE) / found.bytes, rel=1e-5)
    assert tokens == len(places)


@pytest.mark.parametrize("model", MODELS[:2], ids=lambda m: type(m).__name__)
def test_causal_models_foresee_every_token_once_and_never_look_at_it(model, baseline):
    def costs(ids):
        with torch.inference_mode():
            parts = list(heldout.FORESEEN[type(model)](model.eval(), ids))
        found = torch.full((len(ids),), torch.nan)
        found[torch.cat([place for _, place in parts])] = torch.cat([c for c, _ in parts])
        assert sum(len(c) for c, _ in parts) == len(ids)
        return found

    before, other = costs(IDS), IDS.clone()
    assert not before.isnan().any()
    other[700:] = other[700:].flip(0)
    after = costs(other)
    torch.testing.assert_close(before[:700], after[:700], rtol=1e-4, atol=1e-4)
    assert (before[701:] - after[701:]).abs().max() > 1e-3
    assert heldout.measure(model, baseline, [TEXT]).bytes == len(TEXT.encode())


def test_windows_give_each_token_127_before_it():
    """A token that is changed 127 places before changes the cost; in windows without overlap it often would not."""
    gpt = MODELS[0].eval()
    with torch.inference_mode():
        for place in (300, 383, 509, 700):
            other = IDS.clone()
            other[place - 127] = other[place - 127] % 1000 + 500
            costs = [torch.cat([c for c, _ in heldout.causal(gpt, ids)])[place] for ids in (IDS, other)]
            assert costs[0] != costs[1]


def test_bert_hides_what_it_foresees():
    generator = draws()
    rows = IDS[None, :255]
    inputs, targets, weights = batches.masked(rows, generator)
    chosen = weights[0] > 0
    with torch.inference_mode():
        costs, places = next(heldout.masked(MODELS[2].eval(), IDS))
        by_hand = -MODELS[2](inputs)[0].log_softmax(-1)[chosen].gather(1, targets[0][chosen][:, None])[:, 0]
    assert torch.equal(IDS[places], targets[0][chosen]) and len(costs) == int(chosen.sum())
    torch.testing.assert_close(costs, by_hand)
    assert not torch.allclose(costs, by_hand.roll(1), atol=1e-3)
    hidden = (inputs[0][chosen] == course.MASK).float().mean()
    assert 0.6 < hidden < 0.95


def test_t5_foresees_what_was_dropped():
    with torch.inference_mode():
        parts = [part for part, _ in zip(heldout.dropped(MODELS[3].eval(), IDS), range(3))]
        batch = batches.spans(IDS[None, :255], draws())
        inputs, targets, weights = batch
        pieces = weights * (targets >= len(course.SPECIALS))  # neither sentinels nor the end
        assert float(parts[0][0].mean()) == pytest.approx(float(MODELS[3].loss(inputs, targets, pieces)), rel=1e-5)
    for i, (costs, places) in enumerate(parts):
        assert 255 * i <= int(places.min()) and int(places.max()) < 255 * (i + 1)
        assert len(places) == len(costs) == 38


def test_the_baseline_pays_for_the_same_tokens_from_the_text_as_it_was(baseline):
    found = heldout.measure(MODELS[0], baseline, [TEXT])
    ids = torch.cat([torch.tensor([course.SEP]), IDS])
    own = -float(baseline.log_probabilities(ids)[1:].sum()) / math.log(2) / len(TEXT.encode())
    assert found.baseline == pytest.approx(own, rel=1e-12)
    less = heldout.measure(MODELS[2], baseline, [TEXT])
    assert less.bytes < 0.2 * found.bytes and less.baseline != found.baseline


def test_words_of_elmo():
    text = "The committee of commerce reported. It was a zyzzyva."
    model = level(ELMo(WORDS.config, draws()))
    baseline = KneserNey.fit([[1, 2, 3, 1, 2]], 2, vocabulary=len(course.words()) + MARKS)
    known = [w for s in data.split(text) for w in s if w in course.words()]
    found = heldout.measure(model, baseline, [text])
    assert "zyzzyva" not in known and len(known) == 8
    assert found.bytes == sum(len(w) + 1 for w in known)
    assert found.bits == pytest.approx(len(known) * math.log2(len(course.words()) + MARKS) / found.bytes, rel=1e-5)


def test_the_mode_is_evaluation_and_documents_add_up(baseline):
    gpt = GPT(Config(course.SIZE, positions=256, layers=1, width=16, heads=2, dropout=0.5), draws()).train()
    first, second = (heldout.measure(gpt, baseline, [t]) for t in (TEXT[:2000], TEXT[2000:]))
    both = heldout.measure(gpt, baseline, [TEXT[:2000], TEXT[2000:]])
    assert both.bits * both.bytes == pytest.approx(first.bits * first.bytes + second.bits * second.bytes)


def test_one_text_is_not_taken_for_a_list_of_letters():
    with pytest.raises(TypeError, match=r"texts: got str, expected documents in a list; use \[text\] for one"):
        heldout.measure(course.load("gpt"), None, "we the people")


@pytest.mark.parametrize("model", MODELS[2:])
def test_a_text_shorter_than_a_row_is_refused(model):
    """BERT and T5 read whole rows; a model that reads on from the left takes any text."""
    kind = type(model).__name__
    with pytest.raises(ValueError, match=f"texts: got one of [0-9]+ pieces, expected 255 or more, which {kind} reads"):
        heldout.measure(model, None, [TEXT, "A short text."])
    assert heldout.measure(MODELS[0], None, ["A short text."]).bytes == 13
