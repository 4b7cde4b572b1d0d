"""Do the rewards agree with the answers on record? A sample is judged anew by the verifier of mathematics."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from balanced_aggregation.diagnose.log import Recorded
from balanced_aggregation.errors import GoldError
from balanced_aggregation.rewards.mathematics.extraction import final_boxed
from balanced_aggregation.rewards.pool import Submission, VerifierPool
from balanced_aggregation.rewards.verdict import Outcome, Verdict

SHOWN = 3
"""Examples of disagreement."""

_WORKERS = 2
_COMPARABLE = (Outcome.EQUAL, Outcome.NOT_EQUAL)


@dataclass(frozen=True)
class Disagreement:
    """A response whose reward is not what its answer deserves."""

    place: str
    gold: str
    answer: str
    reward: float
    correct: bool
    """By our verifier."""


@dataclass(frozen=True)
class Verification:
    """What came of it."""

    sampled: int
    compared: int
    """Those with an answer that can be read, and a gold that is mathematics."""
    wrongly_failed: int
    """Right answers whose reward says wrong."""
    wrongly_passed: int
    """Wrong answers whose reward says right."""
    low: float
    """Lower end of the 95 % interval (Wilson) of the share of disagreements."""
    examples: list[Disagreement] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Disagreements among those compared."""
        return (self.wrongly_failed + self.wrongly_passed) / self.compared if self.compared else 0.0


def verify(recorded: Sequence[Recorded], reward_range: tuple[float, float]) -> Verification | str:
    r"""Hold rewards against answers.

    A reward counts as "right" above 0.5, or above 0 in a log with negative ones. What no verifier of mathematics could
    decide is not compared: responses without ``\boxed{}`` or ``####``, golds that are no mathematics.

    Args:
        recorded: the sample.
        reward_range: smallest and largest reward of the log.

    Returns:
        the counts, or in words why nothing can be compared.
    """
    low, high = reward_range
    if low < -1 or high > 1:
        return f"not checked: rewards from {low:g} to {high:g} are no verdicts; --reward COLUMN chooses one that is"
    threshold = 0.0 if low < 0 else 0.5
    found: list[Disagreement] = []
    compared = 0
    for row, gold, verdict in _judge(recorded):
        if verdict.outcome not in _COMPARABLE:
            continue
        compared += 1
        if verdict.correct != (row.reward > threshold):
            found.append(Disagreement(row.place, gold, verdict.extracted or "", row.reward, verdict.correct))
    if not compared:
        return "not checked: no response of the sample has an answer and a right answer that can be compared"
    failed = sum(disagreement.correct for disagreement in found)
    return Verification(
        sampled=len(recorded),
        compared=compared,
        wrongly_failed=failed,
        wrongly_passed=len(found) - failed,
        low=_wilson_low(len(found), compared),
        examples=found[:SHOWN],
    )


def _judge(recorded: Sequence[Recorded]) -> list[tuple[Recorded, str, Verdict]]:
    """Verdicts of those whose gold can be read."""
    judged = []
    with VerifierPool(_WORKERS) as pool:
        pending: list[tuple[Recorded, str, Future[Verdict]]] = []
        for row in recorded:
            gold = _gold(row.gold)
            if gold is not None:
                pending.append((row, gold, pool.submit(Submission("math", _boxed(row.response), gold))))
        for row, gold, verdict in pending:
            try:
                judged.append((row, gold, verdict.result()))
            except GoldError:
                continue
    return judged


def _gold(value: Any) -> str | None:
    """A gold as text: logs also hold numbers, lists of one, and tests of programs, which are none."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value) or None


def _boxed(response: str) -> str:
    """GSM8K's form of an answer, ``#### 18``, in a box where there is none."""
    answer = response.rpartition("####")[2].strip()
    if "####" in response and answer and final_boxed(response) is None:
        return f"{response}\n\\boxed{{{answer.splitlines()[0].strip()}}}"
    return response


def _wilson_low(hits: int, trials: int) -> float:
    from scipy.stats import binomtest

    return float(binomtest(hits, trials).proportion_ci(method="wilson").low)
