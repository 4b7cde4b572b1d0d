"""What a person watching a training sees."""

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from balanced_aggregation.terminal import clock


class ProgressLines:
    """A plain line every few seconds, for logs and for several trainings that share one screen."""

    def __init__(self, label: str, steps: int, every_seconds: float = 5.0):
        """Args: name of the run, its number of steps, and the pause between lines."""
        self.label, self.steps, self.every_seconds = label, steps, every_seconds
        self._clock = _Clock(steps)
        self._printed = -every_seconds

    def on_step(self, metrics: dict[str, Any], timing: dict[str, Any]) -> None:
        """Print a line if it is time for one."""
        left = self._clock.left(metrics["step"])
        now = time.monotonic()
        if now - self._printed < self.every_seconds and metrics["step"] < self.steps:
            return
        self._printed = now
        print(
            f"{self.label:<24} step {metrics['step']:>4}/{self.steps}  reward {metrics['reward']:.3f}"
            f"  {timing['tokens_per_second']:>7,.0f} tokens/s  {left} left",
            file=sys.stderr,
            flush=True,
        )


class ProgressBar:
    """A bar that moves, for one training in a terminal."""

    def __init__(self, label: str, steps: int):
        """Args: name of the run, and its number of steps."""
        self._clock = _Clock(steps)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(
                "reward {task.fields[reward]:.3f}  {task.fields[speed]:,.0f} tokens/s  {task.fields[left]} left"
            ),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(label, total=steps, reward=0.0, speed=0.0, left="?")
        self._progress.start()

    def on_step(self, metrics: dict[str, Any], timing: dict[str, Any]) -> None:
        """Move the bar; end it after the last step."""
        left = self._clock.left(metrics["step"])
        fields = {"reward": metrics["reward"], "speed": timing["tokens_per_second"], "left": left}
        self._progress.update(self._task, completed=metrics["step"], **fields)
        if self._progress.finished:
            self._progress.stop()


def create_progress(label: str, steps: int) -> ProgressLines | ProgressBar:
    """A bar in a terminal, lines elsewhere."""
    return ProgressBar(label, steps) if sys.stderr.isatty() else ProgressLines(label, steps)


class _Clock:
    """Time left, from the steps that this process has seen."""

    def __init__(self, steps: int):
        self.steps = steps
        self._started = time.monotonic()
        self._first: int | None = None

    def left(self, step: int) -> str:
        if self._first is None:
            self._first = step - 1
        return clock((time.monotonic() - self._started) / (step - self._first) * (self.steps - step))
