"""A whole study in MLflow: an experiment with a parent run, and below it a run for each training."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from balanced_aggregation.config import Study
from balanced_aggregation.errors import UserError
from balanced_aggregation.files import read_json, write_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.tracking.client import address, connect, first_use, in_one_line, sqlite_path, warn_only
from balanced_aggregation.tracking.runs import (
    children,
    known_steps,
    log_missing,
    log_steps,
    open_run,
    set_status,
    step_metrics,
)
from balanced_aggregation.tracking.stored import StoredTraining, stored_trainings


def start_tracking(study: Study, layout: Layout) -> None:
    """Create database, experiment and parent run, before anything uses them at the same time.

    Writes ``tracking.json``: the address and the ids, or null if MLflow is off or out of order. Once more, it finds
    what is there: after a server has moved, its new address is written.
    """
    place: dict[str, Any] | None = None
    with warn_only("MLflow cannot be used now, the study goes on without it and `balagg track finish` brings it later"):
        if study.tracking.enabled:
            place = _open_place(study, layout, address(study))
            connect(place["uri"]).update_run(place["run_id"], status="RUNNING")
    write_json(layout.tracking, place)


def finish_tracking(study: Study, layout: Layout) -> None:
    """Bring everything that MLflow lacks of the study, evaluations, tables and figures; write ``tracked.json``.

    What trainings could not hand over while MLflow was away is among it.
    """
    done = False
    with warn_only("MLflow does not have everything; `balagg track rebuild` brings the rest"):
        if study.tracking.enabled:
            _mirror(study, layout, read_json(layout.tracking) or _open_place(study, layout, address(study)))
            done = True
    write_json(layout.tracked, {"complete": done})


def stop_tracking(study: Study, layout: Layout) -> None:
    """Mark runs that still show as running though the workflow has ended: by what the files say, and the study FAILED.

    A process that was killed by force cannot do it itself.
    """
    place = read_json(layout.tracking) if layout.tracking.exists() else None
    if place is None:
        return
    with warn_only(f"MLflow may still show runs of {study.full_name} as running"):
        client = connect(place["uri"])
        _end_running(client, place, stored_trainings(study, layout))
        set_status(client, place["run_id"], "FAILED")


def rebuild_tracking(study: Study, layout: Layout, uri: str | None = None) -> dict[str, Any]:
    """Make the study's whole experiment from its files, or complete one that is there.

    Args:
        study: one study, or one variant.
        layout: where its files are.
        uri: where to. If missing, where the study is tracked: as it says itself, else as the environment says, else
            where it was tracked before; ``tracking.json`` is brought up to date then.

    Returns:
        address and ids.

    Raises:
        UserError: there are no trainings, or MLflow cannot be used.
    """
    if not stored_trainings(study, layout):
        raise UserError(f"{layout.root}: holds no trainings of study {study.full_name!r}")
    target = uri or address(study, read_json(layout.tracking) if layout.tracking.exists() else None)
    try:
        place = _open_place(study, layout, target)
        _mirror(study, layout, place)
    except Exception as error:  # whatever goes wrong in MLflow, its database or its server
        raise UserError(f"MLflow at {target}: {in_one_line(error)}") from error
    if uri is None and (not layout.tracking.exists() or read_json(layout.tracking) != place):
        write_json(layout.tracking, place)
    return place


def _open_place(study: Study, layout: Layout, uri: str) -> dict[str, Any]:
    """Find the study's experiment and parent run, or create them."""
    with first_use(uri):
        client = connect(uri, create=True)
        experiment = client.get_experiment_by_name(study.full_name)
        if experiment is None:
            artifacts = (layout.root / "mlflow").resolve().as_uri() if sqlite_path(uri) else None
            experiment_id = client.create_experiment(study.full_name, artifact_location=artifacts)
        elif experiment.lifecycle_stage == "deleted":
            raise LookupError(
                f"experiment {study.full_name!r} was deleted; `mlflow experiments restore` brings it back, "
                "`mlflow gc` removes it for good"
            )
        else:
            experiment_id = experiment.experiment_id
        query = "tags.`balagg.role` = 'study'"
        found = client.search_runs([experiment_id], query, max_results=1, order_by=["attributes.start_time ASC"])
        parent = (
            found[0]
            if found
            else client.create_run(experiment_id, tags={"balagg.role": "study"}, run_name=study.full_name)
        )
        run_id = parent.info.run_id
        client.set_tag(run_id, "mlflow.note.content", study.description)
    return {"uri": uri, "experiment_id": experiment_id, "run_id": run_id}


def _mirror(study: Study, layout: Layout, place: dict[str, Any]) -> None:
    """Bring MLflow to what the files hold; what it has already stays as it is."""
    client = connect(place["uri"])
    trainings = stored_trainings(study, layout)
    results = pd.read_parquet(layout.results) if layout.results.exists() else None
    for stored in trainings:
        run_id = open_run(client, place, stored.training, stored.started)
        known = known_steps(client, run_id)
        steps = zip(stored.steps, stored.times(), strict=True)
        metrics = {row["step"]: step_metrics(row, timing, when) for (row, timing), when in steps}
        list(log_steps(client, run_id, {step: m for step, m in metrics.items() if step not in known}))
        if results is not None and stored.status == "FINISHED":
            own = (results["rule"] == stored.training.rule) & (results["seed"] == stored.training.seed)
            _log_evaluations(client, run_id, results[own], layout.results.stat().st_mtime)
        set_status(client, run_id, stored.status, stored.changed)
    _end_running(client, place, trainings)
    for folder in (layout.tables, layout.figures):
        if folder.exists():
            client.log_artifacts(place["run_id"], str(folder), folder.name)
    if layout.study_file.exists():
        client.log_artifact(place["run_id"], str(layout.study_file))
    expected = len(study.rules) * len(study.seeds)
    complete = [stored.status for stored in trainings] == ["FINISHED"] * expected and layout.results.exists()
    set_status(client, place["run_id"], "FINISHED" if complete else "KILLED")


def _log_evaluations(client: Any, run_id: str, results: pd.DataFrame, when: float) -> None:
    names = "eval/" + results["benchmark"] + "/" + results["metric"].str.replace("@", "_at_")
    for name, own in results.groupby(names):
        values = dict(zip(own["step"].map(int), own["value"].map(float), strict=True))
        log_missing(client, run_id, name, values, when)


def _end_running(client: Any, place: dict[str, Any], trainings: Sequence[StoredTraining]) -> None:
    """Give runs that show as running the status that the files know; KILLED, where they know nothing of it."""
    statuses = {stored.training.key: stored.status for stored in trainings}
    for run in children(client, place, "attributes.status = 'RUNNING'"):
        client.set_terminated(run.info.run_id, statuses.get(run.data.tags["balagg.key"], "KILLED"))
