"""Verifiers: was a response correct?"""

import atexit
import functools
from collections.abc import Sequence

from balanced_aggregation.rewards.arithmetic import check_arithmetic
from balanced_aggregation.rewards.pool import Submission, VerifierPool
from balanced_aggregation.rewards.verdict import Outcome, Verdict


def check_math(response: str, gold: str, tolerance: float | None = None) -> Verdict:
    r"""Compare the final boxed answer of a response with the gold, in a process of its own that can be killed.

    Args:
        response: text in which the answer stands in ``\boxed{}``.
        gold: the right answer, in LaTeX or as a number.
        tolerance: absolute, for a number.

    Returns:
        the verdict: ``correct``, ``extracted`` and ``outcome``.

    Raises:
        GoldError: the gold cannot be read.
        InfrastructureError: the verifier's process cannot do its work.
    """
    return _pool(1).submit(Submission("math", response, gold, tolerance)).result()


def check_math_batch(
    responses: Sequence[str], golds: Sequence[str], tolerances: Sequence[float | None] | None = None, workers: int = 2
) -> list[Verdict]:
    """`check_math` of many responses, each with its gold, on a pool of ``workers`` processes.

    Raises:
        GoldError: a gold cannot be read.
        ValueError: the lengths of the arguments differ.
        InfrastructureError: a verifier's process cannot do its work.
    """
    tolerances = [None] * len(responses) if tolerances is None else tolerances
    rows = zip(responses, golds, tolerances, strict=True)
    return _pool(workers).verify([Submission("math", *row) for row in rows])


@functools.cache
def _pool(workers: int) -> VerifierPool:
    """A pool that lives as long as the program."""
    pool = VerifierPool(workers)
    atexit.register(pool.close)
    return pool


__all__ = [
    "Outcome",
    "Submission",
    "Verdict",
    "VerifierPool",
    "check_arithmetic",
    "check_math",
    "check_math_batch",
]
