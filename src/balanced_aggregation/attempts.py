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
from typing import Literal, Self

from balanced_aggregation.files import read_json, write_json


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
        job = os.environ.get("SLURM_JOB_ID")
        return cls("running", None, job, socket.gethostname(), os.getpid(), time.time(), first_step)

    def ended(self, state: Literal["interrupted", "failed", "done"], reason: str | None = None) -> Self:
        """The same attempt at its end."""
        return dataclasses.replace(self, state=state, reason=reason)


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
    """The latest attempt; None if there was none.

    Raises:
        UserError: the file is not such a record.
    """
    if not path.exists():
        return None
    return Attempt(**read_json(path))
