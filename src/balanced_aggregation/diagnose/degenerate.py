"""Logs that are not worth analysing, and why. Thresholds are here and nowhere else, and every report prints them."""

from balanced_aggregation.diagnose.analysis import Analysis
from balanced_aggregation.diagnose.log import Log
from balanced_aggregation.diagnose.verification import Verification

THRESHOLDS = {
    "truncated": 0.99,
    "empty": 0.5,
    "alone": 0.5,
    "disagreement": 0.05,
}
"""Shares: of responses that were cut off, of empty responses, of responses without another in their group, each at
least; and of rewards that the answers contradict: the lower end of its 95 % interval, above. Good verifiers of
mathematics differ in one to three per cent of verdicts (forms of numbers, units, lists), and 5 % is beyond that."""

EXIT_CODE = 3
"""Of the command for a degenerate log: 0 is for an analysis, 1 for a user's mistake."""


def findings(log: Log, analysis: Analysis, verification: Verification | str) -> dict[str, str]:
    """What makes a log degenerate, by a short name; nothing if it can be analysed."""
    total, found = len(log), {}
    if isinstance(verification, Verification) and verification.low > THRESHOLDS["disagreement"]:
        found["rewards_contradict_answers"] = (
            f"The rewards contradict the recorded answers: of {verification.compared:,} responses drawn at random "
            f"and judged anew, {verification.share:.1%} disagree (95 % interval from {verification.low:.1%}; "
            f"degenerate above {THRESHOLDS['disagreement']:.0%}, more than differences of format explain). "
            f"{verification.wrongly_failed:,} right answers were scored as wrong, "
            f"{verification.wrongly_passed:,} wrong ones as right. "
            "Signs of advantages mean nothing here: look at the reward function first."
        )
    if analysis.responses_alone >= THRESHOLDS["alone"] * total:
        found["groups_of_one"] = (
            f"{_of(analysis.responses_alone, total)} have no other in their group (degenerate from "
            f"{THRESHOLDS['alone']:.0%}), so there is nothing to compare them with. Groups are told by "
            f"{' + '.join(log.columns.group)}; --group names other columns."
        )
    if analysis.updates == 0:
        found["zero_variance"] = (
            f"All {analysis.groups:,} groups have zero variance: within each, all rewards are equal, so every "
            "advantage is 0 and no rule makes any update."
        )
    if log.truncated is not None and log.truncated >= THRESHOLDS["truncated"] * total:
        found["truncated"] = (
            f"{_of(log.truncated, total)} were cut off (degenerate from {THRESHOLDS['truncated']:.0%}): lengths are "
            "those of the limit, not of what the model wanted to say."
        )
    if log.empty >= THRESHOLDS["empty"] * total:
        found["empty"] = f"{_of(log.empty, total)} are empty (degenerate from {THRESHOLDS['empty']:.0%})."
    return found


def _of(count: int, total: int) -> str:
    return f"{count:,} of {total:,} responses ({count / total:.0%})"
