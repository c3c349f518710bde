"""A run that was stopped, killed or left without room on the disk goes on as if it had never been."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import small_runs as small
import torch
from lmcourse import _files, runs
from lmcourse.checkpoints import read
from lmcourse.distributed import World
from lmcourse.training import Loss, Settings, fit
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = Settings(steps=5, log=1, save=2, validate=3, parts=2, rate=0.01, warmup=2)
DROPOUT = 0.2


def run(kind, folder, settings=SETTINGS, draw=None, **options):
    draw = small.source(kind) if draw is None else draw
    held_out = [small.source(kind)(0, torch.Generator().manual_seed(9))]
    model = options.pop("model", None) or small.small(kind, dropout=DROPOUT)
    return fit(model, draw, settings, folder=folder, held_out=held_out, device=small.CPU, **options)


def stop(kind, folder, step, settings=SETTINGS, **options):
    with pytest.raises(KeyboardInterrupt):
        run(kind, folder, settings, progress=small.stopped_at(step, settings), **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folders of runs that nobody stopped, by kind."""
    folder = tmp_path_factory.mktemp("whole")
    for kind in small.KINDS:
        run(kind, folder / kind)
    return folder


def same(kind, folder, whole):
    return small.log(folder) == small.log(whole / kind) and small.same_state(folder, whole / kind)


# ------------------------------------------------------------------------------------------ stopped


@pytest.mark.parametrize("kind", small.KINDS)
@pytest.mark.parametrize("save", [1, 2])
def test_a_run_stopped_after_any_step_goes_on_bit_for_bit(kind, save, whole, tmp_path):
    """The state's tensors are weights and moments; its settings differ where ``save`` does."""
    settings = replace(SETTINGS, save=save)
    for step in range(1, 5):
        folder = tmp_path / str(step)
        stop(kind, folder, step, settings)
        assert read(folder / runs.STATE)[1]["step"] == str(step - step % save)
        log = run(kind, folder, settings)
        assert same(kind, folder, whole)
        assert [entry["step"] for entry in log] == [1, 2, 3, 4, 5]


def test_stopped_again_and_again(whole, tmp_path):
    for step in (1, 2, 3, 3, 4, 5, 5):
        stop("GPT", tmp_path, step, SETTINGS) if step < 5 else run("GPT", tmp_path)
    assert same("GPT", tmp_path, whole)


def test_a_run_without_a_folder_is_the_same(whole):
    assert run("BERT", None) == runs.read_log(whole / "BERT")


def test_a_finished_run_gives_its_log_and_its_weights(whole):
    model = small.small("T5", dropout=DROPOUT)
    before = (whole / "T5" / runs.STATE).stat().st_mtime_ns
    told = []
    assert run("T5", whole / "T5", model=model, progress=told.append) == runs.read_log(whole / "T5") and not told
    assert (whole / "T5" / runs.STATE).stat().st_mtime_ns == before
    assert all(torch.equal(p, small.tensors(whole / "T5")[f"model.{name}"]) for name, p in model.named_parameters())


def tamper(folder, change):
    tensors, metadata = read(folder / runs.STATE)
    save_file(change(tensors), folder / runs.STATE, metadata)


@pytest.mark.parametrize(
    "forgotten",
    [
        lambda name, x: None if name.startswith("optimiser.") else x,  # the moments, and how many steps they have seen
        lambda name, x: x * 0 if ".exp_avg." in name else x,
        lambda name, x: x * 0 if ".exp_avg_sq." in name else x,
        lambda name, x: x * 0 if ".step." in name else x,  # how many steps: Adam's correction of the first ones
        lambda name, x: x.bfloat16().to(x.dtype),
    ],
)
def test_whatever_a_state_lacks_shows(forgotten, whole, tmp_path):
    stop("GPT", tmp_path, 2)
    tamper(tmp_path, lambda tensors: {n: y for n, x in tensors.items() if (y := forgotten(n, x)) is not None})
    run("GPT", tmp_path)
    assert small.log(tmp_path) != small.log(whole / "GPT") and not small.same_state(tmp_path, whole / "GPT")


def test_a_source_that_draws_from_one_stream_of_numbers_shows(whole, tmp_path):
    """Which is what a loop does that seeds once, at its beginning."""
    folders = tmp_path / "stopped", tmp_path / "whole"
    for folder in folders:
        generator = torch.Generator().manual_seed(0)
        draw = small.source("GPT")
        if folder.name == "stopped":
            stop("GPT", folder, 2, draw=lambda step, _: draw(step, generator))
            generator = torch.Generator().manual_seed(0)  # another process begins anew
        run("GPT", folder, draw=lambda step, _: draw(step, generator))
    assert small.log(folders[0]) != small.log(folders[1])


def test_another_number_of_threads_goes_on(tmp_path, whole):
    threads = torch.get_num_threads()
    stop("GPT", tmp_path, 2)
    try:
        torch.set_num_threads(threads + 1)
        log = run("GPT", tmp_path)
    finally:
        torch.set_num_threads(threads)
    expected = runs.read_log(whole / "GPT")
    assert [entry["loss"] for entry in log] == pytest.approx([entry["loss"] for entry in expected], rel=1e-5)


# ------------------------------------------------------------------------------------------ killed


def test_killed_while_it_saves_it_goes_on_bit_for_bit(tmp_path):
    command = [sys.executable, str(ROOT / "tests" / "small_runs.py"), "kills_while_saving", str(tmp_path)]
    given = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT))
    told = json.loads(subprocess.run(command, env=given, stdout=subprocess.PIPE, check=True).stdout)
    assert len(told) == 6 and set(told.values()) == {True}, told


def test_what_a_kill_left_is_swept_and_nothing_else(tmp_path):
    kept = {".log.jsonl.swp", ".other", "run.safetensors.bak"}  # an editor's, and others
    for name in kept | {".run.safetensors.a1b2c3d_", ".log.jsonl.b2345678", ".model.safetensors.c3456789"}:
        (tmp_path / name).write_bytes(b"x")
    run("GPT", tmp_path, Settings(steps=1))
    assert {*os.listdir(tmp_path)} == kept | {"log.jsonl", "run.safetensors"}


# ------------------------------------------------------------------------------------------ two at once


def test_a_folder_is_trained_in_once_at_a_time(tmp_path):
    """The second one, here or in another process, is refused and spoils nothing; the first one goes on."""
    code = f"import test_runs as t; t.run('GPT', {str(tmp_path / 'GPT')!r})"
    given = dict(os.environ, PYTHONPATH=os.pathsep.join((str(ROOT), str(ROOT / "tests"))))
    told = []

    def second(share):
        if not told:
            with pytest.raises(ValueError, match="another process, or another call in this one, trains in it; wait"):
                run("GPT", tmp_path / "GPT", settings)
            told.append(subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True).stderr)

    settings = replace(SETTINGS, steps=6)
    run("GPT", tmp_path / "GPT", settings, progress=second)
    assert "trains in it; wait until it ends, or give another folder" in told[0]
    run("GPT", tmp_path / "alone", settings)
    assert small.log(tmp_path / "GPT") == small.log(tmp_path / "alone")
    run("GPT", tmp_path / "GPT", settings)  # it is free again


def test_a_disk_without_locks_is_trained_on_all_the_same(tmp_path, monkeypatch):
    def refused(handle, operation):
        raise OSError(errno.ENOTSUP, "no locks here")

    monkeypatch.setattr(_files.fcntl, "flock", refused)
    assert len(run("GPT", tmp_path)) == 5


# ------------------------------------------------------------------------------------------ a full disk


@pytest.fixture
def no_room():
    """Files may not grow beyond 1,000 bytes, within it."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def full(on):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000 if on else limits[0], limits[1]))

    yield full
    full(False)
    signal.signal(signal.SIGXFSZ, handler)


def test_without_room_the_old_state_stays(no_room, tmp_path, whole):
    settings = replace(SETTINGS, log=5)  # the log has room, the state has none
    stop("GPT", tmp_path, 3, settings)
    before = (tmp_path / runs.STATE).read_bytes()
    no_room(True)
    with pytest.raises(OSError, match=r"bytes for .*run.safetensors; what stood there is as it was") as caught:
        run("GPT", tmp_path, settings)
    no_room(False)
    assert caught.value.errno == errno.EFBIG
    assert (tmp_path / runs.STATE).read_bytes() == before and sorted(os.listdir(tmp_path)) == [runs.LOG, runs.STATE]
    run("GPT", tmp_path, settings)
    assert small.same_state(tmp_path, whole / "GPT")


def test_without_room_from_the_start_it_says_so_before_any_step(no_room, tmp_path):
    no_room(True)
    with pytest.raises(OSError, match="File too large, at .* bytes for .*run.safetensors"):
        run("GPT", tmp_path, draw=lambda *given: pytest.fail("a step was taken"))
    no_room(False)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("call", ["fsync", "chmod", "replace"])
def test_whatever_fails_the_old_file_stays(call, tmp_path, monkeypatch):
    path = tmp_path / "file"
    _files.write(path, b"old")

    def fail(*given):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match=r"No space left on device, at 1,000 bytes for .*file; what stood") as caught:
        _files.write(path, b"x" * 1000)
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


# ------------------------------------------------------------------------------------------ other folders


def test_a_state_that_is_cut_off_or_something_else_is_refused(tmp_path, whole):
    state = (whole / "GPT" / runs.STATE).read_bytes()
    for content in (state[: len(state) // 2], state[:4], b"", b"not a state"):
        (tmp_path / runs.STATE).write_bytes(content)
        with pytest.raises(ValueError, match=r"run.safetensors: not the whole state .* begin anew without this file"):
            run("GPT", tmp_path)
        assert (tmp_path / runs.STATE).read_bytes() == content
    tensors = {"model.a": torch.ones(1)}
    for metadata in (None, {"step": "1"}, {"step": "x", "settings": "{}"}, {"step": "1", "settings": "3"}):
        save_file(tensors, tmp_path / runs.STATE, metadata)
        with pytest.raises(ValueError, match="run.safetensors: not the whole state"):
            run("GPT", tmp_path)
    save_file({"other.a": torch.ones(1)}, tmp_path / runs.STATE, {"step": "1", "settings": "{}"})
    with pytest.raises(ValueError, match="run.safetensors: not the whole state"):
        run("GPT", tmp_path)


def test_other_settings_are_refused(whole):
    before = small.log(whole / "GPT")
    with pytest.raises(ValueError, match=r"run.safetensors: .*\(steps was 5, is 6; rate was 0.01, is 0.02\); give"):
        run("GPT", whole / "GPT", replace(SETTINGS, steps=6, rate=0.02))
    assert small.log(whole / "GPT") == before


@pytest.mark.parametrize(
    "model, message",
    [
        (lambda: small.small("BERT", dropout=DROPOUT), "model was 'GPT', is 'BERT'"),
        (lambda: small.small("GPT"), "config.dropout was 0.2, is 0.0"),
        (lambda: small.small("GPT", dropout=DROPOUT, heads=4), "config.heads was 2, is 4"),
        (lambda: small.small("GPT", dropout=DROPOUT).double(), "the weights of another model"),
    ],
)
def test_another_model_is_refused(model, message, whole):
    with pytest.raises(ValueError, match=f"run.safetensors: .*{message}.*; give another folder"):
        run("GPT", whole / "GPT", model=model())


def test_moments_of_what_is_not_trained_are_refused(whole):
    model = small.small("GPT", dropout=DROPOUT)
    model.embedding.tokens.requires_grad_(False)
    with pytest.raises(ValueError, match="moments of embedding.tokens.weight, which is not trained here"):
        run("GPT", whole / "GPT", model=model)


def test_a_log_without_its_state_is_not_overwritten(tmp_path):
    (tmp_path / runs.LOG).write_bytes(b'{"step": 1, "loss": 2}\n')
    with pytest.raises(ValueError, match="log.jsonl: a log without its state, run.safetensors; give another folder"):
        run("GPT", tmp_path)
    assert os.listdir(tmp_path) == [runs.LOG]


# ------------------------------------------------------------------------------------------ the log


def test_a_line_that_was_cut_off_is_left_out(tmp_path, whole):
    stop("GPT", tmp_path, 3)
    with open(tmp_path / runs.LOG, "ab") as file:
        file.write(b'{"step": 4, "lo')
    assert [entry["step"] for entry in runs.read_log(tmp_path)] == [1, 2, 3]
    run("GPT", tmp_path)
    assert same("GPT", tmp_path, whole)


@pytest.mark.parametrize("content", [b"\n", b"[1]\n", b'{"loss": 1}\n', b'{"step": 1}\n{"st\n', b"\xff\n", b"3\n"])
def test_a_log_that_is_something_else_is_refused(content, tmp_path):
    (tmp_path / runs.LOG).write_bytes(content)
    with pytest.raises(ValueError, match="log.jsonl: not the log of a training run"):
        runs.read_log(tmp_path)


def test_without_a_log_there_are_no_entries(tmp_path):
    assert runs.read_log(tmp_path) == []


# ------------------------------------------------------------------------------------------ what is carried along


def carrying(folder=None, steps=6, **options):
    settings = Settings(steps=steps, log=1, save=2, validate=3, rate=0.01)
    held_out = [small.neighbours(0, None), small.neighbours(1, None)]
    given = dict(folder=folder, device=small.CPU, carries=True, held_out=held_out) | options
    return fit(small.recurrent(), small.neighbours, settings, **given)


@pytest.mark.parametrize("step", [1, 3, 4, 5])
def test_the_states_of_a_recurrent_model_go_on(step, tmp_path):
    """AWD-LSTM, with its dropouts. The held-out text, read in between, has states of its own."""
    expected = carrying()
    with pytest.raises(KeyboardInterrupt):
        carrying(tmp_path, progress=small.stopped_at(step, Settings(steps=6)))
    if step > 1:
        assert small.tensors(tmp_path)["carried.1.0"].shape == (4, 8)
    assert carrying(tmp_path) == expected
    plain = carrying(carries=False)
    assert plain[0] == expected[0] and plain[1] != expected[1]
    alone = carrying(held_out=[])
    assert [entry["loss"] for entry in alone] == [entry["loss"] for entry in expected]


def test_without_its_states_a_recurrent_model_would_go_on_elsewhere(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        carrying(tmp_path, progress=small.stopped_at(2, Settings(steps=6)))
    tamper(tmp_path, lambda tensors: {n: x for n, x in tensors.items() if not n.startswith("carried.")})
    assert carrying(tmp_path)[2:] != carrying()[2:]


def test_states_are_not_carried_where_they_were_before_nor_in_parts(tmp_path):
    carrying(tmp_path)
    with pytest.raises(ValueError, match="carries was True, is False"):
        carrying(tmp_path, carries=False)
    with pytest.raises(ValueError, match="parts: got 2, expected 1: each row carries its own states"):
        fit(small.recurrent(), small.neighbours, Settings(steps=2, parts=2), device=small.CPU, carries=True)
    tensors, metadata = read(tmp_path / runs.STATE)
    save_file(tensors | {"source.read": torch.ones(1)}, tmp_path / runs.STATE, metadata)
    with pytest.raises(ValueError, match="it carries read, function does not; give another folder"):
        carrying(tmp_path)


def test_each_process_carries_its_own_rows(tmp_path):
    """A state of four rows, read by the second of two processes."""
    carrying(tmp_path)
    state = small.tensors(tmp_path)["carried.0.1"]
    loss = Loss(small.recurrent(), carries=True)
    optimiser = torch.optim.AdamW(loss.model.parameters())
    run = runs.Run(tmp_path, {}, loss.model, optimiser, loss, None, World(1, 2))
    run.about = json.loads(read(tmp_path / runs.STATE)[1]["settings"])
    run.restore()
    assert loss.states[0][1].equal(state[2:]) and loss.carried().keys() == {"0.0", "0.1", "1.0", "1.1"}
