"""Checkpoints to resume from: everything that the next step depends on, each process's shards, and JSON.

Tensors are written by `torch.distributed.checkpoint`, so a training goes on with any number of processes.
"""

import contextlib
import dataclasses
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from balanced_aggregation.files import (
    atomic_path,
    is_full,
    names_full_disk,
    partial_path,
    read_json,
    remove,
    write_json,
    write_text,
)
from balanced_aggregation.seeding import generator_states, restore_generators
from balanced_aggregation.training.policy import Policy
from balanced_aggregation.training.sampler import PromptSampler
from balanced_aggregation.training.world import World


@dataclass
class Progress:
    """How far a training is. The learning-rate schedule is a function of the updates."""

    step: int = 0
    updates: int = 0


def save_checkpoint(
    folder: Path, policy: Policy, optimizer: torch.optim.Optimizer, sampler: PromptSampler, progress: Progress
) -> None:
    """Write ``folder/step_<n>`` atomically, then remove the older ones. All processes take part.

    Raises:
        DiskFull: it does not fit; the older ones are still there.
    """
    world = policy.world
    with _shared_path(_checkpoint(folder, progress.step), world) as path:
        tensors = _weights(policy) | _moments(policy, optimizer)
        with names_full_disk(path), _dcp_at_work(path):
            dcp.save(tensors, storage_writer=dcp.FileSystemWriter(path), no_dist=world.size == 1)
        if world.is_main:
            write_text(path / "generators.json", json.dumps(generator_states()))
            write_json(path / "progress.json", {**dataclasses.asdict(progress), "sampler": sampler.state()})
    if world.is_main:
        for older in _checkpoints(folder)[:-1]:
            remove(older)


def newest_step(folder: Path) -> int:
    """Step of the newest checkpoint in ``folder``; 0 if there is none."""
    return max(map(_step, _checkpoints(folder)), default=0)


def restore_checkpoint(
    folder: Path, policy: Policy, optimizer: torch.optim.Optimizer, sampler: PromptSampler
) -> Progress:
    """Bring everything to the newest checkpoint in ``folder``; where there is none, leave it at the start.

    All processes take part; there may be more or fewer of them than wrote it.
    """
    step = policy.world.gather(newest_step(folder))[0]  # a file system may show others something else for a while
    if not step:
        return Progress()
    path = _checkpoint(folder, step)
    for parameter in policy.parameters():
        moments = {key: torch.zeros_like(parameter) for key in ("exp_avg", "exp_avg_sq")}
        counted_on = parameter.device if optimizer.defaults["fused"] else "cpu"
        optimizer.state[parameter] = {"step": torch.zeros((), device=counted_on), **moments}
    tensors = _weights(policy) | _moments(policy, optimizer)
    with _dcp_at_work(path):
        dcp.load(tensors, storage_reader=dcp.FileSystemReader(path), no_dist=policy.world.size == 1)
    restore_generators(read_json(path / "generators.json"))
    state = read_json(path / "progress.json")
    sampler.restore(state.pop("sampler"))
    return Progress(**state)


@contextlib.contextmanager
def _dcp_at_work(path: Path) -> Iterator[None]:
    """Without its warning that a single process is a single process; an error of the disk by the first who met it."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            yield
    except CheckpointException as error:
        for rank, (cause, _) in error.failures.items():
            if isinstance(cause, OSError) or is_full(cause):
                raise OSError(f"{path}: process {rank}: {cause}") from cause
        raise


@contextlib.contextmanager
def _shared_path(path: Path, world: World) -> Iterator[Path]:
    """`atomic_path` for several processes: a folder that all write into and the first one makes, and renames."""
    with atomic_path(path) if world.is_main else contextlib.nullcontext(partial_path(path)) as temporary:
        if world.is_main:
            temporary.mkdir()
        world.barrier()
        yield temporary
        world.barrier()  # all have written
    world.barrier()  # it has its name


def _weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {f"model/{name}": parameter.detach() for name, parameter in policy.named_weights()}


def _moments(policy: Policy, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {
        f"optimizer/{name}/{key}": value
        for name, parameter in policy.named_weights()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("step_*"), key=_step)


def _checkpoint(folder: Path, step: int) -> Path:
    return folder / f"step_{step:06d}"


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step_"))
