"""The status of a study on the screen."""

import io
import sys
import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from balanced_aggregation.status.runs import RunStatus
from balanced_aggregation.status.stages import StageFailure
from balanced_aggregation.status.study import StudyStatus, longest_left, totals
from balanced_aggregation.terminal import clock

WIDTH = 100
"""Characters of a line where there is no terminal, and at most in one."""

SHOWN_FAILURES = 5
"""More jobs that failed are only counted."""

_COLOURS = {
    "done": "green",
    "running": "cyan",
    "waiting": "dim",
    "interrupted": "yellow",
    "failed": "bold red",
    "killed": "red",
}
_BELOW = ("failed", "killed")
"""States whose detail has lines of its own."""


def print_statuses(statuses: Sequence[StudyStatus]) -> None:
    """Print once: in colour in a terminal, as plain text elsewhere."""
    if sys.stdout.isatty():
        _console().print(render(statuses))
    else:
        print(plain(statuses))


def watch(look: Callable[[], list[StudyStatus]], every_seconds: float) -> None:
    """Show the status again and again until nothing is left to do.

    Args:
        look: tells the status of now.
        every_seconds: the pause between two looks.
    """
    statuses = look()
    if not sys.stdout.isatty():
        print(plain(statuses), flush=True)
        while not all(status.done for status in statuses):
            time.sleep(every_seconds)
            statuses = look()
            print("\n" + plain(statuses), flush=True)
        return
    with Live(render(statuses), console=_console(), auto_refresh=False) as live:
        while not all(status.done for status in statuses):
            time.sleep(every_seconds)
            statuses = look()
            live.update(render(statuses), refresh=True)


def plain(statuses: Sequence[StudyStatus]) -> str:
    """The report without colours."""
    console = Console(file=io.StringIO(), width=WIDTH, highlight=False, markup=False, emoji=False)
    console.print(render(statuses))
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def render(statuses: Sequence[StudyStatus]) -> RenderableType:
    """The report, for a console: the totals, then each variant."""
    runs = [run for status in statuses for run in status.runs]
    parts: list[RenderableType] = []
    if len(statuses) > 1:
        parts.append(_headline(statuses[0].study.partition("/")[0], runs))
    for status in statuses:
        if parts:
            parts.append(Text())
        parts += [_headline(status.study, status.runs), _runs_table(status.runs)]
        parts += [Text()] * any(run.state in _BELOW for run in status.runs)
        parts += [line for run in status.runs if run.state in _BELOW for line in _notes(run)]
        parts += [Text(), _stages_table(status)]
        parts += [Text()] * bool(status.failures)
        parts += [line for failure in status.failures[:SHOWN_FAILURES] for line in _failure(failure)]
        if more := len(status.failures) - SHOWN_FAILURES:
            parts += [Text(f"and {more:,} more jobs failed")] if more > 0 else []
    if problem := next((status.slurm_problem for status in statuses if status.slurm_problem), None):
        parts += [Text(), Text(f"Slurm's squeue failed, so its jobs are judged by files alone: {problem}", "yellow")]
    return Group(*parts)


def _headline(name: str, runs: Sequence[RunStatus]) -> Text:
    counts = Text(", ").join(Text(f"{count} {state}", _COLOURS[state]) for state, count in totals(runs).items())
    left = longest_left(runs)
    after = f"; about {clock(left)} left for the running ones" if left is not None else ""
    return Text.assemble((name, "bold"), ": ", counts, after)


def _runs_table(runs: Sequence[RunStatus]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("rule", no_wrap=True, overflow="ellipsis", max_width=24)
    table.add_column("seed", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for name in ("step", "reward", "left"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for run in runs:
        table.add_row(
            run.rule,
            str(run.seed),
            Text(run.state, _COLOURS[run.state]),
            f"{run.step}/{run.steps}",
            "" if run.reward is None else f"{run.reward:.3f}",
            "" if run.seconds_left is None else clock(run.seconds_left),
            Text("" if run.state in _BELOW else run.detail),
        )
    return table


def _notes(run: RunStatus) -> list[RenderableType]:
    title = Text.assemble((f"{run.rule} seed {run.seed} ", "bold"), (f"{run.state}:", _COLOURS[run.state]))
    return [_hanging(title, run.detail), *(_indented(text) for text in (run.log_line, run.log) if text)]


def _stages_table(status: StudyStatus) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for stage in status.stages:
        table.add_row(stage.name, Text(stage.detail, "green" if stage.done else ""))
    return table


def _failure(failure: StageFailure) -> list[RenderableType]:
    title = Text.assemble((failure.job, "bold"), " ", ("failed:", _COLOURS["failed"]))
    return [_hanging(title, failure.line), _indented(failure.log)]


def _hanging(title: Text, text: str) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(title, Text(text))
    return grid


def _indented(text: str) -> RenderableType:
    return Padding(Text(text, overflow="fold"), (0, 0, 0, 4))


def _console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = min(console.width, WIDTH)
    return console
