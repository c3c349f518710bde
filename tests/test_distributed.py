"""Several processes give what one gives, spread by DDP and FSDP2, and go on with what one began; torchrun."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import small_runs as small
import torch
from lmcourse import distributed
from lmcourse.checkpoints import load_own
from lmcourse.distributed import World
from lmcourse.runs import read_log
from lmcourse.training import Settings, fit

ROOT = Path(__file__).resolve().parent.parent
SPREADS = ("ddp", "fsdp")
ALONE = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT), LMCOURSE_DEVICE="cpu")
ALL = [(spread, kind) for spread in SPREADS for kind in small.KINDS]


def options(kind):
    return dict(held_out=[small.source(kind)(0, torch.Generator().manual_seed(9))], device=small.CPU)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """(folder, what one process logs, what each of two logs)."""
    folder, alone = tmp_path_factory.mktemp("together"), {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for kind in small.KINDS:
        given = (small.source(kind), small.TOGETHER)
        alone[kind] = fit(small.small(kind), *given, folder=folder / kind, **options(kind))
        for spread in SPREADS:
            with pytest.raises(KeyboardInterrupt):
                place = dict(folder=folder / f"begun-{spread}-{kind}", progress=small.stopped_at(2))
                fit(small.small(kind), *given, **place, **options(kind))
    torch.set_num_threads(threads)
    command = [sys.executable, str(ROOT / "tests" / "small_runs.py"), "together", str(folder)]
    piped = dict(stdout=subprocess.PIPE, text=True, env=ALONE)
    both = [subprocess.Popen([*command, str(rank), "2"], **piped) for rank in (0, 1)]
    told = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    return folder, alone, [json.loads(text) for text in told]


def furthest(log, other):
    assert [entry.keys() for entry in log] == [entry.keys() for entry in other]
    return max(abs(a[name] - b[name]) for a, b in zip(log, other, strict=True) for name in a)


@pytest.mark.parametrize("spread, kind", ALL)
def test_two_processes_give_the_losses_of_one(spread, kind, done):
    _, alone, told = done
    for process in told:
        assert furthest(process[f"new {spread} {kind}"], alone[kind]) < 1e-6


@pytest.mark.parametrize("spread, kind", ALL)
def test_two_processes_go_on_with_what_one_began(spread, kind, done):
    folder, alone, told = done
    for process in told:
        assert furthest(process[f"went on {spread} {kind}"], alone[kind]) < 1e-6
    assert read_log(folder / f"begun-{spread}-{kind}") == told[0][f"went on {spread} {kind}"]


@pytest.mark.parametrize("spread, kind", ALL)
def test_what_two_processes_saved_is_read_by_one(spread, kind, done):
    folder, _, told = done
    ours, theirs = small.tensors(folder / kind), small.tensors(folder / f"{spread}-{kind}")
    assert ours.keys() == theirs.keys()
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) < 2e-5
    model = small.small(kind)
    log = fit(model, small.source(kind), small.TOGETHER, folder=folder / f"{spread}-{kind}", **options(kind))
    assert log == told[0][f"new {spread} {kind}"]
    assert all(torch.equal(p, theirs[f"model.{name}"]) for name, p in model.named_parameters())


def test_the_losses_tell_a_process_that_weighs_its_rows_as_if_all_had_as_many_targets(done):
    """The mean of the two processes' means, which DDP alone would give, is not within the tolerance above."""
    _, alone, _ = done
    inputs, targets, weights, mask = small.source("BERT")(0, torch.Generator().manual_seed(9))
    model = small.small("BERT")
    halves = [model.loss(inputs[r], targets[r], weights[r], mask[r]) for r in (slice(0, 2), slice(2, 4))]
    assert (sum(halves) / 2 - model.loss(inputs, targets, weights, mask)).abs() > 1e-4


@pytest.mark.parametrize("spread", SPREADS)
def test_rows_that_do_not_divide_are_refused(spread, done):
    assert "got a batch of 2 rows, expected a multiple of 4" in done[2][0][f"rows {spread}"]


def test_torchrun_trains_as_the_command_says(tmp_path):
    config = tmp_path / "small.toml"
    config.write_text(
        'model = "BERT"\nspread = "fsdp"\n[config]\npositions = 16\nlayers = 1\nwidth = 16\nheads = 2\n'
        '[data]\ncorpora = ["addresses"]\nlength = 15\nbatch = 4\nheld_out = 4\n[training]\nsteps = 2\nlog = 1\n'
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "lmcourse.training", str(config), "--folder", str(tmp_path / "run"), "data.batch=8"]
    # The corpora would be read whole by each process.
    (tmp_path / "sitecustomize.py").write_text(
        "import torch, lmcourse.course as c\nc.ids = lambda split, corpora: 40 + torch.arange(2000)\n"
    )
    given = ALONE | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    ran = subprocess.run(command, env=given, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("training 100%") == 1 and ran.stderr.count("BERT, ") == 1  # the first process speaks
    assert [entry["step"] for entry in read_log(tmp_path / "run")] == [1, 2]
    state, model = small.tensors(tmp_path / "run"), load_own(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(p, state[f"model.{name}"]) for name, p in model.named_parameters())


# ------------------------------------------------------------------------------------------ one process


def test_alone_nothing_is_spread():
    world, module = World(), torch.nn.Linear(2, 2)
    batch = (torch.arange(6).view(3, 2),)
    assert world.first and world.rows(batch)[0].equal(batch[0]) and world.together(batch[0]) is batch[0]
    assert world.total(batch[0]) is batch[0] and world.wait() is None
    assert distributed.spread(module, [], world, small.CPU, "fsdp") is module
    assert distributed.whole(batch[0]) is batch[0] and distributed.share(batch[0], torch.zeros(1)) is batch[0]
    distributed.stop()


def test_each_process_has_its_own_neighbouring_rows():
    batch = torch.arange(6), torch.arange(6) * 10
    assert [[x.tolist() for x in World(rank, 3).rows(batch)] for rank in range(3)] == [
        [[0, 1], [0, 10]],
        [[2, 3], [20, 30]],
        [[4, 5], [40, 50]],
    ]


def test_an_unknown_spread_is_refused():
    with pytest.raises(ValueError, match="spread: got 'zero', expected one of ddp, fsdp"):
        fit(small.small("GPT"), small.source("GPT"), Settings(2), device=small.CPU, spread="zero")


def test_without_torchrun_the_process_is_alone():
    with mock.patch.dict(os.environ):
        os.environ.pop("WORLD_SIZE", None)
        assert distributed.start(small.CPU) == World(0, 1) and not torch.distributed.is_initialized()
        os.environ.pop("LOCAL_RANK", None)
        assert distributed.local_rank() == 0
        os.environ["LOCAL_RANK"] = "3"
        assert distributed.local_rank() == 3
