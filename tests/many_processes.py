"""What test_distributed.py runs in each of several processes: `torchrun many_processes.py WHAT FOLDER STRATEGY`."""

import copy
import datetime
import os
import signal
import sys
from pathlib import Path

import torch

import test_training as t
from balanced_aggregation.aggregation import RULES
from balanced_aggregation.config import Compute, TinyModel
from balanced_aggregation.data.arithmetic import SYMBOLS
from balanced_aggregation.models import character_tokenizer, create_tiny_model
from balanced_aggregation.rewards import VerifierPool
from balanced_aggregation.training.loop import Task, Trainer, run_training
from balanced_aggregation.training.policy import Policy
from balanced_aggregation.training.world import World, end_world, start_world

# With this epsilon a change of parameters is about proportional to its gradient. With the usual one, a gradient that is
# 0 but for rounding moves its parameter as far as any other.
SETTINGS = t.SETTINGS.model_copy(
    update={"mini_batches": 3, "epochs": 2, "kl_coefficient": 0.1, "adam_eps": 1e-2, "learning_rate": 0.02, "steps": 3}
)
TOLERANCE = 2e-6


def make_trainer(rule, compute=Compute(), world=World(), settings=SETTINGS):  # noqa: B008
    """A training in which everything matters: several updates a step, KL, groups that differ."""
    tokenizer = character_tokenizer(SYMBOLS)
    shape = TinyModel(hidden_size=16, layers=2, heads=2, intermediate_size=24)
    model, reference = (create_tiny_model(shape, tokenizer, 0).eval() for _ in range(2))
    sampled_from = copy.deepcopy(model) if compute.strategy == "fsdp" else model
    engine = t.own_engine(sampled_from, tokenizer, settings)
    task = Task(settings, 0, dict(RULES), rule, t.WITH_SIGNAL.copy(), [2, settings.steps])
    policies = (Policy(m, compute, world) for m in (model, reference))
    return Trainer(task, next(policies), tokenizer, VerifierPool(), engine, next(policies))


def whole_weights(trainer):
    return {name: tensor.clone() for name, tensor in trainer.policy.full_weights()}


def rules(folder, compute, world):
    """Train under every rule; write the weights and the metrics."""
    for rule in RULES:
        trainer = make_trainer(rule, compute, world)
        rows = [trainer.step()[0] for _ in range(SETTINGS.steps)]
        weights = whole_weights(trainer)
        if world.is_main:
            torch.save((rows, weights), folder / f"{rule}.pt")


def variants(folder, compute, world):
    """One step as it is, with activation checkpointing, and computed in bfloat16."""
    for name, change in {
        "plain": {},
        "checkpointed": {"activation_checkpointing": True},
        "bfloat16": {"dtype": "bfloat16"},
    }.items():
        settings = SETTINGS.model_copy(update={"mini_batches": 1, "epochs": 1})
        trainer = make_trainer("balanced", compute.model_copy(update=change), world, settings)
        saved: list[int] = []

        def count(tensor, saved=saved):
            saved.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            metrics, _ = trainer.step()
        assert {p.dtype for p in trainer.policy.parameters()} == {torch.float32}
        weights = whole_weights(trainer)
        if world.is_main:
            torch.save((metrics, weights, sum(saved)), folder / f"{name}.pt")


class StopAt:
    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step(self, metrics, timing):
        if metrics["step"] == self.step:
            self.action()


def stopped(folder, compute, world):
    """Train with a checkpoint after step 3, and leave after step 4, which is lost."""
    settings = SETTINGS.model_copy(update={"steps": 7})
    observers = [StopAt(4, lambda: os._exit(0))]
    run_training(make_trainer("balanced", compute, world, settings), folder / "run", t.FINGERPRINT, observers)


def resumed(folder, compute, world):
    """Go on, perhaps in another number of processes."""
    settings = SETTINGS.model_copy(update={"steps": 7})
    trainer = make_trainer("balanced", compute, world, settings)
    run_training(trainer, folder / "run", t.FINGERPRINT, [])


def killed(folder, compute, world):
    """The last process is killed between two steps, while the others wait for it in the next."""
    last = world.rank == world.size - 1
    observers = [StopAt(2, lambda: os.kill(os.getpid(), signal.SIGKILL))] if last else []
    run_training(make_trainer("balanced", compute, world), folder / "run", t.FINGERPRINT, observers)


if __name__ == "__main__":
    torch.set_num_threads(1)
    what, folder, strategy = sys.argv[1:]
    compute = Compute(cpu_processes=int(os.environ["WORLD_SIZE"]), strategy=strategy, timeout_minutes=17)
    world = start_world(compute)
    for group in (torch.distributed.group.WORLD, world.objects):
        waits = group._get_backend(torch.device("cpu")).options._timeout
        assert waits == datetime.timedelta(minutes=compute.timeout_minutes), waits
    globals()[what](Path(folder), compute, world)
    end_world(world)
