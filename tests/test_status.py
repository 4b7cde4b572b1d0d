"""`balagg status` on folders with every state, built by hand, on damaged files, and beside a real training."""

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given, settings

from balanced_aggregation.attempts import Attempt, write_attempt
from balanced_aggregation.checkpoints import checkpoints
from balanced_aggregation.files import json_digest, write_json, write_text
from balanced_aggregation.layout import Layout
from balanced_aggregation.provenance import training_settings
from balanced_aggregation.slurm import comment_of
from balanced_aggregation.status import report
from balanced_aggregation.status.living import Living, parse_jobs
from balanced_aggregation.status.study import study_status, study_statuses, to_json
from balanced_aggregation.status.tail import last_line, last_rows
from balanced_aggregation.status.words import ago, looks_like_error
from balanced_aggregation.study_file import load_studies, parse_study
from balanced_aggregation.terminal import clock

ROOT = Path(__file__).parent.parent
NOW = 1_800_000_000.0
STEPS = 200

STUDY = {
    "study": "watched",
    "rules": ["token", "sequence", "balanced"],
    "seeds": [0, 1, 2, 3, 4],
    "model": {"kind": "tiny"},
    "data": {
        "train": {"kind": "arithmetic"},
        "benchmarks": [{"kind": "arithmetic", "name": "short"}, {"kind": "arithmetic", "name": "long"}],
    },
    "warm_start": {},
    "training": {"steps": STEPS},
    "evaluation": {"every": 100},
}


class Folder:
    """Results of a study, made by hand."""

    def __init__(self, root: Path, values: dict):
        self.root = root
        self.study = parse_study(values, "test")
        self.layout = Layout(self.study)
        self.file = root / "study.yaml"
        self.file.write_text(yaml.safe_dump(values))
        self.queue, self.calls = root / "queue", root / "calls"

    def touch(self, path: Path, text: str = "", age: float = 3600.0) -> None:
        write_text(path, text)
        os.utime(path, (NOW - age, NOW - age))

    def attempt(self, rule, seed, state="running", reason=None, job=None, host="n1", pid=2**22 + 1, at=0, age=7200.0):
        path = self.layout.attempt(rule, seed)
        write_attempt(path, Attempt(state, reason, job, host, pid, NOW - age, at))
        os.utime(path, (NOW - age, NOW - age))

    def journal(self, folder: Path, step: int, age: float = 20.0, seconds: float = 36.0) -> None:
        """Rewards are .01 a step; the pace is ``seconds`` a step."""
        phases = {"synchronise": 0.0, "rollout": seconds / 2, "verify": seconds / 4, "update": seconds / 4}
        timing = {f"{name}_seconds": value for name, value in phases.items()}
        rows = {
            "metrics": [{"step": i, "reward": i / 100} for i in range(1, step + 1)],
            "timing": [{"step": i, **timing, "tokens_per_second": 10.0} for i in range(1, step + 1)],
        }
        for name, lines in rows.items():
            self.touch(folder / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in lines), age)

    def state(self, rule, seed, step, checkpoint=0, age=20.0):
        folder = self.layout.run(rule, seed) / "state"
        self.journal(folder, step, age)
        if checkpoint:
            (folder / "resume" / f"step_{checkpoint:06d}").mkdir(parents=True)
            (folder / "resume" / f".step_{checkpoint + 10:06d}.partial").mkdir()
            (folder / "resume" / "step_old").mkdir()

    def finish(self, rule, seed, study=None):
        study = study or self.study
        self.journal(self.layout.run(rule, seed), study.training.steps, age=3000)
        fingerprint = {"settings": json_digest(training_settings(study, rule))}
        write_json(self.layout.run(rule, seed) / "run.json", {"steps": STEPS, "fingerprint": fingerprint})

    def log(self, rule, seed, text, age=3600.0):
        self.touch(self.layout.log(f"train/{rule}/seed{seed}"), text, age)

    def submit(self, job, state, reason="None", comment="", folder=None):
        with self.queue.open("a") as file:
            file.write(f"{job}|{state}|{reason}|{folder or self.root}|{comment}\n")

    def look(self, rule=None, seed=0, now=NOW):
        """The status of the study, or of one run."""
        (status,) = study_statuses(load_studies(self.file, call_rules=False), now)
        return next(run for run in status.runs if (run.rule, run.seed) == (rule, seed)) if rule else status


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A working directory, and a PATH without Slurm."""
    monkeypatch.chdir(tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    return tools


@pytest.fixture
def folder(tmp_path, path):
    return Folder(tmp_path, STUDY)


@pytest.fixture
def slurm(folder, path):
    """A squeue that prints what `Folder.submit` was told, and notes how it was called."""
    script(path / "squeue", f'echo "$@" >> {folder.calls}\n[ ! -e {folder.queue} ] || /bin/cat {folder.queue}')
    return folder


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def trainer():
    """A process that looks like a training; its number."""
    process = subprocess.Popen(["balagg train", "60"], executable=shutil.which("sleep", path="/usr/bin:/bin"))
    yield process.pid
    process.kill()
    process.wait()


def comment(rule, seed, study="watched"):
    return comment_of("train", [study, rule, str(seed)])


GOLDEN = """\
watched: 1 done, 4 running, 5 waiting, 1 interrupted, 2 failed, 2 killed; about 1:48:00 left for the
running ones
rule      seed  state           step  reward     left
token        0  done         200/200   1.955
token        1  running      120/200   1.155  0:48:00  Slurm job 11
token        2  running       20/200   0.155  1:48:00  on n7, last step 3 min ago
token        3  running       20/200   0.155  1:48:00
token        4  waiting        0/200
sequence     0  waiting        0/200                   Slurm job 12 waits (Resources)
sequence     1  waiting       12/200   0.075           interrupted (SIGTERM); Slurm job 13 waits
                                                       (BeginTime)
sequence     2  interrupted   12/200   0.075           SIGUSR1; goes on with the next snakemake
sequence     3  failed        30/200   0.255
sequence     4  failed         0/200
balanced     0  killed        12/200   0.075
balanced     1  killed         9/200   0.050
balanced     2  waiting        0/200                   finished under other settings; trains anew
balanced     3  running        0/200                   starting
balanced     4  waiting        7/200   0.040           failed (out of memory); Slurm job 21 waits
                                                       (Priority)

sequence seed 3 failed: results/watched/runs/sequence/seed3: training diverged at step 31:
                        log-probabilities are not numbers
    results/watched/logs/train/sequence/seed3.log
sequence seed 4 failed: ImportError: libcudart.so.12: cannot open [it]
    results/watched/logs/train/sequence/seed4.log
balanced seed 0 killed: Slurm job 16, after step 12 of 200; goes on from step 10
    balanced seed 0  step 12/200
    results/watched/logs/train/balanced/seed0.log
balanced seed 1 killed: after step 9 of 200; starts again

data         2 of 3 datasets
warm start   done
evaluations  responses 2 of 62, scored 1 of 62; Slurm jobs: 1 running, 0 waiting
tables       not there yet
figures      not there yet

generate base long failed: error: no weights in folder [x]
    results/watched/logs/generate/base/long.log
"""


def every_state(folder, trainer):
    here = socket.gethostname()
    folder.finish("token", 0)
    folder.attempt("token", 1, job="11")
    folder.state("token", 1, 120, checkpoint=120)
    folder.submit(11, "RUNNING")
    folder.attempt("token", 2, host="n7", at=10)
    folder.state("token", 2, 20, age=190.0)
    folder.attempt("token", 3, host=here, pid=trainer, age=-5.0)
    folder.state("token", 3, 20)
    # token 4: nothing
    folder.submit(12, "PENDING", "Resources", comment("sequence", 0))
    folder.attempt("sequence", 1, "interrupted", "SIGTERM", job="13")
    folder.state("sequence", 1, 12, checkpoint=12)
    folder.submit(13, "PENDING", "BeginTime")
    folder.attempt("sequence", 2, "interrupted", "SIGUSR1", job="14")
    folder.state("sequence", 2, 12, checkpoint=12)
    reason = "results/watched/runs/sequence/seed3: training diverged at step 31: log-probabilities are not numbers"
    folder.attempt("sequence", 3, "failed", reason, job="15")
    folder.state("sequence", 3, 30, checkpoint=30)
    folder.log("sequence", 3, f"sequence seed 3  step 30/200\nerror: {reason}\n")
    folder.log("sequence", 4, "Traceback (most recent call last):\nImportError: libcudart.so.12: cannot open [it]\n\n")
    folder.attempt("balanced", 0, job="16")
    folder.state("balanced", 0, 12, checkpoint=10)
    folder.log("balanced", 0, "balanced seed 0  step 11/200\nbalanced seed 0  step 12/200\n")
    folder.attempt("balanced", 1, host=here)
    folder.state("balanced", 1, 9)
    other = parse_study(STUDY | {"training": {"steps": 100}}, "test")
    folder.finish("balanced", 2, other)
    folder.log("balanced", 3, "", age=4.0)
    folder.attempt("balanced", 4, "failed", "out of memory", job="20")
    folder.state("balanced", 4, 7)
    folder.submit(21, "PENDING", "Priority", comment("balanced", 4))
    folder.submit(99, "RUNNING", "None", comment("token", 4), folder="/elsewhere")

    layout = folder.layout
    for name in (layout.train_problems, layout.benchmark("short")):
        folder.touch(name)
    layout.warm_model.mkdir(parents=True)
    folder.touch(layout.responses("base", "short"))
    folder.touch(layout.evaluation("base", "short"))
    folder.touch(layout.responses("token/seed0/step100", "long"))
    folder.touch(layout.responses("balanced/seed2/step100", "long"))  # of an earlier training
    folder.touch(layout.log("generate/base/short"), "error: of an earlier try\n")
    folder.touch(layout.log("generate/base/long"), "loading\nerror: no weights in folder [x]\n")
    folder.touch(layout.log("score/token/seed0/step100/long"), "token: verdicts 10 of 20\n")
    folder.submit(31, "RUNNING", "None", comment_of("generate", ["watched", "token/seed0/step200", "long"]))


def test_every_state_in_plain_text(slurm, trainer):
    every_state(slurm, trainer)
    text = report.plain([slurm.look()])
    assert text == GOLDEN.rstrip("\n")
    assert max(map(len, text.splitlines())) <= 100
    assert len(slurm.calls.read_text().splitlines()) == 1


def test_a_state_of_each_run(slurm, trainer):
    """What the golden text shows, as values."""
    every_state(slurm, trainer)
    found = {(run.rule, run.seed): run for run in slurm.look().runs}
    states = {
        rule: " ".join(found[rule, seed].state for seed in range(5)) for rule in ("token", "sequence", "balanced")
    }
    assert states == {
        "token": "done running running running waiting",
        "sequence": "waiting waiting interrupted failed failed",
        "balanced": "killed killed waiting running waiting",
    }
    assert found["token", 1].seconds_left == pytest.approx(80 * 36.0)
    assert found["token", 1].reward == pytest.approx(sum(range(111, 121)) / 1000)
    assert found["token", 1].slurm_job == "11"
    assert found["balanced", 4].slurm_job == "21"


def test_one_call_of_squeue_for_all_variants(tmp_path, slurm):
    slurm.file.write_text(yaml.safe_dump(STUDY | {"variants": {"a": {}, "b": {"training": {"steps": 7}}}}))
    studies = load_studies(slurm.file, call_rules=False)
    for study in studies:
        write_text(Layout(study).study_file, "")
    slurm.submit(5, "PENDING", "Licenses", comment("token", 0, "watched/b"))
    statuses = study_statuses(studies, NOW)
    assert [status.runs[0].detail for status in statuses] == ["", "Slurm job 5 waits (Licenses)"]
    (call,) = slurm.calls.read_text().splitlines()
    assert f"--users={os.getuid()} " in call
    text = report.plain(statuses)
    assert text.startswith("watched: 30 waiting\n\nwatched/a: 15 waiting\n")


def test_slurm_knows_better_than_files(slurm):
    """A record that says running belongs to a job that has ended, waits again, or is suspended."""
    for job, seed in enumerate(range(5), start=40):
        slurm.attempt("token", seed, job=str(job))
        slurm.state("token", seed, 12, checkpoint=10)
    slurm.submit(41, "PENDING", "JobHeldUser")
    slurm.submit(42, "SUSPENDED")
    slurm.submit(43, "COMPLETING")
    slurm.submit(50, "RUNNING", "None", comment("token", 4))  # another job has taken over
    runs = [slurm.look("token", seed) for seed in range(5)]
    assert [run.state for run in runs] == ["killed", "waiting", "running", "running", "running"]
    assert runs[0].detail == "Slurm job 40, after step 12 of 200; goes on from step 10"
    assert runs[1].detail == "killed; Slurm job 41 waits (JobHeldUser)"
    assert runs[2].detail == "Slurm job 42, suspended"
    assert runs[4].detail == "Slurm job 50, starting"


def test_an_attempt_that_ended_is_not_running_while_its_job_ends(slurm):
    for seed, (state, job) in enumerate(
        [("failed", "RUNNING"), ("failed", "COMPLETING"), ("interrupted", "COMPLETING")]
    ):
        slurm.attempt("token", seed, state, "why", job=str(60 + seed))
        slurm.submit(60 + seed, job)
    slurm.attempt("token", 3, "interrupted", "SIGTERM", job="63")
    slurm.submit(63, "RUNNING")  # requeued, and begun again
    assert [slurm.look("token", seed).state for seed in range(4)] == ["failed", "failed", "interrupted", "running"]


@pytest.mark.parametrize(
    ("squeue", "problem"),
    [
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", "Unable to contact"),
        ("exec /bin/sleep 60", "no answer within 0.5 seconds"),
        (None, None),
    ],
)
def test_without_slurms_word_files_are_judged(folder, path, monkeypatch, squeue, problem):
    monkeypatch.setattr("balanced_aggregation.status.living.SQUEUE_SECONDS", 0.5)
    if squeue:
        script(path / "squeue", squeue)
    folder.attempt("token", 0, job="11", host="n1")
    folder.state("token", 0, 120, age=65.0)
    folder.attempt("token", 1, job="12", host="n1", age=90_000.0)
    folder.state("token", 1, 20, age=10_800.0)
    folder.attempt("token", 2, host="n1", age=50.0)
    folder.attempt("token", 3, host="n1", age=70 * 60.0)  # nothing within compute.timeout_minutes
    asked = time.perf_counter()
    status = folder.look()
    assert time.perf_counter() - asked < 5
    runs = status.runs
    assert [run.state for run in runs[:5]] == ["running", "killed", "running", "killed", "waiting"]
    assert runs[0].detail == "on n1, last step 65 s ago"
    assert runs[1].detail == "Slurm job 12, after step 20 of 200; starts again (on n1, silent for 3 h)"
    assert runs[2].detail == "on n1, has begun 50 s ago"
    assert (problem in status.slurm_problem) if problem else status.slurm_problem is None
    assert ("squeue failed" in report.plain([status])) == bool(problem)


def test_a_broken_slurm_is_no_news_where_nothing_used_it(folder, path):
    script(path / "squeue", "exit 1")
    folder.attempt("token", 0, "interrupted", "SIGTERM")
    assert folder.look().slurm_problem is None


def test_a_process_is_told_from_another_with_its_number(folder, trainer):
    here = socket.gethostname()
    sleeper = subprocess.Popen(["/bin/sleep", "60"])
    try:
        began = time.time() - NOW
        folder.attempt("token", 0, host=here, pid=trainer, age=-began)
        folder.attempt("token", 1, host=here, pid=sleeper.pid, age=-began)  # no training
        folder.attempt("token", 2, host=here, pid=trainer, age=-began + 3600)  # began after the attempt
        states = [folder.look("token", seed, now=time.time()).state for seed in range(3)]
    finally:
        sleeper.kill()
        sleeper.wait()
    assert states == ["running", "killed", "killed"]


def test_a_run_record_is_gone(folder):
    folder.attempt("token", 0, "done")
    run = folder.look("token")
    assert (run.state, run.detail) == ("waiting", "was done, but run.json is missing")


def test_a_log_that_says_nothing_yet(folder):
    folder.log("token", 0, "", age=10.0)
    folder.log("token", 1, "", age=4000.0)
    folder.log("token", 2, "WARNING: slow disk\n", age=10.0)
    folder.attempt("token", 3, "failed", "no space", age=60.0)
    folder.log("token", 3, "", age=5.0)  # tried again
    folder.attempt("token", 4, "failed", "no space", age=5.0)
    folder.log("token", 4, "", age=60.0)  # said nothing before it failed
    states = [folder.look("token", seed).state for seed in range(5)]
    assert states == ["running", "waiting", "waiting", "running", "failed"]


def test_everything_is_done(folder, path):
    layout = folder.layout
    for rule in ("token", "sequence", "balanced"):
        for seed in range(5):
            folder.finish(rule, seed)
    for name in (layout.train_problems, layout.benchmark("short"), layout.benchmark("long")):
        folder.touch(name)
    layout.warm_model.mkdir(parents=True)
    for checkpoint in checkpoints(folder.study):
        for name in ("short", "long"):
            folder.touch(layout.responses(checkpoint.name, name))
            folder.touch(layout.evaluation(checkpoint.name, name))
    assert [stage.detail for stage in folder.look().stages[3:]] == ["not there yet"] * 2
    folder.touch(layout.results, age=100)
    folder.touch(layout.tables / "main.csv", age=200)
    folder.touch(layout.figures / "main.png", age=50)
    status = folder.look()
    assert not status.done
    assert [stage.detail for stage in status.stages] == [
        "3 of 3 datasets",
        "done",
        "responses 62 of 62, scored 62 of 62",
        "older than the results",
        "in results/watched/figures/",
    ]
    folder.touch(layout.tables / "main.csv", age=50)
    assert folder.look().done
    folder.touch(layout.evaluation("base", "short"), age=60)  # scored anew, not collected
    assert [stage.done for stage in folder.look().stages] == [True, True, True, False, False]


def test_watching_ends_when_all_is_done(folder, path, monkeypatch, capsys):
    test_everything_is_done(folder, path)
    folder.touch(folder.layout.evaluation("base", "short"))
    looks = []

    def look():
        looks.append(folder.look())
        if len(looks) == 1:
            looks[0] = dataclasses.replace(looks[0], stages=(dataclasses.replace(looks[0].stages[0], done=False),))
        return looks[-1:]

    report.watch(look, 0.01)
    assert len(looks) == 2
    assert capsys.readouterr().out.count("watched: 15 done") == 2


def test_a_watcher_leaves_by_ctrl_c(folder):
    """In a terminal: redrawn in colour, and nothing but the last picture when it ends."""
    folder.finish("token", 0)
    terminal, end = os.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 100, 0, 0))
    balagg = str(Path(sys.executable).with_name("balagg"))
    environment = os.environ | {"TERM": "xterm-256color"}
    command = [balagg, "status", "study.yaml", "--watch", "--every", "1"]
    watcher = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env=environment)
    os.close(end)
    shown = b""
    while shown.count(b"watched") < 2:
        shown += os.read(terminal, 65536)
    watcher.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # how Linux says that nobody has the terminal any longer
        while part := os.read(terminal, 65536):
            shown += part
    os.close(terminal)
    assert watcher.wait(10) == 130
    assert b"Traceback" not in shown
    assert shown.endswith(b"\x1b[?25h")  # the cursor is back
    assert b"\x1b[32m1 done" in shown


def test_many_failures_are_counted(folder):
    for checkpoint in checkpoints(folder.study)[:10]:
        folder.touch(folder.layout.log(f"generate/{checkpoint.name}/short"), "error: no space\n")
    text = report.plain([folder.look()])
    assert text.count("error: no space") == report.SHOWN_FAILURES
    assert text.endswith("and 5 more jobs failed")


def test_a_row_that_is_being_written_does_not_count(tmp_path):
    journal = tmp_path / "metrics.jsonl"
    journal.write_text('{"step": 1}\n{"step": 2}\n{"step": 3')
    assert last_rows(journal, 10) == [{"step": 1}, {"step": 2}]
    journal.write_text('{"step": 1}\n[2]\n{"step": "3"}\nnot JSON\n{"step": 4}\n')
    assert last_rows(journal, 10) == [{"step": 1}, {"step": 4}]
    assert last_rows(tmp_path / "missing", 10) == []


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", "9" * 400, "true", "null", '"7"', "{}"])
def test_what_is_no_number_is_left_out(folder, value):
    folder.attempt("token", 0, host="n1", age=60.0)
    state = folder.layout.run("token", 0) / "state"
    folder.journal(state, 2)
    folder.touch(state / "metrics.jsonl", f'{{"step": 1, "reward": 0.5}}\n{{"step": 2, "reward": {value}}}\n')
    timing = (state / "timing.jsonl").read_text()
    folder.touch(state / "timing.jsonl", timing.replace("0.0", value))
    run = folder.look("token")
    assert (run.state, run.step, run.reward, run.seconds_left) == ("running", 2, 0.5, None)


def test_only_the_end_of_a_long_journal_is_read(tmp_path):
    journal = tmp_path / "metrics.jsonl"
    with journal.open("w") as file:
        for step in range(1, 300_001):
            file.write(json.dumps({"step": step, "reward": 0.123456789, "x": "y" * 100}) + "\n")
    started = time.perf_counter()
    rows = last_rows(journal, 10)
    assert time.perf_counter() - started < 0.1
    assert [row["step"] for row in rows] == list(range(299_991, 300_001))


def test_the_last_line_of_a_log(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"one\n10%\r90%\r\x1b[31merror: red\x1b[0m \xff\x00\n\n  \n")
    assert last_line(log) == "error: red �"
    log.write_text("\n")
    assert last_line(log) is None
    assert last_line(tmp_path / "missing") is None


def test_what_an_error_looks_like():
    errors = ["error: x", "process 1: error: y", "ValueError: z", "KeyboardInterrupt", "bash: line 1: 7 Killed  balagg"]
    errors += ["slurmstepd: error: Detected 1 oom_kill event", "balagg: command not found"]
    assert all(map(looks_like_error, errors))
    assert not any(map(looks_like_error, ["token: avg@4 0.5", "terrors", "WARNING: slow"]))


def test_times_in_words():
    assert [clock(s) for s in (0, 59.6, 3600, 100_000)] == ["0:00:00", "0:01:00", "1:00:00", "27:46:40"]
    assert [ago(s) for s in (-3, 119, 120, 7199, 7200, 200_000)] == [
        "0 s",
        "119 s",
        "2 min",
        "120 min",
        "2 h",
        "2 days",
    ]


def test_jobs_that_squeue_prints():
    jobs = parse_jobs(
        "7|RUNNING|None|/w|rule_train_wildcards_a|b\nslurm: something else\n8|PENDING|Resources|/w|(null)\n"
    )
    assert [(job.id, job.waits, job.comment) for job in jobs] == [
        ("7", False, "rule_train_wildcards_a|b"),
        ("8", True, "(null)"),
    ]


def test_json_for_other_programs(slurm, trainer, capsys, monkeypatch):
    from balanced_aggregation import cli

    every_state(slurm, trainer)
    monkeypatch.setattr(sys, "argv", ["balagg", "status", str(slurm.file), "--json"])
    cli.main()
    (study,) = json.loads(capsys.readouterr().out)
    assert study["study"] == "watched"
    assert {run["state"] for run in study["runs"]} >= {"done", "failed", "waiting"}
    assert set(study["runs"][0]) == {field.name for field in dataclasses.fields(slurm.look("token"))}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.yaml"], "study file missing.yaml: No such file"),
        (["study.yaml", "--every", "0"], "--every 0: must be from 1 second to a day"),
        (["study.yaml", "--every", "nan"], "--every nan: must be from 1 second to a day"),
        (["study.yaml", "--every", "1e300"], "--every 1e+300: must be from 1 second to a day"),
        (["study.yaml", "--watch", "--json"], "give one of them"),
    ],
)
def test_mistakes(folder, monkeypatch, arguments, message):
    from balanced_aggregation import cli

    monkeypatch.setattr(sys, "argv", ["balagg", "status", *arguments])
    with pytest.raises(SystemExit, match=re.escape(message)):
        cli.main()


def snapshot(root):
    entries = [root, *sorted(root.rglob("*"))]
    return {str(p): (s.st_mtime_ns, s.st_ctime_ns, s.st_size) for p in entries for s in [p.lstat()]}


def test_nothing_is_written(slurm, trainer):
    every_state(slurm, trainer)
    before = snapshot(slurm.root / "results")
    slurm.look()
    assert snapshot(slurm.root / "results") == before


def test_it_is_quick_and_loads_no_torch(folder):
    """On 36 trainings and 4,368 evaluations, two seconds with the start of Python."""
    studies = load_studies(ROOT / "studies" / "paper.yaml", call_rules=False)
    for study in studies:
        layout = Layout(study)
        for rule in ("token", "sequence", "balanced"):
            for seed in study.seeds:
                folder.journal(layout.run(rule, seed) / "state", 150)
                write_attempt(layout.attempt(rule, seed), Attempt("running", None, "7", "n1", 1, NOW, 0))
        for checkpoint in checkpoints(study):
            for benchmark in study.data.benchmarks:
                for path in (layout.responses, layout.evaluation):
                    file = path(checkpoint.name, benchmark.name)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.touch()
    code = (
        "import sys; from balanced_aggregation import cli; cli.main()\n"
        "print([name for name in ('torch', 'pandas', 'mlflow') if name in sys.modules], file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "status", str(ROOT / "studies" / "paper.yaml")]
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - started)
    assert done.stdout.startswith("paper: 36 running")
    assert done.stderr.strip() == "[]"
    assert min(seconds) < 2


_EVIL = (
    b'{"step": 1}\n',
    b'{"step": 1e999}\n',
    b"[" * 5000,
    b"Infinity",
    b"9" * 400,
    b"null",
    b"\n",
    b"\xff",
    b"\x1b[2J",
)


@settings(max_examples=300)
@given(data=st.data())
def test_no_damage_to_a_file_stops_it(folder, data):
    """Any file of the study, cut at any byte and with anything put in its middle, whatever Slurm says."""
    layout = folder.layout
    if not layout.root.exists():
        folder.finish("token", 0)
        for seed, state in enumerate(["running", "interrupted", "failed", "done"], start=1):
            folder.attempt("token", seed, state, "a reason", job="11", at=2)
            folder.state("token", seed, 12, checkpoint=10)
            folder.log("token", seed, "step 12\nerror: what\n")
        folder.touch(layout.log("generate/base/short"), "error: no space\n")
    path = data.draw(st.sampled_from(sorted(p for p in layout.root.rglob("*") if p.is_file())))
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    damage = data.draw(st.one_of(st.just(b""), st.binary(max_size=20), st.sampled_from(_EVIL)))
    rest = data.draw(st.sampled_from([b"", whole[cut:], whole[cut + len(damage) :]]))
    queue = data.draw(st.sampled_from([None, "", "11|RUNNING|None|/|x", "11|PENDING|Resources|/|y\n|||\n||||"]))
    living = Living(data.draw(st.sampled_from(["n1", "n2"])), None if queue is None else parse_jobs(queue))
    path.write_bytes(whole[:cut] + damage + rest)
    try:
        status = study_status(layout, living, NOW)
    finally:
        path.write_bytes(whole)
    assert status.runs[0].state == "done" or path.name == "run.json"
    text = report.plain([status])
    assert "\x1b" not in text and max(map(len, text.splitlines())) <= 100
    json.dumps(to_json([status]), allow_nan=False)


SMALL = STUDY | {
    "rules": ["token"],
    "seeds": [0],
    "model": {"kind": "tiny", "hidden_size": 16, "layers": 1, "heads": 1, "intermediate_size": 24},
    "data": {
        "train": {"kind": "arithmetic", "problems": 16, "terms": [2, 2]},
        "benchmarks": [{"kind": "arithmetic", "name": "short", "problems": 4, "terms": [2, 2]}],
    },
    "warm_start": None,
    "training": {"steps": 60, "prompts_per_step": 2, "group_size": 2, "max_new_tokens": 8, "checkpoint_every": 10},
    "tracking": {"enabled": False},
}


@pytest.mark.slow
def test_beside_a_real_training(tmp_path, monkeypatch):
    """It runs, is killed, goes on, is asked to end, ends, and fails; no look changes anything, and each is right."""
    monkeypatch.chdir(tmp_path)
    folder = Folder(tmp_path, SMALL)
    balagg = str(Path(sys.executable).with_name("balagg"))

    def call(*arguments):
        subprocess.run([balagg, *arguments], check=True, capture_output=True)

    def look():
        return folder.look("token", now=time.time())

    def start():
        log = folder.layout.log("train/token/seed0")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as file:
            return subprocess.Popen([balagg, "train", "study.yaml", "--rule", "token", "--seed", "0"], stderr=file)

    def watch(process, until):
        """Look until something is so; a training that is alive is never said to be anything but running or done."""
        while not until(run := look()):
            states.add(run.state)
            assert process.poll() is None, (run, folder.layout.log("train/token/seed0").read_text())
            time.sleep(0.02)
        return run

    call("source-model", "study.yaml")
    call("prepare-statements", "study.yaml", "--name", "train")
    call("prepare-problems", "study.yaml", "--name", "train")
    assert look().state == "waiting"
    states = set()

    process = start()
    run = watch(process, lambda run: run.step >= 12)
    assert 0 < run.seconds_left < 60 and 0 <= run.reward <= 1
    process.kill()
    process.wait()
    run = look()
    assert (run.state, run.log) == ("killed", "results/watched/logs/train/token/seed0.log")
    assert re.fullmatch(r"after step \d+ of 60; goes on from step [1-5]0", run.detail)

    process = start()
    watch(process, lambda run: run.state == "running" and run.step >= 20)
    process.send_signal(signal.SIGTERM)
    process.wait()
    run = look()
    assert (run.state, run.detail) == ("interrupted", "SIGTERM; goes on with the next snakemake")

    process = start()
    watch(process, lambda run: run.state == "done")
    process.wait()
    assert look().step == 60
    assert states <= {"waiting", "running", "killed"}

    (folder.layout.run("token", 0) / "run.json").unlink()
    folder.layout.train_problems.unlink()
    assert start().wait() != 0
    run = look()
    assert run.state == "failed"
    assert "train.parquet" in run.detail
