"""The verifier of mathematics, on math-verify."""

from math_verify import LatexExtractionConfig, parse, verify
from math_verify.errors import TimeoutException

from balanced_aggregation.rewards.verdict import Outcome, Verdict

_SECONDS = 5
_BOXED = [LatexExtractionConfig(boxed_match_priority=0)]


def check_math(response: str, gold: str) -> Verdict:
    r"""Compare the final boxed answer of the response with the gold.

    The gold is parsed inside ``\boxed{}``: bare LaTeX is not recognised as such. Must run in the main thread of a
    process, since the time limit is a signal.

    Raises:
        ValueError: the gold itself cannot be read; then no response could be judged.
    """
    wrapped = gold if r"\boxed" in gold else rf"\boxed{{{gold}}}"
    expected = parse(wrapped, _BOXED, parsing_timeout=_SECONDS, raise_on_error=True)
    if not expected:
        raise ValueError(f"gold answer {gold!r} cannot be read as mathematics")
    if r"\boxed" not in response:
        return Verdict(Outcome.NO_ANSWER, None)
    try:
        answer = parse(response, _BOXED, parsing_timeout=_SECONDS, raise_on_error=True)
        if not answer:
            return Verdict(Outcome.NO_ANSWER, None)
        equal = verify(expected, answer, timeout_seconds=_SECONDS, raise_on_error=True)
    except TimeoutException:
        return Verdict(Outcome.TIMEOUT, None)
    except Exception:  # sympy fails in many ways on what a model writes
        return Verdict(Outcome.UNREADABLE, None)
    return Verdict(Outcome.EQUAL if equal else Outcome.NOT_EQUAL, str(answer[-1]))
