"""A training that is asked to end, by the signals that Slurm sends: in one process, in several, in the workflow."""

import contextlib
import os
import re
import shutil
import signal
import sys
import threading
import time

import psutil
import pytest

import small_study
import test_training as t
from balanced_aggregation.attempts import read_attempt
from balanced_aggregation.commands import train as command
from balanced_aggregation.errors import Interrupted, UserError
from balanced_aggregation.layout import Layout
from balanced_aggregation.locks import exclusive
from balanced_aggregation.rewards import Outcome, Submission, VerifierPool
from balanced_aggregation.study_file import load_study
from balanced_aggregation.training.interruption import SIGNALS, Interruption
from balanced_aggregation.training.journal import read_journal
from balanced_aggregation.training.loop import run_training
from balanced_aggregation.training.world import World
from small_study import RUN, TRAIN
from test_workflow import ROOT, SNAKEMAKE


@pytest.fixture(autouse=True)
def own_handlers():
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class SignalAt:
    """An observer that sends signals to its own process in the middle of the training."""

    def __init__(self, step, *signals):
        self.step, self.signals = step, signals

    def on_step(self, metrics, timing):
        if metrics["step"] == self.step:
            for number in self.signals:
                os.kill(os.getpid(), number)


def test_the_first_signal_counts_but_sigterm_before_all():
    for sent, expected in {
        (): None,
        (signal.SIGUSR1,) * 3: "SIGUSR1",
        (signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1): "SIGTERM",
    }.items():
        interruption = Interruption()
        with interruption:
            for number in sent:
                os.kill(os.getpid(), number)
            assert interruption.signal == expected
        assert (signal.getsignal(signal.SIGTERM) is signal.SIG_IGN) == bool(sent)


def test_all_processes_agree():
    class Several(World):
        def gather(self, value):
            return [None, "SIGUSR1", value, "SIGTERM"]

    assert Interruption().agreed(Several()) == "SIGTERM"
    assert Interruption().agreed(World()) is None


@pytest.mark.parametrize("ignored_before", [False, True])
@pytest.mark.parametrize("number", SIGNALS)
def test_stopped_by_a_signal_and_resumed_is_bit_identical(make_model, tokenizer, tmp_path, number, ignored_before):
    if ignored_before:  # as Snakemake leaves it to what it starts
        signal.signal(number, signal.SIG_IGN)
    run_training(t.moving_trainer(make_model, tokenizer), tmp_path / "whole", t.FINGERPRINT, [])
    folder, starts = tmp_path / "stopped", []
    for stop, first in ((1, 0), (3, 1), (5, 3)):  # at step 3 there is a checkpoint anyway
        with Interruption() as interruption, pytest.raises(Interrupted) as caught:
            trainer = t.moving_trainer(make_model, tokenizer)
            observer = SignalAt(stop, number, number)
            run_training(trainer, folder, t.FINGERPRINT, [observer], interruption, starts.append)
        name = signal.Signals(number).name
        assert str(caught.value) == f"{name}: stopped after step {stop} of 7, goes on from there"
        assert caught.value.signal == name and starts[-1] == first
        assert [p.name for p in (folder / "state" / "resume").iterdir()] == [f"step_{stop:06d}"]
    with Interruption() as interruption:  # in the last step: it is done
        run_training(
            t.moving_trainer(make_model, tokenizer), folder, t.FINGERPRINT, [SignalAt(7, number)], interruption
        )
    assert t.contents(folder) == t.contents(tmp_path / "whole")


def test_asked_before_the_first_step_it_leaves_no_checkpoint(make_model, tokenizer, tmp_path):
    with Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted, match="SIGTERM: stopped before the first step"):
            run_training(make_trainer := t.make_trainer(make_model, tokenizer), tmp_path, {}, [], interruption)
    assert make_trainer.progress.step == 0
    assert not (tmp_path / "state" / "resume").exists()


def test_signals_do_not_reach_the_processes_of_verifiers():
    """Slurm sends them to every process of a job; a program that died of one would have been judged wrong."""
    slow = "```python\nimport time\ntime.sleep(1)\nprint(int(input()) + 1)\n```"
    gold = '{"tests": [{"input": "1", "output": "2", "testtype": "stdin"}], "function": null}'
    with Interruption(), VerifierPool(2) as pool:
        assert pool.verify([Submission("math", r"\boxed{2}", "2")])[0].correct  # its process is there
        verdict = pool.submit(Submission("code", slow, gold))
        ended = threading.Event()
        verdict.add_done_callback(lambda _: ended.set())
        signalled = set()
        while not ended.wait(0.05):
            for process in psutil.Process().children():
                signalled.add(process.pid)
                for number in SIGNALS:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.send_signal(number)
        assert len(signalled) >= 2
        assert verdict.result().outcome is Outcome.EQUAL
        assert pool.verify([Submission("math", r"\boxed{3}", "3")])[0].correct


SCONTROL = """#!/bin/bash
echo "$@" >> {calls}
{body}
"""


@pytest.fixture
def trains(tmp_path, monkeypatch):
    """Trains in this process, as a job of Slurm's; what it asks of Slurm is written down."""
    small_study.prepare(tmp_path / "study", monkeypatch, training=small_study.STUDY["training"] | {"steps": 5})
    calls = tmp_path / "calls"

    def slurm(body="exit 0"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / "scontrol").write_text(SCONTROL.format(calls=calls, body=body))
        (tmp_path / "bin" / "scontrol").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
        monkeypatch.setenv("SLURM_JOB_ID", "1234")

    def run(*signals, at=2, before=()):
        study = load_study(tmp_path / "study" / "results/t/study.yaml")
        monkeypatch.setattr(command, "create_progress", lambda *_: SignalAt(at, *signals))
        with Interruption() as interruption:
            for number in before:
                os.kill(os.getpid(), number)
            command.train(study, Layout(study), "token", 0, interruption)

    run.slurm = slurm
    run.calls = lambda: calls.read_text().splitlines() if calls.exists() else []
    run.attempt = lambda: read_attempt(tmp_path / "study" / RUN / "attempt.json")
    return run


def test_a_job_that_is_told_of_its_time_limit_runs_again(trains, capsys):
    trains.slurm()
    with pytest.raises(Interrupted, match="SIGUSR1: stopped after step 2 of 5"):
        trains(signal.SIGUSR1, signal.SIGUSR1)
    assert trains.calls() == ["requeue 1234"]
    assert "SIGUSR1: job 1234 is put back into the queue" in capsys.readouterr().err
    attempt = trains.attempt()
    assert (attempt.state, attempt.reason, attempt.slurm_job) == ("interrupted", "SIGUSR1", "1234")
    with pytest.raises(Interrupted, match="SIGTERM: stopped after step 4 of 5"):
        trains(signal.SIGTERM, at=4)
    assert len(trains.calls()) == 1 and trains.attempt().first_step == 2
    trains()
    assert trains.attempt().state == "done" and trains.attempt().reason is None
    assert [row["step"] for row in read_journal(RUN / "metrics.jsonl")] == [1, 2, 3, 4, 5]


def test_a_job_is_not_put_back_if_it_is_being_ended_or_is_none(trains, capsys):
    with pytest.raises(Interrupted):
        trains(signal.SIGUSR1)  # without Slurm
    trains.slurm()
    with pytest.raises(Interrupted):
        trains(signal.SIGUSR1, signal.SIGTERM, at=3)
    assert trains.calls() == []
    assert trains.attempt().reason == "SIGTERM"
    trains.slurm(body="echo 'Requeue of jobs is disabled' >&2; exit 1")
    with pytest.raises(Interrupted):
        trains(signal.SIGUSR1, at=4)
    err = capsys.readouterr().err
    assert "SIGUSR1: job 1234 is not put back into the queue: Requeue of jobs is disabled" in err


def test_a_time_limit_too_short_for_one_step_is_an_error(trains):
    trains.slurm()
    with pytest.raises(UserError, match=r"job 1234: its time limit is too short for one step: SIGUSR1 .* \d+ s"):
        trains(before=[signal.SIGUSR1])
    assert trains.calls() == []
    assert trains.attempt().state == "failed" and "too short for one step" in trains.attempt().reason


def test_without_scontrol_it_says_so(trains, capsys, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Interrupted):
        trains(signal.SIGUSR1)
    assert "job 7 is not put back into the queue: [Errno 2] No such file" in capsys.readouterr().err


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Everything up to the training, and what the training comes to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        small_study.prepare(folder, patch)
    shutil.copytree(folder, folder / "ready")
    small_study.finish(small_study.start(["bash", "-c", f"{' '.join(TRAIN)} > /dev/full 2>&1"], folder))
    return folder / "ready", small_study.outcome(folder)


def steps(folder):
    journal = folder / RUN / "state" / "metrics.jsonl"
    return journal.read_text().count("\n") if journal.exists() else 0


def interrupt(process, folder, more_steps, send):
    """Send signals once a training has made some steps; return its output."""
    until, deadline = steps(folder) + more_steps, time.monotonic() + 120
    while steps(folder) < until:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for _ in range(3):  # Slurm may repeat itself
        send()
        time.sleep(0.05)
    output, _ = process.communicate(timeout=120)
    return output


def reached(folder):
    (checkpoint,) = (folder / RUN / "state" / "resume").glob("step_*")
    return int(checkpoint.name.removeprefix("step_"))


@pytest.mark.slow
def test_a_workflow_whose_every_process_gets_the_signal(undisturbed, tmp_path):
    """Snakemake, bash, tee and the training. It goes on when snakemake is started again, and ends the same."""
    ready, expected = undisturbed
    folder = tmp_path / "copy"
    shutil.copytree(ready, folder)
    target = ["--nolock", RUN / "run.json", "--directory", folder, "--configfile", folder / "study.yaml"]
    for number in SIGNALS:
        process = small_study.start([*SNAKEMAKE, "--cores", "1", *target], small_study.BIN)
        group = process.pid
        output = interrupt(process, folder, 3, lambda group=group, number=number: os.killpg(group, number))
        assert process.returncode == 1, output
        line = f"{number.name}: stopped after step {reached(folder)} of 30, goes on from there"
        assert line in (folder / "results/t/logs/train/token/seed0.log").read_text()
        attempt = read_attempt(folder / RUN / "attempt.json")
        assert (attempt.state, attempt.reason) == ("interrupted", number.name)
    small_study.finish(small_study.start([*SNAKEMAKE, "--cores", "1", *target], small_study.BIN))
    assert small_study.outcome(folder) == expected


@pytest.mark.slow
def test_two_processes_leave_together_and_go_on(undisturbed, tmp_path):
    """The signal reaches torchrun's agent alone: its processes are in sessions of their own."""
    launch = ["balagg-torchrun", "--standalone", "--nproc-per-node", "2", "--no-python", *TRAIN]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    for folder in (whole, stopped):
        shutil.copytree(undisturbed[0], folder)
        small_study.write_study(folder, compute={"cpu_processes": 2, "strategy": "fsdp"})
    small_study.finish(small_study.start(launch, whole))

    process = small_study.start(launch, stopped)
    output = interrupt(process, stopped, 3, lambda: process.send_signal(signal.SIGTERM))
    assert process.returncode == 75, output
    words = [line for line in output.splitlines() if "SIGTERM" in line or "error" in line or "fail" in line]
    assert words == [
        "SIGTERM: the training ends after the step under way",
        f"SIGTERM: stopped after step {reached(stopped)} of 30, goes on from there",
    ]
    assert len(list((stopped / RUN / "state/resume").glob("*/*.distcp"))) == 2

    with exclusive(stopped / RUN, "training"):  # as a job before, which is slow to leave
        process = small_study.start(launch, stopped, SLURM_JOB_ID="7")
        assert "another process is training here (" in process.stdout.readline()
        time.sleep(1)
        assert process.poll() is None
    small_study.finish(process)
    assert small_study.outcome(stopped) == small_study.outcome(whole)


@pytest.mark.slow
def test_nothing_that_happens_to_its_output_ends_a_training(undisturbed, tmp_path):
    """Its reader is gone, as if tee had died. That of the undisturbed one goes to a full disk."""
    folder = tmp_path / "copy"
    shutil.copytree(undisturbed[0], folder)
    process = small_study.start(TRAIN, folder)
    process.stdout.close()
    process.stdout = None
    interrupt(process, folder, 3, lambda: os.killpg(process.pid, signal.SIGUSR1))
    assert process.returncode == 75 and reached(folder) < 30


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (75, 75), (1, 1)])
def test_the_rule_ends_as_the_training_does(tmp_path, code, expected):
    """The shell line of the rule, with its log on a full disk, and every process of it signalled."""
    text = (ROOT / "workflow/rules/train.smk").read_text().partition("shell:")[2]
    line = "".join(re.findall(r'^ +"(.*)"$', text, re.MULTILINE)).replace("{{", "{").replace("}}", "}")
    handlers = "signal.signal(10, print); signal.signal(15, print)"
    training = f"import signal, time; {handlers}; print(1); time.sleep(2); exit({code})"
    line = re.sub(r"\{params.launcher\}balagg train .* 2>", f"{sys.executable} -c '{training}' 2>", line)
    line = line.replace("{log}", "/dev/full")
    process = small_study.start(["bash", "-euo", "pipefail", "-c", line], tmp_path)
    time.sleep(1)
    for number in SIGNALS:
        os.killpg(process.pid, number)
    process.communicate(timeout=30)
    assert process.returncode == expected
