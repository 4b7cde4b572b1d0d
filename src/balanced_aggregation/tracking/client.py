"""Connections to MLflow: a server or an SQLite file, which may be out of order."""

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from balanced_aggregation.config import Study

_DEFAULT = "sqlite:///mlflow.db"


def address(study: Study, before: dict[str, Any] | None = None) -> str:
    """Where a study is tracked: as it says itself, else the environment, else as ``before``, else in a file.

    Args:
        study: one study.
        before: content of ``tracking.json``, if that is to count.
    """
    known = before["uri"] if before else _DEFAULT
    return study.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI") or known


def connect(uri: str, create: bool = False) -> Any:
    """An `mlflow.MlflowClient` whose requests end within seconds, one way or the other.

    Args:
        uri: of a server, or ``sqlite:///`` and a path.
        create: whether an SQLite file may be created.

    Raises:
        FileNotFoundError: there is no such file and it may not be created.
    """
    database = sqlite_path(uri)
    if database and not create and not database.exists():
        raise FileNotFoundError(f"database {database} is gone; `balagg track rebuild` makes it anew from the files")
    prepare()
    from mlflow import MlflowClient

    return MlflowClient(uri)


def prepare() -> None:
    """Import MLflow, without two habits of its own.

    It repeats a request that the server may have got already; here a run is looked up before it is created again. And
    it reports to its makers, from nodes that may have no internet.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow  # noqa: F401


def sqlite_path(uri: str) -> Path | None:
    """The file of an SQLite address; None for another."""
    path = uri.removeprefix("sqlite:///")
    return None if path == uri else Path(path)


@contextlib.contextmanager
def first_use(uri: str) -> Iterator[None]:
    """One process at a time: several that create the same SQLite database at once leave it half-made."""
    database = sqlite_path(uri)
    if database is None:
        yield
        return
    with Path(f"{database}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def warn_only(consequence: str) -> Iterator[None]:
    """Turn whatever goes wrong in MLflow, its database or its server into a line on stderr."""
    try:
        yield
    except Exception as error:
        warn(consequence, error)


def warn(consequence: str, error: Exception) -> None:
    """Say what follows from an error, in one line."""
    # Not by a logger: MLflow's migrations switch off all that exist.
    print(f"WARNING: {consequence}: {in_one_line(error)}", file=sys.stderr, flush=True)


def in_one_line(error: Exception) -> str:
    """Type and first line of an error."""
    reason = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {reason[0]}"
