"""The verifier of chained arithmetic."""

import re

from balanced_aggregation.data.arithmetic import ANSWER, SYMBOLS
from balanced_aggregation.rewards.verdict import Outcome, Verdict

# Nothing but symbols of the task: the name of a special token may hold the answer sign, too.
_ANSWER = re.compile(rf"[{re.escape(SYMBOLS)}]*{ANSWER}(\d{{1,18}})")


def check_arithmetic(response: str, gold: str) -> Verdict:
    """Compare the number after the answer sign, which must end the response, with the gold."""
    found = _ANSWER.fullmatch(response)
    if not found:
        return Verdict(Outcome.NO_ANSWER, None)
    equal = int(found[1]) == int(gold)
    return Verdict(Outcome.EQUAL if equal else Outcome.NOT_EQUAL, found[1])
