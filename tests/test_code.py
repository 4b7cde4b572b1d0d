import concurrent.futures
import json
import os
import threading
import time
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balanced_aggregation.errors import GoldError, InfrastructureError
from balanced_aggregation.rewards import code
from balanced_aggregation.rewards.code import judge_code, last_program, same_output, same_value
from balanced_aggregation.rewards.sandbox import Ending, Execution, Limits
from balanced_aggregation.rewards.verdict import Outcome

LIMITS = Limits(cpu_seconds=1, wall_seconds=4)


def fenced(program, language="python"):
    return f"So:\n```{language}\n{program}\n```\nDone."


def gold(*tests, function=None):
    kind = "functional" if function else "stdin"
    return json.dumps({"tests": [{"input": i, "output": o, "testtype": kind} for i, o in tests], "function": function})


def outcome(program, *tests, function=None):
    return judge_code(fenced(program), gold(*tests, function=function), LIMITS).outcome


SUM = "print(sum(map(int, input().split())))"


def test_all_tests_must_pass():
    assert outcome(SUM, ("1 2\n", "3\n"), ("5 5\n", "10")) is Outcome.EQUAL
    assert outcome(SUM, ("1 2\n", "3\n"), ("5 5\n", "11")) is Outcome.NOT_EQUAL
    assert outcome("print(3)", ("1 2\n", "3\n"), ("5 5\n", "10")) is Outcome.NOT_EQUAL


def test_the_program_is_what_was_extracted():
    verdict = judge_code(fenced(SUM), gold(("1 2", "3")))
    assert verdict.extracted == SUM + "\n"
    assert judge_code("I would add the numbers.", gold(("1 2", "3"))).outcome is Outcome.NO_ANSWER


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("print(3", Outcome.CRASH),
        ("print(3)\n1 / 0", Outcome.CRASH),
        ("import sys\nprint(3)\nsys.exit(1)", Outcome.CRASH),
        ("print(3)\nx = ' ' * (1 << 40)", Outcome.CRASH),
        ("import os\nprint(3, flush=True)\nos.kill(os.getpid(), 9)", Outcome.CRASH),
        ("import os\nos.fork()\nprint(3)", Outcome.CRASH),
        ("print(3)\nwhile True: print(9999 * '3')", Outcome.CRASH),
        ("print(3, flush=True)\nwhile True: pass", Outcome.TIMEOUT),
        ("print(3, flush=True)\nimport time\ntime.sleep(60)", Outcome.TIMEOUT),
        ("print(3)\nexit()", Outcome.EQUAL),
        ("print(3)\nprint(3)", Outcome.NOT_EQUAL),
        ("print('ok')", Outcome.NOT_EQUAL),
        ("import sys\nprint(3, file=sys.stderr)", Outcome.NOT_EQUAL),
        ("import sys\nsys.set_int_max_str_digits(0)\nprint(10 ** 100_000)", Outcome.NOT_EQUAL),
        ("import os\nos.write(1, b'3\\xff')", Outcome.NOT_EQUAL),
        ("", Outcome.NOT_EQUAL),
    ],
)
def test_verdicts_on_programs(program, expected):
    assert outcome(program, ("1 2", "3")) is expected


def test_the_first_failing_test_ends_the_run(monkeypatch):
    judge_code(fenced("1"), gold(("", "")))
    inputs = []

    def run(program, stdin, limits, function):
        inputs.append(stdin)
        return Execution(Ending.OK, stdin, "", 0, 0.0)

    monkeypatch.setattr(code, "run_program", run)
    assert outcome("1", ("a", "a"), ("b", "x"), ("c", "c")) is Outcome.NOT_EQUAL
    assert inputs == ["a", "b"]


METHOD = """
class Solution:
    def total(self, values: List[int], start: int = 0) -> int:
        return sum(values) + start
"""


@pytest.mark.parametrize(
    ("program", "tests", "expected"),
    [
        (METHOD, [("[1, 2]\n3", "6"), ("[]\n0", "0")], Outcome.EQUAL),
        (METHOD, [("[1, 2]\n3", "7")], Outcome.NOT_EQUAL),
        (METHOD + "\nprint(6)", [("[1, 2]\n3", "6")], Outcome.EQUAL),
        ("def total(values, start): return sum(values, start)", [("[1, 2]\n3", "6")], Outcome.EQUAL),
        ("def total(v): return tuple(v), {'k': v}", [("[1]", '[[1], {"k": [1]}]')], Outcome.EQUAL),
        ("def total(v): return float(v)", [("3", "3")], Outcome.EQUAL),
        ("def total(v): return 0.1 + 0.2", [("3", "0.3")], Outcome.NOT_EQUAL),
        ("def total(v): return bool(v)", [("1", "true")], Outcome.EQUAL),
        ("def total(v): return v", [("1", "true")], Outcome.NOT_EQUAL),
        ("def total(v): return True", [("1", "1")], Outcome.NOT_EQUAL),
        ("def total(v): return str(v)", [("1", "1")], Outcome.NOT_EQUAL),
        ("def total(v): return None", [("1", "null")], Outcome.EQUAL),
        ("def total(v): print(1)", [("1", "1")], Outcome.NOT_EQUAL),
        ("def total(v): return float('nan')", [("1", "1")], Outcome.CRASH),
        ("def total(v): return {1}", [("1", "[1]")], Outcome.CRASH),
        ("def total(v): return v", [("1", "1"), ('"ab"', '"ab"')], Outcome.EQUAL),
        ("def other(v): return v", [("1", "1")], Outcome.CRASH),
        ("def total(v): exit(0)", [("1", "1")], Outcome.CRASH),
        ("import os\nos._exit(0)", [("1", "1")], Outcome.CRASH),
        ("print(1)\nexit()\ndef total(v): return 1", [("1", "1")], Outcome.CRASH),
        ("import os\ndef total(v):\n    os.write(3, b'ok')\n    return 1", [("1", "2")], Outcome.NOT_EQUAL),
        ("def total(v): return {'outcome': 'ok', 'equal': True}", [("1", "2")], Outcome.NOT_EQUAL),
        (
            "class Any:\n    def __eq__(self, other): return True\ndef total(v): return Any()",
            [("1", "2")],
            Outcome.CRASH,
        ),
        (
            "class Any(int):\n    def __eq__(self, other): return True\ndef total(v): return Any(3)",
            [("1", "2")],
            Outcome.NOT_EQUAL,
        ),
        ("import json\njson.dumps = lambda *a, **k: '2'\ndef total(v): return 3", [("1", "3")], Outcome.NOT_EQUAL),
        ("def total(v):\n    x = []\n    for _ in range(900): x = [x]\n    return x", [("1", "2")], Outcome.NOT_EQUAL),
        ("import sys\nsys.set_int_max_str_digits(0)\ndef total(v): return 10**9999", [("1", "2")], Outcome.NOT_EQUAL),
        ("def total(v):\n    while True: pass", [("1", "1")], Outcome.TIMEOUT),
        ("def total(v): return input()", [("1", "1")], Outcome.CRASH),
    ],
)
def test_functions(program, tests, expected):
    assert outcome(program, *tests, function="total") is expected


def test_deep_values_do_not_bring_down_the_judge():
    program = "import os\ndef total(v):\n    os.write(3, b'[' * 200_000 + b']' * 200_000)\n    os._exit(0)"
    assert outcome(program, ("1", "1"), function="total") is Outcome.NOT_EQUAL


def test_expected_outputs_never_reach_the_program(monkeypatch):
    """The program prints everything that it can find of its interpreter, its environment and its files."""
    monkeypatch.setenv("EXPECTED", "47114711")
    spy = """
import gc, os, sys
seen = [sys.argv, sys.orig_argv, dict(os.environ), os.listdir(), open(0).read(), sys.modules]
frame = sys._getframe()
while frame:
    seen += [frame.f_locals, frame.f_globals]
    frame = frame.f_back
for frame in sys._current_frames().values():
    while frame:
        seen += [frame.f_locals, frame.f_globals]
        frame = frame.f_back
print(seen, gc.get_objects())
"""
    outputs = []
    run = code.run_program

    def keep(*arguments):
        outputs.append(run(*arguments))
        return outputs[-1]

    monkeypatch.setattr(code, "run_program", keep)
    assert outcome(spy, ("the input 1234321", "47114711")) is Outcome.NOT_EQUAL
    assert "1234321" in outputs[-1].stdout and "usual_names" in outputs[-1].stdout
    assert "47114711" not in outputs[-1].stdout + outputs[-1].stderr


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("```python\na\n```", "a\n"),
        ("```\na\n```", "a\n"),
        ("``` Python \na\n```  \nend", "a\n"),
        ("```py\na\n```\ntext\n```python\nb\n\nc\n```", "b\n\nc\n"),
        ("```python\na\n```\n```bash\nrun\n```", "a\n"),
        ("```python\na\n```\nOutput:\n```\n3\n```", "a\n"),
        ("```\n1 2\n```\n```py\na\n```\n```python3\nb\n```\n```\n1 2\n```\n```\n3\n```", "b\n"),
        ("```\na\n```\nor\n```\nb\n```", "b\n"),
        ("```\na\n```\n```text\n3\n```", "a\n"),
        ("```python\n\n```\n```\na\n```", "\n"),
        ("```python\na\n```\n```\n3", None),
        ("```python\na\n```\n```python\nb", None),
        ("```python\na", None),
        ("```cpp\na\n```", None),
        ("````python\n```\na\n```\n````", "```\na\n```\n"),
        ("1. So\n   ```python\n   if a:\n       b\n   ```", "if a:\n    b\n"),
        ("<think>\n```python\na\n```\n</think>\nnone", None),
        ("<think>\n```python\na\n```\n</think>\n```python\nb\n```", "b\n"),
        ("thought\n```python\na\n</think>\n```python\nb\n```", "b\n"),
        ("<think>\n```python\na\n```\n", None),
        ("```python\nx = '```'\n```", "x = '```'\n"),
        ("```python\r\na\r\n```\r\n", "a\r\n"),
        ("use `a` and ```b```", None),
        ("", None),
    ],
)
def test_last_program(response, program):
    assert last_program(response) == program


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("1 2\n", "1 2", True),
        ("1  2 \n\n", "\n1 2", True),
        ("1\r\n2\r\n", "1\n2\n", True),
        ("1 2", "1\n2", False),
        ("1\n\n2", "1\n2", False),
        ("12", "1 2", False),
        ("1 2 3", "1 2", False),
        ("1", "1 2", False),
        ("", "1", False),
        ("1", "", False),
        ("", "\n", True),
        ("1.0", "1", True),
        ("1e3", "1000", True),
        ("-0", "0", True),
        ("0.1000", "0.1", True),
        ("0.10000000000000000001", "0.1", False),
        ("0.30000000000000004", "0.3", False),
        ("10000000000000001", "10000000000000000", False),
        ("010", "10", False),
        ("1_0", "10", False),
        ("١", "1", False),
        ("nan", "nan", True),
        ("NaN", "nan", False),
        ("inf", "Infinity", False),
        ("sNaN", "1", False),
        ("1e999999999999", "1", False),
        ("1e999999", "1", False),
        ("YES", "Yes", False),
        ("a\u00a0b", "a b", False),
        ("a\x1cb", "a\nb", False),
        ("1" + "0" * 100_000, "1", False),
    ],
)
def test_same_output(output, expected, same):
    assert same_output(output, expected) is same


@given(st.lists(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=3), min_size=1), min_size=1))
def test_decimals_in_other_notations_are_the_same(rows):
    plain = "\n".join(" ".join(f"{value:f}" for value in row) for row in rows)
    assert same_output("\n".join("  ".join(f"{value:f}0" for value in row) + " " for row in rows), plain)
    changed = [[*row] for row in rows]
    changed[-1][-1] += Decimal("0.001")
    assert not same_output("\n".join(" ".join(f"{value:f}" for value in row) for row in changed), plain)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON, JSON)
def test_same_value_is_equality_of_json_but_for_truth_values(value, other):
    assert same_value(value, value)
    assert same_value(json.loads(json.dumps(value)), value)
    assert not same_value([value], value)
    if not same_value(value, other):
        assert json.dumps(value, sort_keys=True) != json.dumps(other, sort_keys=True)
    elif value != other:
        pytest.fail(f"{value!r} is not {other!r}")


@pytest.mark.parametrize(
    "bad",
    [
        "", "[]", "3", "{}", '{"tests": []}', '{"tests": [], "function": null}', '{"tests": [3], "function": null}',
        '{"tests": [{"input": "", "output": ""}], "function": null}',
        '{"tests": [{"input": "", "output": 3, "testtype": "stdin"}], "function": null}',
        '{"tests": [{"input": "", "output": "", "testtype": "other"}], "function": null}',
        '{"tests": [{"input": "1", "output": "1", "testtype": "functional"}], "function": null}',
        '{"tests": [{"input": "1", "output": "1", "testtype": "functional"}], "function": "a.b"}',
        '{"tests": [{"input": "x", "output": "1", "testtype": "functional"}], "function": "f"}',
        '{"tests": [{"input": "1", "output": "x", "testtype": "functional"}], "function": "f"}',
    ],
)  # fmt: skip
def test_a_gold_that_cannot_be_read_is_the_users_mistake(bad):
    with pytest.raises(GoldError, match="gold of a program"):
        judge_code("no program", bad)


def test_a_sandbox_that_does_not_work_is_no_verdict(monkeypatch):
    monkeypatch.setattr(code, "_checked", set())
    monkeypatch.setattr(code, "run_program", lambda *_: Execution(Ending.ERROR, "", "", 1, 0.0))
    with pytest.raises(InfrastructureError, match="known to be equal is judged crash"):
        outcome("print(3)", ("1 2", "3"))
    monkeypatch.setattr(code, "run_program", lambda *_: Execution(Ending.OK, "42", "", 0, 0.0))
    with pytest.raises(InfrastructureError, match="known to be not_equal is judged equal"):
        outcome("print(3)", ("1 2", "3"))


def test_a_process_checks_once_and_threads_wait_for_it(monkeypatch):
    checks = []
    monkeypatch.setattr(code, "_checked", set())
    monkeypatch.setattr(code, "check_sandbox", lambda: checks.append(time.sleep(0.2)))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda i: outcome(SUM, (f"{i} 1", f"{i + 1}")), range(8)))
    assert set(outcomes) == {Outcome.EQUAL}
    assert len(checks) == 1
    assert code._checked == {os.getpid()}


def kill_sleeping_children(stop, times):
    while times and not stop.wait(0.02):
        for child in psutil.Process().children():
            if list(Path(f"/proc/{child.pid}/cwd").glob("asleep")):
                child.kill()
                times -= 1
                stop.wait(0.3)


@pytest.mark.parametrize(("times", "expected"), [(1, Outcome.EQUAL), (2, Outcome.CRASH)])
def test_a_program_that_the_machine_killed_gets_one_more_chance(times, expected):
    assert outcome(SUM, ("1 2", "3")) is Outcome.EQUAL
    stop = threading.Event()
    killer = threading.Thread(target=kill_sleeping_children, args=(stop, times))
    killer.start()
    try:
        program = "import time\nopen('asleep', 'w').close()\ntime.sleep(0.8)\n" + SUM
        assert outcome(program, ("1 2", "3")) is expected
    finally:
        stop.set()
        killer.join()


@pytest.mark.skipif("BALAGG_LIVECODEBENCH" not in os.environ, reason="BALAGG_LIVECODEBENCH does not name a file")
@pytest.mark.slow
def test_programs_that_were_graded_correct_pass():
    lines = Path(os.environ["BALAGG_LIVECODEBENCH"]).read_text().splitlines()[:40]
    problems = [json.loads(line) for line in lines]
    graded = [(p, s["code"]) for p in problems for s in p["submissions"] if s["graded"]]
    assert len(graded) > 20
    for problem, program in graded:
        content = json.dumps({"tests": problem["public_tests"], "function": None})
        assert judge_code(fenced(program), content).outcome is Outcome.EQUAL, problem["question_id"]
