import pytest
from mlflow import MlflowClient

from balanced_aggregation.files import read_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.study_file import load_study
from balanced_aggregation.tracking import RunTracker, start_tracking

STUDY = """
study: tracked
rules: [token]
seeds: [0]
model: {kind: tiny}
data: {train: {kind: arithmetic}, benchmarks: [{kind: arithmetic}]}
training: {steps: 4}
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    # An address of its own for each test: MLflow keeps one store for each address in a process.
    (tmp_path / "study.yaml").write_text(f"{STUDY}tracking: {{uri: 'sqlite:///{tmp_path}/mlflow.db'}}\n")
    return load_study("study.yaml")


def step(number):
    return {"step": number, "reward": number / 10, "length_gap": float("nan")}, {
        "step": number,
        "tokens_per_second": 5.0,
    }


def tracker(place, fingerprint=None):
    made_from = {"versions": {"torch": "2.13.0"}, **(fingerprint or {"settings": "a"})}
    return RunTracker(place, "token", 0, made_from, {"training.steps": 4})


def trainings(place):
    client = MlflowClient(place["uri"])
    return client, client.search_runs([place["experiment_id"]], "tags.`balagg.role` = 'training'")


def test_a_killed_training_goes_on_in_its_own_run_with_each_step_once(study):
    layout = Layout(study)
    start_tracking(study, layout)
    place = read_json(layout.tracking)
    first = tracker(place)
    for number in (1, 2, 3):
        first.on_step(*step(number))
    first._hand_over()  # then it is killed; its checkpoint was at step 1
    second = tracker(place)
    for number in (2, 3, 4):
        second.on_step(*step(number))
    second.finish([step(number) for number in (1, 2, 3, 4)])
    client, runs = trainings(place)
    assert len(runs) == 1
    run = runs[0]
    assert run.info.status == "FINISHED"
    assert [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "reward")] == [
        (n, n / 10) for n in (1, 2, 3, 4)
    ]
    assert "length_gap" not in run.data.metrics
    assert run.data.tags["mlflow.parentRunId"] == place["run_id"]
    assert run.data.params == {"training.steps": "4"}
    assert {"rule", "seed", "version.torch", "mlflow.source.git.commit"} <= set(run.data.tags)


def test_another_training_has_another_run_and_starting_again_keeps_the_parent(study):
    layout = Layout(study)
    start_tracking(study, layout)
    place = read_json(layout.tracking)
    start_tracking(study, layout)
    assert read_json(layout.tracking) == place
    tracker(place).finish([step(1)])
    tracker(place, {"settings": "b"}).finish([step(1)])
    assert len(trainings(place)[1]) == 2


def test_steps_that_mlflow_missed_arrive_at_the_end(study, capsys, monkeypatch):
    layout = Layout(study)
    start_tracking(study, layout)
    place = read_json(layout.tracking)
    run = tracker(place)
    log_batch = MlflowClient.log_batch
    monkeypatch.setattr(MlflowClient, "log_batch", lambda *a, **k: (_ for _ in ()).throw(ConnectionError("away")))
    run.on_step(*step(1))
    run._hand_over()
    assert "did not take 2 values; they are kept and sent again: ConnectionError: away" in capsys.readouterr().err
    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    run.finish([step(1), step(2)])
    client, runs = trainings(place)
    history = client.get_metric_history(runs[0].info.run_id, "reward")
    assert [m.step for m in history] == [1, 2]


def test_steps_that_were_pending_at_a_kill_are_not_lost(study):
    layout = Layout(study)
    start_tracking(study, layout)
    place = read_json(layout.tracking)
    first = tracker(place)
    first.on_step(*step(1))
    first._hand_over()
    first.on_step(*step(2))  # pending when it is killed, though the checkpoint holds it
    second = tracker(place)
    second.on_step(*step(3))
    second.finish([step(n) for n in (1, 2, 3)])
    client, runs = trainings(place)
    history = client.get_metric_history(runs[0].info.run_id, "reward")
    assert sorted((m.step, m.value) for m in history) == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_a_failed_training_is_marked_and_a_server_that_is_away_is_asked_rarely(study, monkeypatch):
    layout = Layout(study)
    start_tracking(study, layout)
    place = read_json(layout.tracking)
    run = tracker(place)
    calls = []
    with monkeypatch.context() as context:
        context.setattr(MlflowClient, "log_batch", lambda *a, **k: calls.append(1) or 1 / 0)
        context.setattr("balanced_aggregation.tracking._EVERY_SECONDS", -1.0)
        run._next_request = 0.0
        for number in range(1, 50):
            run.on_step(*step(number))
    assert len(calls) == 1
    run.give_up(RuntimeError("diverged"))
    client, runs = trainings(place)
    assert runs[0].info.status == "FAILED"
    assert len(client.get_metric_history(runs[0].info.run_id, "reward")) == 49
    tracker(place).give_up(KeyboardInterrupt())
    assert trainings(place)[1][0].info.status == "KILLED"


def test_without_a_usable_mlflow_there_is_a_warning_and_nothing_else(study, capsys):
    layout = Layout(study)
    broken = study.model_copy(
        update={"tracking": study.tracking.model_copy(update={"uri": "sqlite:///study.yaml/mlflow.db"})}
    )
    start_tracking(broken, layout)
    assert "MLflow cannot be used, the study goes on without it" in capsys.readouterr().err
    assert read_json(layout.tracking) is None
    run = RunTracker({"uri": "sqlite:///study.yaml/other.db", "experiment_id": "1", "run_id": "2"}, "token", 0, {}, {})
    run.on_step(*step(1))
    run.finish([step(1)])
    assert (
        "MLflow does not follow token seed 0: FileNotFoundError: database study.yaml/other.db is gone"
        in capsys.readouterr().err
    )


def test_switched_off(study):
    layout = Layout(study)
    off = study.model_copy(update={"tracking": study.tracking.model_copy(update={"enabled": False})})
    start_tracking(off, layout)
    assert read_json(layout.tracking) is None
