"""The processes in which mathematics is verified: killed, crashed, stalled, and never a wrong reward for it."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

import balanced_aggregation.rewards.mathematics.process as math_process
from balanced_aggregation.errors import GoldError, InfrastructureError, UserError
from balanced_aggregation.rewards import Outcome, Submission, VerifierPool, check_math, check_math_batch
from balanced_aggregation.rewards.mathematics.process import MathProcess

WORKER = """
import json, os, signal, sys, time
for line in sys.stdin:
    response = json.loads(line)["response"]
    if response == "hang":
        time.sleep(1000)
    if response == "spin":
        signal.setitimer(signal.ITIMER_PROF, 0.3)
        while True: pass
    if response == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if response == "fail":
        sys.exit(1)
    if response == "die once" and not os.path.exists(sys.argv[1]):
        open(sys.argv[1], "w").close()
        os._exit(3)
    outcome = "equal" if "frac" in response or "once" in response else "not_equal"
    print(json.dumps({"outcome": outcome, "extracted": response}), flush=True)
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A process whose worker behaves badly on demand."""
    script, mark = tmp_path / "worker.py", tmp_path / "mark"
    script.write_text(WORKER)
    start = subprocess.Popen
    started = []

    def popen(command, **options):
        started.append(start([sys.executable, str(script), str(mark)], **options))
        return started[-1]

    monkeypatch.setattr(math_process.subprocess, "Popen", popen)
    process = MathProcess()
    yield process, started
    process.close()
    assert all(p.poll() is not None for p in started)


def test_a_crash_is_a_verdict_only_if_a_sound_process_crashes_as_well(fake):
    process, started = fake
    assert process.judge("die", "1", None).outcome is Outcome.CRASH
    assert len(started) == 2
    assert process.judge("die once", "1", None).outcome is Outcome.EQUAL
    assert process.judge("other", "1", None).outcome is Outcome.NOT_EQUAL
    assert len(started) == 4


@pytest.mark.parametrize("cause", ["fail", "kill"])
def test_what_no_answer_can_do_to_its_process_is_a_failure_of_the_machinery(fake, monkeypatch, cause):
    process, started = fake
    if cause == "kill":  # as the kernel does when memory is short
        ask = process._exchange

        def killing(request, seconds):
            if request["response"] == "hang":
                started[-1].kill()
            return ask(request, seconds)

        monkeypatch.setattr(process, "_exchange", killing)
    with pytest.raises(InfrastructureError, match="ended with exit code"):
        process.judge("hang" if cause == "kill" else "fail", "1", None)


def test_time_used_up_is_a_verdict(fake):
    process, started = fake
    assert process.judge("spin", "1", None).outcome is Outcome.TIMEOUT
    assert started[0].returncode == -signal.SIGPROF


def test_a_process_that_stands_still_is_a_failure_of_the_machinery(fake, monkeypatch):
    process, started = fake
    monkeypatch.setattr(math_process, "_STALLED_SECONDS", 0.3)
    with pytest.raises(InfrastructureError, match="stood still"):
        process.judge("hang", "1", None)
    assert len(started) == 2


def test_a_process_that_misjudges_known_answers_is_a_failure_of_the_machinery(monkeypatch):
    monkeypatch.setattr(math_process, "_PROBES", ((r"\boxed{1}", "2", Outcome.EQUAL),))
    process = MathProcess()
    with pytest.raises(InfrastructureError, match="fails on the known answer"):
        process.judge(r"\boxed{1}", "1", None)


def test_a_process_that_cannot_start_is_a_failure_of_the_machinery(monkeypatch):
    monkeypatch.setattr(math_process.sys, "executable", "/nowhere/python")
    with pytest.raises(InfrastructureError, match="cannot be started"):
        MathProcess().judge(r"\boxed{1}", "1", None)


def test_what_hangs_in_the_algebra_is_killed_and_the_next_answer_judged(monkeypatch):
    slow = r"\boxed{" + "+".join(rf"\sqrt{{{i}+\sqrt{{{i + 1}}}}}" for i in range(2, 40)) + "}"
    started = time.monotonic()
    with VerifierPool(2) as pool:
        verdicts = pool.verify([Submission("math", response, "1") for response in (slow, r"\boxed{1}", slow)])
    assert verdicts[1].outcome is Outcome.EQUAL
    assert {verdicts[0].outcome, verdicts[2].outcome} <= {Outcome.TIMEOUT, Outcome.NOT_EQUAL, Outcome.UNREADABLE}
    assert time.monotonic() - started < 60


def test_a_worker_killed_from_outside_costs_no_reward():
    with VerifierPool(1) as pool:
        submissions = [Submission("math", rf"\boxed{{{i}}}", str(i)) for i in range(400)]
        pending = [pool.submit(submission) for submission in submissions]
        pending[10].result()
        pool._processes[0]._process.kill()
        assert all(verdict.result().correct for verdict in pending)


def test_from_threads_and_in_order():
    verdicts = {}

    def check(number):
        verdicts[number] = check_math(rf"\boxed{{{number}}}", str(number % 3))

    threads = [threading.Thread(target=check, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [verdicts[n].correct for n in range(6)] == [True, True, True, False, False, False]
    responses = [rf"\boxed{{{n}}}" for n in range(40)]
    assert [v.extracted for v in check_math_batch(responses, ["7"] * 40)] == [str(n) for n in range(40)]


def test_a_gold_that_cannot_be_read_is_an_error_and_not_a_zero():
    with pytest.raises(ValueError, match="gold"):
        check_math(r"\boxed{3}", "")
    assert check_math(r"\boxed{3}", "3").correct  # and the process lives


def test_many_open_files_are_no_unreadable_gold(tmp_path):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit[1] < 2000:
        pytest.skip("no more than a thousand files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, limit[1]))
    files = [(tmp_path / "f").open("w") for _ in range(1100)]
    try:
        with VerifierPool() as pool:
            assert pool.submit(Submission("math", r"\boxed{1}", "1")).result().correct
    finally:
        for file in files:
            file.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def test_closing_ends_a_program_between_its_tests_and_a_failure_cancels_the_rest():
    tests = [{"input": "", "output": "", "testtype": "stdin"}] * 100
    gold = json.dumps({"tests": tests, "function": None})
    with VerifierPool() as pool:
        pending = pool.submit(Submission("code", "```python\nimport time\ntime.sleep(0.2)\n```", gold))
        time.sleep(3)
        started = time.monotonic()
    assert time.monotonic() - started < 5
    with pytest.raises(InfrastructureError, match="closed while it was judging"):
        pending.result()

    with VerifierPool() as pool:
        wrong = [Submission("math", r"\boxed{1}", ""), *[Submission("math", r"\boxed{1}", "1")] * 5000]
        started = time.monotonic()
        with pytest.raises(GoldError):
            pool.verify(wrong)
    assert time.monotonic() - started < 10


def test_an_unknown_verifier_is_named():
    with VerifierPool() as pool, pytest.raises(UserError, match="verifier 'maths': unknown; allowed: arithmetic"):
        pool.submit(Submission("maths", "", ""))


def test_nothing_is_left_when_the_pool_closes_or_its_program_is_killed():
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with VerifierPool(2) as pool:
        pool.verify([Submission("math", r"\boxed{1}", "1")] * 8)
        assert len(pool._processes) >= 1
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before

    program = (
        "import time\nfrom balanced_aggregation.rewards import check_math\n"
        "check_math(r'\\boxed{1}', '1')\nprint('ready', flush=True)\ntime.sleep(1000)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    workers = psutil.Process(process.pid).children()
    assert len(workers) == 1
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert psutil.wait_procs(workers, timeout=20)[1] == []
