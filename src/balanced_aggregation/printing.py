"""Printing that cannot end a program: whoever reads may be gone, and the disk of a log full."""

import io
import sys
from typing import Any


class _Forgiving(io.FileIO):
    """A file to which writing never fails; what cannot be written is lost."""

    def write(self, data: Any) -> int | None:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def print_regardless() -> None:
    """From now on, no `print` of this process fails, and its exit code is its own whatever becomes of its output."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None:
            stream.flush()
            buffer = io.BufferedWriter(_Forgiving(stream.fileno(), "w", closefd=False))
            forgiving = io.TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=stream.line_buffering)
            setattr(sys, name, forgiving)
