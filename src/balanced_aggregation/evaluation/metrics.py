"""Metrics of a benchmark from the verdicts on its responses."""

import math
import re
from math import comb

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


def count_by_problem(evaluations: pd.DataFrame) -> pd.DataFrame:
    """What the verdicts on one checkpoint's responses to one benchmark come to, one row a problem.

    Args:
        evaluations: rows as `schemas.EVALUATIONS` has them; ``lighteval`` beside them, lighteval's scores, is counted
            as well.

    Returns:
        problem; of the sampled responses their number (samples), how many are correct and truncated, and their mean
        length in tokens; whether the greedy response is correct (1 or 0), and the sum of lighteval's scores, both NaN
        where there are none.
    """
    sampled = evaluations[evaluations["decoding"] == "sampled"].groupby("problem", sort=False)
    greedy = evaluations[evaluations["decoding"] == "greedy"].set_index("problem")["correct"].astype("float64")
    counts = pd.DataFrame(
        {
            "samples": sampled.size().astype("int64"),
            "correct": sampled["correct"].sum().astype("int64"),
            "truncated": sampled["truncated"].sum().astype("int64"),
            "length": sampled["length"].mean().astype("float64"),
        }
    )
    counts["greedy"] = greedy.reindex(counts.index)
    counts["lighteval"] = sampled["lighteval"].sum().astype("float64") if "lighteval" in evaluations else math.nan
    return counts.reset_index()


def metrics_by_problem(counts: pd.DataFrame, decoding: DecodingOf) -> pd.DataFrame:
    """Every metric of a benchmark, one column each, the primary one first.

    Args:
        counts: rows of one benchmark as `count_by_problem` makes them; the index is kept.
        decoding: how the benchmark was answered.
    """
    values = {average_name(decoding): counts["correct"] / counts["samples"]}
    if decoding.greedy:
        values["greedy_accuracy"] = counts["greedy"]
    for k in decoding.pass_at:
        table = [pass_at_k(decoding.samples, correct, k) for correct in range(decoding.samples + 1)]
        values[f"pass@{k}"] = counts["correct"].map(table.__getitem__)
    values["response_length"] = counts["length"]
    values["truncated"] = counts["truncated"] / counts["samples"]
    if counts["lighteval"].notna().any():
        values[f"lighteval {average_name(decoding)}"] = counts["lighteval"] / counts["samples"]
    return pd.DataFrame(values)


def benchmark_metrics(counts: pd.DataFrame, decoding: DecodingOf) -> pd.DataFrame:
    """Metrics of one checkpoint on one benchmark, the primary one first.

    Args:
        counts: as `count_by_problem` makes them.
        decoding: how the benchmark was answered.

    Returns:
        rows with metric, value (mean over problems) and standard_error (of that mean; the problem, not the sample, is
        the unit; NaN for a single problem).
    """
    values = metrics_by_problem(counts, decoding)
    errors = values.std(ddof=1) / math.sqrt(len(values))
    rows = {"metric": values.columns, "value": values.mean().to_numpy(), "standard_error": errors.to_numpy()}
    return pd.DataFrame(rows)
