"""Work that must not be done twice at once: other processes hold the lock, are waited for, or are named."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pandas as pd
import pandera.pandas as pa
import pytest

from balanced_aggregation import attempts, locks
from balanced_aggregation.attempts import Attempt, AttemptRecord, read_attempt
from balanced_aggregation.commands import train as command
from balanced_aggregation.errors import DiskFull, InfrastructureError, Interrupted, UserError
from balanced_aggregation.evaluation.parts import read_described, write_in_parts
from balanced_aggregation.layout import Layout
from balanced_aggregation.locks import exclusive
from balanced_aggregation.study_file import load_study
from balanced_aggregation.training.interruption import SIGNALS, Interruption
from small_study import RUN, prepare

HOLDER = """
import sys, pathlib
from balanced_aggregation.locks import exclusive
with exclusive(pathlib.Path(sys.argv[1]), "at work"):
    print("holds it", flush=True)
    sys.stdin.read()
"""


class Holder:
    """A process that has the lock of a path."""

    def __init__(self, path, job=None):
        environment = {name: value for name, value in os.environ.items() if name != "SLURM_JOB_ID"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=environment | ({"SLURM_JOB_ID": job} if job else {}),
        )  # fmt: skip
        assert self.process.stdout.readline() == b"holds it\n"

    def end(self, kill=False):
        if kill:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def in_job(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setattr(locks, "_LOOK_SECONDS", 0.05)


@pytest.fixture
def at_a_desk(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def test_outside_of_slurm_the_second_is_told_who_is_the_first(tmp_path, at_a_desk):
    path = tmp_path / "run" / "seed0"
    holder = Holder(path, job="12")
    try:
        with pytest.raises(UserError) as caught, exclusive(path, "training here"):
            pass
    finally:
        holder.end()
    host = os.uname().nodename
    who = f"job 12, process {holder.process.pid} on {host}"
    assert str(caught.value) == f"{path}: another process is training here ({who}); wait for it, or end it"
    assert [p.name for p in path.parent.iterdir()] == [".seed0.lock"]
    with exclusive(path, "training here") as waited:
        assert not waited
        assert json.loads((path.parent / ".seed0.lock").read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("kill", [False, True])
def test_a_job_waits_until_the_other_is_gone(tmp_path, in_job, capsys, monkeypatch, kill):
    monkeypatch.setattr(locks, "_SAY_SECONDS", 0.2)
    holder = Holder(tmp_path / "file")
    timer = threading.Timer(0.5, holder.end, [kill])
    started = time.monotonic()
    timer.start()
    with exclusive(tmp_path / "file", "at it") as waited:
        assert waited and time.monotonic() - started > 0.4
    timer.join()
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 4
    assert set(lines) == {
        f"{tmp_path}/file: another process is at it (process {holder.process.pid} on {os.uname().nodename}); "
        "waiting for it"
    }


def test_a_signal_ends_the_waiting(tmp_path, in_job):
    before = {number: signal.getsignal(number) for number in SIGNALS}
    holder = Holder(tmp_path / "file")
    try:
        with Interruption() as interruption:
            threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGTERM]).start()
            started = time.monotonic()
            with pytest.raises(Interrupted), exclusive(tmp_path / "file", "at it", interruption.pause):
                pass
            assert 0.2 < time.monotonic() - started < 5
    finally:
        holder.end()
        for number, handler in before.items():
            signal.signal(number, handler)


def test_where_there_are_no_locks_a_warning_is_all(tmp_path, monkeypatch, capsys):
    def fails(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", fails)
    with exclusive(tmp_path / "file", "at it"):
        pass
    assert "file.lock: no locks here (No locks available); nothing keeps others out" in capsys.readouterr().err


def test_parts_are_written_by_one_process_and_taken_over_by_the_one_that_waited(tmp_path, in_job):
    schema = pa.DataFrameSchema({"x": pa.Column(int)})
    frame = pd.DataFrame({"x": [1, 2]})
    path, began, go_on = tmp_path / "rows.parquet", threading.Event(), threading.Event()

    def slowly(part):
        began.set()
        assert go_on.wait(30)
        return part

    def never(part):
        raise AssertionError("computed twice")

    first = threading.Thread(target=write_in_parts, args=(path, {"of": "x"}, [frame], slowly, schema))
    first.start()
    assert began.wait(30)
    threading.Timer(0.3, go_on.set).start()
    assert write_in_parts(path, {"of": "x"}, [frame], never, schema)["x"].tolist() == [1, 2]
    first.join()
    # Another's file is not taken for one's own, nor one that was there before.
    for fingerprint in ({"of": "y"}, {"of": "y"}):
        doubled = write_in_parts(path, fingerprint, [frame], lambda part: 2 * part, schema)
        assert doubled["x"].tolist() == [2, 4] and read_described(path, schema)[1] == fingerprint


def test_a_training_leaves_another_ones_record_alone(tmp_path, at_a_desk, monkeypatch):
    prepare(tmp_path, monkeypatch)
    study = load_study(tmp_path / "results/t/study.yaml")
    mine = Attempt("running", None, "12", "node1", 5, 1.5, 3)
    attempts.write_attempt(RUN / "attempt.json", mine)
    holder = Holder(RUN)
    try:
        with pytest.raises(UserError, match="another process is training here"):
            command.train(study, Layout(study), "token", 0, Interruption())
    finally:
        holder.end()
    assert read_attempt(RUN / "attempt.json") == mine


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (None, "done", None),
        (Interrupted("SIGTERM: stopped", "SIGTERM"), "interrupted", "SIGTERM"),
        (KeyboardInterrupt(), "interrupted", "SIGINT"),
        (UserError("seeds = []: wrong\nmore"), "failed", "seeds = []: wrong"),
        (InfrastructureError("the sandbox broke"), "failed", "the sandbox broke"),
        (DiskFull("x: no space left"), "failed", "x: no space left"),
        (RuntimeError("shapes differ\nsomewhere"), "failed", "RuntimeError: shapes differ"),
        (OSError(), "failed", "OSError: "),
    ],
)
def test_the_record_of_an_attempt(tmp_path, monkeypatch, error, state, reason):
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    path = tmp_path / "attempt.json"
    assert read_attempt(path) is None
    record = AttemptRecord(path, 3)

    def attempt():
        with record:
            running = read_attempt(path)
            assert (running.state, running.reason, running.first_step) == ("running", None, 3)
            record.goes_on_from(0)
            if error:
                raise error

    if error:
        with pytest.raises(type(error)):
            attempt()
    else:
        attempt()
    found = read_attempt(path)
    assert (found.state, found.reason, found.slurm_job, found.first_step) == (state, reason, "42", 0)
    assert (found.host, found.pid) == (os.uname().nodename, os.getpid()) and abs(found.started - time.time()) < 60


def test_a_record_that_cannot_be_written_ends_nothing(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with AttemptRecord(tmp_path / "file" / "attempt.json", 0):
        pass
    assert capsys.readouterr().err.count("WARNING: ") == 2
