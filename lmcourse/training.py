"""One training loop for every model of the course, on a laptop, on one GPU or on many.

    python -m lmcourse.training CONFIG.toml            # one process
    torchrun --nproc-per-node 8 -m lmcourse.training CONFIG.toml

A step: draw a batch, go through it in parts, add up their gradients, clip, move the weights. What is random in step n
comes from generators seeded with (seed, n), so a run that was stopped goes on from its last saved state as if it had
never been, bit for bit where the device repeats itself (a CPU with as many threads as before).
"""

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from lmcourse import arguments, checkpoints, distributed, runs, schedules, tasks
from lmcourse._inputs import reporter
from lmcourse.device import Device, autocast, choose, keep_memory, move, seed, seed_from, step_done
from lmcourse.distributed import World
from lmcourse.optimisation import adamw, parameter_groups
from lmcourse.transformer import Block

Batch = tuple[Tensor, Tensor, Tensor]  # inputs, targets, weights, as the objectives give them; rows come first
SCHEDULES = {
    "constant": lambda step, s: schedules.constant(step, s.steps, s.warmup),
    "linear": lambda step, s: schedules.warmup_linear(step, s.steps, s.warmup),
    "cosine": lambda step, s: schedules.warmup_cosine(step, s.steps, s.warmup),
    "slanted_triangular": lambda step, s: schedules.slanted_triangular(step, s.steps),
}


@dataclass(frozen=True)
class Settings:
    """How to train. What is left out keeps its default; all of it stands in a run's state, and may not change later."""

    steps: int
    parts: int = 1  # a batch is read in so many parts, one after the other: memory for one part is enough
    rate: float = 1e-3  # the peak of the learning rate
    schedule: str = "cosine"  # constant, linear, cosine or slanted_triangular
    warmup: int = 0  # steps; the slanted triangle has its own
    decay: float = 0.1  # of matrices; see optimisation.parameter_groups
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float | None = 1.0  # the greatest norm of all gradients together; None: any
    seed: int = 0
    log: int = 10  # steps from one line of the log to the next; so for states saved and looks at held-out text
    save: int = 500
    validate: int = 500

    def __post_init__(self):
        for name in ("steps", "parts", "log", "save", "validate"):
            arguments.whole(name, getattr(self, name))
        arguments.positive("rate", self.rate)
        if self.clip is not None:
            arguments.positive("clip", self.clip)
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule: got {self.schedule!r}, expected one of {', '.join(SCHEDULES)}")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or self.seed < 0:
            raise ValueError(f"seed: got {self.seed!r}, expected a whole number from 0 on")
        object.__setattr__(self, "betas", tuple(self.betas))
        SCHEDULES[self.schedule](0, self)  # the schedule's own check of warmup

    def factor(self, step: int) -> float:
        """The learning rate of ``step``, as a share of its peak."""
        return SCHEDULES[self.schedule](step, self)

    def due(self, name: str, done: int) -> bool:
        """Whether to log, save or validate after ``done`` steps: every so many, and at the end."""
        return done == self.steps or done % getattr(self, name) == 0


class Loss(nn.Module):
    """``model.loss`` as a forward pass, which is what DDP and FSDP call.

    With ``carries``, a recurrent model goes on in each batch with the states that it had after the last.
    """

    def __init__(self, model: nn.Module, carries: bool = False):
        super().__init__()
        self.model, self.states = model, {} if carries else None

    def forward(self, *batch: Tensor) -> Tensor:
        return self.model.loss(*batch) if self.states is None else self.model.loss(*batch, state=self.states)

    def carried(self) -> dict[str, Tensor]:
        """For a run's saved state: each part of each layer's state, rows first."""
        states = self.states or {}
        return {f"{layer}.{i}": part for layer, parts in states.items() for i, part in enumerate(parts)}

    def carry(self, tensors: dict[str, Tensor]) -> None:
        """Go on where :meth:`carried` was asked."""
        for name in sorted(tensors):
            layer = int(name.partition(".")[0])
            self.states[layer] = (*self.states.get(layer, ()), tensors[name])


def fit(
    model: nn.Module,
    draw: Callable[[int, torch.Generator], Batch],
    settings: Settings,
    *,
    folder: str | Path | None = None,
    held_out: Sequence[Batch] = (),
    groups: Callable[[nn.Module], list[dict]] | None = None,
    device: Device | None = None,
    carries: bool = False,
    spread: str = "ddp",
    progress: bool | Callable[[float], None] = False,
) -> list[dict]:
    """Train ``model``, which stays on the device; the log's entries, all of them.

    ``draw(step, generator)`` gives the batch of a step, (inputs, targets, weights); ``model.loss`` takes it. The loss
    of a step is the mean over all weights of its batch, also where it is read in parts or by several processes, each of
    which draws the whole batch and reads its rows.

    ``folder``: where state and log are kept; a run that is there already goes on. ``held_out``: batches whose mean loss
    is logged. ``groups(model)``: of parameters, with their own ``lr`` or ``weight_decay``, in place of the usual two.
    ``carries``: a recurrent model's states go on from batch to batch, whose rows then continue those of the last.
    ``spread``: "ddp" or "fsdp" where ``torchrun`` started several processes. ``progress``: True draws a line on stderr.

    An entry: step, counted from 1; loss in nats; rate; norm of the gradients before clipping; and of the held-out
    text, held_out. No clock: a log is the same in each run.
    """
    arguments.kind("settings", settings, Settings, "use Settings(steps=1000)")
    device, report = device or choose(), reporter(progress)
    world = distributed.start(device)
    move(model, device)
    if carries and settings.parts > 1:
        raise ValueError(f"parts: got {settings.parts}, expected 1: each row carries its own states")
    loss_of = Loss(model, carries)
    module = distributed.spread(loss_of, _blocks(model), world, device, spread)
    groups = parameter_groups(model, settings.decay) if groups is None else groups(model)
    optimiser = adamw(groups, settings.rate, settings.betas)
    peaks = [group["lr"] for group in optimiser.param_groups]
    run = runs.Run(folder, asdict(settings), loss_of, optimiser, draw, world)
    run.restore()
    cuda = [device.torch_device] if device.kind == "cuda" else []
    with torch.random.fork_rng(cuda), runs.Log(folder if world.first else None, run.done) as log:
        for step in range(run.done, settings.steps):
            for group, peak in zip(optimiser.param_groups, peaks):
                group["lr"] = peak * settings.factor(step)
            batch = _whole_rows(draw(step, seed(seed_from(settings.seed, step))), settings.parts * world.size)
            seed(seed_from(settings.seed, step, world.rank))  # dropout: each process its own
            loss, norm = _step(module, optimiser, batch, settings, device, world)
            done = step + 1
            if settings.due("log", done) or settings.due("validate", done):
                entry = {"step": done, "loss": _finite("loss", loss, done), "rate": settings.rate * settings.factor(step)}
                entry["norm"] = _finite("norm of the gradients", norm, done)
                if held_out and settings.due("validate", done):
                    carried, loss_of.states = loss_of.states, {} if carries else None  # other text, other states
                    entry["held_out"] = evaluate(module, held_out, device, world)
                    loss_of.states = carried
                log.write(entry)
            if folder is not None and settings.due("save", done):
                _finite("norm of the gradients", norm, done)
                run.save(done)
            report(done / settings.steps)
    model.eval()
    return log.entries


def _step(
    module: nn.Module, optimiser: torch.optim.Optimizer, batch: Batch, settings: Settings, device: Device, world: World
) -> tuple[Tensor, Tensor]:
    """One step of gradient descent: the loss of the batch before it, and the norm of the gradients."""
    total, loss = batch[2].sum(), torch.zeros((), device=device.torch_device)
    module.train()
    for i, part in enumerate(zip(*(x.chunk(settings.parts) for x in world.rows(batch)), strict=True)):
        counts = float(part[2].sum() / total)  # what the mean over this part weighs in the mean over the batch
        with distributed.accumulating(module, last=i + 1 == settings.parts):
            with autocast(device):
                value = counts * module(*(x.to(device.torch_device) for x in part))
            (world.size * value).backward()  # times size, since the average over processes is taken of the gradients
        loss += value.detach()
    norm = nn.utils.clip_grad_norm_(module.parameters(), settings.clip or float("inf"))
    optimiser.step()
    optimiser.zero_grad()
    step_done(device)
    return world.total(loss), distributed.whole(norm)


@torch.no_grad()
def evaluate(module: nn.Module, batches: Sequence[Batch], device: Device, world: World = World()) -> float:
    """The mean loss over all weights of ``batches``, in nats, without dropout; ``module`` is a :class:`Loss`."""
    module.eval()
    total, loss = 0.0, torch.zeros((), device=device.torch_device)
    for batch in batches:
        counts, mine = float(batch[2].sum()), world.rows(_whole_rows(batch, world.size))
        with autocast(device):
            loss += float(mine[2].sum()) * module(*(x.to(device.torch_device) for x in mine))
        total += counts
    return float(world.total(loss)) / total


def _blocks(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, Block)]


def _whole_rows(batch: Batch, shares: int) -> Batch:
    if len(batch) < 3 or len({len(x) for x in batch}) > 1:
        raise ValueError("draw: expected (inputs, targets, weights), all with the same number of rows")
    if len(batch[0]) % shares:
        raise ValueError(f"draw: got {len(batch[0])} rows, expected a multiple of parts times processes, {shares}")
    return batch


def _finite(name: str, x: Tensor, step: int) -> float:
    """So that a run which diverged ends, and is not saved over a state from before."""
    value = float(x)
    if not math.isfinite(value):
        raise ValueError(f"rate: the {name} is {value} at step {step}: training diverged; lower it, or warm up longer")
    return value


# ------------------------------------------------------------------------------------------ from the command line


def main(argv: Sequence[str] | None = None) -> None:
    """Train as a configuration says: ``python -m lmcourse.training --help``."""
    parser = argparse.ArgumentParser(prog="python -m lmcourse.training", description=main.__doc__)
    parser.add_argument("config", help="a TOML file: model, [config], [data], [training]")
    parser.add_argument("change", nargs="*", help="entries to change, such as model=BERT or training.steps=100")
    parser.add_argument("--folder", required=True, help="for state, log and model; a run that is there goes on")
    options = parser.parse_args(argv)
    task = tasks.read(options.config, options.change)
    device = choose(cpu_bf16=task.cpu_bf16)
    if device.kind == "cuda" and os.environ.get("LOCAL_RANK"):
        device = choose(f"cuda:{distributed.local_rank()}")
    settings = Settings(**task.training)
    print(f"{device}; {task}", file=sys.stderr)
    keep_memory()
    fit(task.model, task.draw, settings, folder=options.folder, held_out=task.held_out, carries=task.carries,
        device=device, spread=task.spread, progress=True)  # fmt: skip
    if distributed.start(device).first:
        checkpoints.save(task.model, Path(options.folder) / "model.safetensors")
    distributed.stop()


if __name__ == "__main__":
    main()
