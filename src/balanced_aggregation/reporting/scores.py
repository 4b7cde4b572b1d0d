"""The evaluations of a study as arrays, from ``problems.parquet``: what statistics are computed on."""

from functools import cached_property

import numpy as np
import pandas as pd

from balanced_aggregation.config import Study
from balanced_aggregation.errors import UserError
from balanced_aggregation.evaluation.metrics import average_name, is_average, metrics_by_problem


class Scores:
    """Accuracy of every rule and seed, at every evaluated step, on every problem; and every other metric."""

    def __init__(self, study: Study, problems: pd.DataFrame):
        """Bring the problems into the study's order.

        Args:
            study: the study.
            problems: its ``problems.parquet``.

        Raises:
            UserError: they are not those of the study's rules, seeds, steps and benchmarks.
        """
        self.study = study
        self.rules = [rule.name for rule in study.rules]
        self.steps = [0, *study.evaluated_steps]
        self._problems = {name: own for name, own in problems.groupby("benchmark", sort=False)}
        names = [benchmark.name for benchmark in study.data.benchmarks]
        runs = {(rule, seed, step) for rule in self.rules for seed in study.seeds for step in self.steps}
        found = set(problems[["rule", "seed", "step"]].drop_duplicates().itertuples(index=False, name=None))
        if found != runs or set(self._problems) != set(names):
            raise UserError(
                f"problems.parquet of study {study.full_name!r}: holds other rules, seeds, steps or benchmarks "
                "than the study has; `balagg collect` makes it anew"
            )
        self._metrics = {name: metrics_by_problem(self._problems[name], study.decoding(name)) for name in names}
        sizes = [self._problems[name]["problem"].nunique() for name in names]
        self.benchmark = np.repeat(np.arange(len(names)), sizes)
        """Number of each problem's benchmark, in the study's order."""

    @cached_property
    def accuracy(self) -> np.ndarray:
        """The primary metric of each benchmark by ``(rule, seed, step, problem)``, problems by benchmark."""
        names = [benchmark.name for benchmark in self.study.data.benchmarks]
        return np.concatenate([self.metric(n, average_name(self.study.decoding(n))) for n in names], axis=-1)

    def metrics(self, benchmark: str) -> list[str]:
        """Metrics of a benchmark, the primary one first."""
        return list(self._metrics[benchmark])

    def metric(self, benchmark: str, metric: str) -> np.ndarray:
        """A metric of one benchmark by ``(rule, seed, step, problem)``."""
        own = self._problems[benchmark].assign(value=self._metrics[benchmark][metric])
        wide = own.pivot(index=["rule", "seed", "step"], columns="problem", values="value")
        order = pd.MultiIndex.from_product([self.rules, self.study.seeds, self.steps])
        return wide.reindex(order).to_numpy().reshape(len(self.rules), len(self.study.seeds), len(self.steps), -1)

    @cached_property
    def by_benchmark(self) -> np.ndarray:
        """Accuracy by ``(rule, seed, step, benchmark)``."""
        count = self.benchmark.max() + 1
        return np.stack([self.accuracy[..., self.benchmark == b].mean(axis=-1) for b in range(count)], axis=-1)

    @cached_property
    def by_step(self) -> np.ndarray:
        """Accuracy averaged over benchmarks, by ``(rule, seed, step)``."""
        return self.by_benchmark.mean(axis=-1)

    @property
    def last(self) -> np.ndarray:
        """Accuracy at the last step by ``(rule, seed, problem)``."""
        return self.accuracy[:, :, -1]

    @property
    def peak(self) -> np.ndarray:
        """Accuracy at each run's best evaluated step, by ``(rule, seed, problem)``.

        The step is chosen by looking at the benchmarks themselves, so the peak is biased upwards; the initial model
        counts.
        """
        best = self.by_step.argmax(axis=-1)
        return np.take_along_axis(self.accuracy, best[:, :, None, None], axis=2)[:, :, 0]


def accuracy(results: pd.DataFrame) -> pd.DataFrame:
    """The rows of each benchmark's primary metric, avg@k with its own k, of ``results.parquet``."""
    return results[results["metric"].map(is_average)]


def accuracy_by_step(results: pd.DataFrame) -> pd.DataFrame:
    """The primary metric averaged over benchmarks: one row a (rule, seed), one column a step."""
    chosen = accuracy(results)
    return chosen.pivot_table(index=["rule", "seed"], columns="step", values="value", aggfunc="mean")
