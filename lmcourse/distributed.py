"""One process or many: what ``torchrun`` starts, and how a model is spread over it (DDP, FSDP2)."""

import os
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

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
    """Meet the processes that ``torchrun`` started, over NCCL on CUDA and gloo otherwise; alone where it did not."""
    if "WORLD_SIZE" not in os.environ:
        return World()
    if device.kind == "cuda":
        torch.cuda.set_device(device.torch_device)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.kind == "cuda" else "gloo")
    return World(dist.get_rank(), dist.get_world_size())


def stop() -> None:
    """Leave the group that :func:`start` joined; without one, nothing happens."""
    if dist.is_initialized():
        dist.destroy_process_group()


def spread(module: nn.Module, blocks: list[nn.Module], world: World, device: Device, how: str) -> nn.Module:
    """``module`` as it is trained: itself alone, or its gradients averaged over all processes.

    ``how``: with "ddp" each process holds all weights; with "fsdp" (FSDP2) it holds its share of each of ``blocks``
    and of the rest, which saves memory. ``module.forward`` is what is called.
    """
    if how not in SPREADS:
        raise ValueError(f"spread: got {how!r}, expected one of {', '.join(SPREADS)}")
    if world.size == 1:
        return module
    if how == "ddp":
        return DistributedDataParallel(module, broadcast_buffers=False)  # the buffers are each process's own
    mesh = init_device_mesh(device.torch_device.type, (world.size,))
    for part in (*blocks, module):
        fully_shard(part, mesh=mesh)
    return module


def accumulating(module: nn.Module, last: bool):
    """A context for the backward pass of one part of a batch: gradients travel with the ``last`` part only."""
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last)
    elif isinstance(module, DistributedDataParallel) and not last:
        return module.no_sync()
    return nullcontext()


def whole(x: Tensor) -> Tensor:
    """``x`` put together from all processes, each of which must call this; where it is not spread, ``x``."""
    return x.full_tensor() if isinstance(x, DTensor) else x


def share(x: Tensor, like: Tensor) -> Tensor:
    """What this process holds of ``x``, spread and placed as ``like``."""
    x = x.to(like.device)
    return distribute_tensor(x, like.device_mesh, like.placements) if isinstance(like, DTensor) else x
