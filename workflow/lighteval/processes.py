"""Processes for LiveCodeBench's grader out of which its programs cannot reach.

Stands in for what the grader uses of `multiprocessing`. There, a program runs in a process that is as free as the one
that grades: it could end that, or write the scores. Here, it may write no file and signal no other process, and results
come back by way of an open file, not of a server with a socket. Needs Landlock 6 (Linux 6.12).
"""

import ctypes
import json
import multiprocessing
import os
import struct
import tempfile
from collections.abc import Callable

import numpy as np

_SET_NO_NEW_PRIVILEGES = 38
_CREATE_RULESET, _RESTRICT_SELF = 444, 446
# All rights to files but to run (1), read (4) and list (8); TCP; abstract sockets and signals. No rule grants any.
_REFUSED = (0xFFFF & ~(1 | 4 | 8), 3, 3)


class Process(multiprocessing.get_context("fork").Process):
    """A forked process that gives up its rights first."""

    def run(self) -> None:
        """Give up the rights, then call the target."""
        attributes = struct.pack("=3Q", *_REFUSED)
        _call("prctl", _SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        ruleset = _call("syscall", _CREATE_RULESET, attributes, len(attributes), 0)
        _call("syscall", _RESTRICT_SELF, ruleset, 0)
        super().run()


class Manager:
    """Only lists."""

    def list(self) -> "Results":
        """An empty list, to make before the fork."""
        return Results()


class Results:
    """A list of results that the forked process appends to and this one reads, once the other has ended."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the list)
        self._write = os.write  # the grader takes some functions from the module before it runs the program

    def append(self, result: list) -> None:
        """Add a result: the codes of the tests."""
        line = json.dumps(result, default=_plain).encode() + b"\n"
        while line:
            line = line[self._write(self._file.fileno(), line) :]

    def __len__(self) -> int:
        return len(self._lines())

    def __getitem__(self, index: int) -> list:
        return json.loads(self._lines()[index])

    def _lines(self) -> list[bytes]:
        handle = self._file.fileno()
        return os.pread(handle, os.fstat(handle).st_size, 0).splitlines()


def _plain(value: object) -> bool | int | float:
    """What the grader makes of numpy's values afterwards; other values are no verdict, and end in an error here."""
    if isinstance(value, np.ndarray | np.generic):
        return value.item() if isinstance(value, np.generic) else value.item(0)
    raise TypeError(f"{type(value).__name__} is no code of a test")


def _call(function: str, *arguments: int | bytes) -> int:
    call: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), function)
    result = call(*(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")
    return result
