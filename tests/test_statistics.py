"""Statistics: numbers worked by hand, and simulated studies whose truth is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from balanced_aggregation.reporting.power import Variances, measured_variances, power, seeds_needed
from balanced_aggregation.reporting.robust import interquartile_mean, probability_of_improvement, robust_estimate
from balanced_aggregation.reporting.simulation import World
from balanced_aggregation.reporting.stability import collapsed, worst_drop
from balanced_aggregation.reporting.statistics import Estimate, components, estimate, holm, mean_over_seeds

STUDIES = 400
# A share of 400 studies has a standard error of 0.011 at 0.95: three of them.
TOLERANCE = 0.033


def draw(world, studies=STUDIES, seed=0):
    generator = np.random.default_rng(seed)
    return np.concatenate([world.draw(50, generator) for _ in range(studies // 50)])


def test_components_by_hand():
    # Two seeds; benchmark 0 has problems (0, 1), (1, 1), benchmark 1 has (0, 0), (1, 0): columns are problems.
    values = np.array([[0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    parts = components(values, np.array([0, 0, 1, 1]))
    assert parts.mean == pytest.approx(0.5)  # benchmarks: 3/4 and 1/4
    # Seeds: 1/2 and 1/2 over both benchmarks.
    assert parts.seeds == pytest.approx(0.0)
    # Problems: means over seeds 1/2, 1 and 0, 1/2, variance 1/8 each; (1/8 + 1/8) / (2 * 2^2) = 1/32. Residuals are
    # +-1/4, mean square 4/16 = 1/4 in each: (1/4 + 1/4) / (2 seeds * 2 * 2^2) = 1/32.
    assert parts.problems == pytest.approx(0.0)
    added = components(values + np.array([0.0, 0.4, 0.0, 0.4]), np.array([0, 0, 1, 1]))
    # Means over seeds 1/2, 7/5 and 0, 9/10: variance 81/200 each; (81/100) / 8 = 0.10125.
    assert added.problems == pytest.approx(0.10125 - 1 / 32)
    assert (added.seeds_freedom, added.problems_freedom) == (1, pytest.approx(2))
    half = math.sqrt((0.10125 - 1 / 32) * stats.t.ppf(0.975, 2) ** 2)
    assert added.half_width() == pytest.approx(half)


def test_without_problem_variance_it_is_students_t():
    values = np.array([1.0, 2.0, 6.0])[:, None] * np.ones(5)
    found = estimate(values, np.zeros(5, dtype=int), tested=True)
    reference = stats.ttest_1samp([1.0, 2.0, 6.0], 0.0)
    interval = reference.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.p == pytest.approx(reference.pvalue, rel=1e-6)


def test_p_value_is_the_level_whose_interval_ends_at_zero():
    world = World(differences=(0.1,))
    drawn = draw(world, 50)
    parts = components(drawn[:, 1] - drawn[:, 0], world.benchmark)
    assert parts.half_width(parts.p_value()) == pytest.approx(np.abs(parts.mean), rel=1e-4)


def test_where_there_is_no_interval():
    one_seed = estimate(np.array([[0.0, 1.0, 1.0]]), np.zeros(3, dtype=int), tested=True)
    assert one_seed.mean == pytest.approx(2 / 3)
    one_problem = estimate(np.array([[0.0, 1.0, 1.0], [0.5, 1.0, 0.0]]), np.array([0, 0, 1]), tested=True)
    no_variance = estimate(np.ones((3, 4)), np.zeros(4, dtype=int), tested=True)
    for found in (one_seed, one_problem, no_variance):
        assert math.isnan(found.low) and math.isnan(found.high) and math.isnan(found.p)
        assert not holm([found])[0].supported


def test_holm_by_hand():
    p = [0.01, 0.04, math.nan, 0.03, 0.005]
    found = holm([Estimate(0, 0, 0, 3, value) for value in p])
    # Ordered .005, .01, .03, .04: times 4, 3, 2, 1 and never falling.
    assert [e.p_corrected for e in found] == pytest.approx([0.03, 0.06, math.nan, 0.06, 0.02], nan_ok=True)
    assert [e.supported for e in found] == [True, False, False, False, True]


def test_interquartile_mean_and_probability_of_improvement_by_hand():
    runs = np.array([[0.1, 0.5], [0.2, 0.6], [0.3, 0.7], [0.4, 0.8]])  # four seeds, two benchmarks
    assert interquartile_mean([runs]) == pytest.approx((0.3 + 0.4 + 0.5 + 0.6) / 4)
    ours, theirs = np.array([[0.5, 0.2], [0.7, 0.2]]), np.array([[0.6, 0.2], [0.4, 0.1]])
    # Benchmark 0: .5 > .4, .7 > .6, .7 > .4 of 4; benchmark 1: two ties and two wins.
    assert probability_of_improvement([ours, theirs]) == pytest.approx((3 / 4 + 3 / 4) / 2)


def test_robust_estimates_are_reproducible_and_agree_with_the_mean_where_they_must():
    world = World(problems=(40,), seeds=3, seed_by_rule=0.5)
    values = draw(world, 50)[0, 0].astype(float)

    def mean(runs):
        return runs[0].mean(axis=(-2, -1))

    found = robust_estimate(mean, [values], world.benchmark, seed=1, resamples=4000)
    again = robust_estimate(mean, [values], world.benchmark, seed=1, resamples=4000)
    assert found == again
    expected = estimate(values, world.benchmark)
    assert found.mean == pytest.approx(expected.mean)
    # A bootstrap's variance over problems has n in the place of n - 1, and its own noise.
    assert found.high - found.low == pytest.approx(expected.high - expected.low, rel=0.06)
    assert math.isnan(robust_estimate(mean, [values[:2]], world.benchmark, seed=1, fewest=3).low)


WORLDS = {
    "few problems": World(problems=(30,)),
    "unequal benchmarks": World(problems=(150, 30, 30)),
    "seeds differ much": World(problems=(60, 60), seed_by_rule=0.3, seed_by_benchmark=0.15),
    "seeds hardly differ": World(problems=(60, 60), seed=0.0, seed_by_rule=0.02, seed_by_benchmark=0.02),
    "all noise shared": World(problems=(60, 60), shared_noise=1.0),
    "nearly all right": World(problems=(100,), accuracy=0.9),
}


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("name", WORLDS)
def test_intervals_cover_and_tests_hold_their_level(name, seeds):
    world = replace(WORLDS[name], seeds=seeds, differences=(0.0, 0.05))
    drawn = draw(world)
    truth = world.accuracies
    for values, true in (
        (drawn[:, 2] - drawn[:, 0], truth[2] - truth[0]),
        (drawn[:, 1] - drawn[:, 0], 0.0),
        (drawn[:, 0], truth[0]),
    ):
        parts = components(values, world.benchmark)
        covered = (np.abs(parts.mean - true) <= parts.half_width()).mean()
        assert covered >= 0.95 - TOLERANCE
        # With few seeds it may cover more often, but not much.
        assert covered <= 0.97 + TOLERANCE
        if true == 0:
            assert (parts.p_value() <= 0.05).mean() <= 0.05 + TOLERANCE


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_any_false_difference_among_all_rules_is_rare(seeds):
    world = World(problems=(60, 60), seeds=seeds, differences=(0.0, 0.0))
    drawn = draw(world)
    pairs = [(1, 0), (2, 0), (2, 1)]
    p = np.stack([components(drawn[:, a] - drawn[:, b], world.benchmark).p_value() for a, b in pairs], axis=-1)
    corrected = [holm([Estimate(0, 0, 0, seeds, value) for value in own]) for own in p]
    assert np.mean([any(e.supported for e in own) for own in corrected]) <= 0.05 + TOLERANCE


def test_seeds_alone_do_not_show_the_luck_of_problems_and_shared_samples():
    world = World(problems=(60, 60), seeds=5)
    drawn = draw(world)[:, 0]
    parts = components(drawn, world.benchmark)
    over_seeds = stats.t.ppf(0.975, 4) * np.sqrt(parts.seeds)
    assert (np.abs(parts.mean - world.accuracy) <= over_seeds).mean() < 0.85


@pytest.mark.parametrize("statistic", [interquartile_mean, probability_of_improvement])
def test_robust_intervals_cover(statistic):
    world = World(problems=(60, 60), seeds=5, differences=(0.04,))
    rules = [[ours, theirs][: 1 if statistic is interquartile_mean else 2] for theirs, ours in draw(world, 200)]
    found = [robust_estimate(statistic, own, world.benchmark, seed=n, resamples=200) for n, own in enumerate(rules)]
    truth = np.mean([e.mean for e in found])
    there = [e for e in found if e.low == e.low]
    assert len(there) >= 0.97 * len(found)
    assert np.mean([e.low <= truth <= e.high for e in there]) >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 200)


@pytest.mark.parametrize(("difference", "level"), [(0.05, 0.05), (0.1, 0.05 / 6)])
def test_promised_power_is_reached(difference, level):
    world = World(problems=(60, 60), seed_by_rule=0.15)
    many = replace(world, seeds=40, differences=(0.0,))
    samples = np.full(120, world.samples)
    measured = [measured_variances(ours, theirs, world.benchmark, samples) for theirs, ours in draw(many, 50)]
    variances = Variances(**{key: float(np.mean([vars(v)[key] for v in measured])) for key in vars(measured[0])})
    seeds = seeds_needed(difference, variances, level)
    assert power(difference, seeds - 1, variances, level) < 0.8 <= power(difference, seeds, variances, level)
    drawn = draw(replace(world, seeds=seeds, differences=(difference,)))
    parts = components(drawn[:, 1] - drawn[:, 0], world.benchmark)
    assert (parts.p_value() <= level).mean() == pytest.approx(power(difference, seeds, variances, level), abs=0.07)


def test_power_that_no_number_of_seeds_gives():
    variances = Variances(seed=0.0, problems=0.01**2, problems_freedom=100, sampling=0.0)
    assert seeds_needed(0.01, variances, 0.05) is None
    assert seeds_needed(0.04, variances, 0.05) == 2
    # Under no difference it is the level of the test, or less.
    assert power(0.0, 3, Variances(1e-4, 1e-4, 100, 0.0), 0.05) <= 0.05


def test_collapse_and_drops():
    benchmark = np.zeros(100, dtype=int)

    def run(*accuracies):
        return np.stack([(np.arange(100) < 100 * a).astype(float) for a in accuracies])

    assert not collapsed(run(0.5, 0.4, 0.3), benchmark)
    assert collapsed(run(0.5, 0.6, 0.2, 0.6), benchmark)
    assert not collapsed(run(0.06, 0.02), benchmark)  # four problems: chance
    assert worst_drop(np.array([0.5, 0.6, 0.45, 0.5])) == pytest.approx(0.15)
    assert worst_drop(np.array([0.1, 0.2])) == 0


def test_seeds_only():
    # Values 1, 2, 6: mean 3, s = sqrt(7), t(.975, 2) = 4.302653; half width 4.302653 * sqrt(7 / 3) = 6.572407.
    found = mean_over_seeds([1.0, 2.0, 6.0])
    assert (found.mean, found.seeds) == (3.0, 3)
    assert (found.low, found.high) == pytest.approx((3 - 6.572407, 3 + 6.572407), abs=1e-5)
    assert math.isnan(mean_over_seeds([0.4]).low)
    assert mean_over_seeds([0.4, 0.4]) == Estimate(0.4, 0.4, 0.4, 2)
