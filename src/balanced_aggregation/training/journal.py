"""Files with one JSON line a step, which a killed training goes on writing where its checkpoint stands."""

import contextlib
import json
import math
import os
from pathlib import Path
from typing import Any

from balanced_aggregation.errors import UserError
from balanced_aggregation.files import names_full_disk, write_text


class Journal:
    """Appends one line for each step."""

    def __init__(self, path: Path, steps: int):
        """Keep the lines of the first ``steps`` steps, drop any that a killed training wrote after its checkpoint.

        Raises:
            UserError: the file does not hold those steps, each once, in order.
        """
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)[:steps] if path.exists() else []
        for expected, line in enumerate(lines, start=1):
            if not line.endswith("\n") or _step(line) != expected:
                raise UserError(f"{path}: line {expected} is not step {expected}; remove the folder to start again")
        if len(lines) < steps:
            raise UserError(f"{path}: ends at step {len(lines)}, the checkpoint beside it is at step {steps}")
        write_text(path, "".join(lines))
        self._path, self._file = path, path.open("a", encoding="utf-8")

    def append(self, row: dict[str, Any]) -> None:
        """Write a step's values; NaN becomes null. After an error the journal is closed."""
        clean = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}
        with names_full_disk(self._path):
            try:
                self._file.write(json.dumps(clean, allow_nan=False) + "\n")
                self._file.flush()
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.close()  # it tries once more, and must not do so where nobody expects it
                raise

    def sync(self) -> None:
        """Return when everything is on the disk; a checkpoint must not get there first."""
        with names_full_disk(self._path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, on the disk, unless it is closed."""
        if not self._file.closed:
            self.sync()
            self._file.close()


def _step(line: str) -> int | None:
    try:
        return json.loads(line)["step"]
    except (json.JSONDecodeError, KeyError, TypeError):
        return None


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The rows of a finished journal."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
