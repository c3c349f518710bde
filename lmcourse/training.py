"""One training loop for every model of the course, on a laptop, on one GPU or on many.

    python -m lmcourse.training CONFIG.toml --folder FOLDER            # one process
    torchrun --nproc-per-node 8 -m lmcourse.training CONFIG.toml --folder FOLDER

A step: draw a batch, go through it in parts, add up their gradients, clip, move the weights. What is random in step n
comes from generators seeded with (seed, n), so a run that was stopped goes on from its last saved state as if it had
never been, bit for bit where the device repeats itself (a CPU with as many threads as before).
"""

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from lmcourse import arguments, checkpoints, distributed, runs, tasks
from lmcourse._inputs import reporter
from lmcourse.device import Device, autocast, choose, keep_memory, move, seed, seed_from, step_done
from lmcourse.distributed import World
from lmcourse.optimisation import Settings, adamw, parameter_groups
from lmcourse.transformer import Block

NORM = "norm of the gradients"
Batch = tuple[Tensor, ...]  # inputs, targets, weights, as the objectives give them, and masks; rows come first


class Loss(nn.Module):
    """``model.loss`` as a forward pass, which is what DDP and FSDP call.

    With ``carries``, a recurrent model goes on in each batch with the states that it had after the last.
    """

    def __init__(self, model: nn.Module, carries: bool = False):
        super().__init__()
        self.model, self.states = model, {} if carries else None

    def forward(self, *batch: Tensor) -> Tensor:
        return self.model.loss(*batch) if self.states is None else self.model.loss(*batch, state=self.states)

    def counts(self, batch: Batch) -> Tensor:
        """What the loss of a batch is a mean over: the sum of its weights, or what the model counts of them."""
        return self.model.counts(*batch) if hasattr(self.model, "counts") else batch[2].sum()

    def carried(self) -> dict[str, Tensor]:
        """For a run's saved state: each part of each layer's state, rows first."""
        states = self.states or {}
        return {f"{layer}.{i}": part for layer, parts in states.items() for i, part in enumerate(parts)}

    def carry(self, tensors: dict[str, Tensor]) -> None:
        """Go on where :meth:`carried` was asked."""
        device = next(self.parameters()).device
        for name in sorted(tensors):
            layer = int(name.partition(".")[0])
            self.states[layer] = (*self.states.get(layer, ()), tensors[name].to(device))


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
    """Train ``model``, which stays on the device, in evaluation mode; the log's entries, all of them.

    ``draw(step, generator)`` gives the batch of a step: inputs, targets, weights, and what else ``model.loss`` takes.
    The loss must be a mean over these weights, as that of GPT, BERT and T5 is: the loss of a step is then the mean
    over all weights of its batch, also where it is read in parts or by several processes, each of which draws the
    whole batch and reads its rows.

    ``folder``: where state and log are kept; a run that is there already goes on, and one process or one ``torchrun``
    at a time trains there. ``held_out``: batches whose mean loss is logged. ``groups(model)``: of parameters, with
    their own ``lr`` or ``weight_decay``, in place of the usual two. ``carries``: a recurrent model's states go on from
    batch to batch, whose rows then continue those of the last. ``spread``: "ddp" or "fsdp" where ``torchrun`` started
    several processes. ``progress``: True draws a line on stderr.

    An entry: step, counted from 1; loss in nats; rate; norm of the gradients before clipping; and of the held-out
    text, held_out. No clock: a log is the same in each run.
    """
    arguments.kind("settings", settings, Settings, "use Settings(steps=1000)")
    if not hasattr(model, "loss"):
        raise TypeError(f"model: got {arguments.came(model)} without a loss, expected one such as GPT(config)")
    device, report = device or choose(), reporter(progress)
    world = distributed.start(device)
    held_out = [_checked("held_out", batch, world.size) for batch in held_out]
    if carries and settings.parts > 1:
        raise ValueError(f"parts: got {settings.parts}, expected 1: each row carries its own states")
    loss_of = Loss(move(model, device), carries)
    module = distributed.spread(loss_of, _blocks(model), world, device, spread)
    chosen = parameter_groups(model, settings.decay) if groups is None else groups(model)
    optimiser = adamw(chosen, settings.rate, settings.betas)
    module.zero_grad()  # what a caller's own backward pass left
    peaks = [group["lr"] for group in optimiser.param_groups]
    about = _about(settings, model, draw) | {"carries": carries}
    if groups is not None:  # the usual two follow from the settings
        about["groups"] = [[float(group["lr"]), float(group["weight_decay"])] for group in optimiser.param_groups]
    run = runs.Run(folder, about, model, optimiser, loss_of, draw, world)
    cuda = [device.torch_device] if device.kind == "cuda" else []
    with torch.random.fork_rng(cuda), run.begun(), runs.Log(folder, run.done, world.first) as log:
        for step in range(run.done, settings.steps):
            for group, peak in zip(optimiser.param_groups, peaks):
                group["lr"] = peak * settings.factor(step)
            batch = draw(step, seed(seed_from(settings.seed, step)))
            batch = _checked("draw", batch, settings.parts * world.size)
            seed(seed_from(settings.seed, step, world.rank))  # dropout: each process its own
            loss, norm = _step(module, optimiser, batch, settings, device, world)
            done = step + 1
            if settings.due("log", done) or settings.due("validate", done):
                entry = _entry(done, loss, norm, settings)
                if held_out and settings.due("validate", done):
                    carried, loss_of.states = loss_of.states, {} if carries else None  # other text, other states
                    entry["held_out"] = evaluate(module, held_out, device, world)
                    loss_of.states = carried
                log.write(entry)
            if folder is not None and settings.due("save", done):
                _finite(NORM, norm, done)
                run.save(done)
            if world.first:
                report(done / settings.steps)
    model.eval()
    return log.entries


def _step(
    module: nn.Module, optimiser: torch.optim.Optimizer, batch: Batch, settings: Settings, device: Device, world: World
) -> tuple[Tensor, Tensor]:
    """One step of gradient descent: the loss of the batch before it, and the norm of the gradients."""
    count = _loss_of(module).counts
    total, loss = count(batch), torch.zeros((), device=device.torch_device)
    module.train()
    for i, part in enumerate(zip(*(x.chunk(settings.parts) for x in world.rows(batch)), strict=True)):
        counts = float(count(part) / total)  # what the mean over this part weighs in the mean over the batch
        with distributed.accumulating(module, last=i + 1 == settings.parts):
            value = _weighted(counts, module, part, device)
            (world.size * value).backward()  # times size, since the average over processes is taken of the gradients
        loss += value.detach()
    trained = {p for group in optimiser.param_groups for p in group["params"]}
    norm = nn.utils.clip_grad_norm_([p for p in module.parameters() if p in trained], settings.clip or float("inf"))
    optimiser.step()
    module.zero_grad()  # also of what stands in no group
    step_done(device)
    return world.total(loss), distributed.whole(norm)


def _entry(done: int, loss: Tensor, norm: Tensor, settings: Settings) -> dict:
    rate = settings.rate * settings.factor(done - 1)
    return {"step": done, "loss": _finite("loss", loss, done), "rate": rate, "norm": _finite(NORM, norm, done)}


@torch.no_grad()
def evaluate(module: nn.Module, batches: Sequence[Batch], device: Device, world: World = World()) -> float:
    """The mean loss over all weights of ``batches``, in nats, without dropout; ``module`` is a :class:`Loss`."""
    module.eval()
    count = _loss_of(module).counts
    total, loss = 0.0, torch.zeros((), device=device.torch_device)
    for batch in batches:
        mine = world.rows(batch)
        loss += _weighted(float(count(mine)), module, mine, device)
        total += float(count(batch))
    return float(world.total(loss)) / total


def _weighted(counts: float, module: nn.Module, part: Batch, device: Device) -> Tensor:
    """``counts`` times the mean loss of ``part``.

    Where nothing counts that is 0, but it must have its gradients, since other processes wait for them.
    """
    inputs, targets, weights, *masks = (x.to(device.torch_device) for x in part)
    if not counts:
        targets, weights = torch.zeros_like(targets), torch.ones_like(weights)
    with autocast(device):
        return counts * module(inputs, targets, weights, *masks)


def _loss_of(module: nn.Module) -> Loss:
    return getattr(module, "module", module)  # under DDP it is one level further in


def _blocks(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, Block)]


def _about(settings: Settings, model: nn.Module, draw) -> dict:
    """What a run's state is compared by, so that nobody goes on with another model or other batches."""
    config = getattr(model, "config", None)
    config = {f"config.{name}": value for name, value in asdict(config).items()} if is_dataclass(config) else {}
    return asdict(settings) | {"model": type(model).__name__} | config | getattr(draw, "about", {})


def _checked(name: str, batch: Batch, shares: int) -> Batch:
    if len(batch) < 3 or len({len(x) for x in batch}) > 1:
        raise ValueError(f"{name}: expected (inputs, targets, weights), all with the same number of rows")
    if not len(batch[0]) or len(batch[0]) % shares:
        told = f"a multiple of {shares}: of processes, times parts where it is trained on"
        raise ValueError(f"{name}: got a batch of {len(batch[0])} rows, expected {told}")
    if not bool(batch[2].any()):
        raise ValueError(f"{name}: got a batch whose weights are all 0, expected something to predict; drop it")
    return batch


def _finite(name: str, x: Tensor, step: int) -> float:
    """So that a run which diverged ends, and is not saved over a state from before."""
    value = float(x)
    if not math.isfinite(value):
        raise ValueError(f"rate: the {name} is {value} at step {step}: training diverged; lower it, or warm up longer")
    return value


# ------------------------------------------------------------------------------------------ from the command line


def main(argv: Sequence[str] | None = None) -> None:
    """Train as a configuration says: state, log and model go to a folder, and a run that is there goes on."""
    parser = argparse.ArgumentParser(prog="python -m lmcourse.training", description=main.__doc__)
    parser.add_argument("config", help="a TOML file: model, [config], [data], [training]; recipes/trio.toml is one")
    parser.add_argument("change", nargs="*", help="entries to change, such as model=BERT or training.steps=100")
    parser.add_argument("--folder", required=True, help="such as runs/GPT")
    options = parser.parse_intermixed_args(argv)
    try:
        task = tasks.read(options.config, options.change)
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))
    device = choose(cpu_bf16=task.cpu_bf16)
    if device.kind == "cuda" and os.environ.get("LOCAL_RANK"):
        device = choose(f"cuda:{distributed.local_rank()}")
    world = distributed.start(device)
    if world.first:
        print(f"{device}; {task}", file=sys.stderr)
    keep_memory()
    fit(task.model, task.draw, task.training, folder=options.folder, held_out=task.held_out, carries=task.carries,
        device=device, spread=task.spread, progress=True)  # fmt: skip
    weights = {name: distributed.whole(x) for name, x in task.model.state_dict().items()}  # all processes ask
    if world.first:
        model = type(task.model)(task.model.config)
        model.load_state_dict(weights)
        checkpoints.save(model, Path(options.folder) / runs.MODEL)
    distributed.stop()


if __name__ == "__main__":
    main()
