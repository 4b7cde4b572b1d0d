"""Checkpoints to resume from: everything that the next step depends on, in safetensors and JSON."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from transformers import PreTrainedModel

from balanced_aggregation.files import atomic_path, read_json, remove, write_json, write_text
from balanced_aggregation.seeding import generator_states, restore_generators
from balanced_aggregation.training.sampler import PromptSampler


@dataclass
class Progress:
    """How far a training is. The learning-rate schedule is a function of the updates."""

    step: int = 0
    updates: int = 0


def save_checkpoint(
    folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer, sampler: PromptSampler, progress: Progress
) -> None:
    """Write ``folder/step_<n>`` atomically, then remove the older ones."""
    with atomic_path(folder / f"step_{progress.step:06d}") as path:
        path.mkdir()
        save_model(model, str(path / "model.safetensors"))
        save_file(_optimizer_tensors(model, optimizer), path / "optimizer.safetensors")
        write_text(path / "generators.json", json.dumps(generator_states()))
        write_json(path / "progress.json", {**dataclasses.asdict(progress), "sampler": sampler.state()})
    for older in _checkpoints(folder)[:-1]:
        remove(older)


def newest_step(folder: Path) -> int:
    """Step of the newest checkpoint in ``folder``; 0 if there is none."""
    return max(map(_step, _checkpoints(folder)), default=0)


def restore_checkpoint(
    folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer, sampler: PromptSampler
) -> Progress:
    """Bring everything to the newest checkpoint in ``folder``; where there is none, leave it at the start."""
    checkpoints = _checkpoints(folder)
    if not checkpoints:
        return Progress()
    path = checkpoints[-1]
    load_model(model, str(path / "model.safetensors"))
    stored = load_file(path / "optimizer.safetensors")
    for name, parameter in model.named_parameters():
        prefix = f"{name}/"
        values = {key.removeprefix(prefix): value for key, value in stored.items() if key.startswith(prefix)}
        if values:
            optimizer.state[parameter] = values
    restore_generators(read_json(path / "generators.json"))
    state = read_json(path / "progress.json")
    sampler.restore(state.pop("sampler"))
    return Progress(**state)


def _optimizer_tensors(model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("step_*"), key=_step)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step_"))
