"""Tiny training runs for the tests. As a script: runs that are killed, and several processes that train together."""

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
from lmcourse import runs, tasks
from lmcourse.checkpoints import read
from lmcourse.configuration import Config
from lmcourse.corruption import corrupted_lengths, span_corruption_batch
from lmcourse.device import Device
from lmcourse.objectives import causal_lm, masked_lm, ordinary
from lmcourse.rows import Columns
from lmcourse.training import Settings, fit
from lmcourse.ulmfit import AWDLSTM, RATES, AWDConfig

CPU = Device("cpu", torch.device("cpu"), "CPU: for a test")
KINDS = ("GPT", "BERT", "T5")
PAD, END, MASK, FIRST, SENTINELS = 0, 1, 2, 3, range(63, 55, -1)


def small(kind, dropout=0.0, **changes):
    sizes = dict(positions=16, layers=1, width=16, heads=2, dropout=dropout)
    return tasks.FAMILIES[kind].model(Config(64, **sizes | changes), torch.Generator().manual_seed(3))


def objective(kind, rows, generator):
    """As those of the course, with 64 ids; the first row of each batch of BERT is mostly padding, so weights differ."""
    if kind == "GPT":
        rows = rows.clone()
        rows[0, 5:] = PAD
        return causal_lm(rows, pad_id=PAD)
    if kind == "BERT":
        rows = rows.clone()
        rows[0, 5:] = PAD
        candidates, ids = ordinary(rows, [PAD]), range(FIRST, SENTINELS[-1])
        batch = masked_lm(rows, mask_id=MASK, random_ids=ids, candidates=candidates, rate=0.3, generator=generator)
        return *batch, rows != PAD
    lengths = dict(zip(("input_length", "target_length"), corrupted_lengths(rows.shape[1])))
    return span_corruption_batch(rows, **lengths, sentinels=SENTINELS, end_id=END, pad_id=PAD, generator=generator)


def source(kind, rows=4, length=12):
    """A batch for each step: ids that follow one another, so that there is something to learn."""

    def draw(step, generator):
        start = torch.randint(50, (rows, 1), generator=generator)
        return objective(kind, FIRST + (start + torch.arange(length)) % 50, generator)

    return draw


def recurrent(**rates):
    """AWD-LSTM; without dropout where the rates are 0."""
    return AWDLSTM(AWDConfig(64, width=8, hidden=12, layers=2, **rates), torch.Generator().manual_seed(3))


def neighbours(step, generator):
    """Rows that go on where those of the step before ended."""
    return causal_lm(Columns(torch.arange(400) % 50 + FIRST, length=6, batch=4)(step * 4, 4))


def tensors(folder):
    return read(Path(folder) / runs.STATE)[0]


def same_state(one, other):
    a, b = tensors(one), tensors(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def log(folder):
    return (Path(folder) / runs.LOG).read_bytes()


# ------------------------------------------------------------------------------------------ runs that are killed

KILLED = Settings(steps=12, log=1, save=1, validate=5, parts=2, rate=0.01)


def train(folder):
    torch.set_num_threads(1)
    held_out = [source("GPT")(0, torch.Generator().manual_seed(9))]
    fit(small("GPT", dropout=0.1, width=32), source("GPT"), KILLED, folder=folder, held_out=held_out, device=CPU)


def child(work, *given):
    """A process of its own that does it, without the seconds that a fresh one takes to import torch."""
    if pid := os.fork():
        return pid
    try:
        work(*given)
    except BaseException:
        traceback.print_exc()
    os._exit(0)


def die_at(call, times, folder):
    """Train, but be killed when a function of ``os`` that writes files is called for the n-th time."""
    original, left = getattr(os, call), [times]

    def killing(*given, **options):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*given, **options)

    setattr(os, call, killing)
    train(folder)


def finish(folder, whole):
    """Go on to the end; whether log and state are those of the run that nobody stopped, and nothing else is left."""
    os.waitpid(child(train, folder), 0)
    same = log(folder) == log(whole) and same_state(folder, whole)
    same = same and sorted(p.name for p in folder.iterdir()) == [runs.LOG, runs.STATE]
    shutil.rmtree(folder)
    return same


def kills(folder, count, seed):
    """Kill runs at ``count`` moments; in how many runs, after which steps, and whether all ended as they should."""
    folder, draw, told = Path(folder), random.Random(int(seed)), dict(kills=0, runs=0, same=True, steps=[], left=0)
    train(folder / "whole")  # here: what is imported and made at first use, its children have
    began = time.monotonic()
    os.waitpid(child(train, folder / "timed"), 0)
    lasts, killed = time.monotonic() - began, folder / "killed"
    while told["kills"] < int(count):
        pid = child(train, killed)
        time.sleep(lasts * draw.uniform(0, 1))
        os.kill(pid, signal.SIGKILL)
        if os.WIFSIGNALED(os.waitpid(pid, 0)[1]):
            told["kills"] += 1
            state = killed / runs.STATE
            told["steps"].append(int(read(state)[1]["step"]) if state.exists() else None)
            told["left"] += killed.exists() and any(p.name.startswith(".") for p in killed.iterdir())
        else:  # it had come to its end
            told["runs"], told["same"] = told["runs"] + 1, told["same"] and finish(killed, folder / "whole")
    told["runs"], told["same"] = told["runs"] + 1, told["same"] and finish(killed, folder / "whole")
    return told


def kills_while_saving(folder):
    """Kills just before and just after the calls that make a file: {moment: whether it ended as it should}."""
    folder, told = Path(folder), {}
    train(folder / "whole")
    for call, times in (("fsync", 1), ("replace", 1), ("fsync", 2), ("replace", 2), ("fsync", 9), ("replace", 12)):
        _, status = os.waitpid(child(die_at, call, times, folder / "killed"), 0)
        left = any(p.name.startswith(".") for p in (folder / "killed").iterdir())
        told[f"{call} {times}"] = os.WIFSIGNALED(status) and left and finish(folder / "killed", folder / "whole")
    return told


# ------------------------------------------------------------------------------------------ together

NO_DROPOUT = dict.fromkeys(RATES, 0.0)
CARRYING = Settings(steps=4, log=1, save=2, rate=0.01)
TOGETHER = Settings(steps=4, log=1, save=2, validate=2, parts=2, rate=0.01)


def stopped_at(step, settings=TOGETHER):
    """A report of progress that stops the run after a step."""

    def report(done):
        if done >= step / settings.steps:
            raise KeyboardInterrupt

    return report


def together(folder, rank, size):
    """In each of ``size`` processes: train all models under DDP and FSDP, and go on with what one process began."""
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = f"file://{Path(folder).absolute()}/store"
    dist.init_process_group("gloo", init_method=store, rank=int(rank), world_size=int(size))
    told = {}
    for spread in ("ddp", "fsdp"):
        for kind in KINDS:
            begun = Path(folder) / f"begun-{spread}-{kind}"  # by one process
            for name, place in (("new", Path(folder) / f"{spread}-{kind}"), ("went on", begun)):
                draw, options = source(kind), dict(folder=place, device=CPU, spread=spread)
                held_out = [draw(0, torch.Generator().manual_seed(9))]
                told[f"{name} {spread} {kind}"] = fit(small(kind), draw, TOGETHER, held_out=held_out, **options)
        options = dict(folder=Path(folder) / f"begun-{spread}-AWDLSTM", device=CPU, spread=spread, carries=True)
        told[f"went on {spread} AWDLSTM"] = fit(recurrent(**NO_DROPOUT), neighbours, CARRYING, **options)
        try:
            fit(small("GPT"), source("GPT", rows=2), TOGETHER, device=CPU, spread=spread)
        except ValueError as error:
            told[f"rows {spread}"] = str(error)
    dist.destroy_process_group()
    return told


if __name__ == "__main__":
    found = {"kills": kills, "kills_while_saving": kills_while_saving, "together": together}[sys.argv[1]](*sys.argv[2:])
    sys.stdout.write(json.dumps(found))
