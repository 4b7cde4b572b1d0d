"""The figures of a study as PNG and PDF, readable in grey and without colour vision."""

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from balanced_aggregation.config import Study
from balanced_aggregation.evaluation.metrics import average_name
from balanced_aggregation.layout import Layout
from balanced_aggregation.reporting.drawing import COLOURS, STYLE, save_figure
from balanced_aggregation.reporting.scores import Scores, accuracy, accuracy_by_step
from balanced_aggregation.reporting.tables import COMPARED_TO, main_table, read_scores

FIGURES = ("learning_curves", "benchmarks", "differences")
SUFFIXES = ("png", "pdf")

_SMOOTHED_STEPS = 5
_LINES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def write_figures(study: Study, layout: Layout) -> None:
    """Write every figure under ``figures/``."""
    results, training = pd.read_parquet(layout.results), pd.read_parquet(layout.training_metrics)
    with plt.rc_context(STYLE):
        _write(layout.figures / "learning_curves", learning_curves(study, results, training))
        _write(layout.figures / "benchmarks", benchmarks(study, results))
        _write(layout.figures / "differences", differences(read_scores(study, layout)))


def learning_curves(study: Study, results: pd.DataFrame, training: pd.DataFrame) -> Figure:
    """Reward, accuracy, response length by sign, and sign mass over the training steps."""
    figure, axes = plt.subplots(2, 2, figsize=(8.4, 6.2), sharex=True, layout="constrained")
    reward, score, length, mass = axes.flat
    for number, rule in enumerate(study.rules):
        look = _look(number)
        own = training[training["rule"] == rule.name]
        _curve(reward, _by_step(own, "reward"), look, rule.name)
        scores = accuracy_by_step(results).loc[rule.name]
        _curve(score, scores, look | {"marker": _marker(number), "markersize": 4}, rule.name)
        _curve(length, _by_step(own, "response_length_positive"), look | {"linestyle": "-"}, None)
        _curve(length, _by_step(own, "response_length_negative"), look | {"linestyle": ":"}, None)
        _curve(mass, _by_step(own, f"positive_share/{rule.name}"), look, rule.name)
    reward.set(title="Reward of rollouts", ylabel="share correct")
    score.set(title=f"Accuracy on benchmarks ({_average(study)})", ylabel="mean over benchmarks")
    length.set(title="Response length", ylabel="tokens", xlabel="step")
    grey = [plt.Line2D([], [], color="#555555", linestyle=line) for line in ("-", ":")]
    length.legend(grey, ["positive advantage", "negative advantage"])
    mass.set(title="Sign mass: positive share under the rule", ylabel="share of the weight", xlabel="step")
    score.legend()
    seeds = len(study.seeds)
    figure.supxlabel(
        f"Mean over {seeds} seed{'s' if seeds > 1 else ''}; bands: ± 1 standard error over seeds. "
        f"Step-wise curves: running mean of {_SMOOTHED_STEPS} steps.",
        fontsize=8,
        color="#555555",
    )
    return figure


def benchmarks(study: Study, results: pd.DataFrame) -> Figure:
    """Accuracy of every seed on every benchmark at the last step, with means and the initial model."""
    chosen = accuracy(results)
    names = [benchmark.name for benchmark in study.data.benchmarks]
    figure, axes = plt.subplots(figsize=(max(4.5, 1.6 + 1.5 * len(names)), 3.6), layout="constrained")
    width = 0.7 / len(study.rules)
    for place, benchmark in enumerate(names):
        own = chosen[chosen["benchmark"] == benchmark]
        initial = own[own["step"] == 0]["value"].iloc[0]
        label = "initial model" if place == 0 else None
        axes.hlines(initial, place - 0.4, place + 0.4, color="#555555", linestyle=":", label=label)
        for number, rule in enumerate(study.rules):
            values = own[(own["rule"] == rule.name) & (own["step"] == study.training.steps)]["value"]
            x = place - 0.35 + width * (number + 0.5)
            colour, marker = _look(number)["color"], _marker(number)
            axes.plot([x] * len(values), values, marker, color=colour, markersize=4, alpha=0.55, markeredgewidth=0)
            label = rule.name if place == 0 else None
            axes.plot([x], [values.mean()], marker, color=colour, markersize=8, fillstyle="none", label=label)
    axes.set_xticks(range(len(names)), [f"{name}\n{average_name(study.decoding(name))}" for name in names])
    axes.set(ylabel="accuracy", title="Last step: seeds (small), mean (large)")
    axes.set_ylim(bottom=0)
    axes.grid(visible=False, axis="x")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def differences(scores: Scores) -> Figure:
    """Forest plot: paired differences to `token` and `sequence` at the last step and at the peak."""
    study, table = scores.study, main_table(scores).rows
    compared = [
        (f"{row.keys['rule']} − {other}", estimate, measure)
        for other in COMPARED_TO
        for row in table
        for measure in ("last", "peak")
        if (estimate := row.cells.get(f"{measure} - {other}"))
    ]
    figure, axes = plt.subplots(figsize=(6.4, 1.3 + 0.3 * max(len(compared), 1)), layout="constrained")
    axes.axvline(0, color="#555555", linewidth=0.8)
    for row, (_, estimate, measure) in enumerate(compared):
        look = {"color": COLOURS[0], "marker": "o"} if measure == "last" else {"color": COLOURS[1], "marker": "s"}
        if estimate.low == estimate.low:  # with one seed there is no interval
            axes.plot([estimate.low, estimate.high], [row, row], color=look["color"], linewidth=1.6)
        axes.plot([estimate.mean], [row], linestyle="none", **look)
    axes.set_yticks(range(len(compared)), [f"{label}, {measure}" for label, _, measure in compared])
    axes.invert_yaxis()
    seeds = len(study.seeds)
    interval = f"95 % intervals, {seeds} seeds" if seeds > 1 else "1 seed, no interval"
    axes.set_xlabel(f"difference in {_average(study)}, mean over benchmarks")
    axes.set_title(f"Paired differences: {interval}")
    axes.grid(visible=False, axis="y")
    return figure


def _average(study: Study) -> str:
    """Name of the primary metric of all benchmarks together."""
    names = {average_name(study.decoding(benchmark.name)) for benchmark in study.data.benchmarks}
    return names.pop() if len(names) == 1 else "avg@k"


def _by_step(training: pd.DataFrame, metric: str) -> pd.DataFrame:
    """One row a seed, one column a step, smoothed by a running mean that leaves out what does not exist."""
    chosen = training[training["metric"] == metric]
    wide = chosen.pivot(index="seed", columns="step", values="value")
    return wide.T.rolling(_SMOOTHED_STEPS, min_periods=1).mean().T


def _curve(axes: Axes, by_seed: pd.DataFrame, look: dict, label: str | None) -> None:
    mean, error = by_seed.mean(), by_seed.sem()
    axes.plot(mean.index, mean, label=label, linewidth=1.4, **look)
    if len(by_seed) > 1:
        axes.fill_between(mean.index, mean - error, mean + error, color=look["color"], alpha=0.15, linewidth=0)


def _look(number: int) -> dict:
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": _LINES[number % len(_LINES)]}


def _marker(number: int) -> str:
    return _MARKERS[number % len(_MARKERS)]


def _write(path: Path, figure: Figure) -> None:
    for suffix in SUFFIXES:
        save_figure(figure, path.with_suffix(f".{suffix}"))
    plt.close(figure)
