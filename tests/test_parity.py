"""Our models and the transformers library's: same weights, same inputs, same logits, states of every layer, gradients.

The weights come through ``checkpoints.load``, so its tables are held to the same truth.
"""

import json

import pytest
import torch
from fixtures import make_parity as parity
from lmcourse import attention, checkpoints, multihead, published, transformer
from lmcourse.configuration import Config
from lmcourse.multihead import Attention, Cache
from safetensors.torch import load_file, save_file

TOLERANCE = 1e-5  # greatest absolute difference, in float32
PADDING = {"gpt2": (None, "left", "right"), "llama": (None, "left", "right"), "roberta": (None, "left", "right")}
PADDING |= {"bert": (None, "right"), "t5": (None, "left", "right")}  # BERT's reference counts padding as places
CASES = [(family, padding) for family in parity.FAMILIES for padding in PADDING[family]]


# ------------------------------------------------------------------------------------------ ours beside theirs


def load(folder, family, weights, settings):
    """``weights`` by published names, through a file and ``checkpoints.load``."""
    save_file({k: v.detach().clone().contiguous() for k, v in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(settings)
    return checkpoints.load(folder, family)


def ours(family, model, inputs, next_sentence=None):
    """What ``parity.reference`` gives, from one of our models."""
    tokens, mask, states, decoder = inputs["tokens"], inputs.get("attention_mask"), [], []
    if family == "t5":
        memory = model.encode(tokens, mask, states=states)
        x = model.decode(inputs["outputs"], memory, mask, states=decoder)
    elif family in ("bert", "roberta"):
        x = model.hidden(tokens, mask, inputs.get("segments"), states=states)
    else:
        x = model.hidden(tokens, mask, states=states)
    found = {"logits": model.head(x)} | {f"states.{i}": s for i, s in enumerate(states)}
    if next_sentence is not None:
        found["next"] = torch.nn.functional.linear(model.pooler(x[:, 0]), *next_sentence)
    return found | {f"decoder.{i}": s for i, s in enumerate(decoder)}


def difference(found, expected, inputs):
    """The greatest over all outputs, at real places."""
    assert found.keys() == expected.keys()
    worst, real = 0.0, parity.real(inputs)
    for name, x in expected.items():
        assert found[name].shape == x.shape, name
        at = real if x.shape[:2] == real.shape else ...
        worst = max(worst, float((found[name][at] - x[at]).abs().max().detach()))
    return worst


def compare(folder, family, weights, settings, inputs, expected, slopes):
    """Greatest difference of the outputs, and of the gradients of all parameters."""
    model = load(folder, family, weights, settings)
    head = [weights[f"cls.seq_relationship.{k}"] for k in ("weight", "bias")] if family == "bert" else None
    found = ours(family, model, inputs, head)
    parity.loss(found, inputs).backward()
    wanted = dict(load(folder, family, slopes, settings).named_parameters())  # their gradients under our names
    got = dict(model.named_parameters())
    assert got.keys() == wanted.keys()
    assert all(p.grad is not None for name, p in got.items() if wanted[name].any())
    wrong = [float((p.grad - wanted[name]).abs().max().detach()) for name, p in got.items() if p.grad is not None]
    return difference(found, expected, inputs), max(wrong)


@pytest.fixture(scope="module")
def hf():
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.set_verbosity_error()
    return transformers


def pair(hf, folder, family, seed=0, size=None):
    """(the reference, ours) with the same random weights."""
    model = parity.build(family, size or parity.sizes(seed), seed)
    return model, load(folder, family, dict(model.named_parameters()), parity.settings(model))


def heads(model):
    return (model.cls.seq_relationship.weight, model.cls.seq_relationship.bias) if hasattr(model, "cls") else None


# ------------------------------------------------------------------------------------------ the saved reference


@pytest.mark.parametrize("family", parity.FAMILIES)
def test_saved_reference(family, tmp_path):
    """Runs without the transformers library."""
    parts = {"weights": {}, "inputs": {}, "expected": {}, "gradients": {}}
    for name, x in load_file(parity.FOLDER / f"parity-{family}.safetensors").items():
        group, _, rest = name.partition("/")
        parts[group][rest] = x
    _, metadata = checkpoints.read(parity.FOLDER / f"parity-{family}.safetensors")
    arguments = parts["inputs"], parts["expected"], parts["gradients"]
    outputs, slopes = compare(tmp_path, family, parts["weights"], metadata["config"], *arguments)
    assert outputs < TOLERANCE and slopes < TOLERANCE


def test_saved_references_are_small():
    assert sum(p.stat().st_size for p in parity.FOLDER.glob("parity-*.safetensors")) < 300_000


# ------------------------------------------------------------------------------------------ the library itself


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family, padding", CASES)
def test_logits_states_and_gradients(hf, tmp_path, family, padding, seed):
    model = parity.build(family, parity.sizes(seed), seed)
    inputs = parity.batch(family, model.config.vocab_size, seed, padding)
    expected = parity.reference(family, model, inputs)
    slopes = parity.gradients(model, parity.loss(expected, inputs))
    assert expected["logits"].std() > 0.1, "of normal size"
    weights = dict(model.named_parameters())
    outputs, slopes = compare(tmp_path, family, weights, parity.settings(model), inputs, expected, slopes)
    assert outputs < TOLERANCE and slopes < TOLERANCE


@torch.no_grad()
def test_next_sentence(hf, tmp_path):
    """Scores of both heads, from the model that has both; 0 is "follows" there and here."""
    model, _ = pair(hf, tmp_path, "bert", seed=1)
    mine, inputs = checkpoints.load_next_sentence(tmp_path), parity.batch("bert", model.config.vocab_size, 1, "right")
    expected = parity.reference("bert", model, inputs)
    arguments = inputs["tokens"], inputs["attention_mask"], inputs["segments"]
    assert (mine(*arguments) - expected["next"]).abs().max() < TOLERANCE
    at = inputs["attention_mask"]
    assert (mine.bert(*arguments) - expected["logits"])[at].abs().max() < TOLERANCE
    targets, weights, labels = inputs["tokens"], at.float(), torch.tensor([0, 1, 1])
    theirs = model(
        input_ids=inputs["tokens"],
        attention_mask=at.long(),
        token_type_ids=inputs["segments"],
        labels=targets.masked_fill(~at, -100),
        next_sentence_label=labels,
    ).loss
    assert abs(mine.loss(inputs["tokens"], targets, weights, labels, *arguments[1:]) - theirs) < TOLERANCE
    assert abs(mine.loss(inputs["tokens"], targets, weights, 1 - labels, *arguments[1:]) - theirs) > 20 * TOLERANCE


@pytest.mark.parametrize("family", ["gpt2", "bert", "roberta"])
def test_what_differs_is_rounding(hf, tmp_path, family):
    """In float64, where these reference models compute in it throughout."""
    model, mine = pair(hf, tmp_path, family, seed=2)
    model, mine, inputs = model.double(), mine.double(), parity.batch(family, model.config.vocab_size, 2, "right")
    expected = parity.reference(family, model, inputs)
    found = ours(family, mine, inputs, heads(model))
    assert difference(found, expected, inputs) < 1e-12
    parity.gradients(model, parity.loss(expected, inputs))
    parity.loss(found, inputs).backward()
    theirs = model.get_input_embeddings().weight.grad
    assert (mine.embedding.tokens.weight.grad - theirs).abs().max() < 1e-12 < theirs.abs().max()


@pytest.mark.parametrize("family", parity.FAMILIES)
def test_far_places(hf, tmp_path, family):
    """Beyond the exact buckets of T5 and over many turns of rotation."""
    size = dict(V=20, L=1, H=4, d=6, F=9, G=2, P=202)
    model, mine = pair(hf, tmp_path, family, size=size)
    inputs = parity.batch(family, 20, 1, None, B=1, T=200)
    expected = parity.reference(family, model, inputs)
    assert difference(ours(family, mine, inputs, heads(model)), expected, inputs) < TOLERANCE


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("family, padding", [case for case in CASES if case[0] in ("gpt2", "llama", "t5")])
@torch.no_grad()
def test_cached(hf, tmp_path, family, padding, seed):
    """Token by token and in pieces, ours with a cache, equal to theirs at once and with their cache."""
    model, mine = pair(hf, tmp_path, family, seed)
    inputs = parity.batch(family, model.config.vocab_size, seed, padding)
    whole, cache, past, real = parity.reference(family, model, inputs)["logits"], Cache(), None, parity.real(inputs)
    memory = mine.encode(inputs["tokens"], inputs.get("attention_mask")) if family == "t5" else None
    tokens = inputs["outputs" if family == "t5" else "tokens"]
    for start, stop in ((0, 3), (3, 4), (4, 6), (6, tokens.shape[1])):
        if family == "t5":
            x = mine.decode(tokens[:, start:stop], memory, inputs.get("attention_mask"), cache)
            step = dict(input_ids=inputs["tokens"], attention_mask=inputs.get("attention_mask"))
            step |= dict(decoder_input_ids=tokens[:, start:stop])
            at = torch.ones_like(tokens[:, start:stop], dtype=torch.bool)
        else:
            x = mine.hidden(tokens[:, start:stop], real[:, :stop] if padding else None, cache)
            step = dict(input_ids=tokens[:, start:stop], attention_mask=real[:, :stop].long())
            step |= dict(position_ids=(real.long().cumsum(-1) - 1).clamp(min=0)[:, start:stop])
            at = real[:, start:stop]
        theirs = model(past_key_values=past, use_cache=True, **step)
        past = theirs.past_key_values
        assert (mine.head(x)[at] - whole[:, start:stop][at]).abs().max() < TOLERANCE
        assert (mine.head(x)[at] - theirs.logits[at]).abs().max() < TOLERANCE


@pytest.mark.parametrize("family", parity.FAMILIES)
@torch.no_grad()
def test_plain_and_online_attention_too(hf, tmp_path, family):
    model, mine = pair(hf, tmp_path, family, seed=1)
    inputs = parity.batch(family, model.config.vocab_size, 1, "right")
    expected = parity.reference(family, model, inputs)
    for kernel in (attention.plain_attention, attention.online_attention):
        for layer in (m for m in mine.modules() if isinstance(m, Attention)):
            layer.kernel = kernel
        assert difference(ours(family, mine, inputs, heads(model)), expected, inputs) < TOLERANCE


# ------------------------------------------------------------------------------------------ what must not pass


def layers(model, kind=Attention):
    return [module for module in model.modules() if isinstance(module, kind)]


@torch.no_grad()
def swap_keys_and_values(model):
    for layer in layers(model):
        for p in (layer.query_key_value if hasattr(layer, "query_key_value") else layer.key_value).parameters():
            *q, k, v = p.split(layer.sizes if hasattr(layer, "query_key_value") else layer.sizes[1:])
            p.copy_(torch.cat([*q, v, k]))


@torch.no_grad()
def output_not_transposed(model):
    for layer in layers(model):
        layer.output.weight.copy_(layer.output.weight.T.clone())


@torch.no_grad()
def gate_and_value_swapped(model):
    for layer in layers(model, transformer.FeedForward):
        layer.up.weight.copy_(layer.up.weight.roll(len(layer.up.weight) // 2, 0))


def activation(name):
    def change(model):
        for layer in layers(model, transformer.FeedForward):
            del layer.activation
            layer.activation = transformer.ACTIVATIONS[name]

    return change


def scores_scaled(model):
    for layer in layers(model):
        layer.scale = None


def bias_one_sided_in_the_encoder(model):
    model.encoder.bias.both_sides = False


def bias_two_sided_in_the_decoder(model):
    model.decoder.bias.both_sides = True


def head_not_scaled(model):
    model.head.scale = 1.0


def other_epsilon(value):
    def change(model):
        for layer in layers(model, (torch.nn.LayerNorm, torch.nn.RMSNorm)):
            layer.eps = value

    return change


def first_position(value):
    def change(model):
        object.__setattr__(model.embedding.config, "first_position", value)

    return change


def looks_ahead(model):
    model.stack.causal = False


WRONG = [
    ("gpt2", output_not_transposed),
    ("gpt2", swap_keys_and_values),
    ("gpt2", activation("gelu")),
    ("gpt2", other_epsilon(1e-3)),
    ("gpt2", looks_ahead),
    ("bert", swap_keys_and_values),
    ("bert", activation("gelu_tanh")),
    ("bert", activation("relu")),
    ("roberta", first_position(0)),
    ("roberta", first_position(1)),
    ("roberta", activation("gelu_tanh")),
    ("t5", swap_keys_and_values),
    ("t5", scores_scaled),
    ("t5", bias_one_sided_in_the_encoder),
    ("t5", bias_two_sided_in_the_decoder),
    ("t5", head_not_scaled),
    ("t5", activation("gelu")),
    ("llama", swap_keys_and_values),
    ("llama", gate_and_value_swapped),
    ("llama", activation("gelu")),
    ("llama", looks_ahead),
]


@pytest.mark.parametrize("family, change", WRONG)
def test_wrong_variants_are_seen(hf, tmp_path, family, change):
    model, mine = pair(hf, tmp_path, family, size=dict(V=30, L=2, H=4, d=6, F=50, G=2, P=40))
    inputs = parity.batch(family, 30, 2, None, T=24)
    expected = parity.reference(family, model, inputs)
    assert difference(ours(family, mine, inputs, heads(model)), expected, inputs) < TOLERANCE
    change(mine)
    assert difference(ours(family, mine, inputs, heads(model)), expected, inputs) > 20 * TOLERANCE


def test_segments_matter(hf, tmp_path):
    model, mine = pair(hf, tmp_path, "bert")
    inputs = parity.batch("bert", model.config.vocab_size, 2, None)
    expected = parity.reference("bert", model, inputs)
    inputs["segments"] = 1 - inputs["segments"]
    assert difference(ours("bert", mine, inputs, heads(model)), expected, inputs) > 20 * TOLERANCE


def interleaved(x, cos, sin):
    """The paper's pairing: neighbours, not halves."""
    first, second = x[..., ::2], x[..., 1::2]
    return torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)


def backwards(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos + second * sin, second * cos - first * sin], dim=-1)


@pytest.mark.parametrize("wrong", [interleaved, backwards])
def test_other_rotations_are_seen(hf, tmp_path, monkeypatch, wrong):
    model, mine = pair(hf, tmp_path, "llama", size=dict(V=30, L=2, H=4, d=6, F=50, G=2, P=40))
    inputs = parity.batch("llama", 30, 2, None)
    monkeypatch.setattr(multihead, "rotate", wrong)
    changed = difference(ours("llama", mine, inputs), parity.reference("llama", model, inputs), inputs)
    assert changed > 20 * TOLERANCE


def test_other_groups_are_seen(hf, tmp_path, monkeypatch):
    """Head h reads group h // (H/G), not h mod G."""
    model, mine = pair(hf, tmp_path, "llama", size=dict(V=30, L=2, H=4, d=6, F=50, G=2, P=40))
    inputs = parity.batch("llama", 30, 2, None)
    for layer in layers(mine):
        layer.kernel = attention.plain_attention
    monkeypatch.setattr(attention, "_repeat", lambda k, q: k.repeat(1, q.shape[1] // k.shape[1], 1, 1))
    changed = difference(ours("llama", mine, inputs), parity.reference("llama", model, inputs), inputs)
    assert changed > 20 * TOLERANCE


EPSILONS = [("bert", 1e-5), ("roberta", 1e-12), ("gpt2", 1e-12), ("t5", 1e-5), ("llama", 1e-5)]


@pytest.mark.parametrize("family, wrong", EPSILONS)
@torch.no_grad()
def test_epsilon_where_it_is_visible(hf, tmp_path, family, wrong):
    """States of variance 1e-5 or so, as large as the epsilons."""
    model = parity.build(family, dict(V=30, L=2, H=4, d=6, F=50, G=2, P=40), 0)
    for name, p in model.named_parameters():
        if any(part in name for part in ("embeddings.weight", "wte", "wpe", "shared", "embed_tokens")):
            p.mul_(3e-3)
    mine = load(tmp_path, family, dict(model.named_parameters()), parity.settings(model))
    inputs = parity.batch(family, 30, 2, None)
    expected = parity.reference(family, model, inputs)
    assert difference(ours(family, mine, inputs, heads(model)), expected, inputs) < TOLERANCE
    other_epsilon(wrong)(mine)
    assert difference(ours(family, mine, inputs, heads(model)), expected, inputs) > 20 * TOLERANCE


def test_untransposed_file_is_refused(hf, tmp_path, monkeypatch):
    model = parity.build("gpt2", parity.TINY, 0)
    monkeypatch.setattr(published, "_linear", lambda name, x: x)
    with pytest.raises(ValueError, match="query_key_value.weight: got shape"):
        load(tmp_path, "gpt2", dict(model.named_parameters()), parity.settings(model))


# ------------------------------------------------------------------------------------------ published sizes


COUNTS = [
    ("gpt2", "small", 124_439_808),
    ("gpt2", "medium", 354_823_168),
    ("gpt2", "large", 774_030_080),
    ("gpt2", "xl", 1_557_611_200),
    ("bert", "base", 109_482_240),
    ("bert", "large", 335_141_888),
    ("roberta", "base", 124_645_632),
    ("roberta", "large", 355_359_744),
    ("t5", "small", 60_506_624),
    ("t5", "base", 222_903_552),
    ("t5", "large", 737_668_096),
]


def count(family, config):
    with torch.device("meta"):
        model = checkpoints.MODELS[family](config)
    if family in ("bert", "roberta"):
        model.head = checkpoints.NoHead()
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("family, size, expected", COUNTS)
def test_published_parameter_counts(family, size, expected):
    """Tied weights once; BERT and RoBERTa with the pooler and without the masked head."""
    assert count(family, getattr(Config, family)(size)) == expected


def test_published_parameter_counts_of_variants():
    assert count("gpt2", Config.gpt2(tied=False)) == 163_037_184
    assert count("roberta", Config.roberta(pooler=False)) == 124_055_040
    assert count("roberta", Config.roberta("large", pooler=False)) == 354_310_144
    assert count("bert", Config.bert("minilm")) == 22_713_216


@pytest.mark.parametrize("family", ["gpt2", "bert", "roberta", "t5"])
def test_the_library_counts_the_same(hf, family):
    kind = dict(gpt2=hf.GPT2Model, bert=hf.BertModel, roberta=hf.RobertaModel, t5=hf.T5ForConditionalGeneration)[family]
    settings = dict(vocab_size=50_265, max_position_embeddings=514, type_vocab_size=1) if family == "roberta" else {}
    with torch.device("meta"):
        model = kind(kind.config_class(**settings))
    sizes = {name: expected for name, size, expected in COUNTS if size in ("small", "base") and name != "t5"}
    assert sum(p.numel() for p in model.parameters()) == (sizes | {"t5": 60_506_624})[family]


def test_a_configuration_read_from_a_file_is_the_published_one(hf, tmp_path):
    """All options come out as ``Config.gpt2`` and so on have them, but the sizes."""
    size = dict(V=30, L=2, H=2, d=4, F=32, G=2, P=40)
    for family in ("gpt2", "bert", "roberta", "t5"):
        _, mine = pair(hf, tmp_path, family, size=size)
        sizes = dict(vocabulary=30, layers=2, width=8, heads=2)
        sizes |= dict(head_width=5) if family == "t5" else dict(positions=40)
        sizes |= dict(pooler=False) if family == "roberta" else {}
        assert mine.config == getattr(Config, family)(**sizes), json.dumps(parity.settings(_))
