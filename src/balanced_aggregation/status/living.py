"""What is alive: processes of this host, and jobs of Slurm."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from balanced_aggregation.attempts import Attempt
from balanced_aggregation.slurm import environment

SQUEUE_SECONDS = 5.0
"""Longer than this nobody waits for Slurm."""

_NOT_BEGUN = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_FORMAT = "%A|%T|%r|%Z|%k"
_CLOCK_SECONDS = 60.0
"""By so much a clock may have been set since a process began."""


@dataclass(frozen=True)
class Job:
    """A job that Slurm has not done with."""

    id: str
    state: str
    """In Slurm's words: RUNNING, PENDING, ..."""
    reason: str
    """Why it waits; None or empty if it does not."""
    folder: str
    """Where it works."""
    comment: str
    """Snakemake's executor plugin names rule and wildcards here."""

    @property
    def waits(self) -> bool:
        """It has not begun, or not again."""
        return self.state in _NOT_BEGUN

    @property
    def title(self) -> str:
        """What people call it."""
        return f"Slurm job {self.id}"


@dataclass(frozen=True)
class Living:
    """What is known of processes and jobs."""

    host: str
    """This one: only its processes can be asked for."""
    jobs: tuple[Job, ...] | None = None
    """Of those who run the study; None where Slurm is missing or did not answer."""
    problem: str | None = None
    """Why Slurm did not answer."""
    folder: Path = Path()
    """The working directory of the study's jobs."""

    def job(self, attempt: Attempt | None, comment: str) -> Job | None:
        """The job of a training: one that Snakemake has submitted for it, or the one of its latest attempt."""
        submitted = self.submitted({comment})
        own = [job for job in self.jobs or () if attempt and job.id == attempt.slurm_job]
        return next((job for job in [*submitted, *own] if not job.waits), None) or next(iter([*submitted, *own]), None)

    def submitted(self, comments: set[str]) -> list[Job]:
        """The jobs that Snakemake has submitted in this folder under one of those comments."""
        jobs = [job for job in self.jobs or () if job.comment in comments]
        return [job for job in jobs if os.path.realpath(job.folder) == os.path.realpath(self.folder)]

    def knows(self, attempt: Attempt) -> bool:
        """Whether it can be told if the attempt is alive."""
        return attempt.host == self.host or (attempt.slurm_job is not None and self.jobs is not None)

    def runs(self, attempt: Attempt) -> bool:
        """Whether the attempt's process is alive on this host."""
        if attempt.host != self.host:
            return False
        try:
            process = psutil.Process(attempt.pid)
            command = " ".join(process.cmdline())
            mine = "balagg" in command or "balanced_aggregation" in command
            # Numbers of processes are given again.
            return mine and process.create_time() < attempt.started + _CLOCK_SECONDS
        except (psutil.Error, ValueError, OverflowError, OSError):
            return False


def look_around(owners: Iterable[int]) -> Living:
    """Ask this host, and Slurm once if it is there.

    Args:
        owners: numbers of the users whose jobs are of interest.
    """
    host, folder = socket.gethostname(), Path.cwd()
    users = ",".join(map(str, sorted(set(owners))))
    if not users or not shutil.which("squeue"):
        return Living(host, folder=folder)
    command = ["squeue", f"--users={users}", "--array", "--noheader", f"--format={_FORMAT}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=SQUEUE_SECONDS, env=environment()
        )
    except subprocess.TimeoutExpired:
        return Living(host, problem=f"no answer within {SQUEUE_SECONDS:g} seconds", folder=folder)
    except OSError as error:
        return Living(host, problem=str(error), folder=folder)
    if done.returncode:
        problem = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Living(host, problem=problem, folder=folder)
    return Living(host, parse_jobs(done.stdout), folder=folder)


def parse_jobs(text: str) -> tuple[Job, ...]:
    """Jobs from squeue's lines; what is no such line is left out."""
    parts = [line.split("|", 4) for line in text.splitlines()]
    return tuple(Job(*map(str.strip, fields)) for fields in parts if len(fields) == 5)
