"""Files that are never seen half-written, and digests of what is in them."""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from balanced_aggregation.errors import DiskFull, UserError

_FULL = (errno.ENOSPC, errno.EDQUOT)
# What is left of these errors where a library does not hand them on: safetensors, and torch, whose writer of archives
# notices a short write and loses the reason.
_FULL_TEXT = re.compile(r"No space left on device|Disk quota exceeded|\(os error (28|122)\)|unexpected pos \d+ vs")

if TYPE_CHECKING:
    import pandas as pd  # takes half a second to load


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; on success flush what was written there and rename it to ``path``.

    For a file or a folder. A folder that exists at ``path`` is replaced.

    Raises:
        DiskFull: there is no space for it; what was written of it is removed.
    """
    path = Path(path)
    temporary = partial_path(path)
    with names_full_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove(temporary)
        try:
            yield temporary
            for written in [p for p in temporary.rglob("*") if p.is_file()] if temporary.is_dir() else [temporary]:
                _sync(written)
        except BaseException as error:
            if is_full(error):
                with contextlib.suppress(OSError):
                    remove(temporary)
            raise
        replaced = path.with_name(f".{path.name}.replaced")
        remove(replaced)
        if path.is_dir():
            path.rename(replaced)
        temporary.replace(path)
        _sync(path.parent)
        remove(replaced)


@contextlib.contextmanager
def names_full_disk(path: Path) -> Iterator[None]:
    """Say which file did not fit, and where how much space is left, should what happens inside find the disk full.

    Raises:
        DiskFull: it did.
    """
    try:
        yield
    except BaseException as error:  # checkpoints of torch fail with exceptions that are no `Exception`
        if not is_full(error):
            raise
        raise full_disk(path) from error


def full_disk(path: Path) -> DiskFull:
    """The error for a file that does not fit: its name, and how much space is left where."""
    place = Path(path).absolute()
    place = next(folder for folder in (place, *place.parents) if folder.is_dir())
    mount = next(folder for folder in (place, *place.parents) if folder.is_mount())
    usage = shutil.disk_usage(place)
    free = f"{usage.free / 1e6:,.1f} MB free of {usage.total / 1e6:,.0f} MB on {mount}"
    return DiskFull(f"{path}: no space left on the device: {free}")


def is_full(error: BaseException) -> bool:
    """Whether an error, or one that it follows from, says that a disk is full, or somebody's share of it."""
    seen: BaseException | None = error
    while seen is not None:
        if getattr(seen, "errno", None) in _FULL or _FULL_TEXT.search(str(seen)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


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
