"""Where to compute: CPU, CUDA, XLA (a TPU) or MPS, chosen once and with a sentence that says why.

What torch_xla is asked for stands in ``_xla``. Training is the same everywhere: :func:`move` the model, make the
optimiser, and end each step with :func:`step_done`.
"""

import contextlib
import ctypes
import hashlib
import os
import sys
from dataclasses import dataclass

import torch
from torch import nn

from lmcourse import _ties, _xla
from lmcourse._xla import Absent, Broken, first_line

VARIABLE = "LMCOURSE_DEVICE"
NAMES = ("cpu", "cuda", "cuda:N", "xla", "tpu", "mps")

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # glibc's numbers for mallopt


@dataclass(frozen=True)
class Device:
    """A device that is present and starts.

    ``kind``: "cpu", "cuda", "xla" or "mps".  ``torch_device``: what ``tensor.to`` takes.
    ``reason``: one line, why this device and this precision.
    ``autocast_dtype``: the type that :func:`autocast` computes in, None for fp32 throughout.
    """

    kind: str
    torch_device: torch.device
    reason: str
    autocast_dtype: torch.dtype | None = None

    def __str__(self) -> str:
        return self.reason


def choose(override: str | torch.device | None = None, *, cpu_bf16: bool = False) -> Device:
    """The device to use. The first of these that is present:

    1. ``override``, then the environment variable ``LMCOURSE_DEVICE``: one of "cpu", "cuda", "cuda:N",
       "xla", "tpu", "mps". If the named device is missing, ``ValueError`` says why and what to do.
    2. a TPU through torch_xla (where XLA would run on the processor, it has to be asked for by name);
    3. the accelerator that torch reports: CUDA or MPS;
    4. the CPU.

    bf16 is used on a TPU and on CUDA from compute capability 8.0 (older cards only emulate it), and on
    a CPU only with ``cpu_bf16=True`` and instructions for it. Without an override this never raises.
    """
    if override is not None and not isinstance(override, str | torch.device):
        raise TypeError(f"override: got {type(override).__name__}, expected str, torch.device or None")
    name, source = (str(override), "override") if override is not None else (os.environ.get(VARIABLE, ""), VARIABLE)
    name = name.strip().lower()
    if name or override is not None:
        return _named(name, source, cpu_bf16)
    broken = []
    for probe in (_tpu, _accelerator):
        try:
            return probe()
        except Broken as why:
            broken.append(str(why))
        except Absent:
            pass
    return _cpu(cpu_bf16, "; ".join(broken) or "no accelerator found")


def _named(name: str, source: str, cpu_bf16: bool) -> Device:
    kind, colon, number = name.partition(":")
    numbered = kind in ("cuda", "cpu", "xla", "mps") and number.isdecimal() and (kind == "cuda" or int(number) == 0)
    if kind not in ("cpu", "cuda", "xla", "tpu", "mps") or (colon and not numbered):
        known = ", ".join(NAMES)
        raise ValueError(f"{source}: got {name!r}, expected one of {known}; leave it out to let the course choose")
    try:
        if kind == "cpu":
            return _cpu(cpu_bf16, f"asked for by {source}")
        if kind == "cuda":
            return _cuda(int(number) if colon else None)
        return {"xla": _torch_xla, "tpu": _tpu, "mps": _mps}[kind]()
    except Absent as why:
        raise ValueError(
            f"{source}: {name!r} was asked for, but {why}; use 'cpu', or leave it out to let the course choose"
        ) from why


# ---------------------------------------------------------------------------------------- probes


def _cpu(bf16: bool, why: str) -> Device:
    cpu = torch.device("cpu")
    if bf16 and _native_bf16():
        return Device("cpu", cpu, f"CPU: {why}; bf16 by this processor's own instructions", torch.bfloat16)
    note = "; it has no bf16 instructions, so fp32" if bf16 else ""
    return Device("cpu", cpu, f"CPU: {why}{note}")


def _native_bf16() -> bool:
    """Whether this processor multiplies bf16 itself; elsewhere bf16 is slower than fp32."""
    if hasattr(torch.cpu, "get_capabilities"):  # newer than torch 2.9
        return any(bool(on) for name, on in torch.cpu.get_capabilities().items() if name.endswith("bf16"))
    return bool(getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)())


def _accelerator() -> Device:
    """The accelerator that torch itself reports, if it is one that the course knows."""
    try:
        found = torch.accelerator.current_accelerator(check_available=True)
    except RuntimeError as error:  # for one, a driver older than the build expects
        raise Broken(f"torch cannot ask for an accelerator ({first_line(error)})") from error
    if found is None:
        raise Absent("torch reports no accelerator")
    if found.type not in ("cuda", "mps"):
        raise Broken(f"the accelerator {found.type!r} is not one that the course knows")
    return _cuda(found.index) if found.type == "cuda" else _mps()


def _cuda(index: int | None) -> Device:
    if not torch.cuda.is_available():
        built = torch.version.cuda or torch.version.hip
        raise Absent("torch finds no CUDA device" if built else "this build of torch has no CUDA support")
    try:
        count = torch.cuda.device_count()
        if index is not None and index >= count:
            raise Absent(f"there are {count} CUDA devices, counted from 0")
        index = torch.cuda.current_device() if index is None else index
        name, (major, minor) = torch.cuda.get_device_name(index), torch.cuda.get_device_capability(index)
    except Absent:
        raise
    except (RuntimeError, AssertionError) as error:
        raise Broken(f"CUDA does not start ({first_line(error)})") from error
    device = torch.device("cuda", index)
    if major >= 8:
        return Device("cuda", device, f"CUDA: {name} (compute capability {major}.{minor}); bf16", torch.bfloat16)
    return Device("cuda", device, f"CUDA: {name} (compute capability {major}.{minor}); bf16 is only emulated, so fp32")


def _mps() -> Device:
    if not torch.backends.mps.is_available():
        raise Absent("torch finds no MPS device (it needs a Mac with Apple's GPU)")
    return Device("mps", torch.device("mps", 0), "MPS: the GPU of this Mac; fp32")


def _torch_xla() -> Device:
    device, hardware = _xla.start()
    if hardware == "TPU":
        return Device("xla", device, "XLA: a TPU; bf16", torch.bfloat16)
    return Device("xla", device, f"XLA: torch_xla on {hardware}; fp32")


def _tpu() -> Device:
    found = _torch_xla()
    if found.autocast_dtype is None:
        raise Absent("torch_xla finds no TPU")
    return found


# ------------------------------------------------------------------------------ seed, precision


def seed(n: int) -> torch.Generator:
    """A CPU generator seeded with ``n``, 0 ≤ n < 2^63; torch's global state is seeded with it too.

    The global state is seeded on every device (torch_xla's as well where it starts), because layers
    draw their first weights from it. Everything else in the course draws from the generator, which
    lives on the CPU so that the numbers do not depend on the device.
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"n: got {type(n).__name__}, expected int")
    if not 0 <= n < 2**63:
        raise ValueError(f"n: got {n}, expected 0 <= n < 2**63")
    torch.manual_seed(n)
    with contextlib.suppress(Absent):
        _xla.seed(n)
    return torch.Generator().manual_seed(n)


def seed_from(*numbers: int) -> int:
    """A seed for :func:`seed` from several numbers, such as a run's own seed and the step: far from its neighbours'."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:8], "big") >> 1


def autocast(device: Device) -> contextlib.AbstractContextManager:
    """A context in which torch computes in ``device.autocast_dtype``; no change where that is None."""
    _check(device)
    if device.autocast_dtype is None:
        return contextlib.nullcontext()
    return torch.autocast(device.torch_device.type, dtype=device.autocast_dtype)


def _check(device: Device) -> None:
    if not isinstance(device, Device):
        raise TypeError(f"device: got {type(device).__name__}, expected the Device that choose() returns")


# ------------------------------------------------------------------------------ moving, steps, memory


def move(model: nn.Module, device: Device) -> nn.Module:
    """``model`` itself, moved to the device; parameters that were one tensor still are.

    ``model.to`` makes new parameters on XLA, one for each place: an output matrix tied to the embedding would become a
    second one and train apart. So make the optimiser after this, from the model's parameters.
    """
    _check(device)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: got {type(model).__name__}, expected a torch.nn.Module")
    shared = _ties.ties(model)
    return _ties.tie(model.to(device.torch_device), shared)


def step_done(device: Device) -> None:
    """The end of a training step. XLA only records a step, and compiles and runs it here; others have run it already.

    It compiles anew for each new shape, so pad to a fixed length; values read before this run half a step. Read the
    loss afterwards, and not at every step.
    """
    _check(device)
    if device.kind == "xla":
        _xla.run()


def synchronise(device: Device) -> None:
    """Wait until the device has done what it was asked for: before looking at the clock."""
    _check(device)
    if device.kind == "xla":
        _xla.run(wait=True)
    elif device.kind != "cpu":
        torch.accelerator.synchronize(device.torch_device)


def keep_memory() -> bool:
    """Let this process keep the memory that tensors free, for the next ones; whether it could (glibc, so Linux, only).

    Otherwise each large tensor on the CPU is asked from the operating system page by page and given back at once; a
    training step gains 5 to 15 %. It holds until the process ends, which then keeps its greatest amount of memory.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    settings = {_MMAP_THRESHOLD: 1 << 30, _TRIM_THRESHOLD: (1 << 31) - 1}
    return mallopt is not None and all(mallopt(option, value) == 1 for option, value in settings.items())
