"""The last lines of files that somebody may be writing at this moment."""

import json
import os
import re
from pathlib import Path
from typing import Any

_TAIL_BYTES = 64 * 1024
"""Enough for the last dozens of steps of a journal, however long it is."""

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x09\x0b-\x1f\x7f]")


def last_rows(path: Path, count: int) -> list[dict[str, Any]]:
    """The last rows of a journal, at most ``count``; none if there is no such file.

    What is no JSON object with a step does not count: the last line may be written at this moment, and the first that
    is read may have begun before.
    """
    rows = []
    for line in reversed(_tail(path).split("\n")):
        if len(rows) == count:
            break
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and type(row.get("step")) is int and 0 < row["step"] < 10**9:
            rows.append(row)
    return rows[::-1]


def last_line(path: Path) -> str | None:
    """The last line of a log that is not empty, without control characters; None if there is none."""
    return last_words(_tail(path))


def last_words(text: str) -> str | None:
    """The same of a text."""
    for line in reversed(re.split(r"[\r\n]", text)):
        if clean := _CONTROL.sub("", line).strip():
            return clean
    return None


def read_object(path: Path) -> dict[str, Any] | None:
    """A JSON object; None if there is no such file, or something else in it."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def modified(path: Path) -> float | None:
    """When it was last written to, in seconds since the epoch; None if it is not there."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _tail(path: Path) -> str:
    """The end of a file; nothing if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            return file.read(_TAIL_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
