"""The stage of training: put together from the parts of the package."""

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from balanced_aggregation.aggregation import RULES, Rule
from balanced_aggregation.attempts import AttemptRecord
from balanced_aggregation.checkpoints import checkpoint_folder
from balanced_aggregation.config import RuleChoice, Study
from balanced_aggregation.data import read_problems
from balanced_aggregation.errors import Interrupted, UserError
from balanced_aggregation.files import write_json, write_text
from balanced_aggregation.layout import Layout
from balanced_aggregation.locks import exclusive
from balanced_aggregation.models import load_model
from balanced_aggregation.provenance import (
    git_commit,
    training_fingerprint,
    weights_digest,
)
from balanced_aggregation.rewards import VerifierPool
from balanced_aggregation.rollout import RolloutEngine
from balanced_aggregation.rollout.engines import create_engine, longest_request
from balanced_aggregation.rule_loading import bind_rule
from balanced_aggregation.seeding import make_deterministic
from balanced_aggregation.slurm import job_id, requeue
from balanced_aggregation.tracking import RunTracker, follow_training
from balanced_aggregation.training.checkpoint import newest_step
from balanced_aggregation.training.interruption import Interruption
from balanced_aggregation.training.journal import read_journal
from balanced_aggregation.training.loop import Task, Trainer, run_training
from balanced_aggregation.training.policy import Policy
from balanced_aggregation.training.progress import create_progress
from balanced_aggregation.training.world import World, end_world, is_main_process, start_world

ALWAYS_DIAGNOSED = ("token", "sequence", "balanced")
"""Rules whose effect on each batch is logged in every run, besides the rule that trains."""


def train(study: Study, layout: Layout, rule_name: str, seed: int, interruption: Interruption) -> None:
    """Train under one rule with one seed, and publish ``metrics.jsonl``, ``timing.jsonl`` and ``run.json``.

    Where `torchrun` has started several processes, each calls this, and the first one publishes. What became of this
    attempt is in ``attempt.json``.

    Args:
        study: to which the training belongs.
        layout: of the study.
        rule_name: of a rule of the study.
        seed: one of the study's.
        interruption: entered; it may ask for an end.

    Raises:
        UserError: the study has no such rule or seed, an input is missing, or the training diverged.
        Interrupted: the training was asked to end, and goes on from where it is. In a job of Slurm's that was told in
            time, the job is back in the queue.
    """
    rule = study.rule(rule_name)
    if seed not in study.seeds:
        raise UserError(f"--seed {seed}: not in study {study.full_name!r}; allowed: {study.seeds}")
    folder, steps, record = layout.run(rule.name, seed), StepCounter(), None
    with contextlib.ExitStack() as stack:
        if is_main_process():
            stack.enter_context(exclusive(folder, "training here", interruption.pause))
            record = AttemptRecord(layout.attempt(rule.name, seed), newest_step(folder / "state" / "resume"))
            stack.enter_context(record)
        world = start_world(study.compute, interruption.pause)
        try:
            publish = _train(study, layout, rule, seed, world, interruption, steps, record)
        except Interrupted as error:
            try:
                if record:
                    _ask_for_another_job(error, record, steps, interruption)
            finally:
                end_world(world)  # together: torchrun ends the others once the first has left
            raise
        end_world(world)
        if world.is_main:  # alone: reading large models again takes longer than others may be let wait
            publish()


class StepCounter:
    """An observer that counts the steps of this process, and measures the time since it was made."""

    def __init__(self):
        self.steps = 0
        self._started = time.monotonic()

    def on_step(self, metrics: dict[str, Any], timing: dict[str, Any]) -> None:
        """Count one more."""
        self.steps += 1

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._started


def _ask_for_another_job(
    error: Interrupted, record: AttemptRecord, steps: StepCounter, interruption: Interruption
) -> None:
    """Where Slurm has said that the time limit is near, have it run the job again, which costs Snakemake no retry.

    After a SIGTERM the job has been cancelled, or Slurm itself puts it back.
    """
    job = job_id()
    if job is None or "SIGTERM" in (error.signal, interruption.signal):
        return
    if not steps.steps:
        raise UserError(
            f"job {job}: its time limit is too short for one step: {error.signal} came within {steps.seconds:.0f} s, "
            "before the first step was done; the same would happen again"
        ) from error
    record.end(error)  # before Slurm ends this process
    reason = requeue(job)
    consequence = f"is not put back into the queue: {reason}" if reason else "is put back into the queue and goes on"
    print(f"{error.signal}: job {job} {consequence}", file=sys.stderr, flush=True)


def _train(
    study: Study,
    layout: Layout,
    rule: RuleChoice,
    seed: int,
    world: World,
    interruption: Interruption,
    steps: StepCounter,
    record: AttemptRecord | None,
) -> Callable[[], None]:
    """Train to the last step; return what publishes the results."""
    make_deterministic(study.threads)
    model, tokenizer = load_model(layout.initial_model)
    problems = read_problems(layout.train_problems)
    if len(problems) < study.training.prompts_per_step:
        raise UserError(
            f"training.prompts_per_step = {study.training.prompts_per_step}: "
            f"only {len(problems)} problems of data.train are left"
        )
    task = Task(study.training, seed, _rules(study, rule), rule.name, problems, study.evaluated_steps)
    folder = layout.run(rule.name, seed)
    fingerprint, observers, tracker = None, [steps], None
    if world.is_main:
        fingerprint = training_fingerprint(study, layout, rule.name, seed)
        observers.append(create_progress(f"{rule.name} seed {seed}", study.training.steps))
        tracker = follow_training(study, layout, rule.name, seed, fingerprint)
        observers += [tracker] if tracker else []
    try:
        with VerifierPool(study.verifiers) as verifiers:
            # One after the other to the device, so that a node's memory never holds all of it.
            policy = Policy(model, study.compute, world)
            reference = None
            if study.training.kl_coefficient:
                reference = Policy(load_model(layout.initial_model)[0], study.compute, world)
            own = None if policy.is_sharded else model  # a sharded one cannot be sampled from
            engine = training_engine(study, layout, tokenizer, problems, own)
            sharing = study.rollout.tensor_parallel if study.rollout.engine == "vllm" else 1
            trainer = Trainer(task, policy, tokenizer, verifiers, engine, reference, sharing)
            on_start = record.goes_on_from if record else lambda step: None
            state = run_training(trainer, folder, fingerprint, observers, interruption, on_start)
    except BaseException as error:
        if tracker:
            tracker.give_up(error)
        raise
    return lambda: _publish(study, rule, seed, folder, state, fingerprint, tracker)


def training_engine(
    study: Study,
    layout: Layout,
    tokenizer: PreTrainedTokenizerBase,
    problems: pd.DataFrame,
    model: PreTrainedModel | None,
) -> RolloutEngine:
    """The engine that a training draws from, at the initial model.

    Args:
        study: says which, and how long responses can be.
        layout: where the initial model is.
        tokenizer: of the model.
        problems: those to train on.
        model: the trainer's own, for an engine that can sample from it; if missing, the engine has a copy.

    Raises:
        UserError: see `create_engine`.
    """
    return create_engine(
        study.rollout,
        layout.initial_model,
        tokenizer,
        max_sequences=study.training.rollout_batch_size,
        max_length=longest_request(tokenizer, problems["prompt"], study.training.max_new_tokens),
        model=model,
    )


def _publish(
    study: Study,
    rule: RuleChoice,
    seed: int,
    folder: Path,
    state: Path,
    fingerprint: dict[str, Any],
    tracker: RunTracker | None,
) -> None:
    journals = {name: state / f"{name}.jsonl" for name in ("metrics", "timing")}
    if tracker:
        tracker.finish(list(zip(*map(read_journal, journals.values()), strict=True)))
    for name, path in journals.items():
        write_text(folder / f"{name}.jsonl", path.read_text(encoding="utf-8"))
    checkpoints = {str(step): weights_digest(checkpoint_folder(folder, step)) for step in study.evaluated_steps}
    write_json(
        folder / "run.json",
        {
            "study": study.full_name,
            "rule": rule.model_dump(mode="json"),
            "seed": seed,
            "steps": study.training.steps,
            "fingerprint": fingerprint,
            "checkpoints": checkpoints,
            "commit": git_commit(),
        },
    )


def _rules(study: Study, rule: RuleChoice) -> dict[str, Rule]:
    """The rule that trains, and those of the paper; none that another study, or this one tomorrow, may not have."""
    own = bind_rule(rule.rule, rule.parameters, max_length=study.training.max_new_tokens)
    return {name: RULES[name] for name in ALWAYS_DIAGNOSED} | {rule.name: own}
