"""What MLflow is told of a study, in an SQLite file; see test_tracking_server.py for servers."""

import json
import os
import shutil
import subprocess
import sys
import threading

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from balanced_aggregation.errors import Interrupted, UserError
from balanced_aggregation.files import read_json, write_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.tracking import (
    RunTracker,
    finish_tracking,
    follow_training,
    rebuild_tracking,
    start_tracking,
    stop_tracking,
)
from balanced_aggregation.tracking import runs as tracking_runs
from balanced_aggregation.tracking import tracker as tracking_tracker
from balanced_aggregation.tracking.client import connect
from tracked import describe, follow, shown, wait_until, write_results, write_study, write_training
from tracked_steps import step


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory):
    """Making the tables takes a second or two."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    connect(f"sqlite:///{path}", create=True).search_experiments()
    return path


@pytest.fixture
def study(tmp_path, monkeypatch, empty_database):
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(tracking_tracker, "_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(tracking_tracker, "_SETTLED_SECONDS", 0.0)
    # An address of its own for each test: MLflow keeps one store for each address in a process.
    return write_study(tmp_path, f"sqlite:///{tmp_path}/mlflow.db")


@pytest.fixture
def layout(study):
    return Layout(study)


@pytest.fixture
def place(study, layout):
    start_tracking(study, layout)
    return read_json(layout.tracking)


def trainings(place):
    client = MlflowClient(place["uri"])
    return client, client.search_runs([place["experiment_id"]], "tags.`balagg.role` = 'training'")


def rewards(place):
    """Steps and rewards of the only training."""
    client, (run,) = trainings(place)
    return sorted((m.step, m.value) for m in client.get_metric_history(run.info.run_id, "reward"))


def status(place):
    _, (run,) = trainings(place)
    return run.info.status


def arrived(tracker):
    return wait_until(lambda: tracker._run_id and not tracker._waiting)


def test_it_does_not_take_torch_to_track():
    code = (
        "import sys, balanced_aggregation.tracking, balanced_aggregation.tracking.server; print('torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_a_killed_training_goes_on_in_its_own_run_with_each_step_once(study, place):
    arrived(follow(place, describe(study), (1, 2, 3), end=None))  # then it is killed; its checkpoint was at step 1
    second = RunTracker(place, describe(study))
    for number in (2, 3, 4):
        second.on_step(*step(number))
        arrived(second)  # what it has is known by the second of these steps
    second.finish([step(number) for number in (1, 2, 3, 4)])
    assert shown(place["uri"])["token seed 0"] == {
        "status": "FINISHED",
        "params": {name: str(value) for name, value in describe(study).parameters.items()},
        "tags": {
            "balagg.key": describe(study).key,
            "balagg.role": "training",
            "mlflow.runName": "token seed 0",
            "mlflow.source.git.commit": "abc",
            "parent": "tracked",
            "rule": "token",
            "seed": "0",
            "version.torch": "2.13.0",
        },
        "metrics": {
            "reward": [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)],
            "length_gap": [(2, -0.5), (3, -0.5), (4, -0.5)],
            "positive_share/token": [(n, 0.3) for n in (1, 2, 3, 4)],
            "tokens_per_second": [(n, 5.0 * n) for n in (1, 2, 3, 4)],
        },
        "artifacts": {},
    }


def test_the_last_request_of_a_killed_attempt_arrives_while_the_next_one_starts(study, place, monkeypatch):
    arrived(follow(place, describe(study), [1], end=None))
    late = tracking_runs.step_metrics(*step(2))
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        client, (run,) = trainings(place)
        client.log_batch(run.info.run_id, metrics=late)

    monkeypatch.setattr(tracking_tracker.time, "sleep", sleep)
    follow(place, describe(study), [1, 2])
    assert slept == [0.0]
    assert rewards(place) == [(1, 0.1), (2, 0.2)]


def test_steps_that_were_pending_at_a_kill_are_not_lost(study, place):
    arrived(follow(place, describe(study), [1], end=None))  # step 2 is pending when it is killed
    second = RunTracker(place, describe(study))
    second.on_step(*step(3))
    second.finish([step(n) for n in (1, 2, 3)])
    assert rewards(place) == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_a_step_is_never_in_two_requests(study, place, monkeypatch):
    """Else a process killed between them would log its first part again."""
    requests = []
    log_batch = MlflowClient.log_batch

    def listen(self, run_id, metrics=(), **others):
        requests.append([m.step for m in metrics])
        return log_batch(self, run_id, metrics=metrics, **others)

    monkeypatch.setattr(MlflowClient, "log_batch", listen)
    monkeypatch.setattr(tracking_runs, "_LARGEST_REQUEST", 10)
    run = RunTracker(place, describe(study))
    monkeypatch.setattr(run._thread, "start", lambda: None)
    for number in range(1, 8):
        run._seen.add(number)
        run._waiting[number] = tracking_runs.step_metrics(*step(number))
    assert run._deliver()
    assert [sorted(set(steps)) for steps in requests if steps] == [[1, 2], [3, 4], [5, 6], [7]]
    assert rewards(place) == [(n, n / 10) for n in range(1, 8)]


def test_another_training_has_another_run_and_starting_again_keeps_the_parent(study, layout, place):
    start_tracking(study, layout)
    assert read_json(layout.tracking) == place
    follow(place, describe(study), [1])
    follow(place, describe(study, problems="other"), [1])
    assert len(trainings(place)[1]) == 2


def test_of_two_runs_with_one_key_the_older_one_stays(study, place):
    """A server that stood still creates a run after its sender gave up, and looked, and asked again."""
    client, training = MlflowClient(place["uri"]), describe(study)
    tags = training.tags(place["run_id"])
    older, newer = (
        client.create_run(place["experiment_id"], start_time=start, tags=tags, run_name=training.name).info.run_id
        for start in (1000, 2000)
    )
    follow(place, training, [1])
    assert [run.info.run_id for run in trainings(place)[1]] == [older]
    assert client.get_run(newer).info.lifecycle_stage == "deleted"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("diverged"), "FAILED"),
        (KeyboardInterrupt(), "KILLED"),
        (Interrupted("SIGTERM: stopped", "SIGTERM"), "KILLED"),
    ],
)
def test_how_a_training_ended(study, place, error, expected):
    follow(place, describe(study), [1, 2], end=error)
    assert status(place) == expected
    assert rewards(place) == [(1, 0.1), (2, 0.2)]
    follow(place, describe(study), [3], end=None)
    wait_until(lambda: status(place) == "RUNNING")


def test_a_training_that_fails_before_its_first_step(study, place):
    RunTracker(place, describe(study)).give_up(RuntimeError("no memory"))
    assert status(place) == "FAILED"


def test_mlflow_away_for_a_while(study, place, monkeypatch, capsys):
    """Nothing waits, there is one warning, and the steps arrive when it is back, while the training goes on."""
    monkeypatch.setattr(tracking_tracker, "_AFTER_FAILURES", (0.05, 0.1))
    search = MlflowClient.search_runs
    tried = threading.Semaphore(0)

    def away(*arguments, **others):
        tried.release()
        raise MlflowException("away\nfor now")

    monkeypatch.setattr(MlflowClient, "search_runs", away)
    run = follow(place, describe(study), (1, 2), end=None)
    for _ in range(3):
        assert tried.acquire(timeout=30)
    monkeypatch.setattr(MlflowClient, "search_runs", search)
    arrived(run)
    assert rewards(place) == [(1, 0.1), (2, 0.2)]
    wait_until(lambda: not run._away)
    error = capsys.readouterr().err
    assert error.count("WARNING") == 1
    assert (
        "MLflow does not take what token seed 0 logs; it is kept and sent again: MlflowException: away\n"
        "MLflow takes what token seed 0 logs again\n"
    ) in error
    run.on_step(*step(3))
    run.finish([step(n) for n in (1, 2, 3)])
    assert rewards(place) == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_pauses_grow_to_a_minute(study, place, monkeypatch):
    pauses = []
    run = RunTracker(place, describe(study))
    monkeypatch.setattr(run, "_deliver", lambda status=None: len(pauses) == 7 or status is not None)
    monkeypatch.setattr(run._ending, "wait", lambda pause: pauses.append(pause) or len(pauses) > 8)
    run._work()
    assert pauses[:8] == [0, 10, 20, 40, 60, 60, 60, 0.05]


def test_what_a_training_could_not_hand_over_arrives_in_the_end(study, layout, place, monkeypatch, capsys):
    monkeypatch.setattr(tracking_tracker, "_AT_THE_END_SECONDS", 0.3)
    with monkeypatch.context() as away:
        away.setattr(MlflowClient, "log_batch", lambda *a, **k: (_ for _ in ()).throw(ConnectionError("away")))
        follow(place, describe(study), (1, 2, 3, 4))
    assert "MLflow lacks 4 steps and the end of token seed 0, which are in its files" in capsys.readouterr().err
    for rule in ("token", "half"):
        write_training(layout, describe(study, rule), (1, 2, 3, 4))
    write_results(layout, ["token", "half"])
    finish_tracking(study, layout)
    assert read_json(layout.tracked) == {"complete": True}
    runs = shown(place["uri"])
    assert {name: run["status"] for name, run in runs.items()} == dict.fromkeys(
        ("tracked", "token seed 0", "half seed 0"), "FINISHED"
    )
    for name in ("token seed 0", "half seed 0"):
        assert runs[name]["metrics"]["reward"] == [(n, n / 10) for n in (1, 2, 3, 4)]
        assert runs[name]["metrics"]["eval/sums/avg_at_2"] == [(0, 0.0), (4, 0.5)]


def test_runs_that_were_killed_by_force_are_marked(study, layout, place):
    half = describe(study, "half")
    arrived(follow(place, describe(study), (1, 2, 3, 4), end=None))
    write_training(layout, describe(study), (1, 2, 3, 4))  # its end did not arrive
    arrived(follow(place, half, (1, 2), end=None))
    write_training(layout, half, (1, 2), attempt="running")
    arrived(follow(place, describe(study, problems="former"), (1, 2), end=None))
    stop_tracking(study, layout)
    client = MlflowClient(place["uri"])
    found = {(r.info.run_name, r.info.status) for r in client.search_runs([place["experiment_id"]])}
    assert found == {
        ("tracked", "FAILED"),
        ("token seed 0", "FINISHED"),
        ("token seed 0", "KILLED"),  # the former one
        ("half seed 0", "KILLED"),
    }
    # The next attempt: the run and the study go on.
    run = follow(place, half, [3], end=None)
    arrived(run)
    assert {r.info.run_name for r in client.search_runs([place["experiment_id"]], "status = 'RUNNING'")} == {
        "tracked", "half seed 0",
    }  # fmt: skip


def test_a_rebuilt_experiment_is_the_tracked_one(study, layout, place, tmp_path):
    half = describe(study, "half")
    follow(place, describe(study), (1, 2, 3, 4))
    write_training(layout, describe(study), (1, 2, 3, 4))
    follow(place, half, (1, 2, 3, 4))
    write_training(layout, half, (1, 2, 3, 4))
    write_results(layout, ["token", "half"])
    finish_tracking(study, layout)
    before = shown(place["uri"])
    assert before["tracked"]["artifacts"] == {
        "study.yaml": 15, "tables": None, "tables/main.md": 7, "figures": None, "figures/differences.pdf": 8,
    }  # fmt: skip
    written = (tmp_path / "mlflow.db").stat().st_mtime_ns

    elsewhere = f"sqlite:///{tmp_path}/empty.db"
    for _ in range(2):  # the second time finds everything there
        rebuild_tracking(study, layout, elsewhere)
        assert shown(elsewhere) == before
    client, (run, _) = trainings(place)
    assert read_json(layout.tracking) == place
    assert (tmp_path / "mlflow.db").stat().st_mtime_ns == written
    rebuild_tracking(study, layout)
    assert shown(place["uri"]) == before
    assert client.get_run(run.info.run_id).info.end_time == run.info.end_time

    client, (run, _) = trainings(rebuild_tracking(study, layout, elsewhere))
    times = {m.step: m.timestamp for m in client.get_metric_history(run.info.run_id, "reward")}
    assert [times[n] - times[1] for n in (2, 3, 4)] == [3000, 6000, 9000]  # rollout and update
    assert run.info.end_time - run.info.start_time == 12000


def test_a_study_that_was_not_finished_is_rebuilt_as_far_as_it_is(study, layout, place):
    write_training(layout, describe(study), (1, 2, 3), attempt="running")
    journal = layout.run("token", 0) / "state" / "metrics.jsonl"
    journal.write_text(journal.read_text()[:-5])  # killed in the middle of a line
    write_training(layout, describe(study, "half"), (1, 2), attempt="failed")
    rebuild_tracking(study, layout)
    runs = shown(place["uri"])
    assert {name: run["status"] for name, run in runs.items()} == {
        "tracked": "KILLED", "token seed 0": "KILLED", "half seed 0": "FAILED",
    }  # fmt: skip
    assert runs["token seed 0"]["metrics"]["reward"] == [(1, 0.1), (2, 0.2)]
    # It goes on, in the same run.
    follow(place, describe(study), (3, 4))
    assert shown(place["uri"])["token seed 0"]["metrics"]["reward"] == [(n, n / 10) for n in (1, 2, 3, 4)]


def test_a_former_training_does_not_show_as_running_in_the_end(study, layout, place):
    arrived(follow(place, describe(study, problems="former"), [1], end=None))
    write_training(layout, describe(study), (1, 2, 3, 4))
    finish_tracking(study, layout)
    assert {run.info.status for run in trainings(place)[1]} == {"KILLED", "FINISHED"}


def test_a_lost_database_is_made_anew_and_used_from_then_on(study, layout, place, tmp_path):
    write_training(layout, describe(study), (1, 2), attempt="running")
    moved = study.model_copy(update={"tracking": study.tracking.model_copy(update={"uri": None})})
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{tmp_path}/new.db"  # the fixture puts it back
    rebuild_tracking(moved, layout)
    assert read_json(layout.tracking)["uri"].endswith("new.db")
    follow(read_json(layout.tracking), describe(study), (3, 4))
    assert rewards(read_json(layout.tracking)) == [(n, n / 10) for n in (1, 2, 3, 4)]


def test_rebuilding_says_what_is_wrong(study, layout, place):
    with pytest.raises(UserError, match=r"results/tracked: holds no trainings of study 'tracked'"):
        rebuild_tracking(study, layout)
    write_training(layout, describe(study), [1], attempt="running")
    with pytest.raises(UserError, match=r"MLflow at sqlite:///study.yaml/x.db: NotADirectoryError"):
        rebuild_tracking(study, layout, "sqlite:///study.yaml/x.db")
    MlflowClient(place["uri"]).delete_experiment(place["experiment_id"])
    with pytest.raises(UserError, match="experiment 'tracked' was deleted; `mlflow experiments restore`"):
        rebuild_tracking(study, layout)
    # Nor are trainings of other settings the study's.
    other = study.model_copy(update={"training": study.training.model_copy(update={"learning_rate": 0.5})})
    with pytest.raises(UserError, match="holds no trainings"):
        rebuild_tracking(other, layout)


def test_without_a_usable_mlflow_there_is_a_warning_and_nothing_else(study, layout, capsys, monkeypatch):
    monkeypatch.setattr(tracking_tracker, "_AT_THE_END_SECONDS", 0.2)
    broken = study.model_copy(
        update={"tracking": study.tracking.model_copy(update={"uri": "sqlite:///study.yaml/mlflow.db"})}
    )
    start_tracking(broken, layout)
    assert "MLflow cannot be used now, the study goes on without it" in capsys.readouterr().err
    assert read_json(layout.tracking) is None
    assert follow_training(broken, layout, "token", 0, {}) is None
    stop_tracking(broken, layout)
    finish_tracking(broken, layout)
    assert read_json(layout.tracked) == {"complete": False}
    assert "MLflow does not have everything; `balagg track rebuild` brings the rest" in capsys.readouterr().err
    gone = {"uri": "sqlite:///study.yaml/other.db", "experiment_id": "1", "run_id": "2"}
    follow(gone, describe(study), [1])
    assert (
        "MLflow does not take what token seed 0 logs; it is kept and sent again: "
        "FileNotFoundError: database study.yaml/other.db is gone"
    ) in capsys.readouterr().err


def test_mlflow_away_when_the_study_starts_has_it_all_in_the_end(study, layout):
    write_json(layout.tracking, None)
    write_training(layout, describe(study), (1, 2, 3, 4))
    write_training(layout, describe(study, "half"), (1, 2, 3, 4))
    write_results(layout, ["token", "half"])
    finish_tracking(study, layout)
    assert set(shown(study.tracking.uri)) == {"tracked", "token seed 0", "half seed 0"}


def test_switched_off(study, layout):
    off = study.model_copy(update={"tracking": study.tracking.model_copy(update={"enabled": False})})
    start_tracking(off, layout)
    assert read_json(layout.tracking) is None
    finish_tracking(off, layout)
    assert json.loads(layout.tracked.read_text()) == {"complete": False}
