r"""Gold answers in the forms that lighteval's graders take."""

import json
import re
from typing import Any

from errors import InputError

MATHEMATICS = ("math-500", "aime-2024", "aime-2025", "olympiadbench", "minerva-math")
PROGRAMMING = ("livecodebench",)

_DOLLAR = re.compile(r"(?<!\\)\$")
_E_NOTATION = re.compile(r"([+-]?\d+(?:\.\d+)?)[eE]([+-]?\d+)")


def check_golds(benchmark: str, problems: list[dict[str, str]]) -> None:
    """Raise InputError if the gold of one of the problems is of no use."""
    read = read_tests if benchmark in PROGRAMMING else gold_readings
    for problem in problems:
        read(problem)


def gold_readings(problem: dict[str, str]) -> list[str]:
    r"""The gold as lighteval reads it; a response may match any of the forms returned.

    Bare LaTeX is not recognised as such, hence the dollars around it. ``4.5e33`` is no LaTeX and would be taken for a
    product with Euler's number: the number it means comes first, the form as it stands (for a response that also writes
    it so) second.

    Raises:
        InputError: the gold is empty.
    """
    inside = _DOLLAR.sub("", problem["gold"]).strip().removesuffix(".").strip()
    if not inside:
        raise InputError(f"gold of problem {problem['id']!r} is empty")
    scientific = _E_NOTATION.fullmatch(inside)
    number = [rf"${scientific[1]} \times 10^{{{int(scientific[2])}}}$"] if scientific else []
    return [*number, f"${inside}$"]


def read_tests(problem: dict[str, str]) -> dict[str, Any]:
    """Tests of a programming problem, from the JSON in its gold, in the form that LiveCodeBench's grader takes.

    Returns:
        ``inputs`` and ``outputs`` (lists of str of equal length, not empty), ``fn_name`` (None: a program that reads
        standard input).

    Raises:
        InputError: the gold is something else, or mixes both kinds of tests.
    """
    where = f"gold of problem {problem['id']!r}"
    try:
        gold = json.loads(problem["gold"])
        tests, function = gold["tests"], gold["function"]
        inputs, outputs, kinds = ([test[key] for test in tests] for key in ("input", "output", "testtype"))
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{where} is not JSON with tests and function: {type(error).__name__} {error}") from error
    if not tests:
        raise InputError(f"{where} has no tests: every program would pass")
    if not all(isinstance(text, str) for text in inputs + outputs):
        raise InputError(f"{where}: input and output of a test must be strings")
    if function is not None and not (isinstance(function, str) and function.isidentifier()):
        raise InputError(f"{where}: function must be a name or null, not {function!r}")
    kind = "stdin" if function is None else "functional"
    if set(kinds) != {kind}:
        raise InputError(f"{where}: with function {function!r} every test must be {kind}")
    if function is not None:
        _check_arguments(where, inputs, outputs)
    return {"inputs": inputs, "outputs": outputs, "fn_name": function}


def _check_arguments(where: str, inputs: list[str], outputs: list[str]) -> None:
    # The grader would call every program wrong.
    try:
        for text in [line for given in inputs for line in given.split("\n")] + outputs:
            json.loads(text)
    except ValueError:
        raise InputError(f"{where}: arguments (one a line) and result of a function must be JSON: {text!r}") from None
