"""Start the sandbox's process, watch it, and leave nothing of it behind."""

import contextlib
import fcntl
import functools
import io
import marshal
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from balanced_aggregation.errors import InfrastructureError
from balanced_aggregation.rewards.sandboxing.child import MEMORY_EXIT
from balanced_aggregation.rewards.sandboxing.execution import Ending, Execution, Limits
from balanced_aggregation.rewards.sandboxing.landlock import (
    landlock_ruleset,
    package_folders,
    reading_rules,
    writing_rule,
)
from balanced_aggregation.rewards.sandboxing.seccomp import seccomp_filter
from balanced_aggregation.rewards.sandboxing.usual_names import RECURSION_LIMIT, usual_names

_LOADER = (
    "import marshal, sys\n"
    "with open(int(sys.argv[1]), 'rb') as file: code, settings = marshal.load(file)\n"
    "space = {'__name__': 'sandbox'}\n"
    "exec(code, space)\n"
    "space['main'](settings)\n"
)
# As -I, but for the one variable that matters: with the same hashes, a program iterates over sets in the same order.
_PYTHON_OPTIONS = ("-P", "-s", "-S", "-B", "-X", "utf8", "-c", _LOADER)
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
}
_LOOK_SECONDS = 0.02  # how often to look at what no system limit covers
_STDERR_TAIL = 4096
_CPU_TOLERANCE = 0.05  # the kernel's two accounts of CPU time, in seconds
_PIPE_CHUNK = 1 << 16
_DEFAULT_LIMITS = Limits()


def run_program(source: str, stdin: str, limits: Limits = _DEFAULT_LIMITS, function: str | None = None) -> Execution:
    """Run a Python program in a sandbox of its own. Safe to call from several threads at once.

    Args:
        source: the program; it finds itself in ``__main__``, with the usual names at hand.
        stdin: its standard input.
        limits: what it may use.
        function: if given, the program is not the main module; call this function of it, or this method of its class
            ``Solution``, with one JSON value per line of ``stdin`` as arguments. ``stdout`` of the execution is then
            the JSON of what it returned, and what the program printed is in ``stderr``.

    Raises:
        InfrastructureError: the sandbox could not be started, so nothing is known about the program.
    """
    program = {
        "source": source,
        "function": function,
        "usual_names": usual_names(),
        "recursion_limit": RECURSION_LIMIT,
        "sys_path": [str(folder) for folder in package_folders()],
    }
    try:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(_own_folder())
            ends = {name: stack.enter_context(_pipe()) for name in ("stdout", "stderr", "status")}
            status = ends["status"][1].fileno()
            settings = program | _isolation(folder, limits) | {"status": status, "parent": os.getpid()}
            payload = stack.enter_context(_memory_file(marshal.dumps((_child_code(), settings))))
            process = subprocess.Popen(
                [os.path.realpath(sys.executable), *_PYTHON_OPTIONS, str(payload)],
                stdin=stack.enter_context(_memory_file(stdin.encode(errors="surrogatepass"))),
                stdout=ends["stdout"][1],
                stderr=ends["stderr"][1],
                pass_fds=(payload, status),
                cwd=folder,
                env=_environment() | {"HOME": folder, "TMPDIR": folder},
                start_new_session=True,
            )
            for _, writing in ends.values():
                writing.close()
            watch = _Watch(process, {name: reading.fileno() for name, (reading, _) in ends.items()}, folder, limits)
            return watch.until_end()
    except OSError as error:
        raise InfrastructureError(f"the sandbox could not run a program: {error}") from error


class _Watch:
    """One running process: what it has written so far, and whether it keeps to its limits."""

    def __init__(self, process: subprocess.Popen, streams: dict[str, int], folder: str, limits: Limits):
        self.process, self.folder, self.limits = process, folder, limits
        self.names = {handle: name for name, handle in streams.items()}
        self.written = {name: bytearray() for name in streams}
        self.output_bytes = 0

    def until_end(self) -> Execution:
        """Read until the process ends or must end; kill and reap it in any case."""
        try:
            excess = self._read()
        finally:
            # Not reaped yet, so that its number cannot have become somebody else's.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            _, status, usage = os.wait4(self.process.pid, 0)
            self.process.returncode = os.waitstatus_to_exitcode(status)
        stdout, stderr, message = (self.written[name].decode(errors="replace") for name in ("stdout", "stderr", "status"))
        if message != "ready":
            reason = message or stderr.strip() or f"exit code {self.process.returncode}"
            raise InfrastructureError(f"the sandbox did not start: {reason}")
        seconds = usage.ru_utime + usage.ru_stime
        return Execution(excess or self._ending(seconds), stdout, stderr, self.process.returncode, seconds)

    def _ending(self, cpu_seconds: float) -> Ending:
        code = self.process.returncode
        if code == -signal.SIGKILL:
            return Ending.TIMEOUT if cpu_seconds > self.limits.cpu_seconds - _CPU_TOLERANCE else Ending.KILLED
        return {0: Ending.OK, MEMORY_EXIT: Ending.MEMORY}.get(code, Ending.ERROR)

    def _read(self) -> Ending | None:
        """Which limit was exceeded, if any."""
        deadline = time.monotonic() + self.limits.wall_seconds
        look = 0.0
        with selectors.DefaultSelector() as selector, _process_handle(self.process.pid) as handle:
            for stream in (handle, *self.names):
                selector.register(stream, selectors.EVENT_READ)
            while True:
                ready = [key.fd for key, _ in selector.select(_LOOK_SECONDS)]
                ended = handle in ready
                for stream in self.names if ended else ready:
                    if self._read_stream(stream, everything=ended) and not ended:
                        selector.unregister(stream)
                if self.output_bytes > self.limits.output_bytes:
                    return Ending.OUTPUT_LIMIT
                now = time.monotonic()
                if ended or now > look:
                    excess = self._look()
                    if excess or ended:
                        return excess
                    look = now + _LOOK_SECONDS
                if now > deadline:
                    return Ending.TIMEOUT

    def _read_stream(self, stream: int, everything: bool) -> bool:
        """Read what there is; return whether the stream has ended."""
        name = self.names[stream]
        while self.output_bytes <= self.limits.output_bytes:
            try:
                chunk = os.read(stream, _PIPE_CHUNK)
            except BlockingIOError:
                return False
            if not chunk:
                return True
            self.written[name] += chunk
            self.output_bytes += len(chunk)
            if name == "stderr":
                del self.written[name][:-_STDERR_TAIL]
            if not everything:
                return False
        return False

    def _look(self) -> Ending | None:
        if _threads(self.process.pid) > self.limits.threads:
            return Ending.THREAD_LIMIT
        total = 0
        with os.scandir(self.folder) as entries:
            for count, entry in enumerate(entries, 1):
                total += entry.stat(follow_symlinks=False).st_size
                if count > self.limits.files or total > self.limits.file_bytes:
                    return Ending.FILE_LIMIT
        return None


def _threads(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[17]) - 1  # the one that only waits is not the program's


@contextlib.contextmanager
def _process_handle(pid: int) -> Iterator[int]:
    handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def _own_folder() -> Iterator[str]:
    folder = os.path.realpath(tempfile.mkdtemp(prefix="sandbox-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[io.FileIO, io.FileIO]]:
    """Files of both ends of a pipe; reading does not block."""
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as reader, open(writing, "wb", buffering=0) as writer:
        os.set_blocking(reading, False)
        yield reader, writer


@contextlib.contextmanager
def _memory_file(content: bytes) -> Iterator[int]:
    """A file without a name that nobody can change any more."""
    handle = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(content)
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, seals)
        os.lseek(handle, 0, os.SEEK_SET)
        yield handle
    finally:
        os.close(handle)


def _isolation(folder: str, limits: Limits) -> dict[str, Any]:
    return {
        "rlimits": {
            "RLIMIT_CPU": limits.cpu_seconds,
            "RLIMIT_AS": limits.memory_bytes,
            "RLIMIT_FSIZE": limits.file_bytes,
            "RLIMIT_NOFILE": limits.open_files,
            "RLIMIT_CORE": 0,
        },
        "stack_bytes": limits.stack_bytes,
        "landlock_ruleset": landlock_ruleset(),
        "landlock_rules": [*reading_rules(), writing_rule(folder)],
        "seccomp_filter": seccomp_filter(),
    }


@functools.cache
def _child_code():
    path = Path(__file__).with_name("child.py")
    return compile(path.read_bytes(), "<sandbox>", "exec", dont_inherit=True, optimize=2)


@functools.cache
def _environment() -> dict[str, str]:
    """The child's environment: nothing of ours, but the folder of libpython if the loader needs to be told."""
    mapped = re.findall(r"(/\S*)/libpython[^/\s]*\.so\S*$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    return _ENVIRONMENT | ({"LD_LIBRARY_PATH": mapped[0]} if mapped else {})
