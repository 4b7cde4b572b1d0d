"""The verifier of mathematics, on math-verify."""

from math_verify import LatexExtractionConfig, parse, verify
from math_verify.errors import TimeoutException

from balanced_aggregation.rewards.verdict import Outcome, Verdict

_SECONDS = 5
_BOX = r"\boxed{"
_READ = {
    "extraction_config": [LatexExtractionConfig(boxed_match_priority=0)],
    "parsing_timeout": _SECONDS,
    "raise_on_error": True,
}


def check_math(response: str, gold: str) -> Verdict:
    r"""Compare the final boxed answer of the response with the gold.

    Both are parsed inside ``\boxed{}``: bare LaTeX is not recognised as such. Must run in the main thread of a
    process, since the time limit is a signal.

    Raises:
        ValueError: the gold itself cannot be read; then no response could be judged.
    """
    inside = final_boxed(gold)
    expected = parse(rf"\boxed{{{gold if inside is None else inside}}}", **_READ)
    if not expected:
        raise ValueError(f"gold answer {gold!r} cannot be read as mathematics")
    extracted = final_boxed(response)
    if extracted is None:
        return Verdict(Outcome.NO_ANSWER, None)
    try:
        answer = parse(rf"\boxed{{{extracted}}}", **_READ)
        equal = bool(answer) and verify(expected, answer, timeout_seconds=_SECONDS, raise_on_error=True)
    except TimeoutException:
        return Verdict(Outcome.TIMEOUT, extracted)
    except Exception:  # sympy fails in many ways on what a model writes
        return Verdict(Outcome.UNREADABLE, extracted)
    return Verdict(Outcome.EQUAL if equal else Outcome.NOT_EQUAL, extracted)


def final_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{}`` of the text; None if there is none, or its brace is never closed."""
    start = text.rfind(_BOX)
    if start < 0:
        return None
    start += len(_BOX)
    depth = 1
    for place in range(start, len(text)):
        backslashes = place - len(text[:place].rstrip("\\"))
        if text[place] in "{}" and backslashes % 2 == 0:
            depth += 1 if text[place] == "{" else -1
            if depth == 0:
                return text[start:place]
    return None
