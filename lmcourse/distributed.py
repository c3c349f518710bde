"""One process or many: what ``torchrun`` starts, and how a model is spread over it (DDP, FSDP2).

What only several processes need is imported where it is used: it takes seconds.
"""

import os
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lmcourse.device import Device

SPREADS = ("ddp", "fsdp")


@dataclass(frozen=True)
class World:
    """This process among all: its ``rank`` from 0 on, of ``size``. Alone it is ``World()``."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def rows(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """This process's share of a batch that all drew alike: equal numbers of neighbouring rows."""
        each = len(batch[0]) // self.size
        return tuple(x[self.rank * each : (self.rank + 1) * each] for x in batch)

    def total(self, x: Tensor) -> Tensor:
        """The sum of ``x`` over all processes, in each of them."""
        if self.size > 1:
            dist.all_reduce(x)
        return x

    def wait(self) -> None:
        """Until all processes have come here."""
        if self.size > 1:
            dist.barrier()

    def together(self, x: Tensor) -> Tensor:
        """The rows of all processes, in the order of their ranks: (B, …) → (B · size, …)."""
        if self.size == 1:
            return x
        parts = [torch.empty_like(x) for _ in range(self.size)]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)


def local_rank() -> int:
    """The number of this process on its machine, which is the number of its GPU; 0 without ``torchrun``."""
    return int(os.environ.get("LOCAL_RANK", 0))


def start(device: Device) -> World:
    """Meet the processes that ``torchrun`` started, over NCCL on CUDA and gloo otherwise; alone where it did not.

    A group of processes that the caller has formed is used as it is.
    """
    if not _together():
        if "WORLD_SIZE" not in os.environ:
            return World()
        dist.init_process_group("nccl" if device.kind == "cuda" else "gloo")
    if device.kind == "cuda":
        torch.cuda.set_device(device.torch_device)
    return World(dist.get_rank(), dist.get_world_size())


def stop() -> None:
    """Leave the group of processes; without one, nothing happens."""
    if _together():
        dist.destroy_process_group()


def _together() -> bool:
    return dist.is_available() and dist.is_initialized()


def check_spread(how: str) -> None:
    if how not in SPREADS:
        raise ValueError(f"spread: got {how!r}, expected one of {', '.join(SPREADS)}")


def spread(module: nn.Module, blocks: list[nn.Module], world: World, device: Device, how: str) -> nn.Module:
    """``module`` as it is trained: itself alone, or its gradients averaged over all processes.

    ``how``: with "ddp" each process holds all weights; with "fsdp" (FSDP2) it holds its share of each of ``blocks``
    and of the rest, which saves memory. ``module.forward`` is what is called, and all parameters must have a part in
    what it gives.
    """
    check_spread(how)
    if world.size == 1:
        return module
    if how == "ddp":
        return nn.parallel.DistributedDataParallel(module)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.torch_device.type, (world.size,))
    for part in (*blocks, module):
        # Also for the outermost, which would stay whole after evaluation: its shares are what is saved.
        fully_shard(part, mesh=mesh, reshard_after_forward=True)
    return module


def accumulating(module: nn.Module, last: bool):
    """A context for one part of a batch, forward and backward: gradients travel with the ``last`` part only."""
    if hasattr(module, "set_requires_gradient_sync"):  # FSDP2
        module.set_requires_gradient_sync(last)
    elif hasattr(module, "no_sync") and not last:  # DDP
        return module.no_sync()
    return nullcontext()


def whole(x: Tensor) -> Tensor:
    """``x`` put together from all processes, each of which must call this; where it is not spread, ``x``."""
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def share(x: Tensor, like: Tensor) -> Tensor:
    """What this process holds of ``x``, spread and placed as ``like``; each process must call this."""
    x = x.to(like.device)
    if not hasattr(like, "full_tensor"):
        return x
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(x, like.device_mesh, like.placements)
