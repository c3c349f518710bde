"""What a configuration file asks to train: a model, and batches of its objective from some text.

The file is TOML; ``recipes/`` has the course's own. GPT, BERT and T5 read the same rows in the same order: what differs
is one line, ``model``, and with it mask, objective and cross-attention.
"""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import torch
from torch import Tensor, nn

from lmcourse import arguments, batches, course, data
from lmcourse.batches import Batch
from lmcourse.bert import BERT
from lmcourse.characters import MARKS
from lmcourse.configuration import Config
from lmcourse.device import seed
from lmcourse.distributed import check_spread
from lmcourse.elmo import ELMo, ELMoConfig
from lmcourse.gpt import GPT
from lmcourse.objectives import check_rate
from lmcourse.optimisation import Settings
from lmcourse.rows import Columns, Rows, Sentences, Stream
from lmcourse.t5 import T5
from lmcourse.ulmfit import AWDConfig, AWDLSTM


@dataclass(frozen=True)
class Family:
    """A model, the class of its configuration, how its text is cut, and its objective."""

    model: type
    config: type
    cut: str
    objective: Callable[..., Batch]


FAMILIES = {
    "GPT": Family(GPT, Config, "rows", batches.causal),
    "BERT": Family(BERT, Config, "rows", batches.masked),
    "T5": Family(T5, Config, "rows", batches.spans),
    "AWDLSTM": Family(AWDLSTM, AWDConfig, "columns", batches.continued),
    "ELMo": Family(ELMo, ELMoConfig, "sentences", batches.both_ways),
}


@dataclass
class Draw:
    """The batch of a step: ``batch`` rows of ``source``, through ``objective``.

    ``about``: whose text it is, which may not change within a run.
    """

    source: Callable
    batch: int
    objective: Callable[..., Batch]
    rate: float = 0.15
    about: dict = field(default_factory=dict)

    def __call__(self, step: int, generator: torch.Generator) -> Batch:
        return self.objective(self.source(step * self.batch, self.batch), generator, self.rate)

    def carried(self) -> dict[str, Tensor]:
        return self.source.carried() if isinstance(self.source, Stream) else {}

    def carry(self, tensors: dict[str, Tensor]) -> None:
        self.source.carry(tensors)


@dataclass
class Task:
    """A model to train, its batches, and how; from :func:`read`."""

    model: nn.Module
    draw: Draw
    held_out: list[Batch]
    training: Settings
    carries: bool = False
    spread: str = "ddp"
    cpu_bf16: bool = False

    def __str__(self) -> str:
        return f"{type(self.model).__name__}, {sum(p.numel() for p in self.model.parameters()):,} parameters"


@dataclass(frozen=True)
class Data:
    """The table [data] of a configuration: whose text, and how much of it a step reads."""

    corpora: Sequence[str] = ("novels", "addresses")
    length: int = 255  # of a row: ids, [CLS] not counted; of a sentence: words
    batch: int = 16  # rows of a step
    rate: float = 0.15  # of the tokens that BERT and T5 have to foresee; GPT foresees all
    held_out: int = 4  # batches of validation documents, spread evenly; of a dataset, none
    dataset: dict = field(default_factory=dict)  # instead of corpora: what datasets.load_dataset takes, and column

    def __post_init__(self):
        for name in ("length", "batch", "held_out"):
            arguments.whole(name, getattr(self, name))
        check_rate(self.rate)
        listed = isinstance(self.corpora, list | tuple) and self.corpora
        if not listed or not all(corpus in course.CORPORA for corpus in self.corpora):
            raise ValueError(f"corpora: got {self.corpora!r}, expected a list of some of {', '.join(course.CORPORA)}")
        if not isinstance(self.dataset, dict):
            raise ValueError(f"dataset: got {self.dataset!r}, expected a table, such as [data.dataset] path = \"json\"")


def read(path: str | Path, changes: Sequence[str] = ()) -> Task:
    """The task of a TOML file: ``model``, ``spread``, ``cpu_bf16`` and the tables [config], [data] and [training].

    The tables hold the arguments of :class:`~lmcourse.configuration.Config`, :class:`Data` and
    :class:`~lmcourse.optimisation.Settings`. ``changes``: entries to replace, such as ``model=BERT`` or
    ``training.steps=100``; a value is TOML, or a word. ``ValueError`` names the file and what is wrong in it.
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
    try:
        return _task(found)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def _change(found: dict, change: str) -> None:
    name, equals, value = change.partition("=")
    if not equals:
        raise ValueError(f"change: got {change!r}, expected name=value, such as model=BERT")
    try:
        value = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        value = value.strip()  # a word without quotes
    *tables, name = name.strip().split(".")
    for table in tables:
        found = found.setdefault(table, {})
        if not isinstance(found, dict):
            raise ValueError(f"change: got {change!r}, but {table} is no table")
    found[name] = value


def _task(found: dict) -> Task:
    _only("entries", found, ("model", "spread", "cpu_bf16", "config", "data", "training"))
    name, spread, bf16 = found.get("model"), found.get("spread", "ddp"), found.get("cpu_bf16", False)
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"model: got {name!r}, expected one of {', '.join(FAMILIES)}")
    check_spread(spread)
    if not isinstance(bf16, bool):
        raise ValueError(f"cpu_bf16: got {bf16!r}, expected true or false")
    family = FAMILIES[name]
    size = len(course.words()) + MARKS if family.cut == "sentences" else course.SIZE
    config = _table(found, "config", family.config, vocabulary=size)
    table, training = _table(found, "data", Data), _table(found, "training", Settings)
    source = _source(family, table, training.seed)
    about = {f"data.{name}": x for name, x in asdict(table).items()}
    draw = Draw(source, table.batch, family.objective, table.rate, about)
    held_out = [] if table.dataset else _held_out(family, table)
    model = family.model(config, seed(training.seed))
    return Task(model, draw, held_out, training, family.cut == "columns", spread, bf16)


def _table(found: dict, name: str, kind: type, **defaults):
    entries = found.get(name, {})
    if not isinstance(entries, dict):
        raise ValueError(f"{name}: got {entries!r}, expected a table, [{name}]")
    _only(f"[{name}]", entries, [f.name for f in fields(kind)])
    try:
        return kind(**defaults | entries)
    except (TypeError, ValueError) as error:
        raise ValueError(f"[{name}] {error}") from None


def _only(where: str, entries: dict, known: Sequence[str]) -> None:
    if left := entries.keys() - set(known):
        raise ValueError(f"{where}: got {', '.join(sorted(left))}, expected only {', '.join(known)}")


def _source(family: Family, table: Data, start: int) -> Callable:
    if family.cut == "sentences":
        return Sentences(course.sentences("train", table.corpora), table.length, start)
    if not table.dataset:
        ids = course.ids("train", table.corpora)
        return Columns(ids, table.length, table.batch) if family.cut == "columns" else Rows(ids, table.length, start)
    if family.cut != "rows":
        raise ValueError("[data] dataset: got one, expected corpora: only GPT, BERT and T5 read a stream")
    try:
        from datasets import load_dataset
    except ImportError:
        raise ValueError("[data] dataset: it is read by a library that is missing; pip install datasets") from None
    options = dict(table.dataset)
    column = options.pop("column", "text")
    stream = load_dataset(**options, streaming=True)
    return Stream(stream, column, table.length, course.tokenizer().encode, course.SEP)


def _held_out(family: Family, table: Data) -> list[Batch]:
    """The same batches at every look, from places spread evenly over the validation documents."""
    count, generator = table.held_out * table.batch, torch.Generator().manual_seed(0)
    if family.cut == "sentences":
        found = course.sentences("validation", table.corpora)
        places = torch.linspace(0, len(found) - 1, min(count, len(found))).long().tolist()
        chosen = sorted((found[i][: table.length] for i in places), key=len)
        parts = [chosen[i : i + table.batch] for i in range(0, len(chosen), table.batch)]
    else:
        ids = course.ids("validation", table.corpora)
        if family.cut == "columns":
            columns = Columns(ids, table.length, table.batch)
            parts = [columns(i * table.batch, table.batch) for i in range(min(table.held_out, columns.epoch))]
        else:
            starts = torch.linspace(0, len(ids) - table.length, count).long()
            parts = ids[starts[:, None] + torch.arange(table.length)].split(table.batch)
    return [family.objective(part, generator, table.rate) for part in parts]
