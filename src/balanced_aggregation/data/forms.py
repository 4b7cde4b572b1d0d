"""From the rows of public datasets to ``id``, ``problem``, ``gold`` and ``tolerance``, one function a form.

They raise ValueError, TypeError, KeyError or IndexError for rows that do not have the form.
"""

import base64
import io
import json
import math
import pickle
import zlib
from typing import Any

import pandas as pd

from balanced_aggregation.rewards.mathematics.extraction import final_boxed

_DAPO_PREFIX = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
_DAPO_SUFFIX = '\n\nRemember to put your answer on its own line after "Answer:".'


def dapo(frame: pd.DataFrame) -> pd.DataFrame:
    """Problems without the instruction that is wrapped around each of them."""
    return _problems(
        frame["extra_info"].map(lambda info: info["index"]),
        frame["prompt"].map(_unwrapped),
        frame["reward_model"].map(lambda model: model["ground_truth"]),
    )


def _unwrapped(messages: list[dict[str, str]]) -> str:
    asked = messages[0]["content"]
    if len(messages) != 1 or not (asked.startswith(_DAPO_PREFIX) and asked.endswith(_DAPO_SUFFIX)):
        raise ValueError(f"a prompt without the instruction around it: {asked[:60]!r}")
    return asked.removeprefix(_DAPO_PREFIX).removesuffix(_DAPO_SUFFIX)


def polaris(frame: pd.DataFrame) -> pd.DataFrame:
    """Problems are numbered as they come, since nothing else names them."""
    return _problems([f"polaris/{i}" for i in range(len(frame))], frame["problem"], frame["answer"])


def math_500(frame: pd.DataFrame) -> pd.DataFrame:
    """As they are."""
    return _problems(frame["unique_id"], frame["problem"], frame["answer"])


def aime(frame: pd.DataFrame) -> pd.DataFrame:
    """Golds are integers, with or without leading zeros."""
    return _problems(frame["id"], frame["problem"], frame["answer"])


def aime_capitalised(frame: pd.DataFrame) -> pd.DataFrame:
    """The same with capitals in the names of columns."""
    return _problems(frame["ID"], frame["Problem"], frame["Answer"])


def olympiadbench(frame: pd.DataFrame) -> pd.DataFrame:
    """All final answers together are the gold; ``error`` is the absolute tolerance."""
    questions = [
        f"{row.context}\n\n{row.question}" if row.context else row.question
        for row in frame.assign(context=frame.get("context")).itertuples()
    ]
    problems = _problems(frame["id"], questions, frame["final_answer"].map(_joined))
    problems["tolerance"] = pd.to_numeric(frame["error"]).to_numpy(dtype="float64")
    return problems


def _joined(answers: Any) -> str:
    if isinstance(answers, str) or not len(answers):
        raise ValueError(f"final_answer is no list of answers: {answers!r}")
    return ", ".join(answers)


def minerva(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbered as they come, since nothing else names them."""
    return _problems([f"minerva/{i}" for i in range(len(frame))], frame["question"], frame["answer"])


def minerva_solutions(frame: pd.DataFrame) -> pd.DataFrame:
    """The gold stands in the box of the solution."""
    golds = frame["solution"].map(final_boxed)
    if golds.isna().any():
        raise ValueError("a solution without a boxed answer")
    return _problems("minerva/" + frame["idx"].astype(str), frame["problem"], golds)


def livecodebench(frame: pd.DataFrame) -> pd.DataFrame:
    """Public and private tests; the name of the function to call, if there is one, stands in the metadata."""
    golds = [
        _code_gold(
            json.loads(row.public_test_cases) + _private_tests(row.private_test_cases),
            json.loads(row.metadata or "{}").get("func_name"),
        )
        for row in frame.itertuples()
    ]
    return _code_problems(frame, golds)


def livecodebench_public(frame: pd.DataFrame) -> pd.DataFrame:
    """Copies that hold the public tests, as lists, and nothing else."""
    functions = frame.get("function", pd.Series([None] * len(frame)))
    golds = [_code_gold(tests, name) for tests, name in zip(frame["public_tests"], functions, strict=True)]
    return _code_problems(frame, golds)


def _private_tests(encoded: str) -> list[dict[str, str]]:
    """Tests that upstream writes as JSON, pickled, deflated and in base64, or as plain JSON."""
    if not encoded:
        raise ValueError("a problem without private tests")
    try:
        return json.loads(encoded)
    except json.JSONDecodeError:
        pass
    try:
        return json.loads(_Plain(io.BytesIO(zlib.decompress(base64.b64decode(encoded)))).load())
    except (zlib.error, pickle.UnpicklingError, EOFError) as error:
        raise ValueError(f"private tests cannot be decoded: {error}") from error


class _Plain(pickle.Unpickler):
    """Unpickles strings, numbers and lists. A pickle that names a class or a function could run anything."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"tests hold {module}.{name}")


def _code_gold(tests: list[dict[str, str]], function: str | None) -> str:
    """Tests as the verifier of code reads them."""
    if not len(tests):
        raise ValueError("a problem without tests")
    kept = [{key: test[key] for key in ("input", "output", "testtype")} for test in tests]
    if any(test["testtype"] == "functional" for test in kept) and not function:
        raise ValueError("tests of a function that is not named")
    return json.dumps({"tests": kept, "function": function})


def _code_problems(frame: pd.DataFrame, golds: list[str]) -> pd.DataFrame:
    statements = [
        row.question_content
        + (
            f"\n\nComplete this code:\n\n```python\n{row.starter_code}\n```"
            if row.starter_code
            else "\n\nThe program reads from standard input and writes to standard output."
        )
        for row in frame.itertuples()
    ]
    return _problems(frame["question_id"], statements, golds)


def _problems(ids: Any, problems: Any, golds: Any) -> pd.DataFrame:
    columns = {"id": ids, "problem": problems, "gold": golds}
    return pd.DataFrame({name: list(map(_text, values)) for name, values in columns.items()}).assign(
        tolerance=float("nan")
    )


def _text(value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number and not isinstance(value, str):
        raise ValueError(f"{value!r} where text or a number should be")
    return str(value)
