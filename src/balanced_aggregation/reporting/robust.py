"""Interquartile mean and probability of improvement over (seed x benchmark) runs, as in rliable.

Agarwal et al., *Deep Reinforcement Learning at the Edge of the Statistical Precipice* (arXiv 2108.13264). Unlike there,
problems are resampled too, within each benchmark, and seeds jointly for all rules and benchmarks: they are paired.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy import stats

from balanced_aggregation.reporting.statistics import Components, Estimate

Statistic = Callable[[list[np.ndarray]], np.ndarray]
"""From accuracies of rules, each ``(..., seeds, benchmarks)``, to one number for each of the leading dimensions."""


def interquartile_mean(runs: list[np.ndarray]) -> np.ndarray:
    """Mean of the middle half of the runs of the only rule, those of all benchmarks together."""
    return stats.trim_mean(runs[0].reshape(*runs[0].shape[:-2], -1), 0.25, axis=-1)


def probability_of_improvement(runs: list[np.ndarray]) -> np.ndarray:
    """Chance that a run of the first rule beats one of the second, of any seeds; averaged over benchmarks."""
    ours, theirs = runs[0][..., :, None, :], runs[1][..., None, :, :]
    return ((ours > theirs) + 0.5 * (ours == theirs)).mean(axis=(-3, -2, -1))


def robust_estimate(
    statistic: Statistic,
    rules: list[np.ndarray],
    benchmark: np.ndarray,
    seed: int,
    resamples: int = 1000,
    fewest: int = 2,
) -> Estimate:
    """A statistic of runs with an interval over seeds and problems.

    Percentiles of resampled seeds are too narrow: with three seeds there are ten different resamples. So resamples of
    seeds, of problems and of both give variances; that of seeds is multiplied by S/(S-1), the residual, which is in
    both, is taken out of the problems' part, and the two are combined as for means (`statistics`). Of the bounds, those
    that the statistic cannot reach are cut to 0 and 1.

    Args:
        statistic: what is estimated, from 0 to 1.
        rules: accuracies ``(seeds, problems)`` of the rules that it is about.
        benchmark: number of each problem's benchmark, from 0 on.
        seed: of the resamples.
        resamples: how many.
        fewest: seeds that an interval needs.
    """
    seeds = len(rules[0])
    runs = [_run_means(values, benchmark) for values in rules]
    value = float(statistic(runs))
    if seeds < fewest or np.bincount(benchmark).min() < 2:
        return Estimate(value, math.nan, math.nan, seeds)
    generator = np.random.default_rng(seed)
    drawn = generator.integers(seeds, size=(resamples, seeds))
    resampled = _resample_problems(rules, benchmark, resamples, generator)
    of_seeds = statistic([own[drawn] for own in runs]).var(ddof=1)
    of_problems = statistic(resampled).var(ddof=1)
    of_both = statistic([np.take_along_axis(own, drawn[..., None], axis=1) for own in resampled]).var(ddof=1)
    residual = max(of_both - of_seeds - of_problems, 0)
    parts = Components(
        mean=np.array(value),
        seeds=of_seeds * seeds / (seeds - 1),
        problems=max(of_problems - residual, 0),
        seeds_freedom=seeds - 1,
        problems_freedom=np.array(len(benchmark) - benchmark.max() - 1),
    )
    half = float(parts.half_width()) if parts.known else math.nan
    return Estimate(value, max(value - half, 0.0), min(value + half, 1.0), seeds)


def _run_means(values: np.ndarray, benchmark: np.ndarray) -> np.ndarray:
    """Accuracy by ``(seed, benchmark)``."""
    return np.stack([values[:, benchmark == b].mean(axis=-1) for b in range(benchmark.max() + 1)], axis=-1)


def _resample_problems(
    rules: list[np.ndarray], benchmark: np.ndarray, resamples: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """Accuracy of the rules by ``(resample, seed, benchmark)``: problems drawn within each benchmark, alike for all."""
    means: list[list[np.ndarray]] = [[] for _ in rules]
    for b in range(benchmark.max() + 1):
        count = int((benchmark == b).sum())
        weights = generator.multinomial(count, np.full(count, 1 / count), size=resamples) / count
        for own, values in zip(means, rules, strict=True):
            own.append(weights @ values[:, benchmark == b].T)
    return [np.stack(own, axis=-1) for own in means]
