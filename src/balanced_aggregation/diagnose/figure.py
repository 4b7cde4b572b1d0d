"""One figure of a diagnosis, readable in grey and without colour vision."""

from pathlib import Path

import matplotlib.pyplot as plt
import matplotlib.ticker
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from balanced_aggregation.diagnose.analysis import Analysis
from balanced_aggregation.reporting.drawing import COLOURS, STYLE, save_figure

_BLUE, _ORANGE, _GREEN = COLOURS[:3]


def write_figure(path: Path, analysis: Analysis) -> None:
    """Draw a diagnosis; the suffix says whether it becomes a PNG or a PDF."""
    with plt.rc_context(STYLE | {"axes.axisbelow": True}):
        figure = draw(analysis)
        save_figure(figure, path)
        plt.close(figure)


def draw(analysis: Analysis) -> Figure:
    """Lengths by sign, length gaps, what each rule moves, and how far rules differ."""
    figure, axes = plt.subplots(2, 2, figsize=(9.2, 6.8), layout="constrained")
    _lengths(axes[0, 0], analysis)
    _gaps(axes[0, 1], analysis)
    _shifts(axes[1, 0], analysis)
    _distances(axes[1, 1], analysis)
    updates = f"mean over {analysis.updates:,} update{'s' if analysis.updates > 1 else ''}"
    figure.supxlabel(
        f"{analysis.responses:,} responses in {analysis.groups:,} groups, {analysis.zero_variance:.0%} of them without "
        f"variance of rewards. Lower row: {updates}; mass of a response: w L |A|.",
        fontsize=8,
        color="#555555",
    )
    return figure


def _lengths(axes: Axes, analysis: Analysis) -> None:
    edges = np.array(analysis.lengths_by_sign.edges)
    for name, colour, line in (("positive", _BLUE, "-"), ("negative", _ORANGE, "--")):
        counts = np.array(analysis.lengths_by_sign.counts[name], float)
        total = counts.sum()
        axes.stairs(
            counts / max(total, 1), edges, color=colour, linestyle=line, linewidth=1.6, label=f"{name}: {total:,.0f}"
        )
    axes.set(title="Length by sign of the advantage", xlabel="length", ylabel="share of the sign's responses")
    axes.set_xlim(0, edges[-1])
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
    axes.legend(loc="upper right", ncols=2)


def _gaps(axes: Axes, analysis: Analysis) -> None:
    gap = analysis.gap
    axes.stairs(analysis.gaps.counts["groups"], analysis.gaps.edges, color="#555555", fill=True, alpha=0.6)
    axes.axvline(0, color="black", linewidth=0.8)
    if gap.count:
        axes.axvline(gap.median, color=_BLUE, linewidth=1.6, label=f"median {gap.median:+.0%}")
        axes.axvspan(gap.lower, gap.upper, color=_BLUE, alpha=0.15, linewidth=0, label="middle half")
        axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
        axes.legend(loc="upper right", ncols=2, frameon=True, framealpha=0.9, edgecolor="white")
    axes.xaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1))
    axes.yaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
    axes.set(
        title=f"Length gap of {gap.count:,} groups with both signs",
        xlabel="positive − negative, over the group's mean \n(beyond ±150 % at the edge)",
        ylabel="groups",
    )


def _shifts(axes: Axes, analysis: Analysis) -> None:
    kinds = (
        ("signs", lambda r: r.sign_shift, _BLUE, ""),
        ("lengths", lambda r: abs(r.length_bias), _ORANGE, "////"),
        ("prompts", lambda r: r.group_shift, _GREEN, "...."),
    )
    height = 0.8 / len(kinds)
    for place, (label, measure, colour, hatch) in enumerate(kinds):
        rows = np.arange(len(analysis.rules)) - 0.4 + height * (place + 0.5)
        values = [measure(numbers) for numbers in analysis.rules.values()]
        look = {"color": colour} if not hatch else {"facecolor": "white", "edgecolor": colour, "hatch": hatch}
        axes.barh(rows, values, height * 0.9, label=label, **look)
    axes.set_yticks(range(len(analysis.rules)), list(analysis.rules))
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1, decimals=0))
    axes.set_xlim(left=0)
    axes.set(title="Mass that a rule moves between ...", xlabel="share of the update's mass")
    axes.set_ylim(len(analysis.rules) + 0.2, -0.6)
    axes.legend(loc="lower right", ncols=3, columnspacing=1)


def _distances(axes: Axes, analysis: Analysis) -> None:
    names = list(analysis.rules)
    table = np.zeros((len(names), len(names)))
    for (one, other), distance in analysis.distances.items():
        first, second = names.index(one), names.index(other)
        table[first, second] = table[second, first] = distance
    top = max(table.max(), 1e-9)
    axes.imshow(table, cmap="Greys", vmin=0, vmax=top, aspect="auto")
    for (row, column), value in np.ndenumerate(table):
        if row != column:
            colour = "white" if value > 0.55 * top else "black"
            axes.text(column, row, f"{value:.0%}", ha="center", va="center", color=colour, fontsize=8)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title("Share of mass in which two updates differ")
