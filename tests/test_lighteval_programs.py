"""Programs that lighteval's grader runs: what the processes are that it starts, and the replay in its confinement."""

import importlib.util
import json
import os
import signal
import time

import numpy as np
import pandas as pd
import pytest

from balanced_aggregation.errors import InfrastructureError
from balanced_aggregation.evaluation.lighteval import score_by_lighteval
from balanced_aggregation.provenance import LIGHTEVAL_PYTHON, LIGHTEVAL_SCRIPT


@pytest.fixture
def processes():
    spec = importlib.util.spec_from_file_location("processes", LIGHTEVAL_SCRIPT.with_name("processes.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(processes, target):
    """What the grader does with a program."""
    result = processes.Manager().list()
    process = processes.Process(target=lambda: result.append(target()))
    process.start()
    process.join(timeout=2)
    if process.is_alive():
        process.kill()
        process.join()
    return result


def test_results_come_back(processes):
    values = [True, -2, np.bool_(False), np.array([True]), np.array([[3, 4]]), np.int64(1)]
    result = run(processes, lambda: values)
    assert len(result) == 1
    assert result[0] == [True, -2, False, True, 3, 1]
    assert run(processes, lambda: [True] * 100_000)[0] == [True] * 100_000  # more than a pipe holds


@pytest.mark.parametrize(
    "target", [lambda: [object()], lambda: 1 / 0, lambda: os._exit(0), lambda: os.kill(os.getpid(), 9), signal.pause]
)
def test_no_result_without_a_verdict(processes, target):
    assert not run(processes, target)


def test_the_program_reaches_nothing_outside_its_process(processes, tmp_path):
    parent, file = os.getpid(), tmp_path / "scores"
    file.write_text("kept")
    attempts = [
        lambda: file.write_text("mine"),
        file.unlink,
        lambda: os.truncate(file, 0),
        lambda: file.with_name("new").touch(),
        lambda: os.kill(parent, 0),
        lambda: os.open(f"/proc/{parent}/mem", os.O_RDWR),
    ]

    def count_refused():
        refused = 0
        for attempt in attempts:
            try:
                attempt()
            except PermissionError:
                refused += 1
        return [refused]

    assert run(processes, count_refused)[0] == [len(attempts)]
    assert file.read_text() == "kept"


TESTS = {"tests": [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}], "function": None}
C = "import ctypes, os\nlibc = ctypes.CDLL(None)\n"
PROGRAMS = {
    "print(sum(map(int, input().split())))": 1,
    "print(4)": 0,
    # These print what is expected if they are refused what they try.
    C + "print(3 if libc.open({outside!r}.encode(), 0o102, 0o644) < 0 else 4)": 1,
    C + "print(3 if libc.open((os.environ['TMPDIR'] + '/x').encode(), 0o102, 0o644) < 0 else 4)": 1,
    C + "print(3 if libc.kill(os.getppid(), 9) < 0 else 4)": 1,
    C + "print(3 if libc.chmod(b'/', 0o755) < 0 else 4)": 1,
    "import socket\ntry:\n    socket.socket()\nexcept PermissionError:\n    print(3)": 1,
    C + "if libc.fork() == 0:\n    libc.setsid()\n    libc.sleep(1000)\nprint(3)": 1,
    C + "libc.kill(0, 9)": 0,  # only itself
}


@pytest.mark.slow
@pytest.mark.skipif(not LIGHTEVAL_PYTHON.exists(), reason="`make lighteval` has not been run")
def test_replay_in_its_confinement(tmp_path, monkeypatch):
    outside = tmp_path / "outside"
    responses = [f"So:\n```python\n{program.replace('{outside!r}', repr(str(outside)))}\n```" for program in PROGRAMS]
    problem = {"id": "sum", "prompt": "Add.", "gold": json.dumps(TESTS)}
    rows = [
        {"problem": "sum", "decoding": "sampled", "sample": sample, "response": response}
        for sample, response in enumerate(responses)
    ]
    files = tmp_path / "problems.parquet", tmp_path / "responses.parquet"
    for file, table in zip(files, ([problem], rows), strict=True):
        pd.DataFrame(table).to_parquet(file)
    start = time.monotonic()
    score_by_lighteval("livecodebench", *files, tmp_path / "scores.parquet", {})
    assert time.monotonic() - start < 300
    scores = pd.read_parquet(tmp_path / "scores.parquet")["lighteval"]
    assert dict(zip(PROGRAMS, scores, strict=True)) == PROGRAMS
    assert not outside.exists()
    with monkeypatch.context() as context:
        context.setattr("balanced_aggregation.evaluation.lighteval._grading_seconds", lambda *_: 0.1)
        with pytest.raises(InfrastructureError, match=r"stopped after 0\.1 s"):
            score_by_lighteval("livecodebench", *files, tmp_path / "scores.parquet", {})
