"""The run of one training in MLflow: found by its key, one for each key, each step in it once."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from balanced_aggregation.config import Study
from balanced_aggregation.files import json_digest

_LARGEST_REQUEST = 1000  # metrics; a limit of MLflow's API
_ALL = 10_000

Step = tuple[dict[str, Any], dict[str, Any]]
"""The rows of a step in metrics.jsonl and timing.jsonl."""


@dataclass(frozen=True)
class Training:
    """A training as MLflow shows it."""

    rule: str
    seed: int
    fingerprint: dict[str, Any]
    """What it is made from (`provenance.training_fingerprint`): another one is another run."""
    parameters: dict[str, Any]
    commit: str | None
    """Of the repository, if it is known."""

    @property
    def key(self) -> str:
        """What its run is found by."""
        return f"{self.rule}/{self.seed}/{json_digest(self.fingerprint)[:16]}"

    @property
    def name(self) -> str:
        """Its name for people."""
        return f"{self.rule} seed {self.seed}"

    def tags(self, parent: str) -> dict[str, str]:
        """Tags of its run, below the run ``parent``."""
        return {
            "balagg.key": self.key,
            "balagg.role": "training",
            "mlflow.parentRunId": parent,
            "mlflow.runName": self.name,
            "mlflow.source.git.commit": self.commit or "unknown",
            "rule": self.rule,
            "seed": str(self.seed),
            **{f"version.{name}": version for name, version in self.fingerprint["versions"].items()},
        }


def describe_training(study: Study, rule: str, seed: int, fingerprint: dict[str, Any], commit: str | None) -> Training:
    """What MLflow shows of the training under one rule with one seed."""
    choice = study.rule(rule)
    parameters = {
        "rule": choice.rule,
        **{f"rule.{name}": value for name, value in choice.parameters.items()},
        **{f"training.{name}": value for name, value in study.training.model_dump(mode="json").items()},
        "model": study.model.model_dump_json(),
        "data.sha256": fingerprint["problems"],
    }
    return Training(rule, seed, fingerprint, parameters, commit)


def open_run(client: Any, place: dict[str, Any], training: Training, started: float | None = None) -> str:
    """Find the training's run or create it, and complete its tags and parameters.

    Of several with the same key the oldest one stays: a server that stood still may carry out a request to create a run
    long after its sender gave up and sent another. MLflow keeps deleted runs until `mlflow gc`.

    Args:
        client: `client.connect`.
        place: content of ``tracking.json``.
        training: whose run.
        started: seconds since the epoch, if the run has to be created; now, if missing.

    Returns:
        its id.
    """
    tags = training.tags(place["run_id"])
    if not _with_key(client, place, training.key):
        start = round(1000 * started) if started else None
        client.create_run(place["experiment_id"], start_time=start, tags=tags, run_name=training.name)
    run, *others = _with_key(client, place, training.key)
    for other in others:
        client.delete_run(other.info.run_id)
    from mlflow.entities import Param, RunTag

    parameters = {name: str(value) for name, value in training.parameters.items() if name not in run.data.params}
    changed = {name: value for name, value in tags.items() if run.data.tags.get(name) != value}
    if parameters or changed:
        params = [Param(*item) for item in parameters.items()]
        client.log_batch(run.info.run_id, params=params, tags=[RunTag(*item) for item in changed.items()])
    return run.info.run_id


def children(client: Any, place: dict[str, Any], condition: str = "") -> list[Any]:
    """Runs of the study's trainings, the oldest first; of those that meet a further condition of MLflow's queries."""
    query = f"tags.`mlflow.parentRunId` = '{place['run_id']}'{condition and ' and ' + condition}"
    order = ["attributes.start_time ASC", "attributes.run_id ASC"]
    return list(client.search_runs([place["experiment_id"]], query, max_results=_ALL, order_by=order))


def shows_as_running(client: Any, place: dict[str, Any], training: Training) -> bool:
    """Whether the training has a run that has not ended."""
    return any(run.info.status == "RUNNING" for run in _with_key(client, place, training.key))


def _with_key(client: Any, place: dict[str, Any], key: str) -> list[Any]:
    return children(client, place, f"tags.`balagg.key` = '{key}'")


def set_status(client: Any, run_id: str, status: str, ended: float | None = None) -> None:
    """End a run, unless it has ended so before.

    Args:
        client: `client.connect`.
        run_id: whose status.
        status: FINISHED, FAILED or KILLED.
        ended: seconds since the epoch; now, if missing.
    """
    if client.get_run(run_id).info.status != status:
        client.set_terminated(run_id, status, end_time=round(1000 * ended) if ended else None)


def step_metrics(metrics: Mapping[str, Any], timing: Mapping[str, Any], when: float | None = None) -> list[Any]:
    """What MLflow gets of a step.

    Args:
        metrics: row of metrics.jsonl.
        timing: row of timing.jsonl.
        when: seconds since the epoch; now, if missing.
    """
    values = {**metrics, "tokens_per_second": timing["tokens_per_second"]}
    step = values.pop("step")
    # NaN, null in the file, says that a quantity does not exist in this step: it is left out.
    return [_metric(n, v, step, when) for n, v in values.items() if v is not None and math.isfinite(v)]


def known_steps(client: Any, run_id: str) -> set[int]:
    """Steps that a run has: a step arrives as a whole (`log_steps`), and every step has a reward."""
    return {m.step for m in client.get_metric_history(run_id, "reward")}


def log_steps(client: Any, run_id: str, steps: Mapping[int, Sequence[Any]]) -> Iterable[int]:
    """Log metrics of steps, a step never in two requests, and yield those that have arrived as they do."""
    batch: dict[int, Sequence[Any]] = {}
    for step, metrics in steps.items():
        if batch and sum(map(len, batch.values())) + len(metrics) > _LARGEST_REQUEST:
            yield from _log_together(client, run_id, batch)
            batch = {}
        batch[step] = metrics
    if batch:
        yield from _log_together(client, run_id, batch)


def _log_together(client: Any, run_id: str, steps: Mapping[int, Sequence[Any]]) -> list[int]:
    client.log_batch(run_id, metrics=[metric for metrics in steps.values() for metric in metrics])
    return list(steps)


def log_missing(client: Any, run_id: str, name: str, values: Mapping[int, float], when: float | None = None) -> None:
    """Log the values of one metric, by step, that a run does not have."""
    known = {(m.step, m.value) for m in client.get_metric_history(run_id, name)}
    missing = {s: [_metric(name, value, s, when)] for s, value in values.items() if (s, value) not in known}
    list(log_steps(client, run_id, missing))


def _metric(name: str, value: float, step: int, when: float | None) -> Any:
    from mlflow.entities import Metric

    return Metric(name, value, round(1000 * (time.time() if when is None else when)), step)
