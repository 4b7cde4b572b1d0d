"""Verifiers: was a response correct?"""

from collections.abc import Callable, Sequence

import pandas as pd

from balanced_aggregation.rewards.arithmetic import check_arithmetic
from balanced_aggregation.rewards.mathematics import check_math
from balanced_aggregation.rewards.verdict import Outcome, Verdict

VERIFIERS: dict[str, Callable[[str, str], Verdict]] = {"arithmetic": check_arithmetic, "math": check_math}
"""By the name that a problem's row gives: (response, gold) -> verdict."""


def verify_texts(texts: Sequence[str], problems: pd.DataFrame, samples: int) -> list[Verdict]:
    """Verdict on each response; ``samples`` of them, one after the other, belong to each row of ``problems``."""
    golds = [(VERIFIERS[p.verifier], p.gold) for p in problems.itertuples() for _ in range(samples)]
    return [verifier(text, gold) for text, (verifier, gold) in zip(texts, golds, strict=True)]


__all__ = ["VERIFIERS", "Outcome", "Verdict", "check_arithmetic", "check_math", "verify_texts"]
