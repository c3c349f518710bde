"""The training loop: parts, groups, schedules, clipping, what is logged, what it leaves alone; the command line."""

import contextlib
import copy
import json
import math
import re
from unittest import mock

import numpy as np
import pytest
import small_runs as small
import torch
from lmcourse import course, training
from lmcourse._inputs import reporter
from lmcourse.checkpoints import load_own
from lmcourse.distributed import World
from lmcourse.optimisation import SCHEDULES, adamw, parameter_groups
from lmcourse.rows import joined
from lmcourse.training import Loss, Settings, evaluate, fit
from torch import nn

GENERATOR = torch.Generator


class Line(nn.Module):
    """The smallest model: y = a·x, and the mean of squares over weights."""

    def __init__(self, slope=0.0, matrix=False):
        super().__init__()
        self.a = nn.Parameter(torch.full((1, 1) if matrix else (1,), slope))

    def loss(self, x, y, weights):
        return (weights * (self.a * x - y) ** 2).sum() / weights.sum()


def points(step, generator):
    x = torch.rand(4, 3, generator=generator) + 1
    return x, 3 * x, torch.ones_like(x)


def run(model=None, draw=points, settings=Settings(steps=6, log=1), **options):
    return fit(Line() if model is None else model, draw, settings, device=small.CPU, **options)


# ------------------------------------------------------------------------------------------ parts


def gradients(kind, parts, batch):
    """The loss, the gradients' norm and the gradients: a step at rate 1 moves the weights by them."""
    model = small.small(kind).double()
    before = copy.deepcopy(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    settings = Settings(steps=1, parts=parts, clip=None)
    loss, norm = training._step(Loss(model), optimiser, batch, settings, small.CPU, World())
    return loss, norm, [p - q for p, q in zip(before.parameters(), model.parameters())]


@pytest.mark.parametrize("kind", small.KINDS)
def test_a_batch_in_parts_has_the_loss_and_the_gradients_of_the_whole(kind):
    batch = small.source(kind, rows=8)(0, GENERATOR().manual_seed(1))
    loss, norm, whole = gradients(kind, 1, batch)
    model = small.small(kind).double()
    expected = torch.autograd.grad(model.loss(*batch), list(model.parameters()))
    torch.testing.assert_close(whole, list(expected), rtol=0, atol=1e-15)
    for parts in (2, 4, 8):
        other_loss, other_norm, other = gradients(kind, parts, batch)
        torch.testing.assert_close((other_loss, other_norm), (loss, norm), rtol=1e-6, atol=0)  # weights are float32
        torch.testing.assert_close(other, whole, rtol=0, atol=1e-7)


@pytest.mark.parametrize("kind", ["GPT", "BERT"])
def test_the_mean_of_the_parts_means_is_something_else(kind):
    batch = small.source(kind, rows=8)(0, GENERATOR().manual_seed(1))
    model = small.small(kind).double()
    naive = sum(model.loss(*part) for part in zip(*(x.chunk(4) for x in batch))) / 4
    ours = torch.autograd.grad(naive, list(model.parameters()))
    _, _, whole = gradients(kind, 1, batch)
    assert max((a - b).detach().abs().max() for a, b in zip(ours, whole)) > 1e-3


@pytest.mark.parametrize("kind", ["GPT", "BERT"])
def test_a_part_in_which_nothing_counts_adds_nothing(kind):
    inputs, targets, weights, *masks = small.source(kind, rows=4)(0, GENERATOR().manual_seed(1))
    targets, weights = targets.clone(), weights.clone()
    targets[:2], weights[:2] = -100, 0
    batch = (inputs, targets, weights, *masks)
    (loss, _, ours), (half, _, expected) = gradients(kind, 2, batch), gradients(kind, 1, tuple(x[2:] for x in batch))
    torch.testing.assert_close(loss, half)
    torch.testing.assert_close(ours, expected)
    module = Loss(small.small(kind))
    assert evaluate(module, [batch], small.CPU, World(0, 1)) == pytest.approx(
        evaluate(module, [tuple(x[2:] for x in batch)], small.CPU), rel=1e-6
    )


# ------------------------------------------------------------------------------------------ groups


def test_what_stands_in_no_group_has_no_part_in_the_norm_and_a_run_goes_on_without_it(tmp_path):
    settings, options = Settings(steps=6, log=1, save=1, rate=0.01, clip=0.05), dict(device=small.CPU)
    head = lambda model: [{"params": model.head.parameters(), "lr": 0.01}]  # noqa: E731
    for name, progress in (("whole", False), ("stopped", small.stopped_at(3, settings))):
        with pytest.raises(KeyboardInterrupt) if progress else contextlib.nullcontext():
            fit(small.small("GPT"), small.source("GPT"), settings, folder=tmp_path / name, groups=head,
                progress=progress, **options)  # fmt: skip
    options |= dict(groups=head)
    went_on = fit(small.small("GPT"), small.source("GPT"), settings, folder=tmp_path / "stopped", **options)
    assert small.same_state(tmp_path / "whole", tmp_path / "stopped")
    model = small.small("GPT")
    for p in {*model.parameters()} - {*model.head.parameters()}:
        p.requires_grad_(False)
    frozen = fit(model, small.source("GPT"), settings, **options)
    assert [entry["norm"] for entry in frozen] == [entry["norm"] for entry in went_on]
    faster = lambda model: [{"params": model.head.parameters(), "lr": 0.02}]  # noqa: E731
    with pytest.raises(ValueError, match=r"other settings \(groups was \[\[0.01, 0.0\]\], is \[\[0.02, 0.0\]\]\)"):
        fit(small.small("GPT"), small.source("GPT"), settings, folder=tmp_path / "whole", **options | {"groups": faster})
    with pytest.raises(ValueError, match="groups: got no parameters, expected groups such as"):
        run(groups=lambda model: [])


def test_gradients_from_before_a_run_have_no_part_in_it():
    model = Line()
    model.a.grad = torch.full((1,), 99.0)
    assert run(model, settings=Settings(steps=1)) == run(settings=Settings(steps=1))


def test_settings_of_numpy_are_those_of_python(tmp_path):
    settings = Settings(steps=np.int64(2), rate=np.float32(0.5), log=np.int32(1))
    assert settings == Settings(steps=2, rate=0.5, log=1) and type(settings.steps) is int
    assert len(run(settings=settings, folder=tmp_path)) == 2


def decayed(groups):
    return {name: group["weight_decay"] > 0 for group in groups for name in group["names"]}


def sound(groups, model):
    """Matrices decay, vectors do not; each parameter once."""
    listed = [id(p) for group in groups for p in group["params"]]
    right = {name: p.ndim > 1 for name, p in model.named_parameters()}
    return decayed(groups) == right and sorted(listed) == sorted(map(id, model.parameters()))


@pytest.mark.parametrize("kind", small.KINDS)
@pytest.mark.parametrize("options", [{}, dict(norm="rms", bias=False), dict(tied=False)])
def test_matrices_and_embeddings_decay_and_vectors_do_not(kind, options):
    model = small.small(kind, **options)
    groups = parameter_groups(model, 0.1)
    assert sound(groups, model)
    assert {group["weight_decay"] for group in groups} == {0.1, 0.0}
    names = decayed(groups)
    assert names["embedding.tokens.weight"] and not any(names[n] for n in names if n.endswith(("norm.weight", "bias")))
    assert ("head.vocabulary.weight" in names) == (not model.config.tied)  # tied: once, as the embedding
    # Wrong: all decay; none does; the head's matrix a second time.
    pairs = list(model.named_parameters())
    everything = [dict(names=[n for n, _ in pairs], params=[p for _, p in pairs], weight_decay=0.1)]
    assert not sound(everything, model)
    assert not sound(parameter_groups(model, 0.0), model)
    assert not sound([*groups, dict(names=[], params=[model.head.vocabulary.weight], weight_decay=0.1)], model)


def test_what_is_frozen_stands_in_no_group():
    model = small.small("GPT")
    model.embedding.requires_grad_(False)
    assert not [name for name in decayed(parameter_groups(model, 0.1)) if name.startswith("embedding")]
    for p in model.parameters():
        p.requires_grad_(False)
    with pytest.raises(ValueError, match="model: none of its parameters needs a gradient"):
        parameter_groups(model, 0.1)


def test_decay_pulls_matrices_towards_0_and_leaves_vectors_alone():
    def flat(step, generator):
        x = torch.ones(2, 2)
        return x, 3 * x, x  # where the model already is, so that there is no gradient

    for matrix, expected in ((True, 3 * (1 - 0.01 * 0.5)), (False, 3)):
        model = Line(3.0, matrix)
        run(model, flat, Settings(steps=1, rate=0.01, decay=0.5, schedule="constant"))
        assert model.a.item() == pytest.approx(expected, rel=1e-6)


def test_groups_of_the_caller_keep_their_rates():
    model = nn.ModuleList([Line(), Line()])
    model.loss = lambda x, y, w: model[0].loss(x, y, w) + model[1].loss(x, y, w)

    def groups(module):
        return [{"params": [module[0].a], "lr": 1e-4}, {"params": [module[1].a]}]

    run(model, settings=Settings(steps=1, rate=0.1, warmup=0), groups=groups)
    assert [line.a.item() for line in model] == pytest.approx([1e-4, 0.1], rel=1e-3)  # Adam's first step is the rate


# ------------------------------------------------------------------------------------------ rates, clipping


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_rate_of_each_step_is_the_schedules(schedule):
    warmup = 0 if schedule == "slanted_triangular" else 4
    settings = Settings(steps=40, log=1, rate=0.01, schedule=schedule, warmup=warmup, decay=0.0)
    log = run(settings=settings)
    assert [entry["rate"] for entry in log] == [0.01 * settings.factor(step) for step in range(40)]
    model = Line()
    with pytest.raises(KeyboardInterrupt):
        run(model, settings=settings, progress=small.stopped_at(1, settings))
    moved = model.a.item()  # Adam's first step has the size of the rate
    assert moved == pytest.approx(0.01 * settings.factor(0), rel=1e-4)
    assert moved != pytest.approx(0.01 * settings.factor(1), rel=0.1)


def test_gradients_are_clipped_together_and_their_norm_is_logged_before():
    batch = small.source("GPT")(0, GENERATOR().manual_seed(1))
    _, norm, whole = gradients("GPT", 1, batch)
    expected = math.sqrt(sum(float((g.detach() ** 2).sum()) for g in whole))
    assert float(norm) == pytest.approx(expected, rel=1e-9)
    for clip in (expected / 3, expected * 3):
        model = small.small("GPT").double()
        before = copy.deepcopy(model)
        settings = Settings(steps=1, clip=clip)
        optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
        _, again = training._step(Loss(model), optimiser, batch, settings, small.CPU, World())
        assert float(again) == pytest.approx(expected, rel=1e-9)
        share = min(1, clip / expected)
        for p, q, g in zip(before.parameters(), model.parameters(), whole):
            torch.testing.assert_close(p - q, share * g, rtol=1e-5, atol=1e-12)


# ------------------------------------------------------------------------------------ what it learns, what it logs


@pytest.mark.parametrize("kind", small.KINDS)
def test_it_learns(kind):
    log = fit(small.small(kind), small.source(kind), Settings(steps=60, rate=0.02, log=1), device=small.CPU)
    assert log[-1]["loss"] < {"GPT": 2, "BERT": 3.8, "T5": 3}[kind] < math.log(64) < log[0]["loss"] + 0.1


def test_the_log_has_what_is_due_and_the_end():
    settings = Settings(steps=10, log=4, validate=3)
    log = run(settings=settings, held_out=[points(0, GENERATOR().manual_seed(1))])
    assert [entry["step"] for entry in log] == [3, 4, 6, 8, 9, 10]
    assert [entry["step"] for entry in log if "held_out" in entry] == [3, 6, 9, 10]
    assert [entry["step"] for entry in run(settings=Settings(steps=10, log=4))] == [4, 8, 10]


def test_the_loss_is_that_of_the_batch_before_the_step():
    model = Line()
    batch = points(0, training.seed(training.seed_from(5, 0)))
    assert run(model, settings=Settings(steps=1, seed=5))[0]["loss"] == pytest.approx(float(Line().loss(*batch)))


def test_held_out_is_read_without_dropout_and_changes_nothing():
    settings, draw = Settings(steps=6, log=1, validate=2), small.source("BERT")
    held_out = [small.source("BERT", rows)(0, GENERATOR().manual_seed(rows)) for rows in (1, 5)]
    models = [small.small("BERT", dropout=0.3) for _ in range(2)]
    plain = fit(models[0], draw, settings, device=small.CPU)
    looked = fit(models[1], draw, settings, device=small.CPU, held_out=held_out)
    assert [{k: v for k, v in entry.items() if k != "held_out"} for entry in looked] == plain
    assert all(torch.equal(p, q) for p, q in zip(models[0].parameters(), models[1].parameters()))
    assert not models[1].training
    both = tuple(torch.cat(pair) for pair in zip(*held_out))  # weights differ: not the mean of two means
    assert looked[-1]["held_out"] == pytest.approx(float(models[1].loss(*both).detach()), rel=1e-6)
    means = sum(float(models[1].loss(*batch).detach()) for batch in held_out) / 2
    assert looked[-1]["held_out"] != pytest.approx(means, rel=1e-6)
    models[1].train()
    assert looked[-1]["held_out"] != pytest.approx(float(models[1].loss(*both).detach()), rel=1e-5)


def test_the_callers_random_numbers_are_left_alone():
    model = small.small("GPT", dropout=0.2)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    run()
    fit(model, small.source("GPT"), Settings(steps=2), device=small.CPU)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(KeyboardInterrupt):
        run(progress=small.stopped_at(2, Settings(steps=6)))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_seed_decides_and_nothing_else_does():
    def log(seed, state):
        torch.manual_seed(state)
        model, settings = small.small("GPT", dropout=0.2), Settings(3, log=1, seed=seed)
        return fit(model, small.source("GPT"), settings, device=small.CPU)

    assert log(0, 1) == log(0, 2) != log(1, 1)


def test_processes_drop_different_things_out():
    """By their rank: with the same seed for all, rows at the same place in two processes would lose the same parts."""
    seen = []
    with mock.patch.object(training, "seed_from", side_effect=lambda *numbers: seen.append(numbers) or 1):
        run(settings=Settings(steps=2, seed=4))
    assert seen == [(4, 0), (4, 0, 0), (4, 1), (4, 1, 0)]


def test_what_is_shared_stays_so_where_moving_makes_new_parameters():
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # as XLA has it
    try:
        model = small.small("GPT")
        embedding = model.embedding.tokens.weight
        fit(model, small.source("GPT"), Settings(steps=2), device=small.CPU)
        assert model.embedding.tokens.weight is not embedding
        assert model.head.vocabulary.weight is model.embedding.tokens.weight
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


# ------------------------------------------------------------------------------------------ errors


def test_a_loss_that_is_not_finite_ends_the_run_before_the_state_is_overwritten(tmp_path):
    def draw(step, generator):
        x, y, weights = points(step, generator)
        return x * (math.nan if step == 3 else 1), y, weights

    settings = Settings(steps=6, log=1, save=1)
    for _ in range(2):
        with pytest.raises(ValueError, match="rate: the loss is nan at step 4: training diverged; lower it"):
            run(draw=draw, settings=settings, folder=tmp_path)
        assert all(bool(torch.isfinite(x).all()) for x in small.tensors(tmp_path).values())
        assert [json.loads(line)["step"] for line in small.log(tmp_path).splitlines()] == [1, 2, 3]
    with pytest.raises(ValueError, match="norm of the gradients is nan at step 5"):  # where nothing is logged
        run(draw=draw, settings=Settings(steps=6, log=6, save=5), folder=tmp_path / "other")


@pytest.mark.parametrize(
    "change",
    [dict(steps=0), dict(steps=2.5), dict(parts=0), dict(rate=0), dict(rate="1"), dict(rate=True),
     dict(schedule="step"), dict(schedule=["step"]), dict(clip=True), dict(warmup=9),
     dict(warmup=-1), dict(decay=1), dict(decay=-0.1), dict(betas=(0.9,)), dict(betas=0.9), dict(betas=(0.9, 1)),
     dict(clip=0), dict(clip=math.nan), dict(seed=-1), dict(seed=0.5), dict(log=0), dict(save=0), dict(validate=True),
     dict(schedule="slanted_triangular", warmup=2)],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(change):
    with pytest.raises(ValueError, match=f"^{list(change)[-1]}: got .*, expected"):
        Settings(**{"steps": 9} | change)


@pytest.mark.parametrize(
    "batch, message",
    [
        ((torch.ones(4, 3), torch.ones(4, 3)), r"draw: expected \(inputs, targets, weights\)"),
        ((torch.ones(4, 3), torch.ones(3, 3), torch.ones(4, 3)), "same number of rows"),
        ((torch.ones(3, 3),) * 3, "draw: got a batch of 3 rows, expected a multiple of 2"),
        ((torch.ones(0, 3),) * 3, "draw: got a batch of 0 rows"),
        ((torch.ones(4, 3), torch.ones(4, 3), torch.zeros(4, 3)), "draw: got a batch whose weights are all 0"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(batch, message):
    with pytest.raises(ValueError, match=message):
        run(draw=lambda step, generator: batch, settings=Settings(steps=2, parts=2))


def test_other_bad_input_is_refused():
    with pytest.raises(TypeError, match="settings: got dict, expected a Settings"):
        run(settings={"steps": 3})
    with pytest.raises(TypeError, match="model: got Linear without a loss, expected"):
        run(nn.Linear(1, 1))
    with pytest.raises(ValueError, match="held_out: got a batch whose weights are all 0"):
        run(held_out=[(torch.ones(4, 3), torch.ones(4, 3), torch.zeros(4, 3))])


# ------------------------------------------------------------------------------------------ progress, command line


def test_progress_is_drawn_when_its_text_changes(capsys):
    report = reporter(True)
    for i in range(1, 1001):
        report(i / 1000)
    drawn = capsys.readouterr().err
    assert drawn.count("\r") == 102 and drawn.startswith("\rtraining   0%") and drawn.endswith("\rtraining 100%\n")
    told = []
    run(settings=Settings(steps=4), progress=told.append)
    assert told == [0.25, 0.5, 0.75, 1]


CONFIG = """model = "GPT"
[config]
positions = 16
layers = 1
width = 16
heads = 2
[data]
length = 15
batch = 2
held_out = 2
[training]
steps = 3
log = 1
save = 1
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    ids = joined(["We the people. " * 60], course.tokenizer().encode, course.SEP)
    monkeypatch.setattr(course, "ids", lambda split, corpora: ids)
    monkeypatch.setattr(training, "keep_memory", lambda: False)
    monkeypatch.setenv("LMCOURSE_DEVICE", "cpu")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    path = tmp_path / "small.toml"
    path.write_text(CONFIG)
    return path


@pytest.mark.parametrize("kind", small.KINDS)
def test_the_command_trains_saves_the_model_and_goes_on(config, tmp_path, capsys, kind):
    training.main([str(config), f"model={kind}", "--folder", str(tmp_path / "run")])
    said = capsys.readouterr()
    assert "CPU: asked for by LMCOURSE_DEVICE" in said.err and f"{kind}, " in said.err and not said.out
    assert said.err.endswith("training 100%\n")
    log, model = small.log(tmp_path / "run"), load_own(tmp_path / "run" / "model.safetensors")
    assert type(model).__name__ == kind and log.count(b"\n") == 3
    (tmp_path / "run" / ".model.safetensors.x1234567").write_bytes(b"left by a kill")
    training.main([str(config), "--folder", str(tmp_path / "run"), f"model={kind}"])  # there is nothing left to do
    assert small.log(tmp_path / "run") == log and not (tmp_path / "run" / ".model.safetensors.x1234567").exists()
    with pytest.raises(ValueError, match=r"run.safetensors: .*\(data.batch was 2, is 4\); give another folder"):
        training.main([str(config), "--folder", str(tmp_path / "run"), f"model={kind}", "data.batch=4"])


def test_a_folder_of_gpt_is_not_gone_on_with_as_bert(config, tmp_path):
    """Their weights have the same names and shapes."""
    training.main([str(config), "--folder", str(tmp_path / "run")])
    with pytest.raises(ValueError, match="model was 'GPT', is 'BERT'"):
        training.main([str(config), "--folder", str(tmp_path / "run"), "model=BERT"])


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--help"], "usage: python -m lmcourse.training"),
        ([], "the following arguments are required"),
        (["nothing.toml"], "nothing.toml: no such file; recipes/trio.toml is one"),
        (["small.toml", "model=LSTM"], "small.toml: model: got 'LSTM', expected one of GPT, BERT, T5"),
        (["small.toml", "model"], "change: got 'model', expected name=value, such as model=BERT"),
        (["small.toml", "training.stepz=3"], r"small.toml: \[training\]: got stepz, expected only steps, parts"),
    ],
)
def test_the_command_says_what_is_wrong(config, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        training.main([*arguments, "--folder", "run"])
    said = capsys.readouterr()
    text = " ".join((said.out + said.err).split())
    assert (ended.value.code == 0) == (arguments == ["--help"])
    assert re.search(message, text), text
    assert not (tmp_path / "run").exists()


def test_a_group_decays_only_if_it_says_so():
    """torch's own default, 0.01, would shrink biases and norms, too."""
    p, q = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimiser = adamw([{"params": [p]}, {"params": [q], "weight_decay": 0.5}], rate=0.1)
    (0 * (p.sum() + q.sum())).backward()
    optimiser.step()
    assert torch.equal(p, torch.ones(2)) and torch.allclose(q, torch.full((2,), 0.95))
