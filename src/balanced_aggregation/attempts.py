"""The latest attempt at a training, for people: that it is under way, or what it came to.

A training may take many attempts: jobs are preempted, reach their time limit, and lose their node. The record is no
result: it holds times and names of hosts, and a training does not depend on it.
"""

import dataclasses
import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from pydantic import TypeAdapter

from balanced_aggregation.errors import GoldError, InfrastructureError, Interrupted, UserError
from balanced_aggregation.files import write_json
from balanced_aggregation.slurm import job_id


@dataclass(frozen=True)
class Attempt:
    """One process, or several that are started together, at one training."""

    state: Literal["running", "interrupted", "failed", "done"]
    """``running`` is also what remains of an attempt that was killed, or whose node died."""
    reason: str | None
    """Why it failed or was interrupted, in one line."""
    slurm_job: str | None
    """The job's id, if it is one of Slurm's."""
    host: str
    """Where the main process is."""
    pid: int
    """Of the main process."""
    started: float
    """Seconds since the epoch."""
    first_step: int
    """The step of the checkpoint that it went on from; 0 is the start."""

    @classmethod
    def begin(cls, first_step: int) -> Self:
        """An attempt of this process, which starts now."""
        return cls("running", None, job_id(), socket.gethostname(), os.getpid(), time.time(), first_step)

    def ended(self, state: Literal["interrupted", "failed", "done"], reason: str | None = None) -> Self:
        """The same attempt at its end."""
        return dataclasses.replace(self, state=state, reason=reason)


_ATTEMPT = TypeAdapter(Attempt)


def write_attempt(path: Path, attempt: Attempt) -> None:
    """Write the record, in place of the one before; if that fails, a warning is all that happens.

    Args:
        path: `Layout.attempt`.
        attempt: the latest.
    """
    try:
        write_json(path, dataclasses.asdict(attempt))
    except OSError as error:
        print(f"WARNING: {path}: not written: {error}", file=sys.stderr, flush=True)


def read_attempt(path: Path) -> Attempt | None:
    """The latest attempt; None if there was none, or the record cannot be read: other files tell what there is."""
    try:
        return _ATTEMPT.validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None


class AttemptRecord:
    """Keeps the record of this process's attempt while it is entered, and says how it ended."""

    def __init__(self, path: Path, first_step: int):
        """Args: `Layout.attempt`, and the step of the checkpoint that there is."""
        self.path = path
        self.attempt = Attempt.begin(first_step)

    def __enter__(self) -> Self:
        write_attempt(self.path, self.attempt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end(error)

    def goes_on_from(self, step: int) -> None:
        """Correct the first step: the checkpoint may have been another training's."""
        if step != self.attempt.first_step:
            self.attempt = dataclasses.replace(self.attempt, first_step=step)
            write_attempt(self.path, self.attempt)

    def end(self, error: BaseException | None) -> None:
        """Write how it ended, by an error or without; after the first time, nothing."""
        if self.attempt.state == "running":
            self.attempt = self.attempt.ended(*_ending(error))
            write_attempt(self.path, self.attempt)


def _ending(error: BaseException | None) -> tuple[Literal["interrupted", "failed", "done"], str | None]:
    if error is None:
        return "done", None
    if isinstance(error, Interrupted):
        return "interrupted", error.signal
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "SIGINT"
    reason = (str(error).strip().splitlines() or [""])[0]
    expected = isinstance(error, UserError | GoldError | InfrastructureError | OSError) and reason
    return "failed", reason if expected else f"{type(error).__name__}: {reason}"
