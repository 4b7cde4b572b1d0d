"""A tracking server of one's own, for trainings on several nodes."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from balanced_aggregation.errors import UserError
from balanced_aggregation.tracking.client import in_one_line

_EVERYWHERE = "0.0.0.0"
_STARTS_WITHIN_SECONDS = 120.0
_ENDS_WITHIN_SECONDS = 10.0


def serve(folder: Path, host: str, port: int, database: str | None, workers: int) -> None:
    """Run `mlflow server` until SIGINT or SIGTERM, with the artifacts of all runs going through it.

    Args:
        folder: of artifacts, and of the database if none is named; on a disk of this machine, since SQLite is not
            safe on network file systems.
        host: address to listen at; 0.0.0.0 for other machines.
        port: to listen at.
        database: address of another database, such as ``postgresql://user@host/name``.
        workers: processes.

    Raises:
        UserError: the port is taken, the database or its driver is missing, or the server ends by itself.
    """
    _check_port(host, port)
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    database = database or f"sqlite:///{folder / 'mlflow.db'}"
    _upgrade(database)
    names = _names(host)
    environment = {
        # Only requests that name this machine are answered, so that no web page can reach the server through a browser.
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(f"{name}{end}" for name in names for end in ("", f":{port}")),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        **os.environ,
        "MLFLOW_BACKEND_STORE_URI": database,  # not an argument: it may hold a password
    }
    command = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port)]
    command += ["--workers", str(workers), "--serve-artifacts", "--artifacts-destination", str(folder / "artifacts")]
    with _ends_on_signals():
        server = subprocess.Popen(command, env=environment, stdout=sys.stderr, start_new_session=True)
        try:
            _wait_until_it_answers(server, host, port)
            print(f"export MLFLOW_TRACKING_URI=http://{names[0]}:{port}", flush=True)
            code = server.wait()
        except _Ended:
            return
        finally:
            _end(server)
    raise UserError(f"the server ended by itself, with exit code {code}")


def _check_port(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise UserError(f"--host {host} --port {port}: cannot listen there: {error}") from error


def _upgrade(database: str) -> None:
    """Create the database's tables or bring them up to date, before several processes use them."""
    from mlflow.db import commands
    from sqlalchemy import create_engine
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    kind = database.partition(":")[0]
    try:
        create_engine(database).connect().close()  # MLflow would try for minutes
        commands(["upgrade", database], standalone_mode=False)
    except ModuleNotFoundError as error:
        package = {"psycopg2": "psycopg2-binary"}.get(error.name, error.name)
        raise UserError(f"--database {kind}://...: needs {error.name}; `pip install {package}` here first") from error
    except (ArgumentError, NoSuchModuleError) as error:
        raise UserError(f"--database {kind}: no address of a database, such as postgresql://user@host/name") from error
    except Exception as error:  # of the database, its driver, or a migration
        raise UserError(f"--database {kind}://...: cannot be used: {in_one_line(error)}") from error


def _names(host: str) -> list[str]:
    """What this machine is called by those who connect to it; the name to print first."""
    local = ["localhost", "127.0.0.1", "[::1]"]
    if host != _EVERYWHERE:
        return list(dict.fromkeys([host, *local]))
    own = [socket.getfqdn(), socket.gethostname()]
    addresses: list[Any] = []
    with contextlib.suppress(OSError):  # a machine need not know its own name
        addresses = socket.gethostbyname_ex(socket.gethostname())[2]
    return list(dict.fromkeys([*own, *(name.partition(".")[0] for name in own), *addresses, *local]))


def _wait_until_it_answers(server: subprocess.Popen, host: str, port: int) -> None:
    url = f"http://{'127.0.0.1' if host == _EVERYWHERE else host}:{port}/health"
    directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    started = time.monotonic()
    while time.monotonic() < started + _STARTS_WITHIN_SECONDS and server.poll() is None:
        with contextlib.suppress(OSError), directly.open(url, timeout=5):
            return
        time.sleep(0.2)
    if server.poll() is None:
        raise UserError(f"the server does not answer within {_STARTS_WITHIN_SECONDS:.0f} s")


class _Ended(Exception):
    """Somebody asked the server to end."""


@contextlib.contextmanager
def _ends_on_signals() -> Iterator[None]:
    def end(number: int, frame: Any) -> None:
        for each in before:  # once is enough
            signal.signal(each, signal.SIG_IGN)
        raise _Ended

    heeded = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.getsignal(number) for number in heeded}
    for number in heeded:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(server: subprocess.Popen) -> None:
    """End the server and the processes it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(_ENDS_WITHIN_SECONDS)
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
