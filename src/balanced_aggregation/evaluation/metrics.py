"""Metrics of a benchmark from the verdicts on its responses."""

import re
from math import comb, sqrt

import pandas as pd

from balanced_aggregation.config import DecodingOf


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Unbiased estimate of the probability that at least one of ``k`` responses is correct.

    Chen et al. (arXiv 2107.03374), eq. 1, exact in integers.

    Raises:
        ValueError: ``k`` is not from 1 to ``samples``, or ``correct`` not from 0 to ``samples``.
    """
    if not 1 <= k <= samples or not 0 <= correct <= samples:
        raise ValueError(f"pass@{k} of {samples} samples with {correct} correct does not exist")
    return 1 - comb(samples - correct, k) / comb(samples, k)


def average_name(decoding: DecodingOf) -> str:
    """Name of the primary metric, the mean accuracy of the sampled responses: ``avg@k``."""
    return f"avg@{decoding.samples}"


def is_average(metric: str) -> bool:
    """Whether a metric is a benchmark's primary one."""
    return re.fullmatch(r"avg@\d+", metric) is not None


def benchmark_metrics(evaluations: pd.DataFrame, decoding: DecodingOf) -> pd.DataFrame:
    """Metrics of one checkpoint on one benchmark, the primary one first.

    Args:
        evaluations: rows as `schemas.EVALUATIONS` has them; ``lighteval`` beside them, lighteval's scores, gives its
            accuracy as well.
        decoding: how the benchmark was answered.

    Returns:
        rows with metric, value (mean over problems) and standard_error (of that mean; the problem, not the sample, is
        the unit; NaN for a single problem).
    """
    sampled = evaluations[evaluations["decoding"] == "sampled"].groupby("problem", sort=False)
    by_problem = {average_name(decoding): sampled["correct"].mean()}
    if decoding.greedy:
        greedy = evaluations[evaluations["decoding"] == "greedy"]
        by_problem["greedy_accuracy"] = greedy.set_index("problem")["correct"].astype("float64")
    correct = sampled["correct"].sum()
    for k in decoding.pass_at:
        by_problem[f"pass@{k}"] = correct.map(lambda c, k=k: pass_at_k(decoding.samples, int(c), k))
    by_problem["response_length"] = sampled["length"].mean()
    by_problem["truncated"] = sampled["truncated"].mean()
    if "lighteval" in evaluations:
        by_problem[f"lighteval {average_name(decoding)}"] = sampled["lighteval"].mean()
    return pd.DataFrame(
        [
            {"metric": name, "value": float(values.mean()), "standard_error": _standard_error(values)}
            for name, values in by_problem.items()
        ]
    )


def _standard_error(values: pd.Series) -> float:
    return float(values.std(ddof=1) / sqrt(len(values)))
