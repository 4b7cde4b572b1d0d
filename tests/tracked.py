"""A study of two rules whose trainings did not take place: its files, and what MLflow shows of it."""

import time

import pandas as pd
from mlflow import MlflowClient

from balanced_aggregation.attempts import Attempt, write_attempt
from balanced_aggregation.files import json_digest, write_json, write_text
from balanced_aggregation.provenance import training_settings
from balanced_aggregation.study_file import load_study
from balanced_aggregation.tracking import RunTracker
from balanced_aggregation.tracking.runs import describe_training
from balanced_aggregation.training.journal import Journal
from tracked_steps import step

STUDY = """
study: tracked
description: Two rules.
rules: [token, {rule: length_power, name: half, parameters: {exponent: 0.5}}]
seeds: [0]
model: {kind: tiny}
data: {train: {kind: arithmetic}, benchmarks: [{kind: arithmetic, name: sums}]}
training: {steps: 4}
"""


def write_study(folder, uri):
    path = folder / "study.yaml"
    path.write_text(f"{STUDY}tracking: {{uri: '{uri}'}}\n")
    return load_study(path)


def describe(study, rule="token", seed=0, problems="p"):
    fingerprint = {
        "settings": json_digest(training_settings(study, rule)),
        "seed": seed,
        "problems": problems,
        "versions": {"torch": "2.13.0"},
    }
    return describe_training(study, rule, seed, fingerprint, "abc")


def write_training(layout, training, steps, attempt=None):
    """The folder of a training, as the trainer leaves it: complete, or with an attempt that came to something."""
    folder = layout.run(training.rule, training.seed)
    state = folder / "state"
    write_json(state / "fingerprint.json", training.fingerprint)
    for name, rows in zip(("metrics", "timing"), zip(*map(step, steps), strict=True), strict=True):
        journal = Journal(state / f"{name}.jsonl", 0)
        for row in rows:
            journal.append(row)
        journal.close()
        if attempt is None:
            write_text(folder / f"{name}.jsonl", (state / f"{name}.jsonl").read_text())
    if attempt is None:
        write_json(folder / "run.json", {"fingerprint": training.fingerprint, "commit": training.commit})
    else:
        record = Attempt(attempt, None, None, "here", 1, 0.0, 0)
        write_attempt(layout.attempt(training.rule, training.seed), record)


def write_results(layout, rules):
    """Evaluations, tables and figures."""
    rows = [
        {"rule": rule, "seed": 0, "step": step, "benchmark": "sums", "metric": metric, "value": step / 8}
        for rule in rules
        for step in (0, 4)
        for metric in ("avg@2", "pass@2")
    ]
    pd.DataFrame(rows).to_parquet(layout.results)
    write_text(layout.tables / "main.md", "a table")
    write_text(layout.figures / "differences.pdf", "a figure")
    layout.study_file.write_text("study: tracked\n")


def follow(place, training, steps, end="finish"):
    """Track a training of those steps; it ends, or raises an error."""
    run = RunTracker(place, training)
    for number in steps:
        run.on_step(*step(number))
    if end == "finish":
        run.finish([step(number) for number in steps])
    elif end is not None:
        run.give_up(end)
    return run


def shown(uri, experiment="tracked"):
    """What people see of an experiment: by each run's name its status, parameters, tags, metrics and artifacts."""
    client = MlflowClient(uri)
    runs = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    names = {run.info.run_id: run.info.run_name for run in runs}
    assert len(set(names.values())) == len(names)
    return {names[run.info.run_id]: _shown(client, run, names) for run in runs}


def _shown(client, run, names):
    tags = dict(run.data.tags)
    if parent := tags.pop("mlflow.parentRunId", None):
        tags["parent"] = names[parent]
    return {
        "status": run.info.status,
        "params": run.data.params,
        "tags": tags,
        "metrics": {
            name: sorted((m.step, m.value) for m in client.get_metric_history(run.info.run_id, name))
            for name in run.data.metrics
        },
        "artifacts": {
            artifact.path: artifact.file_size
            for folder in (None, "tables", "figures")
            for artifact in client.list_artifacts(run.info.run_id, folder)
        },
    }


def wait_until(condition, seconds=60):
    """Until something is true, which is returned."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.05)
    return value
