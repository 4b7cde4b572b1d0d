"""A whole command confined: it reads and runs what it likes, and changes nothing but the folders it is given."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from balanced_aggregation.errors import InfrastructureError
from balanced_aggregation.rewards.sandboxing.bare import bare_environment, bare_python
from balanced_aggregation.rewards.sandboxing.denied_calls import denying_filter
from balanced_aggregation.rewards.sandboxing.landlock import confinement_rules, landlock_ruleset, landlock_version
from balanced_aggregation.rewards.sandboxing.parent import pipe

_NEEDED_VERSION = 6  # the first that keeps signals inside
_NEEDED = f"Landlock {_NEEDED_VERSION} (Linux 6.12)"
_OUTPUT_TAIL = 1 << 20
_GRACE_SECONDS = 60

# Each line must fail; what does not is printed.
_PROBE = """
import os, socket, sys
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
outside, parent = sys.argv[1], int(sys.argv[2])
for name, attempt in {
    "writing outside": lambda: open(outside, "w"),
    "changing times": lambda: os.utime("/"),
    "the network": socket.socket,
    "signals to others": lambda: os.kill(parent, 0),
    "new sessions": os.setsid,
}.items():
    try:
        attempt()
    except PermissionError:
        continue
    print(name)
open("inside", "w").close()
print("done")
"""


@dataclass(frozen=True)
class Confines:
    """What a confined command may use, besides folders.

    Attributes:
        wall_seconds: time since the start.
        memory_bytes: address space of each process; libraries such as torch reserve much that they don't use.
        file_bytes: size of each file, standard output and standard error included.
        processes: processes at once, the command included.
        threads: threads of all of them.
    """

    wall_seconds: float = 3600.0
    memory_bytes: int = 16 << 30
    file_bytes: int = 1 << 30
    processes: int = 64
    threads: int = 4096


_DEFAULT_CONFINES = Confines()


def run_confined(
    command: Sequence[str | Path],
    writable: Sequence[Path],
    environment: Mapping[str, str] | None = None,
    confines: Confines = _DEFAULT_CONFINES,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and kill all its descendants, in a confinement that they cannot leave either.

    They read and run any file; write, create and delete files only in the ``writable`` folders, without changing modes,
    owners or times; start processes, but no sessions or process groups; have no sockets but ``socketpair``, no signals
    to others, no privileges, and an empty standard input. Semaphores of `multiprocessing` (``Lock``, ``Queue``,
    ``Pool``) need ``/dev/shm`` among the writable folders, which is common to all processes of a user;
    ``multiprocessing.Manager`` needs sockets and does not work. Should this process die, so do they.

    Args:
        command: the program and its arguments.
        writable: folders, which must exist.
        environment: of the command; this process's if None.
        confines: what it may use besides.

    Returns:
        Exit code (negative: the number of a signal), and the last MiB each of standard output and standard error.

    Raises:
        InfrastructureError: the command could not be confined or started, or was stopped because of ``confines``.
    """
    _check_version()
    words = [str(word) for word in command]
    try:
        with contextlib.ExitStack() as stack:
            reading, writing = stack.enter_context(pipe())
            output, errors = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            settings = {
                "command": words,
                "environment": dict(os.environ if environment is None else environment),
                "landlock_ruleset": landlock_ruleset(),
                "landlock_rules": confinement_rules(writable),
                "seccomp_filter": denying_filter(),
                "rlimits": {
                    name: _at_most(name, value)
                    for name, value in {
                        "RLIMIT_AS": confines.memory_bytes,
                        "RLIMIT_FSIZE": confines.file_bytes,
                        "RLIMIT_CORE": 1,  # unlike 0, it also keeps the kernel from starting a program for dumps
                    }.items()
                },
                "wall_seconds": confines.wall_seconds,
                "processes": confines.processes,
                "threads": confines.threads,
                "status": writing.fileno(),
                "parent": os.getpid(),
            }
            warden, payload = stack.enter_context(bare_python("warden", settings))
            process = subprocess.Popen(
                warden,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                pass_fds=(payload, writing.fileno()),
                env=bare_environment(),
                start_new_session=True,
            )
            writing.close()
            _wait(process, confines.wall_seconds + _GRACE_SECONDS)
            status = (reading.read(1 << 16) or b"").decode(errors="replace")
            what, _, detail = status.partition("\n")[0].partition(" ")
            stdout, stderr = _tail(output), _tail(errors)
    except OSError as error:
        raise InfrastructureError(f"cannot confine {words[0]}: {error}") from error
    if what != "ended":
        reason = f"{what} {detail}".strip() or stderr.strip() or f"exit code {process.returncode}"
        raise InfrastructureError(f"{words[0]}, confined, {reason}")
    return subprocess.CompletedProcess(words, int(detail), stdout, stderr)


def check_confinement() -> None:
    """Run a command that tries what it must not. Takes about 0.2 seconds.

    Raises:
        InfrastructureError: this machine cannot confine commands; the message says what it lacks.
    """
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder, "inside")
        inside.mkdir()
        probe = f"import os\nos.chdir({str(inside)!r})\n{_PROBE}"
        command = [sys.executable, "-I", "-S", "-c", probe, str(Path(folder, "outside")), str(os.getpid())]
        result = run_confined(command, [inside], confines=Confines(wall_seconds=60))
        *allowed, last = result.stdout.splitlines() or [""]
        if allowed:
            raise InfrastructureError(f"the confinement does not refuse: {', '.join(allowed)}")
        if result.returncode != 0 or last != "done":
            raise InfrastructureError(f"the confinement does not run its own probe: {result.stderr.strip()[-500:]}")


def _check_version() -> None:
    try:
        version = landlock_version()
    except InfrastructureError as error:
        raise InfrastructureError(f"needs {_NEEDED}, this kernel has none") from error
    if version < _NEEDED_VERSION:
        raise InfrastructureError(f"needs {_NEEDED}, this kernel has version {version}")


def _at_most(name: str, value: int) -> int:
    """A limit that may be set: none above the present one, unless that is infinite."""
    present = resource.getrlimit(getattr(resource, name))[1]
    return value if present == resource.RLIM_INFINITY else min(value, present)


def _wait(process: subprocess.Popen, seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise InfrastructureError("what watches over a confined command hangs") from None
    finally:
        if process.poll() is None:
            # It kills the others before it ends.
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
            process.kill()
            process.wait()


def _tail(file: IO[bytes]) -> str:
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), _OUTPUT_TAIL, max(0, size - _OUTPUT_TAIL)).decode(errors="replace")
