import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / ".venv-lighteval/bin/python"
SCRIPTS = ROOT / "workflow/lighteval"

# Goes before any other code of the process and, being inherited, of those it forks.
NO_NETWORK = """
import socket
from pathlib import Path

class Socket(socket.socket):
    def connect(self, address):
        if self.family != socket.AF_UNIX:
            Path({witness!r}).touch()
            raise OSError("the network was used")
        return super().connect(address)

socket.socket = Socket
"""


def test_the_lock_is_exact_and_what_the_makefile_installs():
    lines = (ROOT / "envs/eval.lock").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9._-]+==[A-Za-z0-9.]+", line) for line in pins)
    names = [re.sub("[-_.]+", "-", line.split("==")[0]) for line in pins]
    assert len(set(names)) == len(names)
    assert {"lighteval==0.13.0", "math-verify==0.5.2", "torch==2.13.0"} <= set(pins)
    assert "litellm" not in names
    assert "-r envs/eval.lock" in (ROOT / "Makefile").read_text()


@pytest.fixture
def environment(tmp_path):
    """Variables of a process that finds an empty home and no network; both are looked at afterwards."""
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is missing: make lighteval")
    folders = {name: tmp_path / name for name in ("home", "site")}
    for folder in folders.values():
        folder.mkdir()
    folders["tmp"] = Path(tempfile.mkdtemp())  # that of pytest is too long for Unix sockets
    witness = tmp_path / "network"
    (folders["site"] / "sitecustomize.py").write_text(NO_NETWORK.format(witness=str(witness)))
    before = set(SCRIPTS.rglob("*"))
    yield {
        "PATH": os.environ["PATH"],
        "HOME": str(folders["home"]),
        "TMPDIR": str(folders["tmp"]),
        "PYTHONPATH": str(folders["site"]),
        "OMP_NUM_THREADS": "1",
    }
    assert not witness.exists()
    assert not list(folders["home"].iterdir())
    folders["tmp"].rmdir()  # it is empty
    assert set(SCRIPTS.rglob("*")) == before


def replay(folder, environment, benchmark, golds, answers, **variables):
    """Run the command; ``golds`` by problem, ``answers`` as (problem, decoding, sample, response)."""
    problems = pd.DataFrame({"id": list(golds), "gold": list(golds.values())})
    problems = problems.assign(problem="?", prompt="What is it?", verifier="any", tolerance=None)
    problems.to_parquet(folder / "problems.parquet")
    responses = pd.DataFrame(answers, columns=["problem", "decoding", "sample", "response"])
    responses.assign(length=9, truncated=False).to_parquet(folder / "responses.parquet")
    files = [f"--{name}={folder / name}.parquet" for name in ("problems", "responses", "output")]
    command = [PYTHON, SCRIPTS / "replay.py", f"--benchmark={benchmark}", *files]
    return subprocess.run(command, env=environment | variables, text=True, capture_output=True, timeout=400)


def gold_tests(kind, *pairs, function=None):
    """Gold of a programming problem."""
    pairs = [{"input": given, "output": result, "testtype": kind} for given, result in pairs]
    return json.dumps({"tests": pairs, "function": function})


def boxed(answer):
    return rf"<think>It may be $\boxed{{77}}$.</think>Therefore it is $\boxed{{{answer}}}$."


def program(code):
    return f"```\nprint(77)\n```\nNo, rather:\n```python\n{code}\n```\n"


ADD = "a, b = map(int, input().split())\nprint(a + b)"
NEXT = "class Solution:\n    def next(self, x: int) -> List[int]:\n        return [x + 1]"
SUMS = gold_tests("stdin", ("3 4\n", "7\n"), ("1 1\n", "2\n"))
NUMBERS = gold_tests("functional", ("3", "[4]"), ("-1", "[0]"), function="next")

CASES = {  # gold of problem "a", its right and wrong responses; gold of problem "b", right and wrong
    "math-500": (
        (r"\frac{1}{2}", [boxed("0.5"), r"So $\boxed{\frac{2}{4}}$"], [boxed("2"), r"<think>$\boxed{0.5}$</think>"]),
        (r"\text{Evelyn}", [boxed(r"\text{Evelyn}")], [boxed(r"\text{Bob}"), "Evelyn"]),
    ),
    "aime-2024": (("025", [boxed("25"), boxed("025")], [boxed("250"), ""]), ("7", [boxed("7")], [boxed("8"), "8"])),
    "aime-2025": (
        ("70", [boxed("70"), r"\boxed{71}, no: \boxed{70}"], [boxed("71"), r"\boxed{70}, no: \boxed{71}"]),
        ("588", [boxed("588")], [boxed("5, 588"), "?"]),
    ),
    "olympiadbench": (
        ("$1$, $-3$", [boxed("-3, 1"), boxed("1, -3")], [boxed("1"), boxed("1, 3")]),
        (r"$(-\infty, 0)\cup\{1\}$.", [boxed(r"\{1\} \cup (-\infty, 0)")], [boxed(r"(-\infty, 0)"), "1"]),
    ),
    "minerva-math": (
        ("4.5e33", [boxed(r"4.5 \times 10^{33}"), boxed("4.5e33")], [boxed(r"4.5 \times 10^{32}"), boxed("4.5")]),
        (r"x^{2} e^{-t}", [boxed(r"e^{-t} x^2")], [boxed(r"x^2 e^{t}"), boxed("x")]),
    ),
    "livecodebench": (
        (SUMS, [program(ADD), program(f"if __name__ == '__main__':\n    {ADD.replace(chr(10), chr(10) + '    ')}")],
         [program("print(7)"), ADD]),
        (NUMBERS, [program(NEXT)], [program(NEXT.replace("x + 1", "4")), program("import os\nos._exit(0)")]),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", CASES)
def test_right_responses_score_1_and_wrong_ones_0(tmp_path, environment, benchmark):
    (gold_a, (right_a, also_right_a), (wrong_a, also_wrong_a)), (gold_b, (right_b,), (wrong_b, also_wrong_b)) = CASES[
        benchmark
    ]
    expected = [
        ("b", "sampled", 1, right_b, 1.0),
        ("b", "sampled", 0, wrong_b, 0.0),
        ("a", "greedy", 0, right_a, 1.0),
        ("a", "sampled", 0, wrong_a, 0.0),
        ("a", "sampled", 1, also_wrong_a, 0.0),
        ("b", "greedy", 0, right_b, 1.0),
        ("a", "sampled", 2, right_a, 1.0),
        ("b", "sampled", 2, also_wrong_b, 0.0),
        ("a", "sampled", 3, also_right_a, 1.0),
        ("b", "sampled", 3, right_b, 1.0),
    ]
    result = replay(tmp_path, environment, benchmark, {"a": gold_a, "b": gold_b}, [row[:4] for row in expected])
    assert result.returncode == 0, result.stderr
    scores = pd.read_parquet(tmp_path / "output.parquet")
    assert list(scores.columns) == ["problem", "decoding", "sample", "score"]
    assert list(scores.itertuples(index=False, name=None)) == [(*row[:3], row[4]) for row in expected]
    summary = json.loads((tmp_path / "output.json").read_text())
    assert summary["samples"] == {"greedy": 1, "sampled": 4}
    assert summary["results"]["greedy"]["avg@n:n=1"] == 1.0
    assert summary["results"]["sampled"]["avg@n:n=4"] == 0.5
    assert summary["results"]["sampled"]["pass@k:k=2&n=4"] == pytest.approx(
        1 - 1 / 6
    )  # two wrong of two wrong, two right
    assert summary["results"]["sampled"]["pass@k:k=4&n=4"] == 1.0
    assert summary["versions"]["lighteval"] == "0.13.0"
    doubtful = {"no_result": [["b", "sampled", 2]]} if benchmark == "livecodebench" else {}
    assert summary["doubtful"] == doubtful
    assert sorted(path.name for path in tmp_path.glob("*output*")) == ["output.json", "output.parquet"]


@pytest.mark.slow
def test_a_second_run_gives_the_same_bytes(tmp_path, environment):
    golds = {"tiny": "6.6e-34", "word": r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}", "set": "$1$, $-3$"}
    answers = [(id, "sampled", n, boxed(answer)) for id in golds for n, answer in enumerate(("-3, 1", "6.6e-34"))]
    outputs = []
    for seed in "12":
        result = replay(tmp_path, environment, "olympiadbench", golds, answers, PYTHONHASHSEED=seed)
        assert result.returncode == 0, result.stderr
        outputs.append([(tmp_path / f"output.{kind}").read_bytes() for kind in ("parquet", "json")])
    assert outputs[0] == outputs[1]
    summary = json.loads(outputs[0][1])
    assert summary["results"]["sampled"]["avg@n:n=2"] == pytest.approx(1 / 3)
    assert summary["weak_golds"] == {"compared_as_text": ["word"], "rounded_to_zero": ["tiny"]}


@pytest.mark.slow
def test_input_that_does_not_fit_is_one_line_and_no_output(tmp_path, environment):
    golds = {"a": "1", "b": "2"}
    answers = [
        (id, decoding, n, "?") for id in golds for decoding, n in (("greedy", 0), ("sampled", 0), ("sampled", 1))
    ]
    cases = [
        (golds, answers[:-1], "response to 'b' (sampled, sample 1) is missing"),
        (golds, [*answers[:3], *answers[4:]], "response to 'b' (greedy, sample 0) is missing"),
        (golds, [*answers, ("b", "sampled", 2, "?")], "response to 'a' (sampled, sample 2) is missing"),
        (golds, [*answers, answers[0]], "response to 'a' (greedy, sample 0) is there more than once"),
        (
            golds,
            [*answers, ("c", "greedy", 0, "?")],
            "response to 'c' (greedy, sample 0) answers a problem that is not in",
        ),
        (golds, [*answers, ("a", "beam", 0, "?")], "the decoding must be one of greedy, sampled"),
        (golds, [*answers[:-1], ("b", "sampled", 1, None)], "response must be str, not None"),
        (golds, [], "responses.parquet is empty"),
    ]
    for given, responses, message in cases:
        result = replay(tmp_path, environment, "math-500", given, responses)
        assert result.returncode == 2
        assert re.fullmatch(f"error: .*{re.escape(message)}.*\n", result.stderr), result.stderr
        assert not list(tmp_path.glob("*output*"))


@pytest.mark.slow
def test_golds_that_judge_nothing_are_refused(tmp_path, environment):
    cases = [
        ("livecodebench", "7", "is not JSON with tests and function"),
        ("livecodebench", gold_tests("stdin"), "has no tests: every program would pass"),
        ("livecodebench", gold_tests("functional", ("3", "4")), "with function None every test must be stdin"),
        ("livecodebench", gold_tests("functional", ("3", "four"), function="f"), "must be JSON: 'four'"),
        ("aime-2024", "$ $", "is empty"),
    ]
    for benchmark, gold, message in cases:
        result = replay(tmp_path, environment, benchmark, {"a": gold}, [("a", "greedy", 0, program(ADD))])
        assert result.returncode == 2
        assert re.fullmatch(f"error: gold of problem 'a'.*{re.escape(message)}.*\n", result.stderr), result.stderr
        assert not list(tmp_path.glob("*output*"))


@pytest.mark.slow
def test_a_grader_that_cannot_start_processes_is_no_wrong_answer(tmp_path, environment):
    with Path(environment["PYTHONPATH"], "sitecustomize.py").open("a") as file:
        file.write("import os\ndef fork(): raise BlockingIOError('no more processes')\nos.fork = fork\n")
    answers = [("a", "greedy", 0, program(ADD))]
    result = replay(tmp_path, environment, "livecodebench", {"a": SUMS}, answers)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("error: LiveCodeBench's grader gives a right and a wrong program")
    assert not list(tmp_path.glob("*output*"))


@pytest.mark.slow
def test_what_keeps_the_graders_from_a_verdict_is_told_from_wrong_answers(environment):
    code = r"""
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import metrics
from lighteval.tasks.requests import Doc
doc = Doc(query="", choices=["$5$"], gold_index=0)
metrics.MathScores.match.timeout_seconds = 1
print(metrics.MathScores(3).score(doc, [r"\boxed{5}", r"\boxed{6}", r"$\boxed{" + "1+" * 15000 + "1}$"]))
metrics.RESPONSE_SECONDS = 2
print(metrics.MathScores(2).score(doc, [r"\(" * 20_000, r"\boxed{5}"]))
metrics.TEST_SECONDS = 1
doc.specific = {"inputs": ["3"], "outputs": ["4"], "fn_name": "f"}
programs = [
    "def f(x): return x + 1",
    "def f(x): return x",
    "def f(x):\n while True: pass",
    "import os\ndef f(x): os._exit(0)",
    "class Odd:\n def __eq__(self, other): return 'equal'\ndef f(x): return Odd()",
]
print(metrics.CodeScores(5).score(doc, [f"```\n{program}\n```" for program in programs]))
"""
    variables = environment | {"HF_HUB_OFFLINE": "1", "HF_HOME": environment["TMPDIR"]}
    command = [PYTHON, "-c", code, SCRIPTS]
    result = subprocess.run(command, env=variables, text=True, capture_output=True, timeout=200)
    assert result.returncode == 0, result.stderr
    assert [line for line in result.stdout.splitlines() if line.startswith("([")] == [
        str(([1.0, 0.0, 0.0], [None, None, "parse_time_limit"])),
        str(([0.0, 1.0], ["response_time_limit", None])),
        str(([1.0, 0.0, 0.0, 0.0, 0.0], [None, None, "test_time_limit", "no_result", "grader_failed"])),
    ]
