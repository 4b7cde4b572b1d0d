"""How many training seeds it takes to see a difference between two rules, from the variances measured so far."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy import stats

from balanced_aggregation.errors import UserError
from balanced_aggregation.reporting.scores import Scores
from balanced_aggregation.reporting.statistics import CONFIDENCE, Components, components

POWER = 0.8
MOST_SEEDS = 1000
_UNSURE = 0.8
"""Confidence of the upper limit of the variance over seeds."""
_QUANTILES = (np.arange(400) + 0.5) / 400


@dataclass(frozen=True)
class Variances:
    """What the difference of two rules varies by: variance over seeds of a seed's difference, and of the rest."""

    seed: float
    """Of the difference of one pair of trainings, over seeds: divided by their number in a study."""
    problems: float
    """What more seeds do not take away."""
    problems_freedom: float
    sampling: float
    """Of `problems`, at most so much is due to the chance of sampled responses: it falls as their number grows."""


@dataclass(frozen=True)
class Need:
    """What one difference of two rules takes."""

    difference: float
    seeds: int | None
    """None if no number of seeds is enough."""
    seeds_if_unlucky: int | None
    """The same if the variance over seeds is at its upper limit."""
    problems: float
    """Problems it takes with any number of seeds, as a multiple of those there are: above 1, they are the limit."""


@dataclass(frozen=True)
class PairPower:
    """What can be seen between two rules."""

    ours: str
    theirs: str
    variances: Variances
    needs: list[Need]


def power(difference: float, seeds: int, variances: Variances, level: float) -> float:
    """Chance that the test of `statistics` finds a true difference, two-sided.

    The estimate is normal. What a study of so many seeds would find the variance over seeds to be is random as well,
    and the power is averaged over it.

    Args:
        difference: the true one.
        seeds: of each rule.
        variances: true ones.
        level: of the test, corrected for other comparisons.
    """
    true = variances.seed / seeds
    estimated = true * stats.chi2.ppf(_QUANTILES, seeds - 1) / (seeds - 1)
    parts = Components(
        mean=np.zeros_like(estimated),
        seeds=estimated,
        problems=np.full_like(estimated, variances.problems),
        seeds_freedom=seeds - 1,
        problems_freedom=np.array(variances.problems_freedom),
    )
    error = math.sqrt(true + variances.problems)
    if error == 0:
        return float(difference != 0)
    bound = parts.half_width(level)
    return float((stats.norm.sf((bound - difference) / error) + stats.norm.cdf((-bound - difference) / error)).mean())


def seeds_needed(difference: float, variances: Variances, level: float) -> int | None:
    """Fewest seeds, at least 2, that give a power of 80 %; None if `MOST_SEEDS` do not."""
    if power(difference, MOST_SEEDS, variances, level) < POWER:
        return None
    low, high = 1, MOST_SEEDS  # power grows with seeds
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(difference, middle, variances, level) >= POWER else (middle, high)
    return high


def measured_variances(ours: np.ndarray, theirs: np.ndarray, benchmark: np.ndarray, samples: np.ndarray) -> Variances:
    """Variances of a difference in a study.

    Args:
        ours: accuracies ``(seeds, problems)`` of one rule.
        theirs: of the other.
        benchmark: number of each problem's benchmark, from 0 on.
        samples: responses to each problem.
    """
    parts = components(ours - theirs, benchmark)
    counts = np.bincount(benchmark)
    weights = 1 / (counts[benchmark] * len(counts)) ** 2
    # Unbiased for p (1 - p) / k; shared by all seeds at worst, since all are sampled with the same seeds.
    several = np.maximum(samples - 1, 1)
    chance = sum((rule * (1 - rule)).mean(axis=0) / several for rule in (ours, theirs))
    sampling = float((weights * chance).sum()) if samples.min() > 1 else math.inf
    problems = float(parts.problems)
    return Variances(
        seed=float(parts.seeds) * len(ours),
        problems=problems,
        problems_freedom=float(parts.problems_freedom),
        sampling=min(sampling, problems),
    )


def unlucky(variances: Variances, seeds: int) -> Variances:
    """The same, the variance over seeds at the upper limit of what the measured one leaves possible."""
    seed = variances.seed * (seeds - 1) / float(stats.chi2.ppf(1 - _UNSURE, seeds - 1))
    return replace(variances, seed=seed)


def study_power(scores: Scores, differences: Sequence[float], comparisons: int) -> list[PairPower]:
    """For every pair of rules: seeds needed to see differences at the last step.

    Args:
        scores: evaluations of the study.
        differences: true ones, as shares (0.01 is a point).
        comparisons: in the table that they would stand in; each is tested at 5 % divided by them, the first of Holm's
            levels, so that power does not depend on what else is found.

    Raises:
        UserError: there are too few rules, seeds or problems to measure a variance, or a number is out of its range.
    """
    study = scores.study
    if len(scores.rules) < 2 or len(study.seeds) < 2 or np.bincount(scores.benchmark).min() < 2:
        raise UserError(
            f"study {study.full_name!r}: has {len(scores.rules)} rules, {len(study.seeds)} seeds and a benchmark of "
            f"{np.bincount(scores.benchmark).min()} problems; variances take at least 2 of each"
        )
    samples = np.array([study.decoding(b.name).samples for b in study.data.benchmarks])[scores.benchmark]
    level = (1 - CONFIDENCE) / comparisons
    pairs = []
    for theirs, ours in combinations(range(len(scores.rules)), 2):
        variances = measured_variances(scores.last[ours], scores.last[theirs], scores.benchmark, samples)
        worse = unlucky(variances, len(study.seeds))
        needs = [
            Need(
                difference,
                seeds_needed(difference, variances, level),
                seeds_needed(difference, worse, level),
                problems_needed(difference, variances, level),
            )
            for difference in differences
        ]
        pairs.append(PairPower(scores.rules[ours], scores.rules[theirs], variances, needs))
    return pairs


def problems_needed(difference: float, variances: Variances, level: float) -> float:
    """By what to divide the problems' variance so that, with any number of seeds, the power is 80 %."""
    t = stats.t.ppf(1 - level / 2, variances.problems_freedom) + stats.norm.ppf(POWER)
    return variances.problems * (t / difference) ** 2
