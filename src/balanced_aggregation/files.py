"""Files that are never seen half-written, and digests of what is in them."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from balanced_aggregation.errors import UserError

if TYPE_CHECKING:
    import pandas as pd  # takes half a second to load


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; on success flush what was written there and rename it to ``path``.

    For a file or a folder. A folder that exists at ``path`` is replaced.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = partial_path(path)
    remove(temporary)
    yield temporary
    for written in [p for p in temporary.rglob("*") if p.is_file()] if temporary.is_dir() else [temporary]:
        _sync(written)
    replaced = path.with_name(f".{path.name}.replaced")
    remove(replaced)
    if path.is_dir():
        path.rename(replaced)
    temporary.replace(path)
    _sync(path.parent)
    remove(replaced)


def partial_path(path: Path) -> Path:
    """The temporary name that `atomic_path` gives."""
    return path.with_name(f".{path.name}.partial")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, indented, keys in the order given."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_parquet(path: Path, frame: "pd.DataFrame") -> None:
    """Write a table atomically as Parquet, without its index."""
    with atomic_path(path) as temporary:
        frame.to_parquet(temporary, index=False)


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        UserError: it is not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: not JSON, although it should be: {error}") from error


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_digest(value: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
