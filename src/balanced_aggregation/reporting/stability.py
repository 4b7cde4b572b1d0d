"""Whether a training keeps what it has reached."""

import numpy as np

from balanced_aggregation.reporting.statistics import components

_LEFT = 0.5
_ERRORS = 3.0

COLLAPSE = (
    "A seed has collapsed if at some evaluation its accuracy is below half of what it had reached before, by more than "
    "three standard errors of the difference over problems."
)
"""What `collapsed` means, for captions."""


def worst_drop(accuracy: np.ndarray) -> float:
    """The largest fall between two consecutive evaluations of a run, 0 if it never falls.

    Args:
        accuracy: at each evaluated step.
    """
    return max(0.0, float(-np.diff(accuracy).min(initial=0.0)))


def collapsed(accuracy: np.ndarray, benchmark: np.ndarray) -> bool:
    """Whether a run loses more than half of its best accuracy so far, and more than chance may take.

    Args:
        accuracy: ``(step, problem)`` of one run.
        benchmark: number of each problem's benchmark, from 0 on.
    """
    best = accuracy[0]
    for now in accuracy[1:]:
        before, after = (components(own[None], benchmark).mean for own in (best, now))
        if after < _LEFT * before and before - after > _ERRORS * _standard_error(best - now, benchmark):
            return True
        best = now if after > before else best
    return False


def _standard_error(values: np.ndarray, benchmark: np.ndarray) -> float:
    """Of the mean over benchmarks, from the spread over problems alone."""
    counts = np.bincount(benchmark)
    variances = [values[benchmark == b].var(ddof=1) / count if count > 1 else 0.25 for b, count in enumerate(counts)]
    return float(np.sqrt(sum(variances))) / len(counts)
