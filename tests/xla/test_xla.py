"""The course on a real XLA device: what trains on the CPU trains there to the same losses, and is compiled once.

``make xla`` runs this in an environment with torch_xla; elsewhere it is skipped.
"""

from dataclasses import dataclass, replace

import pytest

pytest.importorskip("torch_xla", reason="torch_xla is not installed; make xla makes an environment with it")

import torch
import torch_xla.debug.metrics as metrics
from families import FAMILIES, PAD, SIZES, WORDS, padded
from lmcourse import arguments, device
from lmcourse.attention import View, fast_attention
from lmcourse.bert import Classifier
from lmcourse.generation import generate
from lmcourse.gpt import GPTClassifier

CPU, XLA = device.choose("cpu"), device.choose("xla")
STEPS, RATE, LONGEST = 5, 1e-2, 1.0
# Losses are 3 to 5 nats. Over three families and four seeds they differed by 9.5e-7 at most, without the tie by 5e-3 or
# more.
TOLERANCE = 1e-5
BF16 = 0.015  # three times 4.5e-3, the greatest difference of three families


def count(name: str) -> int:
    """How often XLA did it so far: "CompileTime" and "ExecuteTime" count programs."""
    return (metrics.metric_data(name) or (0,))[0]


def handed_over() -> dict[str, int]:
    """Operations that XLA left to the processor, and values that were read."""
    return {name: metrics.counter_value(name) for name in metrics.counter_names() if name.startswith("aten::")}


def on_xla(tensors) -> list[torch.Tensor]:
    return [tensor.to(XLA.torch_device) for tensor in tensors]


def tied(model) -> list[list[str]]:
    """The names of each parameter that stands in several places."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


@dataclass
class Run:
    losses: list[float]
    compiled: list[int]  # programs so far, after each step
    executed: int
    handed_over: dict[str, int]
    tied: list[list[list[str]]]  # before the move, and after the last step


def train(name: str, here: device.Device, move=device.move, **changes) -> Run:
    """A few steps, no value read before the last is done."""
    generator = device.seed(0)
    model = FAMILIES[name].model(generator, **changes)
    before = tied(model)
    move(model, here)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
    losses, compiled = [], []
    metrics.clear_all()
    for _ in range(STEPS):
        batch = [tensor.to(here.torch_device) for tensor in FAMILIES[name].batch(generator)]
        with device.autocast(here):
            loss = model.loss(*batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), LONGEST)
        optimiser.step()
        optimiser.zero_grad()
        device.step_done(here)
        losses.append(loss.detach())
        compiled.append(count("CompileTime"))
    device.synchronise(here)
    seen = compiled, count("ExecuteTime"), handed_over(), [before, tied(model)]
    return Run([loss.item() for loss in losses], *seen)


def furthest(one: Run, other: Run) -> float:
    return max(abs(a - b) for a, b in zip(one.losses, other.losses, strict=True))


# ---------------------------------------------------------------------------------------- training


@pytest.fixture(scope="module", params=FAMILIES)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def on_cpu(name) -> Run:
    return train(name, CPU)


@pytest.fixture(scope="module")
def there(name) -> Run:
    return train(name, XLA)


def test_losses_are_those_of_the_cpu(on_cpu, there):
    assert furthest(on_cpu, there) < TOLERANCE
    assert len(set(on_cpu.losses)) == STEPS


def test_the_second_step_is_the_last_that_compiles(there):
    """The first has no moments of AdamW yet, so it is another program."""
    assert there.compiled == [1] + [2] * (STEPS - 1)


def test_a_step_is_one_program_and_reads_no_value(there):
    assert there.executed == STEPS
    assert there.handed_over == {}


def test_what_was_tied_stays_tied(name, there):
    before, after = there.tied
    assert before == after and len(after) == FAMILIES[name].ties


def test_bf16_is_near(name, on_cpu):
    run = train(name, replace(XLA, autocast_dtype=torch.bfloat16))
    assert TOLERANCE < furthest(on_cpu, run) < BF16
    assert run.compiled[1:] == [2] * (STEPS - 1) and run.handed_over == {}


def test_without_move_the_tie_is_lost_and_the_losses_tell():
    run = train("gpt", XLA, move=lambda model, here: model.to(here.torch_device))
    assert run.tied[0] and not run.tied[1]
    assert furthest(train("gpt", CPU), run) > 100 * TOLERANCE


def test_there_and_back_again():
    model = FAMILIES["gpt"].model(device.seed(0))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    device.move(device.move(model, XLA), CPU)
    assert len(tied(model)) == 1
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


# --------------------------------------------------------------------------- what the counts would see


def test_a_value_that_is_read_is_counted():
    x = torch.ones(3, device=XLA.torch_device)
    device.synchronise(XLA)
    metrics.clear_all()
    (x + 1).sum().item()
    device.synchronise(XLA)
    assert count("ExecuteTime") == 1 and list(handed_over()) == ["aten::_local_scalar_dense"]


def test_another_length_compiles_again():
    counts = []
    for length in (5, 6, 5):
        x = torch.ones(length).to(XLA.torch_device)
        metrics.clear_all()
        y = (x * 3).exp()
        device.step_done(XLA)
        counts.append(count("CompileTime"))
        assert y.shape == (length,)
    assert counts == [1, 1, 0]


# ------------------------------------------------------------------------------------ padding, seeds


def test_queries_that_see_nothing_get_zeros_and_no_gradient():
    generator = device.seed(0)
    q, k, v = (torch.empty(2, 2, 4, 8).normal_(generator=generator) for _ in range(3))
    seen = torch.tensor([True, False])[:, None, None, None]
    results = []
    for here in (CPU, XLA):
        tensors = [x.to(here.torch_device).requires_grad_() for x in (q, k, v)]
        heads = fast_attention(*tensors, View(causal=True, mask=seen.expand(2, 1, 1, 4).to(here.torch_device)))
        results.append([x.detach().cpu() for x in (heads, *torch.autograd.grad(heads.square().sum(), tensors))])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(theirs, ours, rtol=0, atol=3e-6)  # 4.8e-7 at most was seen
        assert not theirs[1].any() and theirs[0].any()


def test_classifiers_read_the_last_token_before_padding():
    tokens, labels = padded(device.seed(0)), torch.tensor([0, 1, 1, 0])
    for name, kind in (("gpt", GPTClassifier), ("bert", Classifier)):
        model = kind(FAMILIES[name].model(device.seed(0)), 2, generator=device.seed(1))
        expected = model.loss(tokens, labels, tokens != PAD).item()
        device.move(model, XLA)
        batch = on_xla((tokens, labels, tokens != PAD))
        metrics.clear_all()
        loss = model.loss(*batch)
        device.step_done(XLA)
        assert handed_over() == {}
        assert loss.item() == pytest.approx(expected, abs=TOLERANCE)


def test_seeds():
    draws = []
    for n in (1, 1, 2, 2**63 - 1):
        device.seed(n)
        draws.append(torch.rand(8, device=XLA.torch_device).cpu())
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2]) and not torch.equal(draws[0], draws[3])


def test_dropout_follows_the_seed():
    model = device.move(FAMILIES["gpt"].model(device.seed(0), dropout=0.5), XLA)
    (tokens,) = on_xla([padded(device.seed(0))])
    scores = []
    for n in (1, 1, 2):
        device.seed(n)
        scores.append(model(tokens).detach())
        device.step_done(XLA)
    assert torch.equal(scores[0].cpu(), scores[1].cpu())
    assert not torch.equal(scores[0].cpu(), scores[2].cpu())


# ------------------------------------------------------------------------------------- the rest


def test_values_are_not_looked_at():
    (ids,) = on_xla([torch.tensor([[SIZES["vocabulary"]]])])
    assert not arguments.can_look(ids)
    arguments.token_ids("ids", ids, SIZES["vocabulary"])
    with pytest.raises(ValueError, match="got ids from"):
        arguments.token_ids("ids", ids.cpu(), SIZES["vocabulary"])


def test_generation_gives_the_tokens_of_the_cpu():
    """Each length compiles again, so this is for a look at a model, not for long texts."""
    model = FAMILIES["gpt"].model(device.seed(0), initial=0.3)
    prompts = torch.randint(WORDS.start, WORDS.stop, (2, 3), generator=device.seed(1))
    expected = generate(model.next_scores, prompts, 3)
    device.move(model, XLA)
    assert torch.equal(generate(model.next_scores, *on_xla([prompts]), 3).cpu(), expected)
    assert len(set(expected[:, 3:].flatten().tolist())) > 2


def test_synchronise_runs_what_waits():
    x = torch.ones(3, device=XLA.torch_device)
    device.synchronise(XLA)
    metrics.clear_all()
    y = x * 5
    device.synchronise(XLA)
    assert count("ExecuteTime") == 1 and y.cpu().tolist() == [5.0] * 3
