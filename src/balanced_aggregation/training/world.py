"""The processes of one training, started by torchrun; alone, they are a world of one."""

import datetime
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from balanced_aggregation.config import Compute
from balanced_aggregation.errors import UserError

_MAIN_IS_HERE = "balanced_aggregation/main"
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class World:
    """What a process must know of the others. In a world of one, nothing is sent anywhere."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    objects: dist.ProcessGroup | None = None
    """Carries Python objects, and is waited in: by gloo, also where tensors travel between GPUs."""

    @property
    def is_main(self) -> bool:
        """Whether this process writes the files and reports."""
        return self.rank == 0

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in the order of ranks."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.objects)
        return values

    def sum(self, value: Tensor) -> Tensor:
        """Sum over all processes, in place; all get the same bits."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier(group=self.objects)


def is_main_process() -> bool:
    """Whether this process will be the main one of its world, before there is one."""
    return _rank() == 0


def start_world(compute: Compute, pause: Callable[[float], None] = time.sleep) -> World:
    """Join the processes of this training; to be called once, before anything else makes a process group.

    The others wait for the main process without any limit: before it comes here it may have to wait itself.

    Args:
        compute: says how many processes, and what they compute on.
        pause: waits for some seconds, and may raise instead.

    Raises:
        UserError: there are other processes than the study asks for, or no GPU where it asks for one.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size != compute.processes:
        raise UserError(
            f"compute asks for {compute.processes} processes ({compute.nodes} nodes of {compute.processes_per_node}), "
            f"and {size} were started; `snakemake` starts several, and so does balagg-torchrun"
        )
    rank, device = _rank(), torch.device("cpu")
    if compute.gpus_per_node:
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if torch.cuda.device_count() <= local:
            raise UserError(
                f"compute.gpus_per_node = {compute.gpus_per_node}: this node shows {torch.cuda.device_count()} GPUs"
            )
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    if size == 1 and compute.strategy == "ddp":
        return World(device=device)
    timeout = datetime.timedelta(minutes=compute.timeout_minutes)
    store = dist.HashStore()  # sharding needs a process group, also over one process
    if size > 1:
        store, _, _ = next(dist.rendezvous("env://", timeout=timeout))
        store.set_timeout(timeout)
        if rank == 0:
            pause(0)
            store.set(_MAIN_IS_HERE, "")
        while not store.check([_MAIN_IS_HERE]):
            time.sleep(_LOOK_SECONDS)
            if not store.check([_MAIN_IS_HERE]):  # once it is here, it must not be left alone
                pause(0)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    return World(rank, size, device, dist.new_group(backend="gloo", timeout=timeout))


def end_world(world: World) -> None:
    """Part from the others, after the last of them is done."""
    if world.objects is not None:  # an engine may have a process group of its own
        world.barrier()
        dist.destroy_process_group()


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))
