"""MLflow as a mirror of the files under results/. It can fail at any time; then a warning is all that happens."""

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from balanced_aggregation.config import Study
from balanced_aggregation.errors import Interrupted
from balanced_aggregation.files import json_digest, read_json, write_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.provenance import git_commit

_EVERY_SECONDS = 5.0
_AFTER_FAILURE_SECONDS = 600.0
_LARGEST_REQUEST = 1000  # metrics; a limit of MLflow's API


def start_tracking(study: Study, layout: Layout) -> None:
    """Create database, experiment and parent run, before anything uses them at the same time.

    Writes ``tracking.json``: the address and the ids, or null if MLflow is off or out of order.
    """
    place: dict[str, Any] | None = None
    with _warn_only("MLflow cannot be used, the study goes on without it"):
        if study.tracking.enabled:
            uri = study.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
            with _first_use(uri):
                place = _create_parent(study, layout, uri)
    write_json(layout.tracking, place)


def _create_parent(study: Study, layout: Layout, uri: str) -> dict[str, Any]:
    client = _client(uri, create=True)
    experiment = client.get_experiment_by_name(study.full_name)
    if experiment is None:
        local = uri.startswith("sqlite:")
        artifacts = (layout.root / "mlflow").resolve().as_uri() if local else None
        experiment_id = client.create_experiment(study.full_name, artifact_location=artifacts)
    else:
        experiment_id = experiment.experiment_id
    found = client.search_runs([experiment_id], "tags.`balagg.role` = 'study'", max_results=1)
    if found:
        parent = found[0].info.run_id
    else:
        parent = client.create_run(experiment_id, tags={"balagg.role": "study"}, run_name=study.full_name).info.run_id
    client.set_tag(parent, "mlflow.note.content", study.description)
    client.update_run(parent, status="RUNNING")
    return {"uri": uri, "experiment_id": experiment_id, "run_id": parent}


def finish_tracking(study: Study, layout: Layout) -> None:
    """Log the evaluations to each run, and tables and figures to the parent run; write ``tracked.json``."""
    place = read_json(layout.tracking)
    done = False
    with _warn_only("MLflow does not have everything"):
        if place:
            client = _client(place["uri"])
            _log_evaluations(client, place, layout)
            for folder in (layout.tables, layout.figures):
                client.log_artifacts(place["run_id"], str(folder), folder.name)
            client.log_artifact(place["run_id"], str(layout.study_file))
            client.set_terminated(place["run_id"])
            done = True
    write_json(layout.tracked, {"complete": done})


def _log_evaluations(client: Any, place: dict[str, Any], layout: Layout) -> None:
    results = pd.read_parquet(layout.results)
    for (rule, seed), rows in results.groupby(["rule", "seed"]):
        fingerprint = read_json(layout.run(rule, seed) / "run.json")["fingerprint"]
        run_id = _find_run(client, place, _key(rule, seed, fingerprint))
        if run_id is None:
            raise LookupError(f"no run of {rule} seed {seed}; its training was not followed")
        names = "eval/" + rows["benchmark"] + "/" + rows["metric"].str.replace("@", "_at_")
        for name, own in rows.groupby(names):
            known = {(m.step, m.value) for m in client.get_metric_history(run_id, name)}
            values = [(int(step), float(value)) for step, value in zip(own["step"], own["value"], strict=True)]
            _log(client, run_id, [_metric(name, value, step) for step, value in values if (step, value) not in known])


class RunTracker:
    """Mirrors one training in a child run: an observer of the training.

    The run is found again by its key, so a training that goes on after it was killed goes on in its own run, and
    steps that MLflow has already are not logged twice.
    """

    def __init__(
        self, place: dict[str, Any], rule: str, seed: int, fingerprint: dict[str, Any], parameters: dict[str, Any]
    ):
        """Args: content of ``tracking.json``, the run's rule, seed and fingerprint, and the parameters to show."""
        self._pending: list[Any] = []
        self._next_request = time.monotonic() + _EVERY_SECONDS
        self._run_id: str | None = None
        self._known_steps: set[int] = set()
        with _warn_only(f"MLflow does not follow {rule} seed {seed}"):
            self._client = _client(place["uri"])
            self._client.get_run(place["run_id"])  # the study's own, unless the database is another one
            key = _key(rule, seed, fingerprint)
            run_id = _find_run(self._client, place, key)
            if run_id is None:
                tags = {
                    "balagg.key": key,
                    "balagg.role": "training",
                    "mlflow.parentRunId": place["run_id"],
                    "mlflow.source.git.commit": git_commit() or "unknown",
                    "rule": rule,
                    "seed": str(seed),
                    **{f"version.{name}": version for name, version in fingerprint["versions"].items()},
                }
                name = f"{rule} seed {seed}"
                run_id = self._client.create_run(place["experiment_id"], tags=tags, run_name=name).info.run_id
            self._client.update_run(run_id, status="RUNNING")
            self._log_parameters(run_id, parameters)
            self._known_steps = {m.step for m in self._client.get_metric_history(run_id, "reward")}
            self._run_id = run_id

    def _log_parameters(self, run_id: str, parameters: dict[str, Any]) -> None:
        from mlflow.entities import Param

        known = self._client.get_run(run_id).data.params
        new = [Param(key, str(value)) for key, value in parameters.items() if key not in known]
        self._client.log_batch(run_id, params=new)

    def on_step(self, metrics: dict[str, Any], timing: dict[str, Any]) -> None:
        """Keep the step's metrics, and hand over what has gathered every few seconds."""
        step = metrics["step"]
        if self._run_id is None or step in self._known_steps:
            return
        self._known_steps.add(step)
        rows = {**metrics, "tokens_per_second": timing["tokens_per_second"]}
        # NaN says that a quantity does not exist in this step: it is left out. "reward" comes last: it marks a step
        # as logged, whichever part of it arrives.
        names = [name for name, value in rows.items() if name not in ("step", "reward") and value == value]
        self._pending += [_metric(name, rows[name], step) for name in (*names, "reward")]
        if time.monotonic() >= self._next_request:
            self._hand_over()

    def finish(self, steps: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        """Log what is still missing of all the steps, and end the run."""
        for metrics, timing in steps:
            known = {name: value for name, value in metrics.items() if value is not None}
            self.on_step(known, timing)
        self._end("FINISHED")

    def give_up(self, error: BaseException) -> None:
        """Hand over what there is, and mark the run as failed, or as killed by a person or a signal."""
        self._end("KILLED" if isinstance(error, KeyboardInterrupt | Interrupted) else "FAILED")

    def _end(self, status: str) -> None:
        self._hand_over()
        if self._run_id is not None:
            with _warn_only("MLflow still shows the run as running"):
                self._client.set_terminated(self._run_id, status)

    def _hand_over(self) -> None:
        if self._run_id is None:
            return
        # A server that is away must not hold up every step: after a failure there is a long pause.
        self._next_request = time.monotonic() + _AFTER_FAILURE_SECONDS
        with _warn_only(f"MLflow did not take {len(self._pending)} values; they are kept and sent again"):
            while self._pending:
                self._client.log_batch(self._run_id, metrics=self._pending[:_LARGEST_REQUEST])
                del self._pending[:_LARGEST_REQUEST]
            self._next_request = time.monotonic() + _EVERY_SECONDS


def _metric(name: str, value: float, step: int) -> Any:
    from mlflow.entities import Metric

    return Metric(name, value, int(time.time() * 1000), step)


def _log(client: Any, run_id: str, metrics: Sequence[Any]) -> None:
    for first in range(0, len(metrics), _LARGEST_REQUEST):
        client.log_batch(run_id, metrics=metrics[first : first + _LARGEST_REQUEST])


def _key(rule: str, seed: int, fingerprint: dict[str, Any]) -> str:
    return f"{rule}/{seed}/{json_digest(fingerprint)[:16]}"


def _find_run(client: Any, place: dict[str, Any], key: str) -> str | None:
    query = f"tags.`balagg.key` = '{key}' and tags.`mlflow.parentRunId` = '{place['run_id']}'"
    found = client.search_runs([place["experiment_id"]], query, max_results=1)
    return found[0].info.run_id if found else None


@contextlib.contextmanager
def _first_use(uri: str) -> Iterator[None]:
    """One process at a time: several that create the same SQLite database at once leave it half-made."""
    database = uri.removeprefix("sqlite:///")
    if database == uri:
        yield
        return
    with Path(f"{database}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _client(uri: str, create: bool = False) -> Any:
    database = uri.removeprefix("sqlite:///")
    if database != uri and not create and not Path(database).exists():
        raise FileNotFoundError(f"database {database} is gone; `snakemake --forcerun track_start` creates it")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # a training must not wait for a server
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    from mlflow import MlflowClient

    return MlflowClient(uri)


@contextlib.contextmanager
def _warn_only(consequence: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever goes wrong in MLflow, its database or its server
        reason = str(error).strip().splitlines() or [""]
        # Not by a logger: MLflow's migrations switch off all that exist.
        print(f"WARNING: {consequence}: {type(error).__name__}: {reason[0]}", file=sys.stderr, flush=True)
