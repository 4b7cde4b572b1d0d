"""Where the time of a training step goes: rollout, verification and update of the default study, on one core.

    python benchmarks/training_step.py [--study config.yaml] [--steps 10]

The study must have been run as far as its initial model: `snakemake` makes it.
"""

import argparse
import statistics
from pathlib import Path

import torch

from balanced_aggregation.aggregation import RULES
from balanced_aggregation.commands.train import training_engine
from balanced_aggregation.data import read_problems
from balanced_aggregation.layout import Layout
from balanced_aggregation.models import load_model
from balanced_aggregation.rewards import VerifierPool
from balanced_aggregation.study_file import load_study
from balanced_aggregation.training.loop import Task, Trainer
from balanced_aggregation.training.policy import Policy


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, default=Path("config.yaml"))
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    study = load_study(arguments.study)
    layout = Layout(study)
    torch.set_num_threads(study.threads)
    model, tokenizer = load_model(layout.initial_model)
    problems = read_problems(layout.train_problems)
    task = Task(study.training, 0, dict(RULES), "balanced", problems, [])
    engine = training_engine(study, layout, tokenizer, problems, model)
    with VerifierPool(study.verifiers) as verifiers:
        trainer = Trainer(task, Policy(model), tokenizer, verifiers, engine)
        rows = [trainer.step() for _ in range(arguments.steps + 1)][1:]  # the first step warms up
    parts = ("synchronise_seconds", "rollout_seconds", "verify_seconds", "update_seconds")
    medians = {part: statistics.median(timing[part] for _, timing in rows) for part in parts}
    total = sum(medians.values())
    tokens = statistics.median(
        metrics["response_length"] * study.training.prompts_per_step * study.training.group_size for metrics, _ in rows
    )
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {tokens:,.0f} response tokens a step (medians)")
    for part, seconds in medians.items():
        name = part.removesuffix("_seconds")
        print(f"{name:<11} {seconds:7.3f} s  {seconds / total:5.1%}  {tokens / seconds:12,.0f} tokens/s")


if __name__ == "__main__":
    main()
