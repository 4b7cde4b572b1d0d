"""The rule `token`, for trainings that a test holds up: where it says so in files of the working directory.

``hold``: the path of a training's journal and a number; while the file is there, that training stands still once so
many steps are done. ``hold_checkpoint``: while it is there, checkpoints to resume from are not finished; ``held`` says
that one has been reached.
"""

import os
import sys
import time
from pathlib import Path

from balanced_aggregation.aggregation import RULES


def token(lengths, advantages, group_ids):
    """`token` itself, after a pause."""
    while "train" in sys.argv and _must_wait():  # and not where a study is only looked at
        time.sleep(0.05)
    return RULES["token"](lengths, advantages, group_ids)


def _must_wait():
    try:
        journal, steps = Path("hold").read_text().split()
        return Path(journal).read_bytes().count(b"\n") >= int(steps)
    except (FileNotFoundError, ValueError):
        return False


def _held_fsync(file):
    written = Path(f"/proc/self/fd/{file if isinstance(file, int) else file.fileno()}").readlink()
    while "/resume/.step" in str(written) and Path("hold_checkpoint").exists():
        Path("held").touch()
        time.sleep(0.05)
    _fsync(file)


_fsync, os.fsync = os.fsync, _held_fsync
