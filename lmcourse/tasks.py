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

from lmcourse import batches, course, texts
from lmcourse.batches import Batch
from lmcourse.bert import BERT
from lmcourse.characters import MARKS
from lmcourse.configuration import Config
from lmcourse.device import seed
from lmcourse.distributed import check_spread
from lmcourse.elmo import ELMo, ELMoConfig
from lmcourse.gpt import GPT
from lmcourse.optimisation import Settings
from lmcourse.rows import Stream
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

    ``about``: whose text it is, which may not change within a run. ``shorter``: (step, source, rows), what is read
    instead below that step.
    """

    source: Callable
    batch: int
    objective: Callable[..., Batch]
    rate: float = 0.15
    about: dict = field(default_factory=dict)
    shorter: Sequence[tuple[int, Callable, int]] = ()

    def __call__(self, step: int, generator: torch.Generator) -> Batch:
        source, count = self.read_at(step)
        return self.objective(source(step * count, count), generator, self.rate)

    def read_at(self, step: int) -> tuple[Callable, int]:
        """(source, how many rows of it) in this step."""
        early = ((source, count) for until, source, count in self.shorter if step < until)
        return next(early, (self.source, self.batch))

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


def read(path: str | Path, changes: Sequence[str] = ()) -> Task:
    """The task of a TOML file: ``model``, ``start``, ``spread``, ``cpu_bf16``; tables [config], [data] and [training].

    ``start``: the course's checkpoint of this model, such as "gpt", in place of random weights; for T5 also "bert+gpt",
    :meth:`~lmcourse.t5.T5.begin_from` these two.

    The tables hold the arguments of :class:`~lmcourse.configuration.Config`, :class:`~lmcourse.texts.Data` and
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
    _only("entries", found, ("model", "start", "spread", "cpu_bf16", "config", "data", "training"))
    name, spread, bf16 = found.get("model"), found.get("spread", "ddp"), found.get("cpu_bf16", False)
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"model: got {name!r}, expected one of {', '.join(FAMILIES)}")
    check_spread(spread)
    if not isinstance(bf16, bool):
        raise ValueError(f"cpu_bf16: got {bf16!r}, expected true or false")
    family = FAMILIES[name]
    size = len(course.words()) + MARKS if family.cut == "sentences" else course.SIZE
    config = _table(found, "config", family.config, vocabulary=size)
    table, training = _table(found, "data", texts.Data), _table(found, "training", Settings)
    shorter, source = (cut(family.cut, table, training.seed) for cut in (texts.shorter, texts.source))
    about = {f"data.{name}": x for name, x in asdict(table).items()}
    draw = Draw(source, table.batch, family.objective, table.rate, about, shorter)
    held_out = _held_out(family, table)
    model = family.model(config, seed(training.seed))
    if (start := found.get("start")) is not None:
        _begin(model, start, training.seed)
        about["start"] = start
    _try(model, held_out)
    return Task(model, draw, held_out, training, family.cut == "columns", spread, bf16)


def _try(model: nn.Module, held_out: list[Batch]) -> None:
    """One row, so that sizes which do not fit each other are told before a run has begun."""
    with torch.no_grad():
        for batch in held_out[:1]:
            try:
                model.eval().loss(*(part[:1] for part in batch))
            except ValueError as error:
                raise ValueError(f"[config] and [data] do not fit each other: {error}") from None


def _begin(model: nn.Module, start: str, begin: int) -> None:
    own = type(model).__name__.lower()
    if start == "bert+gpt" and isinstance(model, T5):
        bert, gpt = course.load("bert"), course.load("gpt")
        model.begin_from(bert, gpt, course.MASK, batches.SENTINELS, seed(begin))
    elif start == own:
        if (other := course.load(own)).config != model.config:
            raise ValueError(f"start: the course's {own} has another [config] than the file: {other.config}")
        model.load_state_dict(other.state_dict())
    else:
        raise ValueError(f"start: got {start!r}, expected {own}{', or bert+gpt' if isinstance(model, T5) else ''}")


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


def _held_out(family: Family, table: texts.Data) -> list[Batch]:
    """The same batches at every look; of a dataset, none."""
    generator = torch.Generator().manual_seed(0)
    parts = [] if table.dataset else texts.held_out(family.cut, table)
    return [family.objective(part, generator, table.rate) for part in parts]
