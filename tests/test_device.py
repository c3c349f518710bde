"""device: what is chosen, why, and what happens where a device is missing or broken.

Most machines have one of these devices at most, so the others are stand-ins at torch's own functions.
"""

import contextlib
import sys
import types

import pytest
import torch
from torch import nn

from lmcourse import device


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch):
    """No override, no accelerator, no torch_xla, whatever the machine that runs the tests has."""
    monkeypatch.delenv(device.VARIABLE, raising=False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setitem(sys.modules, "torch_xla", None)  # import raises ModuleNotFoundError


def put_cuda(monkeypatch, name="Tesla T4", capability=(7, 5), count=1):
    def checked(index):
        assert index in range(count)
        return index

    found = torch.device("cuda")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: found)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: count - 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: checked(i) is not None and name)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda i: checked(i) is not None and capability)


def put_mps(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("mps"))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)


def put_xla(monkeypatch, hardware="TPU", error=None):
    """A stand-in for torch_xla; returns the list of what it was asked for."""
    asked = []

    def start():
        if error is not None:
            raise error
        return torch.device("xla:0")

    module, runtime = types.ModuleType("torch_xla"), types.ModuleType("torch_xla.runtime")
    module.__path__, module.device, module.runtime = [], start, runtime
    module.manual_seed, module.sync = asked.append, lambda: asked.append("sync")
    module.core = types.SimpleNamespace(xla_model=types.SimpleNamespace(wait_device_ops=lambda: asked.append("wait")))
    runtime.device_type = lambda: hardware
    monkeypatch.setitem(sys.modules, "torch_xla", module)
    monkeypatch.setitem(sys.modules, "torch_xla.runtime", runtime)
    return asked


# ----------------------------------------------------------------------------- the choice by itself


def test_nothing_found_means_cpu_in_fp32():
    d = device.choose()
    assert (d.kind, d.torch_device, d.autocast_dtype) == ("cpu", torch.device("cpu"), None)
    assert str(d) == d.reason == "CPU: no accelerator found"


@pytest.mark.parametrize(
    "name, capability, dtype, words",
    [
        ("Tesla T4", (7, 5), None, "bf16 is only emulated, so fp32"),
        ("V100", (7, 0), None, "so fp32"),
        ("A100", (8, 0), torch.bfloat16, "(compute capability 8.0); bf16"),
        ("H100", (9, 0), torch.bfloat16, "9.0"),
        ("B200", (10, 0), torch.bfloat16, "10.0"),
    ],
)
def test_cuda_and_its_precision(monkeypatch, name, capability, dtype, words):
    put_cuda(monkeypatch, name, capability)
    d = device.choose()
    assert (d.kind, d.torch_device, d.autocast_dtype) == ("cuda", torch.device("cuda", 0), dtype)
    assert d.reason.startswith(f"CUDA: {name} ") and words in d.reason


def test_mps(monkeypatch):
    put_mps(monkeypatch)
    d = device.choose()
    assert (d.kind, d.torch_device, d.autocast_dtype) == ("mps", torch.device("mps", 0), None)


def test_a_tpu_comes_before_cuda(monkeypatch):
    put_cuda(monkeypatch, "A100", (8, 0))
    put_xla(monkeypatch)
    d = device.choose()
    assert (d.kind, d.torch_device, d.autocast_dtype) == ("xla", torch.device("xla:0"), torch.bfloat16)
    assert "TPU" in d.reason


def test_xla_on_the_processor_is_passed_over_unless_named(monkeypatch):
    put_xla(monkeypatch, hardware="CPU")
    assert device.choose().kind == "cpu"
    named = device.choose("xla")
    assert (named.kind, named.autocast_dtype) == ("xla", None)
    with pytest.raises(ValueError, match="finds no TPU"):
        device.choose("tpu")


def test_the_device_is_fixed():
    with pytest.raises(AttributeError):
        device.choose().kind = "cuda"


# -------------------------------------------------------------------- machines that are half broken


@pytest.mark.parametrize(
    "error", [ImportError("undefined symbol: _ZN5torch"), OSError("libtpu.so"), RuntimeError("TPU busy\nmore")]
)
def test_a_torch_xla_that_does_not_start_is_named_and_passed_over(monkeypatch, error):
    put_xla(monkeypatch, error=error)
    reason = device.choose().reason
    assert reason == f"CPU: torch_xla does not start ({str(error).splitlines()[0]})"
    put_cuda(monkeypatch)
    assert device.choose().kind == "cuda"


def test_a_missing_dependency_of_torch_xla_is_not_taken_for_its_absence(monkeypatch):
    put_xla(monkeypatch, error=ModuleNotFoundError("No module named 'absl'", name="absl"))
    assert "absl" in device.choose().reason


def test_an_old_driver_does_not_stop_the_course(monkeypatch):
    def refuse(check_available=False):
        raise RuntimeError("The NVIDIA driver on your system is too old")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", refuse)
    d = device.choose()
    assert d.kind == "cpu" and "driver on your system is too old" in d.reason


@pytest.mark.parametrize("error", [RuntimeError("CUDA error: unknown"), AssertionError("Torch not compiled with CUDA")])
def test_cuda_that_does_not_start(monkeypatch, error):
    def refuse(index):
        raise error

    put_cuda(monkeypatch)
    monkeypatch.setattr(torch.cuda, "get_device_capability", refuse)
    d = device.choose()
    assert d.kind == "cpu" and str(error) in d.reason
    with pytest.raises(ValueError, match="CUDA does not start"):
        device.choose("cuda")


def test_an_accelerator_that_vanishes_between_two_questions(monkeypatch):
    put_cuda(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.choose().kind == "cpu"


def test_an_unknown_accelerator(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("xpu"))
    d = device.choose()
    assert d.kind == "cpu" and "'xpu'" in d.reason


def test_availability_is_asked_for(monkeypatch):
    # A build for an accelerator reports it on every machine, unless told to check.
    def reports(check_available=False):
        return None if check_available else torch.device("xpu")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", reports)
    assert device.choose().reason == "CPU: no accelerator found"


# ----------------------------------------------------------------------------------- the override


def test_the_variable_and_the_argument(monkeypatch):
    put_cuda(monkeypatch)
    monkeypatch.setenv(device.VARIABLE, " CPU ")
    assert device.choose().reason == "CPU: asked for by LMCOURSE_DEVICE"
    assert device.choose("cuda").kind == "cuda"  # the argument wins
    monkeypatch.setenv(device.VARIABLE, "")
    assert device.choose().kind == "cuda"


def test_the_numbered_device(monkeypatch):
    put_cuda(monkeypatch, count=2)
    assert device.choose("cuda:0").torch_device == torch.device("cuda", 0)
    assert device.choose(torch.device("cuda", 1)).torch_device == torch.device("cuda", 1)
    assert device.choose("cuda").torch_device == torch.device("cuda", 1)  # the current one
    with pytest.raises(ValueError, match="there are 2 CUDA devices, counted from 0"):
        device.choose("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "", "cuda:", "cuda:x", "cuda:-1", "cpu:1", "tpu:0", "xla:1", "cuda:0:1"])
def test_unknown_names(name):
    with pytest.raises(ValueError, match=r"override: got .* expected one of cpu, cuda, cuda:N, xla, tpu, mps"):
        device.choose(name)


def test_the_error_names_the_variable(monkeypatch):
    monkeypatch.setenv(device.VARIABLE, "gpu")
    with pytest.raises(ValueError, match=device.VARIABLE):
        device.choose()


@pytest.mark.parametrize(
    "name, why",
    [("cuda", "CUDA"), ("cuda:0", "CUDA"), ("mps", "no MPS"), ("xla", "not installed"), ("tpu", "not installed")],
)
def test_an_absent_device_names_the_cure(name, why):
    with pytest.raises(ValueError, match=f"{name}' was asked for, but .*{why}.*; use 'cpu', or leave it out"):
        device.choose(name)


def test_a_build_with_cuda_and_no_card_says_so(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(ValueError, match="torch finds no CUDA device"):
        device.choose("cuda")


@pytest.mark.parametrize("wrong", [0, True, b"cpu", ["cpu"]])
def test_override_of_a_wrong_type(wrong):
    with pytest.raises(TypeError, match="override: got"):
        device.choose(wrong)


# ------------------------------------------------------------------------------- precision on a CPU


@pytest.mark.parametrize(
    "capabilities, native",
    [({"avx512_bf16": True, "amx_bf16": False}, True), ({"avx2": True, "avx512_bf16": False}, False), ({}, False)],
)
def test_cpu_bf16_only_when_asked_and_native(monkeypatch, capabilities, native):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert device.choose().autocast_dtype is None
    d = device.choose(cpu_bf16=True)
    assert d.autocast_dtype == (torch.bfloat16 if native else None)
    assert ("own instructions" if native else "no bf16 instructions, so fp32") in d.reason


@pytest.mark.parametrize("native", [True, False])
def test_cpu_bf16_on_an_older_torch(monkeypatch, native):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: native, raising=False)
    assert (device.choose("cpu", cpu_bf16=True).autocast_dtype is not None) == native


# ------------------------------------------------------------------------------------ seed, autocast


def test_the_same_seed_gives_the_same_numbers():
    first, second, other = device.seed(1), device.seed(1), device.seed(2)
    assert first.device == torch.device("cpu")
    a, b, c = (torch.rand(8, generator=g) for g in (first, second, other))
    assert torch.equal(a, b) and not torch.equal(a, c)


def test_the_global_state_is_seeded():
    device.seed(3)
    a = torch.rand(4)
    device.seed(3)
    assert torch.equal(a, torch.rand(4))
    device.seed(4)
    assert not torch.equal(a, torch.rand(4))


def test_the_generator_is_not_the_global_one():
    # Drawing from one must not move the other, or a layer's first weights would depend on the data.
    g = device.seed(5)
    first = torch.rand(4)
    device.seed(5)
    torch.rand(100, generator=g)
    assert torch.equal(first, torch.rand(4))


def test_torch_xla_is_seeded_where_it_starts(monkeypatch):
    seeds = put_xla(monkeypatch)
    device.seed(7)
    assert seeds == [7]
    put_xla(monkeypatch, error=RuntimeError("busy"))
    assert isinstance(device.seed(7), torch.Generator)


@pytest.mark.parametrize(
    "wrong, error", [(1.0, TypeError), ("1", TypeError), (True, TypeError), (-1, ValueError), (2**63, ValueError)]
)
def test_bad_seeds(wrong, error):
    with pytest.raises(error, match="n: got"):
        device.seed(wrong)


def test_the_largest_seed():
    assert device.seed(2**63 - 1).initial_seed() == 2**63 - 1


def test_autocast_in_fp32_changes_nothing():
    x = torch.ones(2, 2)
    with device.autocast(device.choose("cpu")) as context:
        assert (x @ x).dtype == torch.float32
    assert context is None


def test_autocast_in_bf16(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    x = torch.ones(2, 2)
    with device.autocast(device.choose("cpu", cpu_bf16=True)):
        assert (x @ x).dtype == torch.bfloat16
    assert (x @ x).dtype == torch.float32


def test_autocast_names_the_backend(monkeypatch):
    seen = []
    monkeypatch.setattr(torch, "autocast", lambda *a, **k: seen.append((a, k)) or contextlib.nullcontext())
    put_xla(monkeypatch)
    with device.autocast(device.choose()):
        pass
    assert seen == [(("xla",), {"dtype": torch.bfloat16})]


def test_autocast_wants_a_device():
    with pytest.raises(TypeError, match="choose()"):
        device.autocast("cpu")


# ------------------------------------------------------------------------------------ moving, steps


class Tied(nn.Module):
    """One matrix in three places, one of them deeper; another that is alone."""

    def __init__(self):
        super().__init__()
        self.first, self.alone = nn.Linear(3, 3), nn.Linear(3, 3)
        self.deep = nn.Sequential(nn.Sequential(nn.Linear(3, 3, bias=False)))
        self.again = nn.Linear(3, 3)
        self.again.weight = self.deep[0][0].weight = self.first.weight


META = device.Device("xla", torch.device("meta"), "as XLA, makes new parameters")


def test_moving_keeps_ties():
    without = Tied().to(META.torch_device)
    assert without.again.weight is not without.first.weight, "the stand-in does what XLA does"
    model = Tied()
    model.alone.weight.requires_grad_(False)
    assert device.move(model, META) is model
    assert model.again.weight is model.deep[0][0].weight is model.first.weight is not model.alone.weight
    assert {name: p.device.type for name, p in model.named_parameters()} == {
        f"{name}": "meta" for name in ("first.weight", "first.bias", "alone.weight", "alone.bias", "again.bias")
    }
    assert [p.requires_grad for p in model.parameters()] == [True, True, False, True, True]


def test_moving_to_where_it_is_changes_nothing():
    model = Tied()
    before = dict(model.named_parameters(remove_duplicate=False))
    device.move(model, device.choose("cpu"))
    after = dict(model.named_parameters(remove_duplicate=False))
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in before)


def test_a_shared_module_and_an_lstm_are_moved():
    inner = nn.LSTM(3, 3)
    model = device.move(nn.ModuleList([inner, nn.Sequential(inner)]), META)
    assert model[0] is model[1][0] and len(list(model.parameters())) == 4
    assert all(weight is getattr(inner, name) for weight, name in zip(inner._flat_weights, inner._flat_weights_names))


def test_a_step_ends_and_is_waited_for_on_xla(monkeypatch):
    asked = put_xla(monkeypatch)
    found = device.choose()
    device.step_done(found)
    assert asked == ["sync"]
    device.synchronise(found)
    assert asked == ["sync", "sync", "wait"]


def test_elsewhere_a_step_needs_no_end(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    here = device.choose("cpu")
    device.step_done(here), device.synchronise(here)
    assert waited == []
    put_cuda(monkeypatch)
    card = device.choose("cuda")
    device.step_done(card)
    assert waited == []
    device.synchronise(card)
    assert waited == [torch.device("cuda", 0)]


@pytest.mark.parametrize("function", [device.step_done, device.synchronise, lambda d: device.move(nn.Linear(1, 1), d)])
def test_what_is_not_a_device(function):
    with pytest.raises(TypeError, match="device: got str, expected the Device that choose"):
        function("xla")


def test_only_a_model_is_moved():
    with pytest.raises(TypeError, match="model: got Tensor, expected a torch.nn.Module"):
        device.move(torch.ones(1), device.choose("cpu"))


# ------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("answers, kept", [((1, 1), True), ((1, 0), False), ((0, 1), False)])
def test_memory_is_kept_where_the_c_library_agrees(monkeypatch, answers, kept):
    asked = {}

    class Library:
        def mallopt(self, option, value):
            asked[option] = value
            return answers[len(asked) - 1]

    monkeypatch.setattr(device.sys, "platform", "linux")
    monkeypatch.setattr(device.ctypes, "CDLL", lambda name: Library())
    assert device.keep_memory() is kept
    assert asked.items() <= {-3: 1 << 30, -1: (1 << 31) - 1}.items(), "glibc's M_MMAP_THRESHOLD and M_TRIM_THRESHOLD"


def test_without_such_a_library_memory_cannot_be_kept(monkeypatch):
    monkeypatch.setattr(device.sys, "platform", "linux")
    monkeypatch.setattr(device.ctypes, "CDLL", lambda name: object())
    assert device.keep_memory() is False


def test_elsewhere_memory_cannot_be_kept(monkeypatch):
    monkeypatch.setattr(device.sys, "platform", "darwin")
    assert device.keep_memory() is False
