"""Means, paired differences and their intervals: over training seeds, and over problems nested within benchmarks.

A measured accuracy has two sources of chance. Another training seed gives another model; and other problems, or other
sampled responses to the same ones, give it another score. Seeds alone do not show the second: every checkpoint of a
study is evaluated on the same problems with the same seeds of sampling, so their luck is shared by all of them.

For a quantity ``v[s, p]``, seed by problem, the estimate is the mean over benchmarks of the means over their problems.
With seeds and problems crossed, the variance of the mean has two parts, each estimated without bias:

    seeds      variance of the means over problems / S                      Student's t with S - 1 degrees of freedom
    problems   sum over the B benchmarks of (variance over problems of the means over seeds
               - residual mean square / S) / (P_b B^2)                      nearly known: many degrees of freedom

and the half-width of the interval is ``sqrt(t_seeds^2 seeds + t_problems^2 problems)`` (Banerjee, Sankhya 22, 1960).
For normal effects it covers at least as often as it says, at every level, whatever the ratio of the two parts. With
two or three seeds Welch's and Satterthwaite's degrees of freedom cover too seldom, and so do percentile bootstraps;
Cochran and Cox's weighted t is nearer to 95 %, but fails at the small levels that Holm's correction asks for.
`benchmarks/coverage.py` measures all of them on simulated studies whose truth is known.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval; NaN bounds where there is nothing to estimate a variance from."""

    mean: float
    low: float
    high: float
    seeds: int
    p: float = math.nan
    """Two-sided, of the mean being 0; NaN where it is not tested."""
    p_corrected: float = math.nan
    """The same after Holm's correction over the comparisons of a table."""

    def __neg__(self) -> "Estimate":
        """The same of the opposite difference."""
        return replace(self, mean=-self.mean, low=-self.high, high=-self.low)

    @property
    def supported(self) -> bool:
        """Whether it differs from 0 after correction."""
        return self.p_corrected <= 1 - CONFIDENCE


@dataclass(frozen=True)
class Components:
    """Mean of ``v[s, p]`` and the two parts of its variance; arrays over whatever dimensions came before the two."""

    mean: np.ndarray
    seeds: np.ndarray
    """NaN with a single seed."""
    problems: np.ndarray
    """NaN if a benchmark has a single problem."""
    seeds_freedom: int
    problems_freedom: np.ndarray

    def half_width(self, level: float | np.ndarray = 1 - CONFIDENCE) -> np.ndarray:
        """Half of the interval that misses the truth with probability ``level``."""
        t_seeds = stats.t.isf(np.asarray(level) / 2, self.seeds_freedom)
        t_problems = stats.t.isf(np.asarray(level) / 2, self.problems_freedom)
        return np.sqrt(t_seeds**2 * self.seeds + t_problems**2 * self.problems)

    def p_value(self) -> np.ndarray:
        """The level whose interval just reaches 0, by bisection; NaN where there is no interval."""
        low, high = np.full_like(self.mean, -40.0), np.zeros_like(self.mean)  # of log(level)
        for _ in range(50):
            middle = (low + high) / 2
            reaches = self.half_width(np.exp(middle)) >= np.abs(self.mean)
            low, high = np.where(reaches, middle, low), np.where(reaches, high, middle)
        return np.where(self.known, np.exp(high), math.nan)

    @property
    def known(self) -> np.ndarray:
        """Whether there is an interval: several seeds and problems, and some variance among them."""
        return self.seeds + self.problems > 0


def components(values: np.ndarray, benchmark: np.ndarray) -> Components:
    """Mean over benchmarks, and the parts of its variance.

    Args:
        values: ``(..., seeds, problems)``.
        benchmark: number of each problem's benchmark, from 0 on.
    """
    values = np.asarray(values, dtype=np.float64)
    seeds, benchmarks = values.shape[-2], int(benchmark.max()) + 1
    by_benchmark = [values[..., benchmark == b] for b in range(benchmarks)]
    means = np.stack([v.mean(axis=-1) for v in by_benchmark], axis=-1)  # (..., seeds, benchmarks)
    overall = means.mean(axis=-1)
    parts, freedoms = [], []
    for own, own_means in zip(by_benchmark, np.moveaxis(means, -1, 0), strict=True):
        problems = own.shape[-1]
        by_problem = own.mean(axis=-2)
        residual = own - own_means[..., None] - by_problem[..., None, :] + own_means.mean(axis=-1)[..., None, None]
        mean_square = (residual**2).sum(axis=(-2, -1)) / max((seeds - 1) * (problems - 1), 1)
        scale = problems * benchmarks**2
        between = _variance(by_problem) / scale
        parts.append((between, mean_square / seeds / scale))
        freedoms.append(between**2 / max(problems - 1, 1))
    between = sum(part for part, _ in parts)
    of_problems = np.maximum(between - sum(residual for _, residual in parts), 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = between**2 / sum(freedoms)
    freedom = np.where(np.isfinite(freedom), freedom, len(benchmark) - benchmarks or 1)
    return Components(overall.mean(axis=-1), _variance(overall) / seeds, of_problems, max(seeds - 1, 1), freedom)


def _variance(values: np.ndarray) -> np.ndarray:
    """Unbiased, over the last dimension; NaN of a single value, and 0 of values that differ by rounding only."""
    if values.shape[-1] < 2:
        return np.full(values.shape[:-1], math.nan)
    variance = values.var(axis=-1, ddof=1)
    return np.where(np.ptp(values, axis=-1) <= 1e-12 * np.maximum(np.abs(values).max(axis=-1), 1), 0.0, variance)


def estimate(values: np.ndarray, benchmark: np.ndarray, tested: bool = False) -> Estimate:
    """Mean of ``values[seed, problem]`` over benchmarks with its interval over seeds and problems.

    For differences of two rules: a seed's models start from the same weights and see the same prompts, and are asked
    the same problems, so the difference is taken within seed and problem.

    Args:
        values: one row a seed, one column a problem.
        benchmark: number of each problem's benchmark, from 0 on.
        tested: give the p-value of the mean being 0.
    """
    parts = components(values, benchmark)
    mean, half = float(parts.mean), float(parts.half_width()) if parts.known else math.nan
    p = float(parts.p_value()) if tested else math.nan
    return Estimate(mean, mean - half, mean + half, len(values), p)


def mean_over_seeds(values: Sequence[float]) -> Estimate:
    """Mean and Student's t interval over seeds, for what exists once in each training.

    With few seeds the t interval is wide, and rightly so; a bootstrap of three values is far too narrow.
    """
    column = np.asarray(values, dtype=float)
    mean, variance = math.fsum(values) / len(values), float(_variance(column))
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * math.sqrt(variance / len(values)) if variance else 0.0
    return Estimate(mean, mean - half, mean + half, len(values))


def holm(estimates: Sequence[Estimate]) -> list[Estimate]:
    """The same estimates with p-values corrected by Holm's method: the chance of any false one stays below 5 %.

    Those without a p-value are not counted among the comparisons.
    """
    p = np.array([e.p for e in estimates])
    tested = np.flatnonzero(~np.isnan(p))
    corrected = np.full(len(p), math.nan)
    highest = 0.0
    for rank, place in enumerate(tested[np.argsort(p[tested], kind="stable")]):
        highest = max(highest, min((len(tested) - rank) * p[place], 1.0))
        corrected[place] = highest
    return [replace(e, p_corrected=float(c)) for e, c in zip(estimates, corrected, strict=True)]
