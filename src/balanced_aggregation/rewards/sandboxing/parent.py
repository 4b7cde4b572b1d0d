"""Start the sandbox's process, and leave no file of it behind."""

import contextlib
import io
import math
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

from balanced_aggregation.errors import InfrastructureError
from balanced_aggregation.rewards.sandboxing.bare import bare_environment, bare_python, memory_file
from balanced_aggregation.rewards.sandboxing.execution import Execution, Limits
from balanced_aggregation.rewards.sandboxing.landlock import (
    landlock_ruleset,
    package_folders,
    reading_rules,
    writing_rule,
)
from balanced_aggregation.rewards.sandboxing.seccomp import seccomp_filter
from balanced_aggregation.rewards.sandboxing.usual_names import RECURSION_LIMIT, usual_names
from balanced_aggregation.rewards.sandboxing.watch import Watch

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
        "packages": package_folders(),
    }
    try:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(_own_folder())
            ends = {name: stack.enter_context(pipe()) for name in ("stdout", "stderr", "status")}
            status = ends["status"][1].fileno()
            settings = program | _isolation(folder, limits) | {"status": status, "parent": os.getpid()}
            command, payload = stack.enter_context(bare_python("child", settings))
            process = subprocess.Popen(
                command,
                stdin=stack.enter_context(memory_file(stdin.encode(errors="surrogatepass"))),
                stdout=ends["stdout"][1],
                stderr=ends["stderr"][1],
                pass_fds=(payload, status),
                cwd=folder,
                env=bare_environment() | {"HOME": folder, "TMPDIR": folder},
                start_new_session=True,
            )
            for _, writing in ends.values():
                writing.close()
            watch = Watch(process, {name: reading.fileno() for name, (reading, _) in ends.items()}, folder, limits)
            return watch.until_end()
    except OSError as error:
        raise InfrastructureError(f"the sandbox could not run a program: {error}") from error


@contextlib.contextmanager
def _own_folder() -> Iterator[str]:
    folder = os.path.realpath(tempfile.mkdtemp(prefix="sandbox-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def pipe() -> Iterator[tuple[io.FileIO, io.FileIO]]:
    """Files of both ends of a pipe; reading does not block."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as reader, os.fdopen(writing, "wb", buffering=0) as writer:
        os.set_blocking(reading, False)
        yield reader, writer


def _isolation(folder: str, limits: Limits) -> dict[str, Any]:
    return {
        "rlimits": {
            # Counted in ticks, so it only matters should this process be unable to look.
            "RLIMIT_CPU": math.ceil(2 * limits.cpu_seconds) + 1,
            "RLIMIT_AS": limits.memory_bytes,
            "RLIMIT_FSIZE": limits.file_bytes,
            "RLIMIT_NOFILE": limits.open_files,
            # Unlike 0, 1 also keeps the kernel from starting a program that collects dumps.
            "RLIMIT_CORE": min(1, abs(resource.getrlimit(resource.RLIMIT_CORE)[1])),
        },
        "stack_bytes": limits.stack_bytes,
        "landlock_ruleset": landlock_ruleset(),
        "landlock_rules": [*reading_rules(), writing_rule(folder)],
        "seccomp_filter": seccomp_filter(),
    }
