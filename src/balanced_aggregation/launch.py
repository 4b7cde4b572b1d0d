"""How the processes of one training are started."""

import contextlib
import logging
import os
import signal
import sys
from types import FrameType
from typing import Any

import psutil

from balanced_aggregation.config import Compute
from balanced_aggregation.errors import Interrupted
from balanced_aggregation.printing import print_regardless
from balanced_aggregation.training.interruption import SIGNALS

_FIRST_PORT = 10000
_PORTS = 20000
"""Below 32768, where Linux begins with the ports that it gives away itself."""


def launch_prefix(compute: Compute) -> str:
    """What stands before a command so that it runs once for each process of a training.

    One node finds a free port by itself, so that trainings can share it. Several nodes are those of a Slurm
    allocation: each of them runs `balagg-torchrun` once, and they meet at the first. What they agree on is worked out
    on the nodes, inside of the step: there Slurm has set its variables, whatever has become of them on the way to
    `srun`. The port follows from job and step, so that trainings of two jobs, or of one, can have a node in common.

    Args:
        compute: nodes, and processes of a node.

    Returns:
        the prefix, for bash: empty for one process, otherwise with a space at its end. It holds no brace, which
        Snakemake would take for a placeholder.
    """
    if compute.processes == 1:
        return ""
    if compute.nodes == 1:
        return f"balagg-torchrun --standalone --nproc-per-node {compute.processes_per_node} --no-python "
    srun = (
        f"srun --nodes={compute.nodes} --ntasks={compute.nodes} --ntasks-per-node=1"
        # Beside the step that Snakemake may run in, on all processors of a node; when one node fails, all end.
        " --overlap --cpu-bind=none --kill-on-bad-exit=1"
    )
    host = '$(scontrol show hostnames "$SLURM_STEP_NODELIST" | head -n 1)'
    port = f"$(({_FIRST_PORT} + (SLURM_JOB_ID + 97 * SLURM_STEP_ID) % {_PORTS}))"
    torchrun = (
        f"balagg-torchrun --nnodes {compute.nodes} --nproc-per-node {compute.processes_per_node} --rdzv-backend c10d"
        f' --rdzv-endpoint "{host}:{port}" --rdzv-id "$SLURM_JOB_ID.$SLURM_STEP_ID" --no-python'
    )
    # The command that follows is handed through bash untouched, as its arguments.
    return f"{srun} bash -c 'exec {torchrun} \"$@\"' torchrun "


def launch_threads(compute: Compute, threads: int) -> int:
    """Processors of a node that one training uses, with so many threads for each process."""
    return compute.processes_per_node * threads


def job_resources(compute: Compute) -> dict[str, int | str | None]:
    """What one training asks a cluster for, under the names that Snakemake's executor for Slurm knows.

    One node: as many GPUs, and Snakemake's own job step runs the training. Several: one task a node, and no step of
    Snakemake's (``mpi``), since `launch_prefix` starts one on all of them.

    Args:
        compute: nodes, and GPUs of a node.

    Returns:
        values by name; None is not asked for.
    """
    several = compute.nodes > 1
    gpus = compute.nodes * compute.gpus_per_node
    return {
        "nodes": compute.nodes,
        "gpu": gpus,
        "mpi": "srun" if several else None,
        "tasks": compute.nodes if several else None,
        # Not as many tasks a GPU as there are tasks, which the executor would ask for.
        "tasks_per_gpu": 0 if several and gpus else None,
    }


def torchrun() -> None:
    """PyTorch's `torchrun`, but it hands on signals that ask a training to end, and says in one line who failed.

    Upon SIGTERM, PyTorch's own kills its processes after 30 seconds, which may be less than a step takes. Here they end
    by themselves, whenever they have stored a checkpoint.
    """
    print_regardless()
    asked: list[int] = []

    def hand_on(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        logging.disable(logging.ERROR)  # PyTorch's words for what is no failure
        # They are in sessions of their own: what is sent to our group does not reach them.
        processes = psutil.Process().children()
        if not processes and not os.times().children_user:
            sys.exit(_verdict({}, asked=True))  # none has been started yet
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    for number in SIGNALS:
        signal.signal(number, hand_on)
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.main(["--signals-to-handle", "SIGINT,SIGHUP,SIGQUIT", *sys.argv[1:]])
    except ChildFailedError as error:
        sys.exit(_verdict(error.failures, asked=bool(asked)))


def _verdict(failures: dict[int, Any], asked: bool) -> str | int:
    """What torchrun leaves with, when processes of its did not end well: an exit code, or the line that says why."""
    quiet = {Interrupted.exit_code, *(-number for number in SIGNALS)}
    codes = {failure.exitcode for failure in failures.values()}
    stored = Interrupted.exit_code in codes
    if stored:
        quiet.add(-signal.SIGKILL)  # PyTorch does not wait long for those that leave after the first
    if codes <= quiet and (asked or stored):
        if not stored:
            print("asked to end before the training had begun", file=sys.stderr)
        return Interrupted.exit_code
    loud = {rank: failure for rank, failure in failures.items() if failure.exitcode not in quiet} or failures
    rank = min(loud, key=lambda rank: loud[rank].timestamp)
    return f"error: process {rank} of the training failed first, with exit code {loud[rank].exitcode}; see above"
