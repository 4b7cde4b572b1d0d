"""What `balagg power` prints."""

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from balanced_aggregation.config import Study
from balanced_aggregation.layout import Layout
from balanced_aggregation.reporting.power import MOST_SEEDS, POWER, Need, PairPower, study_power
from balanced_aggregation.reporting.tables import compared_pairs, read_scores


def print_power(study: Study, layout: Layout, points: Sequence[float], comparisons: int | None = None) -> None:
    """Print, for every pair of rules, how many seeds it takes to see differences, and what limits it.

    Args:
        study: one study, or one variant.
        layout: where its results are.
        points: true differences, in hundredths.
        comparisons: that the test is corrected for; None: those of the table ``main``, of the last step and the peak.

    Raises:
        UserError: the results do not let variances be measured.
    """
    scores = read_scores(study, layout)
    comparisons = comparisons or max(2 * len(compared_pairs(scores.rules)), 1)
    pairs = study_power(scores, [value / 100 for value in points], comparisons)
    table = Table(title=f"{study.full_name}: seeds needed, from {len(study.seeds)} seeds so far", title_justify="left")
    table.add_column("difference", no_wrap=True)
    table.add_column("deviation over seeds", justify="right")
    table.add_column("error from problems", justify="right")
    for value in points:
        table.add_column(f"{value:g} point{'s' if value != 1 else ''}", justify="right")
    for pair in pairs:
        deviation, error = math.sqrt(pair.variances.seed), math.sqrt(pair.variances.problems)
        numbers = [f"{100 * deviation:.2f}", f"{100 * error:.2f}"]
        table.add_row(f"{pair.ours} - {pair.theirs}", *numbers, *map(_cell, pair.needs))
    console = Console(width=120, soft_wrap=False)
    console.print(table)
    console.print("\n".join(_legend(study, comparisons, pairs)), highlight=False)


def _cell(need: Need) -> str:
    if need.seeds is None:
        if need.problems > 1:
            return f"{_round_up(need.problems)} x problems"
        return f"> {MOST_SEEDS}"
    return f"{need.seeds} (to {need.seeds_if_unlucky or f'> {MOST_SEEDS}'})"


def _round_up(value: float) -> str:
    return f"{math.ceil(value * 10) / 10:.1f}" if value < 10 else f"{math.ceil(value)}"


def _legend(study: Study, comparisons: int, pairs: list[PairPower]) -> list[str]:
    lines = [
        f"Seeds of each rule with which a true difference at the last step is found with {POWER:.0%} power: two-sided, "
        f"paired, at 5 % corrected for {comparisons} comparison{'s' if comparisons > 1 else ''}.",
        "In brackets: the same if the variance over seeds is at the 80 % upper limit of what the measured one allows.",
        "Deviation over seeds, of a seed's difference, and standard error from problems, in points.",
    ]
    if len(study.seeds) < 5:
        lines.append(f"{len(study.seeds)} seeds measure a variance badly: the truth may well be beyond the brackets.")
    limited = [pair for pair in pairs if any(need.problems > 1 for need in pair.needs)]
    if limited:
        share = max(p.variances.sampling / p.variances.problems for p in limited if p.variances.problems)
        lines += [
            "'x problems': problems, not seeds, are the limit; no number of seeds is enough, and it takes so many "
            "times as many problems (of each benchmark), still with many seeds.",
            f"Of the variance that comes from problems, at most {share:.0%} is chance of the sampled responses, which "
            "more samples to each problem would take away as well.",
        ]
    return lines
