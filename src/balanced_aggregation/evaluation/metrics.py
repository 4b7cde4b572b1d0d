"""Metrics of a benchmark from the verdicts on its responses."""

from math import comb

import pandas as pd

from balanced_aggregation.config import Evaluation


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Unbiased estimate of the probability that at least one of ``k`` responses is correct.

    Chen et al. (arXiv 2107.03374), eq. 1, exact in integers.

    Raises:
        ValueError: ``k`` is not from 1 to ``samples``, or ``correct`` not from 0 to ``samples``.
    """
    if not 1 <= k <= samples or not 0 <= correct <= samples:
        raise ValueError(f"pass@{k} of {samples} samples with {correct} correct does not exist")
    return 1 - comb(samples - correct, k) / comb(samples, k)


def average_name(settings: Evaluation) -> str:
    """Name of the primary metric, the mean accuracy of the sampled responses: ``avg@k``."""
    return f"avg@{settings.samples}"


def metric_names(settings: Evaluation) -> list[str]:
    """The metrics that a study's evaluations have, the primary one first."""
    passes = [f"pass@{k}" for k in settings.pass_at]
    return [average_name(settings), "greedy_accuracy", *passes, "response_length", "truncated"]


def benchmark_metrics(responses: pd.DataFrame, settings: Evaluation) -> dict[str, float]:
    """Metrics of the responses of one checkpoint to one benchmark (rows as `evaluate.evaluate_model` gives them)."""
    greedy = responses[responses["decoding"] == "greedy"]
    sampled = responses[responses["decoding"] == "sampled"]
    correct = sampled.groupby("problem")["correct"].sum()
    metrics = {average_name(settings): sampled["correct"].mean(), "greedy_accuracy": greedy["correct"].mean()}
    for k in settings.pass_at:
        metrics[f"pass@{k}"] = correct.map(lambda c, k=k: pass_at_k(settings.samples, int(c), k)).mean()
    metrics["response_length"] = sampled["length"].mean()
    metrics["truncated"] = sampled["truncated"].mean()
    return {name: float(metrics[name]) for name in metric_names(settings)}
