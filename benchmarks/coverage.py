"""How often intervals hold the truth, how often tests find what is not there, and what power is reached.

    python benchmarks/coverage.py [--studies N] [--part means|robust|power]

Simulated studies of known truth (`reporting/simulation.py`), three rules each, in several worlds. Every number is a
share of N studies; its own standard error is 0.007 at 0.95 and N = 1,000. Methods for the difference of two rules:

  t over seeds     Student's t of the seeds' differences; problems are taken as given
  percentile       bootstrap of seeds and of problems within benchmarks, 2.5 and 97.5 %
  Satterthwaite    variance over seeds and problems, t with Satterthwaite's degrees of freedom
  Cochran          the same variance, t's weighted by its parts
  ours             `reporting/statistics.py`
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import stats

from balanced_aggregation.reporting.power import Variances, measured_variances, power, seeds_needed
from balanced_aggregation.reporting.robust import interquartile_mean, probability_of_improvement, robust_estimate
from balanced_aggregation.reporting.simulation import World
from balanced_aggregation.reporting.statistics import Components, Estimate, components, holm

WORLDS = {
    "30 problems": World(problems=(30,)),
    "2 x 128 problems": World(problems=(128, 128)),
    "500, 30, 30 problems": World(problems=(500, 30, 30)),
    "noise all shared": World(problems=(128, 128), shared_noise=1.0),
    "noise not shared": World(problems=(128, 128), shared_noise=0.0),
    "seeds differ much": World(problems=(128, 128), seed_by_rule=0.3, seed_by_benchmark=0.15),
    "seeds hardly differ": World(problems=(128, 128), seed=0.0, seed_by_rule=0.02, seed_by_benchmark=0.02),
    "accuracy 0.9": World(problems=(128, 128), accuracy=0.9),
    "accuracy 0.05": World(problems=(128, 128), accuracy=0.05),
}
SEEDS = (2, 3, 5, 10)
DIFFERENCE = 0.04
AT_ONCE = 50
RESAMPLES = 400


def simulate(world: World, studies: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    for start in range(0, studies, AT_ONCE):
        yield world.draw(min(AT_ONCE, studies - start), generator)


def t_over_seeds(parts: Components) -> np.ndarray:
    return stats.t.ppf(0.975, parts.seeds_freedom) * np.sqrt(parts.seeds)


def satterthwaite(parts: Components) -> np.ndarray:
    variance = parts.seeds + parts.problems
    with np.errstate(invalid="ignore"):  # no variance: no interval, which is a miss
        freedom = variance**2 / (parts.seeds**2 / parts.seeds_freedom + parts.problems**2 / parts.problems_freedom)
    return stats.t.ppf(0.975, freedom) * np.sqrt(variance)


def cochran(parts: Components, level: float = 0.05) -> np.ndarray:
    weighted = stats.t.ppf(1 - level / 2, parts.seeds_freedom) * parts.seeds
    weighted = weighted + stats.t.ppf(1 - level / 2, parts.problems_freedom) * parts.problems
    with np.errstate(invalid="ignore"):
        return weighted / np.sqrt(parts.seeds + parts.problems)


def percentile(values: np.ndarray, world: World, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    seeds = generator.multinomial(world.seeds, [1 / world.seeds] * world.seeds, size=RESAMPLES) / world.seeds
    problems = [generator.multinomial(n, np.full(n, 1 / n), size=RESAMPLES) / n for n in world.problems]
    weights = np.concatenate(problems, axis=1) / len(world.problems)
    means = np.stack([((seeds @ study) * weights).sum(axis=1) for study in values])
    return np.quantile(means, 0.025, axis=1), np.quantile(means, 0.975, axis=1)


def means(studies: int, generator: np.random.Generator) -> None:
    rows = []
    for name, base in WORLDS.items():
        for seeds in SEEDS:
            world = replace(base, seeds=seeds, differences=(0.0, DIFFERENCE))
            hits: list[dict[str, np.ndarray]] = []
            for drawn in simulate(world, studies, generator):
                difference, accuracy = drawn[:, 2] - drawn[:, 0], drawn[:, 0]
                parts, alone = components(difference, world.benchmark), components(accuracy, world.benchmark)
                error = np.abs(parts.mean - DIFFERENCE)
                low, high = percentile(difference, world, generator)
                hits.append(
                    {
                        "t over seeds": error <= t_over_seeds(parts),
                        "percentile": (low <= DIFFERENCE) & (high >= DIFFERENCE),
                        "Satterthwaite": error <= satterthwaite(parts),
                        "Cochran": error <= cochran(parts),
                        "ours": error <= parts.half_width(),
                        "accuracy, t": np.abs(alone.mean - world.accuracy) <= t_over_seeds(alone),
                        "accuracy, ours": np.abs(alone.mean - world.accuracy) <= alone.half_width(),
                    }
                )
            shares = {key: np.concatenate([h[key] for h in hits]).mean() for key in hits[0]}
            nothing = replace(base, seeds=seeds, differences=(0.0, 0.0))
            found, corrected = [], []
            for drawn in simulate(nothing, studies, generator):
                p = np.stack(
                    [
                        components(drawn[:, a] - drawn[:, b], nothing.benchmark).p_value()
                        for a, b in ((1, 0), (2, 0), (2, 1))
                    ],
                    axis=-1,
                )
                found += (p[:, 0] <= 0.05).tolist()
                corrected += [any(e.supported for e in holm([Estimate(0, 0, 0, seeds, x) for x in own])) for own in p]
            rows.append(
                {"world": name, "seeds": seeds}
                | shares
                | {"false positive": np.mean(found), "any of 3, Holm": np.mean(corrected)}
            )
    show("Coverage of 95 % intervals of a true difference and of one accuracy; false positives", rows)


def robust(studies: int, generator: np.random.Generator) -> None:
    rows = []
    for name in ("30 problems", "2 x 128 problems", "500, 30, 30 problems"):
        for seeds in SEEDS:
            world = replace(WORLDS[name], seeds=seeds, differences=(DIFFERENCE,))
            # What is estimated is what the statistic is on average: the truth of a study of so many seeds.
            estimates: dict[str, list[Estimate]] = {"interquartile mean": [], "P(better)": []}
            for drawn in simulate(world, studies, generator):
                for theirs, ours in drawn.astype(float):
                    seed = int(generator.integers(2**62))
                    for key, statistic, rules in (
                        ("interquartile mean", interquartile_mean, [ours]),
                        ("P(better)", probability_of_improvement, [ours, theirs]),
                    ):
                        estimates[key].append(robust_estimate(statistic, rules, world.benchmark, seed, RESAMPLES))
            row: dict[str, object] = {"world": name, "seeds": seeds}
            for key, own in estimates.items():
                truth = np.mean([e.mean for e in own])
                there = [e for e in own if e.low == e.low]
                row |= {key: truth, f"{key}, covers": np.mean([e.low <= truth <= e.high for e in there])}
                row |= {f"{key}, has interval": len(there) / len(own)}
            rows.append(row)
    show("Coverage of 95 % intervals of robust statistics, where there is one", rows)


def powers(studies: int, generator: np.random.Generator) -> None:
    rows = []
    for name in ("2 x 128 problems", "500, 30, 30 problems", "seeds differ much"):
        variances = true_variances(WORLDS[name], generator)
        for level in (0.05, 0.05 / 6):
            for difference in (0.05, 0.1):
                seeds = seeds_needed(difference, variances, level)
                if seeds is None or seeds > 60:
                    continue
                world = replace(WORLDS[name], seeds=seeds, differences=(difference,))
                p = np.concatenate(
                    [
                        components(drawn[:, 1] - drawn[:, 0], world.benchmark).p_value()
                        for drawn in simulate(world, studies, generator)
                    ]
                )
                promised = power(difference, seeds, variances, level)
                row = {"world": name, "level": level, "difference": difference, "seeds": seeds}
                rows.append(row | {"promised": promised, "reached": (p <= level).mean()})
    show("Power with the seeds that `balagg power` asks for, if variances are known", rows)


def true_variances(world: World, generator: np.random.Generator, studies: int = 40, seeds: int = 40) -> Variances:
    """Means of what many seeds measure."""
    world = replace(world, seeds=seeds, differences=(0.0,))
    samples = np.full(len(world.benchmark), world.samples)
    found = [
        measured_variances(ours, theirs, world.benchmark, samples)
        for drawn in simulate(world, studies, generator)
        for theirs, ours in drawn
    ]
    return Variances(**{key: float(np.mean([vars(v)[key] for v in found])) for key in vars(found[0])})


def show(title: str, rows: list[dict[str, object]]) -> None:
    print(f"\n{title}\n\n{pd.DataFrame(rows).to_markdown(index=False, floatfmt='.3f')}", flush=True)


PARTS = {"means": means, "robust": robust, "power": powers}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--part", choices=PARTS, help="all, unless given")
    arguments = parser.parse_args()
    for name in [arguments.part] if arguments.part else PARTS:
        PARTS[name](arguments.studies, np.random.default_rng(0))


if __name__ == "__main__":
    main()
