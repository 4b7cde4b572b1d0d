"""Work that only one process at a time may do, on any node that sees the same files."""

import contextlib
import errno
import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from balanced_aggregation.errors import UserError
from balanced_aggregation.files import names_full_disk
from balanced_aggregation.slurm import job_id

_LOOK_SECONDS = 1.0
_SAY_SECONDS = 60.0
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


@contextlib.contextmanager
def exclusive(path: Path, doing: str, pause: Callable[[float], None] = time.sleep) -> Iterator[bool]:
    """Hold the lock of what is made at ``path``, a file or a folder; the kernel releases it when the process dies.

    In a Slurm job, wait for whoever holds it: after Snakemake was killed and started again an old job may still run,
    and a file server may take minutes to see that a node is dead. Elsewhere a person has started something twice.

    Args:
        path: what must not be made twice at once; the lock lies beside it, as a hidden file that stays.
        doing: what another process is doing, to say so.
        pause: waits for some seconds, and may raise instead.

    Yields:
        Whether another process had it first.

    Raises:
        UserError: another process has it, and this is no job of Slurm's.
    """
    lock = path.with_name(f".{path.name}.lock")
    with names_full_disk(lock):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a+", encoding="utf-8")  # what is in it is the holder's
    with file:
        waited, said = False, -_SAY_SECONDS
        while not _taken(file):
            holder = f"{path}: another process is {doing} ({_holder(file)})"
            if job_id() is None:
                raise UserError(f"{holder}; wait for it, or end it")
            if time.monotonic() - said >= _SAY_SECONDS:
                said = time.monotonic()
                print(f"{holder}; waiting for it", file=sys.stderr, flush=True)
            waited = True
            pause(_LOOK_SECONDS)
        with contextlib.suppress(OSError):  # a full disk; the lock is there nevertheless
            file.truncate(0)
            file.write(json.dumps({"slurm_job": job_id(), "host": socket.gethostname(), "pid": os.getpid()}))
            file.flush()
        yield waited


def _taken(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        print(f"WARNING: {file.name}: no locks here ({error.strerror}); nothing keeps others out", file=sys.stderr)
    return True


def _holder(file: IO[str]) -> str:
    try:
        file.seek(0)
        holder = json.loads(file.read())
        job = f"job {holder['slurm_job']}, " if holder["slurm_job"] else ""
        return f"{job}process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "it does not say which"
