"""Statistics of the comparison. The unit of replication is the training seed; comparisons are paired over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from scipy import stats

from balanced_aggregation.evaluation.metrics import is_average


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval (NaN bounds with fewer than two seeds)."""

    mean: float
    low: float
    high: float
    seeds: int


def mean_over_seeds(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Mean and Student's t interval over seeds.

    With few seeds the t interval is wide, and rightly so; a bootstrap of three values is far too narrow.
    """
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Estimate(mean, math.nan, math.nan, n)
    if max(values) - min(values) <= 1e-12 * max(1.0, abs(mean)):  # equal but for rounding: no variance to estimate
        return Estimate(mean, mean, mean, n)
    low, high = stats.ttest_1samp(list(values), 0.0).confidence_interval(confidence)
    return Estimate(mean, float(low), float(high), n)


def paired_difference(ours: pd.Series, theirs: pd.Series) -> Estimate:
    """Mean of ``ours - theirs`` over seeds, both indexed by seed.

    For a seed all rules start from the same weights and see the same prompts, so the difference is taken within it.

    Raises:
        ValueError: the two do not have the same seeds.
    """
    if set(ours.index) != set(theirs.index):
        raise ValueError(f"seeds differ: {sorted(ours.index)} and {sorted(theirs.index)}")
    return mean_over_seeds((ours - theirs.reindex(ours.index)).tolist())


def accuracy(results: pd.DataFrame) -> pd.DataFrame:
    """The rows of each benchmark's primary metric, avg@k with its own k."""
    return results[results["metric"].map(is_average)]


def accuracy_by_step(results: pd.DataFrame) -> pd.DataFrame:
    """The primary metric averaged over benchmarks: one row a (rule, seed), one column a step."""
    chosen = accuracy(results)
    return chosen.pivot_table(index=["rule", "seed"], columns="step", values="value", aggfunc="mean")


def last_and_peak(by_step: pd.DataFrame) -> pd.DataFrame:
    """Accuracy at the last step and at the best evaluated step of each run.

    The peak is chosen by looking at the benchmarks themselves, so it is biased upwards; the initial model counts.
    """
    return pd.DataFrame({"last": by_step[by_step.columns.max()], "peak": by_step.max(axis=1)})
