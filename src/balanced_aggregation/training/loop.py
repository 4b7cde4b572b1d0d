"""Group relative policy optimisation of one model under one aggregation rule."""

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from balanced_aggregation.advantages import group_advantages
from balanced_aggregation.aggregation import Rule
from balanced_aggregation.checkpoints import checkpoint_folder
from balanced_aggregation.config import Training
from balanced_aggregation.diagnostics import length_statistics, sign_mass
from balanced_aggregation.errors import DiskFull, Interrupted, UserError
from balanced_aggregation.files import read_json, remove, write_json
from balanced_aggregation.models import save_model
from balanced_aggregation.rewards import Outcome, Verdict, VerifierPool
from balanced_aggregation.rewards.responses import ResponseVerifier
from balanced_aggregation.rollout import Response, RolloutEngine, Sampling
from balanced_aggregation.seeding import derive_seed, seed_generators
from balanced_aggregation.training.batch import Batch
from balanced_aggregation.training.checkpoint import Progress, newest_step, restore_checkpoint, save_checkpoint
from balanced_aggregation.training.interruption import Interruption
from balanced_aggregation.training.journal import Journal
from balanced_aggregation.training.mismatch import engine_mismatch
from balanced_aggregation.training.policy import Policy
from balanced_aggregation.training.rollout import DistributedRollout
from balanced_aggregation.training.sampler import PromptSampler
from balanced_aggregation.training.update import (
    accumulate_gradients,
    apply_update,
    create_optimizer,
    learning_rate,
    log_probs_by_response,
    zero_gradients,
)

_GAVE_UP = (Outcome.TIMEOUT, Outcome.CRASH, Outcome.UNREADABLE)


class Observer(Protocol):
    """Told of every step after it has been written; whatever it does cannot change the training."""

    def on_step(self, metrics: dict[str, Any], timing: dict[str, Any]) -> None:
        """Args: the rows of metrics.jsonl and timing.jsonl."""
        ...


@dataclass(frozen=True)
class Task:
    """What one training needs besides the model."""

    settings: Training
    seed: int
    rules: dict[str, Rule]
    """Every rule that is compared, for the diagnostics, by the name that results use."""
    rule: str
    """The one that trains."""
    problems: pd.DataFrame
    evaluated_steps: Sequence[int]


class Trainer:
    """A policy under training, with all that a step changes. Every process of the training has one, in step."""

    def __init__(
        self,
        task: Task,
        policy: Policy,
        tokenizer: PreTrainedTokenizerBase,
        verifiers: VerifierPool,
        engine: RolloutEngine,
        reference: Policy | None = None,
        processes_per_engine: int = 1,
    ):
        """Prepare the first step.

        Args:
            task: what is trained.
            policy: the initial one, updated in place.
            tokenizer: of the model.
            verifiers: judge responses while others are still being sampled.
            engine: samples; it is given the policy's weights before each step.
            reference: the policy that the KL is measured to.
            processes_per_engine: so many consecutive ranks share an engine, and sample the same responses.
        """
        settings = task.settings
        if settings.kl_coefficient and reference is None:
            raise ValueError("a KL coefficient needs a reference model")
        self.task, self.settings = task, settings
        self.policy, self.tokenizer, self.reference = policy, tokenizer, reference
        self.world = policy.world
        self.verifiers, self.engine = verifiers, engine
        self.rollout = DistributedRollout(engine, self.world, processes_per_engine)
        self.optimizer = create_optimizer(policy, settings)
        self.sampler = PromptSampler(len(task.problems), settings.prompts_per_step, task.seed)
        self.progress = Progress()
        seed_generators(derive_seed(task.seed, "libraries"))

    def step(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Sample, verify, update once or several times; return the step's metrics and its timing."""
        started = time.perf_counter()
        self.progress.step += 1
        rows = self.task.problems.iloc[self.sampler.next()]
        prompts = [self.tokenizer.encode(p, add_special_tokens=False) for p in rows["prompt"]]
        self.engine.update_weights(self.policy.full_weights())
        synchronised = time.perf_counter()
        sampling = Sampling(temperature=self.settings.temperature, max_new_tokens=self.settings.max_new_tokens)
        purpose = (self.task.seed, "rollout", self.progress.step)
        group = range(self.settings.group_size)
        seeds = [[derive_seed(*purpose, prompt, k) for k in group] for prompt in range(len(prompts))]

        def verifier(own: Sequence[int]) -> ResponseVerifier:
            return ResponseVerifier(self.verifiers, self.tokenizer, rows.iloc[list(own)], self.settings.group_size)

        responses, verdicts, sampled = self.rollout.run(prompts, seeds, sampling, verifier)
        verified = time.perf_counter()
        batch, rewards = self._batch(prompts, responses, verdicts)
        updates = self._update(batch, [torch.tensor(r.log_probs) for r in responses])
        ended = time.perf_counter()
        tokens = sum(len(r.token_ids) for r in responses)
        metrics = {
            "step": self.progress.step,
            **self._describe(batch, rewards, responses, verdicts),
            **updates,
        }
        timing = {
            "step": self.progress.step,
            "synchronise_seconds": synchronised - started,
            "rollout_seconds": sampled - synchronised,
            "verify_seconds": verified - sampled,  # what was not done by the end of the rollout, and waiting for others
            "update_seconds": ended - verified,
            "tokens_per_second": tokens / (ended - started),
        }
        return metrics, timing

    def _batch(
        self, prompts: Sequence[Sequence[int]], responses: Sequence[Response], verdicts: Sequence[Verdict]
    ) -> tuple[Batch, Tensor]:
        size = self.settings.group_size
        lengths = torch.tensor([len(r.token_ids) for r in responses])
        if self.settings.mask_truncated:
            lengths[torch.tensor([r.truncated for r in responses])] = 0
        live = lengths > 0  # what is masked is no part of its group's baseline either
        rewards = torch.tensor([v.reward for v in verdicts], dtype=torch.float64)
        group_ids = torch.arange(len(prompts)).repeat_interleave(size)
        advantages = torch.zeros_like(rewards)
        advantages[live] = group_advantages(rewards[live], group_ids[live], normalize_std=self.settings.normalize_std)
        batch = Batch(
            prompts=[torch.tensor(p) for p in prompts for _ in range(size)],
            responses=[torch.tensor(r.token_ids) for r in responses],
            lengths=lengths,
            advantages=advantages,
            group_ids=group_ids,
        )
        return batch, rewards

    def _update(self, batch: Batch, sampled_log_probs: Sequence[Tensor]) -> dict[str, float]:
        settings, rule = self.settings, self.task.rules[self.task.rule]
        cut = torch.arange(len(batch)).chunk(settings.mini_batches)
        parts = [batch.select(indices) for indices in cut]
        sampled = [[sampled_log_probs[i] for i in indices] for indices in cut]
        # The first update is on-policy: its old log-probabilities are its own. The others need theirs from now.
        old = [None] + [log_probs_by_response(self.policy, part, settings) for part in parts[1:]]
        reference = [None] * len(parts)
        if settings.kl_coefficient:
            reference = [log_probs_by_response(self.reference, part, settings) for part in parts]
        passes, norms = [], []
        for _ in range(settings.epochs):
            for k, part in enumerate(parts):
                zero_gradients(self.policy)
                weights = rule(part.lengths, part.advantages, part.group_ids)
                gradients = accumulate_gradients(self.policy, part, weights, settings, old[k], reference[k], sampled[k])
                norms.append(apply_update(self.policy, self.optimizer, settings, self.progress.updates))
                self.progress.updates += 1
                if not passes:
                    old[0] = gradients.log_probs
                passes.append(gradients)
        tokens = max(sum(p.tokens for p in passes), 1)
        return {
            "loss": sum(p.loss for p in passes) / len(passes),
            "grad_norm": sum(norms) / len(norms),
            "learning_rate": learning_rate(settings, self.progress.updates - 1),
            "clip_fraction": sum(p.clipped_tokens for p in passes) / tokens,
            "capped_fraction": sum(p.capped_tokens for p in passes) / tokens,
            "kl": sum(p.kl for p in passes) / tokens,
            **engine_mismatch(self.world, [x for part in old for x in part], sampled_log_probs),
        }

    def _describe(
        self, batch: Batch, rewards: Tensor, responses: Sequence[Response], verdicts: Sequence[Verdict]
    ) -> dict[str, Any]:
        """What the step's rollout was like, and what each rule of the study makes of it."""
        by_group = batch.advantages.view(-1, self.settings.group_size)
        count = len(responses)
        sampled = sum(len(r.token_ids) for r in responses)
        statistics = length_statistics(batch.lengths, batch.advantages, batch.group_ids)
        description = {
            "reward": float(rewards.mean()),
            "zero_variance_groups": float((by_group == 0).all(1).double().mean()),
            "response_length": sampled / count,
            "response_length_positive": statistics["positive"],
            "response_length_negative": statistics["negative"],
            "length_variation": statistics["variation"],
            "length_gap": statistics["gap"],
            "truncated": sum(r.truncated for r in responses) / count,
            "entropy": -sum(sum(r.log_probs) for r in responses) / sampled,  # estimated by the sampled tokens
            "no_answer": sum(v.outcome is Outcome.NO_ANSWER for v in verdicts) / count,
            "verifier_gave_up": sum(v.outcome in _GAVE_UP for v in verdicts) / count,
        }
        for name, rule in self.task.rules.items():
            mass = sign_mass(rule(batch.lengths, batch.advantages, batch.group_ids), batch.lengths, batch.advantages)
            description[f"positive_share/{name}"] = mass["positive_share"]
            if name == self.task.rule:
                description["positive_mass"], description["negative_mass"] = mass["positive"], mass["negative"]
        return description


def run_training(
    trainer: Trainer,
    folder: Path,
    fingerprint: dict[str, Any],
    observers: Sequence[Observer],
    interruption: Interruption | None = None,
    on_start: Callable[[int], None] = lambda step: None,
) -> Path:
    """Train to the last step, going on from the newest checkpoint under ``folder`` if there is one.

    Writes ``folder/state/`` (journals and the checkpoint to resume from) and ``folder/checkpoints/step_<n>``, a model
    for each evaluated step. What is there belongs to the same training only if ``fingerprint`` is the same;
    otherwise it is set aside as ``superseded`` and the training starts anew. Of several processes each calls this; the
    first one writes; nothing keeps others from training in the same folder, which the caller must see to.

    Args:
        trainer: at the first step.
        folder: of this training.
        fingerprint: what the training follows from.
        observers: told of each step.
        interruption: may ask for an end, which comes after the step under way, with a checkpoint of it.
        on_start: told the step that the training goes on from, 0 for the start.

    Returns:
        the folder of the journals.

    Raises:
        UserError: the training diverged.
        Interrupted: the training was asked to end before its last step.
        DiskFull: the newest checkpoint is still there.
    """
    state, settings, world = folder / "state", trainer.settings, trainer.world
    if world.is_main:
        _claim(folder, fingerprint, trainer.task.evaluated_steps)
    world.barrier()
    trainer.progress = restore_checkpoint(state / "resume", trainer.policy, trainer.optimizer, trainer.sampler)
    progress = trainer.progress
    first = stored = progress.step
    on_start(first)
    names = ("metrics.jsonl", "timing.jsonl") if world.is_main else ()
    try:
        with contextlib.ExitStack() as stack:
            journals = [stack.enter_context(contextlib.closing(Journal(state / n, first))) for n in names]

            def store() -> int:
                for journal in journals:
                    journal.sync()
                save_checkpoint(state / "resume", trainer.policy, trainer.optimizer, trainer.sampler, progress)
                return progress.step

            while progress.step < settings.steps:
                if interruption and (signal := interruption.agreed(world)):
                    if stored < progress.step:
                        stored = store()
                    reached = f"after step {stored} of {settings.steps}" if stored else "before the first step"
                    raise Interrupted(f"{signal}: stopped {reached}, goes on from there", signal)
                metrics, timing = _step(trainer, folder)
                for journal, row in zip(journals, (metrics, timing), strict=False):
                    journal.append(row)
                for observer in observers:
                    observer.on_step(metrics, timing)
                if progress.step in trainer.task.evaluated_steps:
                    _export(trainer, checkpoint_folder(folder, progress.step))
                if progress.step == settings.steps or progress.step % settings.checkpoint_every == 0:
                    stored = store()
    except DiskFull as error:
        where = f"goes on from step {stored}" if stored else "begins again"
        raise DiskFull(f"{error}; free some and start again: the training {where}") from error
    return state


def _step(trainer: Trainer, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        return trainer.step()
    except FloatingPointError as error:
        raise UserError(f"{folder}: training diverged at step {trainer.progress.step}: {error}") from error
    except ValueError as error:  # what a rule raises that breaks its contract
        raise UserError(f"{folder}: stopped at step {trainer.progress.step}: {error}") from error


def _export(trainer: Trainer, folder: Path) -> None:
    """Write the policy as a Hugging Face folder; all processes take part, the first one holds all and writes."""
    weights = {}
    for name, tensor in trainer.policy.full_weights():
        if trainer.world.is_main:
            weights[name] = tensor.cpu()
    if trainer.world.is_main:
        save_model(trainer.policy.model, trainer.tokenizer, folder, weights)
    trainer.world.barrier()


def _claim(folder: Path, fingerprint: dict[str, Any], evaluated_steps: Sequence[int]) -> None:
    """Make sure that what ``folder`` holds was made by this very training and is complete; else set it aside."""
    state = folder / "state"
    mark = state / "fingerprint.json"
    reached = newest_step(state / "resume")
    missing = [s for s in evaluated_steps if s <= reached and not checkpoint_folder(folder, s).is_dir()]
    if mark.exists() and (missing or read_json(mark) != fingerprint):
        superseded = folder / "superseded"
        if (folder / "checkpoints").exists():
            remove(superseded / "checkpoints")
            superseded.mkdir(exist_ok=True)
            (folder / "checkpoints").rename(superseded / "checkpoints")
        remove(superseded / "state")
        superseded.mkdir(exist_ok=True)
        state.rename(superseded / "state")  # last: it holds the mark
        reason = f"the model of step {missing[0]} is gone" if missing else "settings, inputs, code or packages differ"
        print(f"{folder}: starts anew, since {reason}; what was there is in {superseded}", file=sys.stderr)
    if not mark.exists():
        write_json(mark, fingerprint)
