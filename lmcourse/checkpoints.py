"""Weights in files: published checkpoints into the course's models, and the course's own models to disk and back.

Only safetensors files are read: a pickle (``pytorch_model.bin``, ``.pt``) can run any code when it is opened.
"""

import json
import re
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor, nn

from lmcourse import _files, _ties, arguments, published
from lmcourse.bert import BERT, NextSentence
from lmcourse.configuration import Config
from lmcourse.elmo import ELMo, ELMoConfig
from lmcourse.gpt import GPT
from lmcourse.published import shortened
from lmcourse.recurrent import RecurrentConfig, RecurrentLM
from lmcourse.t5 import T5
from lmcourse.ulmfit import AWDLSTM, AWDConfig

MODELS = {"gpt2": GPT, "bert": BERT, "roberta": BERT, "t5": T5, "llama": GPT}
OWN = {"GPT": (GPT, Config), "BERT": (BERT, Config), "T5": (T5, Config), "ELMo": (ELMo, ELMoConfig)}
OWN |= {"RecurrentLM": (RecurrentLM, RecurrentConfig), "AWDLSTM": (AWDLSTM, AWDConfig)}
Own = GPT | BERT | T5 | ELMo | RecurrentLM
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
HEADS = r"(cls|lm_head)\..*"  # how the names of a published head begin


# ------------------------------------------------------------------------------------------ published models


def load(path: str | Path, family: str, heads: int | None = None, head: bool = True) -> GPT | BERT | T5:
    """A published model from its ``model.safetensors``, or the folder in which that lies; in float32.

    ``family``: gpt2, bert, roberta, t5 (v1.0) or llama. Sizes come from the shapes in the file. ``heads`` cannot be
    seen there (but for T5): if not given, it comes from the ``config.json`` beside the file. Every tensor of the file
    is used, or named in ``published.TWICE`` or ``published.UNUSED``, and every parameter of the model is filled. Files
    of sentence encoders have no head: ``head=False`` then gives a model of states only (``model.hidden``). Where the
    file has no pooler, as RoBERTa's, ``model.pooler`` is None. ``ValueError`` says what is missing, what is left over
    and what has another shape.
    """
    if family not in MODELS:
        raise ValueError(f"family: got {family!r}, expected one of {', '.join(MODELS)}")
    path = find(path)
    with _named(path):
        theirs, settings = published.tensors(read(path)[0], family), _settings(path.parent / "config.json", family)
        with torch.device("meta"):  # neither memory nor random numbers: names and shapes of what is to be filled
            model = MODELS[family](published.config(theirs, family, settings, heads))
        if not head:
            model.head = NoHead()
        _fill(model, _ours(theirs, model, family))
        _tie(model)
    return model


def load_next_sentence(path: str | Path, heads: int | None = None) -> NextSentence:
    """A published BERT with both of its heads: ``model.bert``, and whether the second segment follows the first."""
    path = find(path)
    bert, theirs = load(path, "bert", heads), published.tensors(read(path)[0], "bert")
    with torch.device("meta"):
        model = NextSentence(bert)
    parts = {f"output.{kind}": [f"cls.seq_relationship.{kind}"] for kind in ("weight", "bias")}
    with _named(path):
        if missing := {name for (name,) in parts.values()} - theirs.keys():
            raise ValueError(f"{shortened(missing)} missing, expected BERT's head for the next sentence")
        _fill(model, {name: _stack(part, theirs) for name, part in parts.items()})
    return model


class NoHead(nn.Module):
    """Stands where a checkpoint has no head."""

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("this model was loaded without a head and gives states only; use model.hidden(tokens)")


def _settings(path: Path, family: str) -> dict:
    """What ``config.json`` says; ``ValueError`` where it asks for a model that is not ours."""
    try:
        settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        settings = settings | (settings.get("rope_parameters") or {})
    except (ValueError, AttributeError, TypeError):
        raise ValueError("config.json: not a JSON object; download it again, or remove it and give heads") from None
    for name, expected in dict(model_type=family, **published.SETTINGS[family]).items():
        if settings.get(name, expected) != expected:
            raise ValueError(f"config.json: got {name} {settings[name]!r}, expected {expected!r} for family {family!r}")
    return settings


def _ours(theirs: dict[str, Tensor], model: nn.Module, family: str) -> dict[str, Tensor]:
    """Their tensors under our names, after each has been accounted for."""
    table, wanted = published.names(family, model.config.layers), {}
    for name in _parameters(model):
        module, _, kind = name.rpartition(".")
        wanted[name] = [f"{part}.{kind}" for part in table[module]]
    used = {name for parts in wanted.values() for name in parts}
    copies = {k: v for k, v in published.TWICE[family].items() if k in theirs and k not in used}
    unused = published.UNUSED[family] + (f"|{HEADS}" if isinstance(model.head, NoHead) else "")
    left = {name for name in theirs.keys() - used - copies.keys() if not re.fullmatch(unused, name)}
    _account(used - theirs.keys(), left, family)
    for name, other in copies.items():
        if other in theirs and not torch.equal(theirs[name], theirs[other]):
            raise ValueError(f"{name}: differs from {other}, expected the same tensor, as our models tie the two")
    return {name: _stack(parts, theirs) for name, parts in wanted.items()}


def _account(missing: set[str], left: set[str], family: str) -> None:
    if missing:
        cure = "; head=False loads a file without a head" if all(re.fullmatch(HEADS, m) for m in missing) else ""
        raise ValueError(f"not a file of {family}: {shortened(missing)} missing, {shortened(left)} left over{cure}")
    if left:
        raise ValueError(f"not a file of {family}, or of a variant that is not ours: {shortened(left)} left over")


def _stack(parts: list[str], theirs: dict[str, Tensor]) -> Tensor:
    """The named tensors one below the other, in float32."""
    for part in parts:
        if not theirs[part].is_floating_point():
            raise ValueError(f"{part}: got {theirs[part].dtype}, expected floating point")
    if len({theirs[part].shape[1:] for part in parts}) > 1 or not all(theirs[part].ndim for part in parts):
        shapes = ", ".join(str(list(theirs[part].shape)) for part in parts)
        raise ValueError(f"{', '.join(parts)}: got {shapes}, expected equal widths, to be stacked")
    return (theirs[parts[0]] if len(parts) == 1 else torch.cat([theirs[part] for part in parts])).float()


def _parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters by name, each once, whether or not what should be tied is: a tied head is the embedding."""
    again = _twice(model)
    return {name: p for name, p in model.named_parameters(remove_duplicate=False) if name not in again}


def _twice(model: nn.Module) -> dict[str, str]:
    """{name: the other name} of parameters that a model of this configuration has twice."""
    if isinstance(model, NextSentence):
        return {f"bert.{name}": f"bert.{first}" for name, first in _twice(model.bert).items()}
    with torch.device("meta"):
        return _ties.ties(type(model)(model.config))


def _fill(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put ``tensors`` in the place of the model's parameters, which may be on the meta device; nothing is copied."""
    for name, x in tensors.items():
        module, _, kind = name.rpartition(".")
        layer, expected = model.get_submodule(module), list(model.get_parameter(name).shape)
        if list(x.shape) != expected:
            raise ValueError(f"{name}: got shape {list(x.shape)}, expected {expected}")
        setattr(layer, kind, nn.Parameter(x))


def _tie(model: nn.Module) -> None:
    if not isinstance(getattr(model, "head", None), NoHead):
        _ties.tie(model, _twice(model))


# ------------------------------------------------------------------------------------------ the course's own


def save(model: Own, path: str | Path, half: bool = False) -> None:
    """Write a model and its configuration to ``path``; tied weights once. Whatever fails, an old file stays as it was.

    ``half``: in float16, which halves a float32 file and rounds weights by 0.05 % at most (tiny ones by up to 3e-8).
    """
    name = type(model).__name__
    if OWN.get(name, (None,))[0] is not type(model) or isinstance(getattr(model, "head", None), NoHead):
        raise TypeError(f"model: got {arguments.came(model)}, expected one of {', '.join(OWN)}, with its head")
    for tied, first in _twice(model).items():
        if not torch.equal(model.get_parameter(tied), model.get_parameter(first)):
            raise ValueError(f"model: {tied} differs from {first}, expected both tied; move models by device.move")
    if Path(path).suffix in PICKLES:
        raise ValueError(f"path: got {path}, the name of a pickle, expected one such as model.safetensors")
    with torch.device("meta"):
        plain = {name: p.shape for name, p in type(model)(model.config).named_parameters()}
    tensors = {name: p.detach().cpu().contiguous() for name, p in _parameters(model).items()}
    if plain != {name: x.shape for name, x in tensors.items()}:
        raise ValueError("model: its parameters are not those of its configuration, expected a model as it was built")
    tensors = {name: x.half() for name, x in tensors.items()} if half else tensors
    if half and not all(bool(torch.isfinite(x).all()) for x in tensors.values()):
        raise ValueError("half: some weights are beyond ±65,504, NaN or infinite, expected half=False for them")
    metadata = {"kind": name, "config": json.dumps(asdict(model.config)), "half": json.dumps(half)}
    _files.write(path, serialise(tensors, metadata))


def load_own(path: str | Path) -> Own:
    """The model that ``save`` wrote, bit for bit; one in half precision is back in float32, rounded."""
    path = find(path)
    tensors, metadata = read(path)
    try:
        kind, form = OWN[metadata["kind"]]
        config = form(**json.loads(metadata["config"]))
    except (KeyError, TypeError, ValueError) as error:
        cure = "for a published checkpoint use load(path, family)"
        raise ValueError(f"{path}: not a model that this version's save wrote ({error}); {cure}") from None
    with torch.device("meta"):
        model = kind(config)
    wanted = _parameters(model).keys()
    if wanted != tensors.keys():
        missing, left = shortened(wanted - tensors.keys()), shortened(tensors.keys() - wanted)
        raise ValueError(f"{path}: {missing} missing, {left} left over for the configuration in the file")
    with _named(path):
        _fill(model, {name: x.float() for name, x in tensors.items()} if metadata.get("half") == "true" else tensors)
    _tie(model)
    return model


# ------------------------------------------------------------------------------------------ files


def find(path: str | Path) -> Path:
    """The safetensors file that ``path`` is or holds."""
    path = Path(path)
    if path.suffix in PICKLES:
        raise ValueError(f"{path}: got a pickle, which can run any code, expected model.safetensors; get that instead")
    if not path.is_dir():
        return path
    file = path / "model.safetensors"
    if not file.is_file():
        there = shortened(p.name for p in path.iterdir())
        raise FileNotFoundError(f"{path}: no model.safetensors there, only {there}; pickles and parts are not read")
    return file


def read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file; ``ValueError`` where it is cut off or something else."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path}: not a safetensors file, or cut off ({error}); download it again") from None


@contextmanager
def _named(path: Path):
    """Within it, errors say which file they are about."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
