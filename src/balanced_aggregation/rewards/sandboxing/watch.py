"""Watch the sandbox's process to its end."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from balanced_aggregation.errors import InfrastructureError
from balanced_aggregation.rewards.sandboxing.child import MEMORY_EXIT
from balanced_aggregation.rewards.sandboxing.execution import Ending, Execution, Limits

_LOOK_SECONDS = 0.02  # how often to look at what no system limit covers
_STDERR_TAIL = 4096
_PIPE_CHUNK = 1 << 16


class Watch:
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
        stdout, stderr, message = (
            self.written[name].decode(errors="replace") for name in ("stdout", "stderr", "status")
        )
        if message != "ready":
            reason = message or stderr.strip() or f"exit code {self.process.returncode}"
            raise InfrastructureError(f"the sandbox did not start: {reason}")
        seconds = usage.ru_utime + usage.ru_stime
        return Execution(excess or self._ending(seconds), stdout, stderr, self.process.returncode, seconds)

    def _ending(self, cpu_seconds: float) -> Ending:
        if cpu_seconds > self.limits.cpu_seconds:
            return Ending.TIMEOUT
        known = {0: Ending.OK, MEMORY_EXIT: Ending.MEMORY, -signal.SIGKILL: Ending.KILLED}
        return known.get(self.process.returncode, Ending.ERROR)

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
        if _cpu_seconds(self.process.pid) > self.limits.cpu_seconds:
            return Ending.TIMEOUT
        if _threads(self.process.pid) > self.limits.threads:
            return Ending.THREAD_LIMIT
        total = 0
        with os.scandir(self.folder) as entries:
            for count, entry in enumerate(entries, 1):
                total += entry.stat(follow_symlinks=False).st_size
                if count > self.limits.files or total > self.limits.file_bytes:
                    return Ending.FILE_LIMIT
        return None


def _cpu_seconds(pid: int) -> float:
    return time.clock_gettime(~pid << 3 | 2)  # what clock_getcpuclockid(3) returns: the scheduler's own account


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
