"""MLflow as a server: many trainings at once, killed ones, and a server that is away, or hangs."""

import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from balanced_aggregation.errors import UserError
from balanced_aggregation.files import read_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.tracking import RunTracker, finish_tracking, rebuild_tracking, start_tracking, stop_tracking
from balanced_aggregation.tracking import tracker as tracking_tracker
from balanced_aggregation.tracking.server import serve
from many_trainings import STEPS
from tracked import describe, follow, shown, wait_until, write_results, write_study, write_training
from tracked_steps import step

pytestmark = pytest.mark.slow
BALAGG = str(Path(sys.executable).parent / "balagg")


class Server:
    """`balagg track serve`."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process, self.printed = None, None

    def command(self, *arguments):
        own = ("--folder", str(self.folder), "--port", str(self.port), "--workers", "2")
        return [BALAGG, "track", "serve", *own, *arguments]

    def start(self):
        command = self.command("--host", "0.0.0.0")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.printed = self.process.stdout.readline().strip()
        assert self.printed.startswith("export MLFLOW_TRACKING_URI=http://")

    def stop(self, number=signal.SIGTERM):
        everything = [self.process, *psutil.Process(self.process.pid).children(recursive=True)]
        assert len(everything) >= 4  # this one, mlflow's two, workers
        self.process.send_signal(number)
        code = self.process.wait(30)
        assert not [p for p in everything[1:] if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        return code


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"))
    try:
        server.start()
        yield server
    finally:
        assert server.stop() == 0


@pytest.fixture
def study(tmp_path, monkeypatch, server):
    monkeypatch.chdir(tmp_path)
    study = write_study(tmp_path, server.uri)
    return study.model_copy(update={"study": f"s{time.time_ns()}"})  # an experiment of its own for each test


@pytest.fixture
def layout(study):
    return Layout(study)


@pytest.fixture
def place(study, layout):
    start_tracking(study, layout)
    return read_json(layout.tracking)


def run_trainings(place, attempts, together):
    """Exit codes of the attempts."""
    order = json.dumps({"place": place, "attempts": attempts, "together": together})
    script = Path(__file__).with_name("many_trainings.py")
    output = subprocess.run([sys.executable, script, order], stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return json.loads(output.stdout.splitlines()[-1])  # the lines before are MLflow's


def check_runs(place, seeds):
    """One run for each seed, each step in it once."""
    client = MlflowClient(place["uri"])
    runs = client.search_runs([place["experiment_id"]], "tags.`balagg.role` = 'training'")
    assert sorted(run.data.tags["seed"] for run in runs) == sorted(map(str, seeds))
    for run in runs:
        assert run.info.status == "FINISHED"
        assert run.data.params == {"training.steps": str(STEPS)}
        for name, count in (("reward", STEPS), ("tokens_per_second", STEPS), ("length_gap", STEPS - 1)):
            steps = [m.step for m in client.get_metric_history(run.info.run_id, name)]
            assert sorted(steps) == list(range(STEPS - count + 1, STEPS + 1))


def test_twenty_trainings_that_start_at_the_same_moment(place):
    attempts = [{"seed": seed, "kill": None} for seed in range(20)]
    assert run_trainings(place, attempts, together=True) == [0] * 20
    check_runs(place, range(20))


def test_twenty_trainings_and_a_file(study, layout):
    tracking = study.tracking.model_copy(update={"uri": f"sqlite:///{Path.cwd()}/mlflow.db"})
    start_tracking(study.model_copy(update={"tracking": tracking}), layout)
    attempts = [{"seed": seed, "kill": None} for seed in range(20)]
    assert run_trainings(read_json(layout.tracking), attempts, together=True) == [0] * 20
    check_runs(read_json(layout.tracking), range(20))


def test_attempts_that_are_killed_by_force_make_one_run(place):
    draw = random.Random(0)
    # Between creating the run and the first metrics, between two requests of metrics, and at any moment.
    kills = ["1", "2", "1", *(draw.uniform(0.02, 1.0) for _ in range(6)), None]
    codes = run_trainings(place, [{"seed": 0, "kill": kill} for kill in kills], together=False)
    assert codes[:3] == [-signal.SIGKILL] * 3 and codes[-1] == 0
    check_runs(place, [0])


def slowest_step(run, numbers, seconds=0.02):
    slowest = 0.0
    for number in numbers:
        started = time.perf_counter()
        run.on_step(*step(number))
        slowest = max(slowest, time.perf_counter() - started)
        time.sleep(seconds)
    return slowest


def test_a_server_that_is_away_for_a_while(server, study, place, monkeypatch, capsys):
    """One training is under way, another one starts meanwhile: both go on, and everything arrives before they end."""
    monkeypatch.setattr(tracking_tracker, "_EVERY_SECONDS", 0.2)
    monkeypatch.setattr(tracking_tracker, "_AFTER_FAILURES", (0.5,))
    first = RunTracker(place, describe(study))
    slowest_step(first, (1, 2))
    wait_until(lambda: first._run_id and not first._waiting)
    assert server.stop(signal.SIGINT) == 0
    second = RunTracker(place, describe(study, "half"))
    slowest = [slowest_step(run, range(start, 60)) for run, start in ((first, 3), (second, 1))]
    assert max(slowest) < 0.05
    wait_until(lambda: first._away and second._away)
    server.start()
    wait_until(lambda: not first._waiting and not second._waiting)
    runs = shown(place["uri"], study.study)
    for run, training in ((first, describe(study)), (second, describe(study, "half"))):
        assert runs[training.name]["metrics"]["reward"] == [(n, n / 10) for n in range(1, 60)]
        assert runs[training.name]["status"] == "RUNNING"
        run.finish([step(n) for n in range(1, 61)])
    runs = shown(place["uri"], study.study)
    assert {runs[name]["status"] for name in ("token seed 0", "half seed 0")} == {"FINISHED"}
    assert {len(runs[name]["metrics"]["reward"]) for name in ("token seed 0", "half seed 0")} == {60}
    assert capsys.readouterr().err.count("WARNING: MLflow does not take what") == 2


def test_a_server_that_stands_still(server, study, layout, place, monkeypatch):
    """Stopped in the middle, it takes connections and answers none: it finds its one run when it goes on."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setattr(tracking_tracker, "_AFTER_FAILURES", (0.2,))
    monkeypatch.setattr(tracking_tracker, "_AT_THE_END_SECONDS", 30.0)
    workers = psutil.Process(server.process.pid).children(recursive=True)
    run = RunTracker(place, describe(study))
    # It stops where the training asks for a new run: the request lies there until it goes on.
    create_run = MlflowClient.create_run

    def create_and_wait(*arguments, **others):
        for worker in workers:
            worker.suspend()
        monkeypatch.setattr(MlflowClient, "create_run", create_run)
        return create_run(*arguments, **others)

    monkeypatch.setattr(MlflowClient, "create_run", create_and_wait)
    try:
        assert slowest_step(run, range(1, 20)) < 0.05
        wait_until(lambda: run._away)
        started = time.monotonic()
        stop_tracking(study, layout)
        assert time.monotonic() - started < 5
    finally:
        for worker in workers:
            worker.resume()
    run.finish([step(n) for n in range(1, 20)])
    runs = shown(place["uri"], study.study)  # also that no name is there twice
    assert runs["token seed 0"]["status"] == "FINISHED"
    assert runs["token seed 0"]["metrics"]["reward"] == [(n, n / 10) for n in range(1, 20)]


def test_a_socket_that_never_answers(study, layout, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setattr(tracking_tracker, "_AT_THE_END_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = {"uri": f"http://127.0.0.1:{silent.getsockname()[1]}", "experiment_id": "1", "run_id": "a"}
        started = time.monotonic()
        run = RunTracker(place, describe(study))
        assert slowest_step(run, range(1, 100), seconds=0.01) < 0.05
        wait_until(lambda: run._away)
        before = time.monotonic()
        run.finish([step(n) for n in range(1, 100)])
        assert time.monotonic() - before < 3
        assert "MLflow lacks 99 steps and the end of token seed 0" in capsys.readouterr().err
        away = study.model_copy(update={"tracking": study.tracking.model_copy(update={"uri": place["uri"]})})
        start_tracking(away, layout)
        assert layout.tracking.read_text() == "null\n"
        finish_tracking(away, layout)
        assert time.monotonic() - started < 15


def test_a_rebuilt_experiment_is_the_tracked_one(study, layout, place, server, tmp_path):
    """Through the server, artifacts too; and in a file, by the command."""
    for rule in ("token", "half"):
        follow(place, describe(study, rule), (1, 2, 3, 4))
        write_training(layout, describe(study, rule), (1, 2, 3, 4))
    write_results(layout, ["token", "half"])
    finish_tracking(study, layout)
    before = shown(place["uri"], study.study)
    assert before[study.study]["artifacts"]["tables/main.md"] == 7
    assert (server.folder / "artifacts").is_dir() and not (layout.root / "mlflow").exists()
    rebuild_tracking(study, layout)
    assert shown(place["uri"], study.study) == before

    file = f"sqlite:///{tmp_path}/empty.db"
    text = Path("study.yaml").read_text().replace("study: tracked", f"study: {study.study}")
    Path("study.yaml").write_text(text)
    command = [BALAGG, "track", "rebuild", "study.yaml", "--uri", file]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output == f"{study.study}: experiment 1 in {file}\n"
    assert shown(file, study.study) == before
    rebuild_tracking(study, layout, file)
    assert shown(file, study.study) == before


def test_the_server_answers_to_this_machines_name_and_to_no_other(server):
    def ask(name):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        headers = {"Host": f"{name}:{server.port}", "Content-Type": "application/json"}
        connection.request("POST", "/api/2.0/mlflow/experiments/search", '{"max_results": 1}', headers)
        return connection.getresponse().status

    printed = server.printed.partition("//")[2].partition(":")[0]
    assert [ask(name) for name in (printed, socket.gethostname(), "127.0.0.1")] == [200] * 3
    assert ask("evil.example") == 403


@pytest.mark.parametrize(
    ("database", "message"),
    [
        ("nonsense", "--database nonsense: no address of a database, such as postgresql://user@host/name"),
        ("none://me:secret@here/mlflow", "--database none: no address of a database"),
        (
            "mssql+pymssql://me:secret@here/mlflow",
            r"--database mssql\+pymssql://...: needs pymssql; `pip install pymssql`",
        ),
        ("sqlite:////", "--database sqlite://...: cannot be used: OperationalError"),
    ],
)
def test_serving_from_a_database_that_cannot_be_used(tmp_path, database, message):
    with pytest.raises(UserError, match=message) as error:
        serve(tmp_path, "127.0.0.1", free_port(), database, workers=1)
    assert "secret" not in str(error.value) and "\n" not in str(error.value)


def test_serving_where_somebody_else_does(server):
    with pytest.raises(UserError, match=f"--port {server.port}: cannot listen there: .* Address already in use"):
        serve(server.folder, "127.0.0.1", server.port, None, workers=1)
