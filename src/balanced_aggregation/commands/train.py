"""The stage of training: put together from the parts of the package."""

from pathlib import Path
from typing import Any

import pandas as pd
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from balanced_aggregation.aggregation import RULES, Rule
from balanced_aggregation.checkpoints import checkpoint_folder
from balanced_aggregation.config import RuleChoice, Study
from balanced_aggregation.data import read_problems
from balanced_aggregation.errors import UserError
from balanced_aggregation.files import write_json, write_text
from balanced_aggregation.layout import Layout
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
from balanced_aggregation.tracking import RunTracker, follow_training
from balanced_aggregation.training.journal import read_journal
from balanced_aggregation.training.loop import Task, Trainer, run_training
from balanced_aggregation.training.policy import Policy
from balanced_aggregation.training.progress import create_progress
from balanced_aggregation.training.world import end_world, start_world

ALWAYS_DIAGNOSED = ("token", "sequence", "balanced")
"""Rules whose effect on each batch is logged in every run, besides the rule that trains."""


def train(study: Study, layout: Layout, rule_name: str, seed: int) -> None:
    """Train under one rule with one seed, and publish ``metrics.jsonl``, ``timing.jsonl`` and ``run.json``.

    Where `torchrun` has started several processes, each calls this, and the first one publishes.

    Raises:
        UserError: the study has no such rule or seed, an input is missing, or the training diverged.
    """
    rule = study.rule(rule_name)
    if seed not in study.seeds:
        raise UserError(f"--seed {seed}: not in study {study.full_name!r}; allowed: {study.seeds}")
    world = start_world(study.compute)
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
    fingerprint, observers, tracker = None, [], None
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
            state = run_training(trainer, folder, fingerprint, observers)
    except BaseException as error:
        if tracker:
            tracker.give_up(error)
        raise
    end_world(world)
    if world.is_main:  # alone: reading large models again takes longer than others may be let wait
        _publish(study, rule, seed, folder, state, fingerprint, tracker)


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
