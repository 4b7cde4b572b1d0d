"""What a job of Slurm's can ask of it, and what it is known by."""

import os
import subprocess
from collections.abc import Iterable

_SECONDS = 60


def job_id() -> str | None:
    """Id of the job that this process is part of, if it is.

    Of Slurm's variables this one is there in every process of a job; Snakemake's plug-in removes most of them.
    """
    return os.environ.get("SLURM_JOB_ID") or None


def requeue(job: str) -> str | None:
    """Put a running job back into the queue: Slurm ends its processes, and runs it again under the same id.

    Returns:
        None, or why it did not work, in one line.
    """
    command = ["scontrol", "requeue", job]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return " ".join(str(error).split())
    if result.returncode == 0:
        return None
    return " ".join((result.stderr or result.stdout).split()) or f"scontrol: exit code {result.returncode}"


def environment() -> dict[str, str]:
    """For commands of Slurm's: a person's own settings of squeue must not hide jobs, or show those that have ended."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")}


def comment_of(rule: str, wildcards: Iterable[str]) -> str:
    """What Snakemake's executor plugin writes into the comment of a job.

    Args:
        rule: the workflow's.
        wildcards: their values, in the order in which the rule's output has them.
    """
    return f"rule_{rule}_wildcards_{'_'.join(wildcards).replace('/', '_')}"
