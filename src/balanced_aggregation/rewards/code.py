"""The verifier of programs: run them on tests, in a sandbox."""

import functools
import itertools
import json
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from balanced_aggregation.errors import GoldError, InfrastructureError
from balanced_aggregation.rewards.sandbox import Ending, Execution, Limits, check_sandbox, run_program
from balanced_aggregation.rewards.verdict import Outcome, Verdict

_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<ticks>`{3,})[ \t]*(?P<language>[^`\s]*)[^`]*")
_PYTHON = ("python", "python3", "py")
_BLANKS = " \t\r\f\v\n"
_TOKEN = re.compile(rf"\n|[^{_BLANKS}]+")
# No superfluous zeros: "010" and "10" may be different answers, such as two strings of bits.
_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,6})?")

_DEFAULT_LIMITS = Limits()
_lock = threading.Lock()
_checked: set[int] = set()  # processes, since a fork must not inherit another's check


@dataclass(frozen=True)
class _Test:
    stdin: str
    expected: str
    function: str | None


def judge_code(
    response: str, gold: str, limits: Limits = _DEFAULT_LIMITS, cancelled: threading.Event | None = None
) -> Verdict:
    """Run the program of the response on the tests; the first that fails decides.

    Safe to call from several threads at once. The first call in a process makes sure that the sandbox works.

    Args:
        response: its program is what `last_program` finds.
        gold: JSON, ``{"tests": [{"input", "output", "testtype": "stdin" or "functional"}], "function": name or null}``.
        limits: of each test.
        cancelled: once it is set, no further test is begun.

    Raises:
        GoldError: the gold cannot be read; then no response could be judged.
        InfrastructureError: the sandbox does not work here, so nothing is known about the program.
    """
    tests = read_tests(gold)
    program = last_program(response)
    if program is None:
        return Verdict(Outcome.NO_ANSWER, None)
    with _lock:
        if os.getpid() not in _checked:
            _check_judgement()
            _checked.add(os.getpid())
    return Verdict(_judge(program, tests, limits, cancelled), program)


def last_program(response: str) -> str | None:
    """Content of the last block fenced as Python or, without any, of the last of no stated language; else None.

    Sample input and output often follow a program, in blocks of no stated language. Reasoning (``<think>``) does not
    count, and neither does anything if it, or the last block, was cut off.
    """
    answer = response.rpartition("</think>")[2]
    if "<think>" in answer:
        return None
    python = bare = opened = None
    body: list[str] = []
    for line in answer.split("\n"):
        fence = _FENCE.fullmatch(line.rstrip())
        if opened is None:
            if fence:
                opened, body = fence, []
        elif fence and not fence["language"] and len(fence["ticks"]) >= len(opened["ticks"]):
            content = "\n".join(body) + "\n"
            if opened["language"].lower() in _PYTHON:
                python = content
            elif not opened["language"]:
                bare = content
            opened = None
        else:
            body.append(line.removeprefix(opened["indent"]))
    if opened is not None:
        return None
    return bare if python is None else python


def same_output(output: str, expected: str) -> bool:
    """Whether two texts have the same lines of the same tokens; numbers may be written in different ways.

    Blanks do not count, nor do empty lines at the beginning and end. Numbers must be equal exactly.
    """
    pairs = itertools.zip_longest(_tokens(output), _tokens(expected), fillvalue="")
    return all(_same_token(token, other) for token, other in pairs)


def same_value(value: Any, expected: Any) -> bool:
    """Whether two JSON values are equal. Numbers are compared exactly, and no number equals a truth value."""
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(expected, list):
        return isinstance(value, list) and len(value) == len(expected) and all(map(same_value, value, expected))
    if isinstance(expected, dict):
        return (
            isinstance(value, dict)
            and value.keys() == expected.keys()
            and all(same_value(value[key], expected[key]) for key in expected)
        )
    return value == expected


def _judge(program: str, tests: tuple[_Test, ...], limits: Limits, cancelled: threading.Event | None) -> Outcome:
    for test in tests:
        if cancelled and cancelled.is_set():
            raise InfrastructureError("the verifier was closed while it was judging")
        outcome = _run_test(program, test, limits)
        if outcome is not Outcome.EQUAL:
            return outcome
    return Outcome.EQUAL


def _run_test(program: str, test: _Test, limits: Limits) -> Outcome:
    execution = run_program(program, test.stdin, limits, test.function)
    if execution.ending is Ending.KILLED:
        # The machine may be to blame. If it still runs good programs, then this one gets a second and last chance.
        check_sandbox()
        execution = run_program(program, test.stdin, limits, test.function)
    if execution.ending is Ending.TIMEOUT:
        return Outcome.TIMEOUT
    if execution.ending is not Ending.OK:
        return Outcome.CRASH
    if test.function is None:
        return Outcome.EQUAL if same_output(execution.stdout, test.expected) else Outcome.NOT_EQUAL
    return _judge_returned(execution, test)


def _judge_returned(execution: Execution, test: _Test) -> Outcome:
    if not execution.stdout:
        return Outcome.CRASH  # it exited before it returned
    try:
        returned = json.loads(execution.stdout)
    except (ValueError, RecursionError):  # not written by the sandbox, or nested or long beyond any expected answer
        return Outcome.NOT_EQUAL
    return Outcome.EQUAL if same_value(returned, json.loads(test.expected)) else Outcome.NOT_EQUAL


def _check_judgement() -> None:
    check_sandbox()
    doubled = "class Solution:\n    def double(self, values: List[int]):\n        return tuple(2 * v for v in values)\n"
    for program, test, right in (
        ("print(2 * int(input()))", _Test("21\n", "42\n", None), Outcome.EQUAL),
        ("print(3 * int(input()))", _Test("21\n", "42\n", None), Outcome.NOT_EQUAL),
        (doubled, _Test("[1, 2]", "[2, 4]", "double"), Outcome.EQUAL),
        (doubled, _Test("[1, 2]", "[2, 5]", "double"), Outcome.NOT_EQUAL),
    ):
        outcome = _run_test(program, test, _DEFAULT_LIMITS)
        if outcome is not right:
            raise InfrastructureError(f"a program that is known to be {right} is judged {outcome}: {program!r}")


@functools.lru_cache(maxsize=64)  # the responses of a group have the same one
def read_tests(gold: str) -> tuple[_Test, ...]:
    """The tests of a problem.

    Raises:
        GoldError: they cannot be read.
    """
    try:
        content = json.loads(gold)
        tests = tuple(_read_test(test, content["function"]) for test in content["tests"])
    except (ValueError, KeyError, TypeError) as error:
        raise GoldError(f"gold of a program, {gold[:200]!r}, cannot be read: {error!r}") from error
    if len({test.function is None for test in tests}) > 1:
        raise GoldError(f"gold of a program, {gold[:200]!r}, mixes tests of a function with others")
    if not tests:
        raise GoldError(f"gold of a program, {gold[:200]!r}, has no tests")
    return tests


def _read_test(test: dict[str, str], function: str | None) -> _Test:
    stdin, expected, kind = (test[key] for key in ("input", "output", "testtype"))
    if kind not in ("stdin", "functional") or not isinstance(stdin, str) or not isinstance(expected, str):
        raise ValueError(f"test {str(test)[:200]}")
    if kind == "stdin":
        return _Test(stdin, expected, None)
    if not isinstance(function, str) or not function.isidentifier():
        raise ValueError(f"function {function!r}")
    for value in (*filter(str.strip, stdin.splitlines()), expected):
        json.loads(value)
    return _Test(stdin, expected, function)


def _tokens(text: str) -> Iterator[str]:
    """Tokens and line ends, one at a time: a program may write many more than anybody expects."""
    return (found[0] for found in _TOKEN.finditer(text.strip(_BLANKS)))


def _same_token(token: str, expected: str) -> bool:
    if token == expected:
        return True
    return bool(_NUMBER.fullmatch(token) and _NUMBER.fullmatch(expected)) and Decimal(token) == Decimal(expected)
