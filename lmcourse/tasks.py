"""What a configuration file asks to train: a model, and batches of its objective from some text.

The file is TOML; ``recipes/`` has the course's own. GPT, BERT and T5 read the same rows in the same order: what differs
is one line, ``model``, and with it mask, objective and cross-attention.
"""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmcourse import arguments, course, data
from lmcourse.bert import BERT
from lmcourse.configuration import Config
from lmcourse.corruption import noise_and_spans, span_corruption_batch
from lmcourse.device import seed
from lmcourse.gpt import GPT
from lmcourse.objectives import causal_lm, masked_lm, ordinary
from lmcourse.rows import Rows, Stream, joined
from lmcourse.t5 import T5

Batch = tuple[Tensor, Tensor, Tensor]

# ------------------------------------------------------------------------------------------ the three objectives

SENTINELS = range(course.FIRST_SENTINEL, course.FIRST_SENTINEL - course.SENTINELS, -1)
ORDINARY = range(len(course.SPECIALS), course.SIZE)


def causal(rows: Tensor, generator: torch.Generator) -> Batch:
    """Each token from those before it, for GPT: rows (B, T) → three times (B, T - 1)."""
    return causal_lm(rows)


def masked(rows: Tensor, generator: torch.Generator) -> Batch:
    """Some tokens from all others, for BERT: rows (B, T) → three times (B, T)."""
    candidates = ordinary(rows, [course.CLS, course.SEP])
    return masked_lm(rows, mask_id=course.MASK, random_ids=ORDINARY, candidates=candidates, generator=generator)


def spans(rows: Tensor, generator: torch.Generator) -> Batch:
    """Dropped spans from the rest, for T5: rows (B, T) → inputs (B, S), targets and weights (B, U)."""
    noise, count = noise_and_spans(rows.shape[1])
    lengths = dict(input_length=rows.shape[1] - noise + count + 1, target_length=noise + count + 1)
    ids = dict(sentinels=SENTINELS, end_id=course.END, pad_id=course.PAD)
    return span_corruption_batch(rows, **lengths, **ids, generator=generator)


OBJECTIVES = {"GPT": causal, "BERT": masked, "T5": spans}
MODELS = {"GPT": GPT, "BERT": BERT, "T5": T5}


@dataclass
class Draw:
    """The batch of a step: ``batch`` rows of ``source``, each after [CLS], through ``objective``."""

    source: Rows | Stream
    batch: int
    objective: Callable[[Tensor, torch.Generator], Batch]

    def __call__(self, step: int, generator: torch.Generator) -> Batch:
        rows = self.source(step * self.batch, self.batch)
        return self.objective(F.pad(rows, (1, 0), value=course.CLS), generator)

    def carried(self) -> dict[str, Tensor]:
        return self.source.carried() if isinstance(self.source, Stream) else {}

    def carry(self, tensors: dict[str, Tensor]) -> None:
        self.source.carry(tensors)


# ------------------------------------------------------------------------------------------ from a file


@dataclass
class Task:
    """A model to train, its batches, and how; from :func:`read`."""

    model: nn.Module
    draw: Draw
    held_out: list[Batch]
    training: dict  # the arguments of training.Settings
    spread: str = "ddp"
    cpu_bf16: bool = False

    def __str__(self) -> str:
        count = sum(p.numel() for p in self.model.parameters())
        return f"{type(self.model).__name__}, {count:,} parameters"


@dataclass(frozen=True)
class Data:
    """The table [data] of a configuration: whose text, and how much of it a step reads."""

    corpora: Sequence[str] = ("novels", "addresses")
    length: int = 255  # ids of a row, [CLS] not counted
    batch: int = 16  # rows of a step
    held_out: int = 64  # rows of validation documents, spread evenly; of a stream, none
    dataset: dict = field(default_factory=dict)  # instead of corpora: what datasets.load_dataset takes, and column


def read(path: str | Path, changes: Sequence[str] = ()) -> Task:
    """The task of a TOML file: ``model``, ``spread``, ``cpu_bf16`` and the tables [config], [data] and [training].

    ``changes``: entries to replace, such as ``model=BERT`` or ``training.steps=100``; a value is TOML, or a word.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; recipes/trio.toml is one")
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not TOML ({error})") from None
    for change in changes:
        _change(found, change)
    known = {"model", "spread", "cpu_bf16", "config", "data", "training"}
    if left := found.keys() - known:
        raise ValueError(f"{path}: got {', '.join(sorted(left))}, expected only {', '.join(sorted(known))}")
    kind = found.get("model")
    if kind not in MODELS:
        raise ValueError(f"{path}: got model {kind!r}, expected one of {', '.join(MODELS)}")
    training, table = found.get("training", {}), _table(path, "data", Data, found.get("data", {}))
    config = _table(path, "config", Config, {"vocabulary": course.SIZE} | found.get("config", {}))
    start = training.get("seed", 0)
    model = MODELS[kind](config, seed(start))
    draw = Draw(_source(table, start), table.batch, OBJECTIVES[kind])
    held_out = [] if table.dataset else _held_out(table, OBJECTIVES[kind])
    options = {name: found[name] for name in ("spread", "cpu_bf16") if name in found}
    return Task(model, draw, held_out, training, **options)


def _change(found: dict, change: str) -> None:
    name, equals, value = change.partition("=")
    if not equals:
        raise ValueError(f"change: got {change!r}, expected name=value, such as model=BERT")
    try:
        value = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        pass  # a word without quotes
    *tables, name = name.split(".")
    for table in tables:
        found = found.setdefault(table, {})
    found[name] = value


def _table(path: Path, name: str, kind: type, entries: dict):
    try:
        return kind(**entries)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: [{name}] {error}") from None


def _texts(corpora: Sequence[str], split: str) -> list[str]:
    return [document.text for corpus in corpora for document in data.documents(corpus, split)]


def _source(table: Data, start: int) -> Rows | Stream:
    encode = course.tokenizer().encode
    if not table.dataset:
        return Rows(joined(_texts(table.corpora, "train"), encode, course.SEP), table.length, start)
    from datasets import load_dataset  # optional

    options = dict(table.dataset)
    column = options.pop("column", "text")
    return Stream(load_dataset(**options, streaming=True), column, table.length, encode, course.SEP)


def _held_out(table: Data, objective: Callable) -> list[Batch]:
    """The same batches at every look: rows spread evenly over the validation documents, drawn with one seed."""
    ids = joined(_texts(table.corpora, "validation"), course.tokenizer().encode, course.SEP)
    starts = torch.linspace(0, len(ids) - table.length, table.held_out).long()
    rows = F.pad(ids[starts[:, None] + torch.arange(table.length)], (1, 0), value=course.CLS)
    generator = torch.Generator().manual_seed(0)
    return [objective(part, generator) for part in rows.split(table.batch)]
