"""A training run on disk: its state, from which it goes on exactly, and its log.

A folder holds ``run.safetensors``, the state after some step, and ``log.jsonl``, one JSON object a line. The state is
replaced whole or not at all, so that a run which is killed at any moment goes on from the last one that was saved.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from safetensors.torch import save as serialise
from torch import Tensor, nn

from lmcourse import _files, checkpoints
from lmcourse.distributed import World, share, whole

STATE, LOG, MODEL = "run.safetensors", "log.jsonl", "model.safetensors"


class Run:
    """What goes on from step to step: weights, buffers, the optimiser's moments, and what is carried along.

    The latter by the methods ``carried() → {name: tensor}`` and ``carry(tensors)``, where they are there: of
    ``carrier``, a recurrent model's states, rows first, so that several processes can divide them; of ``source``, how
    far a stream was read. ``about``: what may not change while the run lasts, in values that JSON has.
    """

    def __init__(
        self, folder: str | Path | None, about: dict, model: nn.Module, optimiser: torch.optim.Optimizer, carrier,
        source, world: World = World(),
    ):  # fmt: skip
        self.path = None if folder is None else Path(folder) / STATE
        self.about, self.model, self.optimiser = about, model, optimiser
        self.carrier, self.source, self.world = carrier, source, world
        self.done = 0  # steps

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Go on from the folder's state; where there is none, begin the run by saving it as it is before any step.

        The folder is the run's alone meanwhile. ``ValueError`` where another process trains in it.
        """
        if self.path is None:
            yield
            return
        if self.world.first:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with _files.alone(self.path.parent) if self.world.first else nullcontext():
            self._begin()
            yield

    def _begin(self) -> None:
        if self.world.first:
            for name in (STATE, LOG, MODEL):
                _files.sweep(self.path.with_name(name))
        if self.path.is_file():
            self.restore()
        elif (log := self.path.with_name(LOG)).exists():
            raise ValueError(f"{log}: a log without its state, {STATE}; give another folder, or move the log away")
        else:
            self.world.wait()  # all have seen that there is none
            self.save(0)

    def save(self, done: int) -> None:
        """Write the state after ``done`` steps; all processes call it, the first one writes.

        ``OSError`` where the disk is full: the state from before stays.
        """
        tensors = {f"model.{name}": whole(x.detach()) for name, x in self._tensors().items()}
        for name, p in self._trained().items():
            tensors |= {f"optimiser.{kind}.{name}": whole(x) for kind, x in self.optimiser.state.get(p, {}).items()}
        tensors |= {f"carried.{name}": self.world.together(x) for name, x in _carried(self.carrier).items()}
        tensors |= {f"source.{name}": x for name, x in _carried(self.source).items()}
        if self.world.first:
            metadata = {"step": str(done), "settings": json.dumps(self.about)}
            content = serialise({name: x.detach().cpu().contiguous() for name, x in tensors.items()}, metadata)
            _files.write(self.path, content)
        self.done = done

    def restore(self) -> None:
        """Put the folder's state into the model, the optimiser and the source of batches.

        The number of threads and of processes and the device may be others than those that saved it. ``ValueError``
        where it is no whole state, or that of a run with other settings or another model: a folder holds one run.
        """
        done, theirs, parts = _read(self.path)
        self._same(theirs)
        self._fill(parts["model"])
        self._fill_moments(parts["optimiser"])
        carried = self.world.rows(tuple(parts["carried"].values())) if parts["carried"] else ()
        self._carry(self.carrier, dict(zip(parts["carried"], carried)))
        self._carry(self.source, parts["source"])
        self.done = done

    def _same(self, theirs: dict) -> None:
        ours = json.loads(json.dumps(self.about))  # tuples become lists
        other = [name for name, value in theirs.items() if ours.get(name) != value]
        if other:
            told = "; ".join(f"{name} was {theirs[name]!r}, is {ours.get(name)!r}" for name in other)
            cure = "give another folder, or what it began with"
            raise ValueError(f"{self.path}: the state of a run with other settings ({told}); {cure}")

    def _tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers by name, tied ones once."""
        return dict(self.model.named_parameters()) | dict(self.model.named_buffers())

    def _trained(self) -> dict[str, nn.Parameter]:
        ours = {p for group in self.optimiser.param_groups for p in group["params"]}
        return {name: p for name, p in self.model.named_parameters() if p in ours}

    @torch.no_grad()
    def _fill(self, tensors: dict[str, Tensor]) -> None:
        wanted = self._tensors()
        if _kinds(wanted) != _kinds(tensors):
            raise ValueError(f"{self.path}: the weights of another model; give another folder, or the same model")
        for name, x in wanted.items():
            x.copy_(share(tensors[name], x))

    def _fill_moments(self, tensors: dict[str, Tensor]) -> None:
        trained, fused = self._trained(), self.optimiser.defaults.get("fused")
        for name, x in tensors.items():
            kind, _, name = name.partition(".")
            if name not in trained or kind != "step" and x.shape != trained[name].shape:
                raise ValueError(f"{self.path}: moments of {name}, which is not trained here; give another folder")
            p = trained[name]
            # A moment lies where its parameter does; the number of steps only where the fused optimiser reads it.
            self.optimiser.state[p][kind] = share(x, p) if kind != "step" else x.to(p.device) if fused else x

    def _carry(self, thing, tensors: dict[str, Tensor]) -> None:
        if tensors and not hasattr(thing, "carry"):
            kind = type(thing).__name__
            raise ValueError(f"{self.path}: it carries {', '.join(tensors)}, {kind} does not; give another folder")
        if tensors:
            thing.carry(tensors)


def _carried(thing) -> dict[str, Tensor]:
    return thing.carried() if hasattr(thing, "carried") else {}


def _kinds(tensors: dict[str, Tensor]) -> dict[str, tuple]:
    return {name: (x.shape, x.dtype) for name, x in tensors.items()}


def _read(path: Path) -> tuple[int, dict, dict[str, dict[str, Tensor]]]:
    """(steps done, settings, tensors by the part of the state that they belong to) of a state."""
    parts = {part: {} for part in ("model", "optimiser", "carried", "source")}
    try:
        tensors, metadata = checkpoints.read(path)
        done, settings = int(metadata["step"]), dict(json.loads(metadata["settings"]))
        for name, x in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = x
    except (KeyError, TypeError, ValueError) as error:
        cure = "give another folder, or begin anew without this file and its log"
        raise ValueError(f"{path}: not the whole state of a training run ({error}); {cure}") from None
    return done, settings, parts


# ------------------------------------------------------------------------------------------ the log


class Log:
    """Entries, in a list and in the folder's ``log.jsonl``, an object a line.

    Those after the step ``done`` are dropped: the log of a run that was killed and went on has each step once.
    Without a ``folder``, or where ``writes`` is False, nothing is written.
    """

    def __init__(self, folder: str | Path | None, done: int, writes: bool = True):
        self.entries, self.file = [], None
        if folder is not None:
            self.entries = [entry for entry in read_log(folder) if entry["step"] <= done]
        if folder is not None and writes:
            _files.write(Path(folder) / LOG, b"".join(map(_line, self.entries)))
            self.file = open(Path(folder) / LOG, "ab")

    def write(self, entry: dict) -> None:
        self.entries.append(entry)
        if self.file is not None:
            self.file.write(_line(entry))
            self.file.flush()

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *error) -> None:
        if self.file is not None:
            self.file.close()


def read_log(folder: str | Path) -> list[dict]:
    """The entries of a run's log, in order; a last line that was cut off is left out. Without a log, none."""
    path = Path(folder) / LOG
    if not path.is_file():
        return []
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    try:
        return [{"step": int(entry.pop("step"))} | entry for entry in map(json.loads, lines)]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"{path}: not the log of a training run; give another folder, or move it away") from None


def _line(entry: dict) -> bytes:
    return json.dumps(entry).encode() + b"\n"
