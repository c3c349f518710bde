"""A training run on disk: its state, from which it goes on exactly, and its log.

A folder holds ``run.safetensors``, the state after some step, and ``log.jsonl``, one JSON object a line. The state is
replaced whole or not at all, so that a run which is killed at any moment goes on from the last one that was saved.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save as serialise
from torch import Tensor, nn

from lmcourse import _files, checkpoints
from lmcourse.distributed import World, share, whole

STATE, LOG = "run.safetensors", "log.jsonl"


class Run:
    """What goes on from step to step: weights, buffers, the optimiser's moments, and what model or source carry along.

    The latter where they have the methods ``carried() → {name: tensor}`` and ``carry(tensors)``: a recurrent model its
    states, rows first, so that several processes can divide them; a stream how far it was read.
    """

    def __init__(
        self, folder: str | Path | None, settings: dict, model: nn.Module, optimiser: torch.optim.Optimizer, source,
        world: World,
    ):  # fmt: skip
        self.path = None if folder is None else Path(folder) / STATE
        if folder is not None and world.first:
            Path(folder).mkdir(parents=True, exist_ok=True)
            _files.sweep(self.path)
        self.settings, self.model, self.optimiser, self.source, self.world = settings, model, optimiser, source, world
        self.done = 0  # steps

    def save(self, done: int) -> None:
        """Write the state after ``done`` steps; all processes call it, the first one writes."""
        tensors = {f"model.{name}": whole(x.detach()) for name, x in self._tensors().items()}
        for name, p in self._trained().items():
            tensors |= {f"optimiser.{kind}.{name}": whole(x) for kind, x in self.optimiser.state[p].items()}
        tensors |= {f"carried.{name}": self.world.together(x) for name, x in _carried(self.model).items()}
        tensors |= {f"source.{name}": x for name, x in _carried(self.source).items()}
        if self.world.first:
            metadata = {"step": str(done), "settings": json.dumps(self.settings)}
            content = serialise({name: x.detach().cpu().contiguous() for name, x in tensors.items()}, metadata)
            _files.write(self.path, content)
        self.done = done

    def restore(self) -> None:
        """Put the last state of the folder, if there is one, into the model, the optimiser and the source of batches.

        The number of threads and of processes and the device may be others than those that saved it. ``ValueError``
        where it belongs to a run with other settings or another model: a folder holds one run.
        """
        if self.path is None or not self.path.is_file():
            return
        tensors, metadata = checkpoints.read(self.path)
        try:
            done, theirs = int(metadata["step"]), json.loads(metadata["settings"])
        except (KeyError, ValueError):
            raise ValueError(f"{self.path}: not the state of a training run; give another folder") from None
        _same(self.path, theirs, self.settings)
        parts = {part: {} for part in ("model", "optimiser", "carried", "source")}
        for name, x in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = x
        self._fill(parts["model"])
        self._fill_moments(parts["optimiser"])
        if parts["carried"]:
            rows = self.world.rows(tuple(parts["carried"].values()))
            self.model.carry(dict(zip(parts["carried"], rows)))
        if parts["source"]:
            self.source.carry(parts["source"])
        self.done = done

    def _tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers by name, tied ones once."""
        return dict(self.model.named_parameters()) | dict(self.model.named_buffers())

    def _trained(self) -> dict[str, nn.Parameter]:
        ours = {p for group in self.optimiser.param_groups for p in group["params"]}
        return {name: p for name, p in self.model.named_parameters() if p in ours}

    @torch.no_grad()
    def _fill(self, tensors: dict[str, Tensor]) -> None:
        wanted = self._tensors()
        if {name: x.shape for name, x in wanted.items()} != {name: x.shape for name, x in tensors.items()}:
            raise ValueError(f"{self.path}: the weights of another model; give another folder, or the same model")
        for name, x in wanted.items():
            x.copy_(share(tensors[name], x))

    def _fill_moments(self, tensors: dict[str, Tensor]) -> None:
        trained = self._trained()
        for name, x in tensors.items():
            kind, _, name = name.partition(".")
            if name not in trained:
                raise ValueError(f"{self.path}: moments of {name}, which is not trained; give another folder")
            # a moment lies where its parameter does; the number of steps, one number, on the CPU
            self.optimiser.state[trained[name]][kind] = share(x, trained[name]) if x.ndim else x


def _carried(thing) -> dict[str, Tensor]:
    return thing.carried() if hasattr(thing, "carried") else {}


def _same(path: Path, theirs: dict, settings: dict) -> None:
    ours = json.loads(json.dumps(settings))  # tuples become lists
    other = {k: (theirs.get(k), ours.get(k)) for k in sorted(theirs | ours) if theirs.get(k) != ours.get(k)}
    if other:
        told = "; ".join(f"{name} was {a!r}, is {b!r}" for name, (a, b) in other.items())
        raise ValueError(f"{path}: a run with other settings ({told}); give another folder, or the same settings")


# ------------------------------------------------------------------------------------------ the log


class Log:
    """Entries, in a list and in the folder's ``log.jsonl``, an object a line. Those after the step ``done`` are dropped:

    the log of a run that was killed and went on has each step once. Without a ``folder`` nothing is written.
    """

    def __init__(self, folder: str | Path | None, done: int):
        self.entries, self.file = [], None
        if folder is not None:
            self.entries = [entry for entry in read_log(folder) if entry["step"] <= done]
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
    lines = path.read_bytes().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def _line(entry: dict) -> bytes:
    return json.dumps(entry).encode() + b"\n"
