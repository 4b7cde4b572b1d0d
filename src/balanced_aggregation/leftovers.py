"""Jobs that a Snakemake which was killed has left in Slurm."""

import shutil
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

from balanced_aggregation.errors import UserError
from balanced_aggregation.slurm import environment

_PATIENCE = 300.0
"""Seconds until they must be gone; Slurm gives a job its KillWait, 30 seconds where nothing else is set."""
_LOGS = Path(".snakemake/slurm_logs")
"""Made by Snakemake's executor for Slurm when it submits the first job from this folder."""


def end_leftovers(comments: Collection[str], submits: bool) -> None:
    """Cancel what is left in Slurm of some jobs, and return when it is gone.

    To be called by a Snakemake that holds the locks of what these jobs make and has submitted nothing yet: whatever
    is at them in this folder then is of one that is no more. Left alone, it would work on the same files as the jobs
    that are about to be started. A training stores a checkpoint first.

    Args:
        comments: of the jobs that are about to be started (`slurm.comment_of`).
        submits: whether they go to Slurm. If not, and none has ever been submitted from this folder, Slurm is not
            asked: its commands may be there without a cluster.

    Raises:
        UserError: Slurm does not answer, or the jobs do not end.
    """
    if not shutil.which("squeue") or not (submits or _LOGS.is_dir()):
        return
    found = _own_jobs(comments)
    if not found:
        return
    print(
        f"jobs of an earlier Snakemake are still in Slurm: {' '.join(found)}; they are cancelled, and what they have "
        "stored is used",
        file=sys.stderr,
        flush=True,
    )
    _slurm("scancel", *found)
    end = time.monotonic() + _PATIENCE
    while left := _own_jobs(comments):
        if time.monotonic() > end:
            raise UserError(f"Slurm jobs {' '.join(left)} do not end; `scancel` them, then start again")
        time.sleep(1)


def _own_jobs(comments: Collection[str]) -> list[str]:
    """Jobs of this user in this folder with one of the comments."""
    lines = _slurm("squeue", "--me", "--noheader", "--format=%i|%k|%Z").splitlines()
    jobs = [parts for line in lines if len(parts := line.split("|", 2)) == 3]  # a comment of somebody's may be anything
    return [number for number, comment, folder in jobs if comment in comments and Path(folder) == Path.cwd()]


def _slurm(*command: str) -> str:
    """Output of a Slurm command; if one fails, nobody knows what is running."""
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    if result.returncode:
        reason = " ".join(result.stderr.split()) or f"exit code {result.returncode}"
        raise UserError(f"{' '.join(command[:4])}: {reason}")
    return result.stdout
