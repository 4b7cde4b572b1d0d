"""Jobs that a Snakemake which was killed has left in Slurm."""

import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from balanced_aggregation.checkpoints import checkpoints
from balanced_aggregation.config import Study

_PATIENCE = 300.0
"""Seconds until they must be gone; Slurm gives a job its KillWait, 30 seconds where nothing else is set."""


def job_comments(study: Study) -> set[str]:
    """What Snakemake's executor for Slurm writes beside each job of a study: the rule and its wildcards."""
    own = study.full_name
    jobs = {("warm_start", own)}
    jobs |= {("train", own, rule.name, str(seed)) for rule in study.rules for seed in study.seeds}
    jobs |= {
        (stage, own, checkpoint.name, benchmark.name)
        for stage in ("generate", "score", "lighteval")
        for checkpoint in checkpoints(study)
        for benchmark in study.data.benchmarks
    }
    return {f"rule_{name}_wildcards_{'_'.join(wildcards).replace('/', '_')}" for name, *wildcards in jobs}


def end_leftovers(studies: Sequence[Study]) -> None:
    """Cancel what is left in Slurm of these studies, and return when it is gone.

    To be called by a Snakemake that holds the lock of the working directory and has submitted nothing yet: whatever
    belongs to these studies in this folder then is of one that is no more. Left alone, it would work on the same files
    as the jobs that are about to be submitted. A training stores a checkpoint first.
    """
    if not shutil.which("squeue"):
        return
    comments = set().union(*map(job_comments, studies))
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
            sys.exit(f"error: Slurm jobs {' '.join(left)} do not end; `scancel` them, then start again")
        time.sleep(1)


def _own_jobs(comments: Collection[str]) -> list[str]:
    """Jobs of this user in this folder with one of the comments."""
    lines = _slurm("squeue", "--me", "--noheader", "--format=%i|%k|%Z").splitlines()
    jobs = [line.split("|", 2) for line in lines]
    return [number for number, comment, folder in jobs if comment in comments and Path(folder) == Path.cwd()]


def _slurm(*command: str) -> str:
    """Output of a Slurm command; a failing one ends the program, since nobody knows then what is running."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"error: {' '.join(command[:4])}: {result.stderr.strip()}")
    return result.stdout
