"""Verifiers: was a response correct?"""

from collections.abc import Callable

from balanced_aggregation.rewards.arithmetic import check_arithmetic
from balanced_aggregation.rewards.mathematics import check_math
from balanced_aggregation.rewards.verdict import Outcome, Verdict

VERIFIERS: dict[str, Callable[[str, str], Verdict]] = {"arithmetic": check_arithmetic, "math": check_math}
"""By the name that a problem's row gives: (response, gold) -> verdict."""

__all__ = ["VERIFIERS", "Outcome", "Verdict", "check_arithmetic", "check_math"]
