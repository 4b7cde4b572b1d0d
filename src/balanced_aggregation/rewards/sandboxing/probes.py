"""Does the sandbox on this machine run a good program, and refuse what it must?"""

import os
import tempfile
from pathlib import Path

from balanced_aggregation.errors import InfrastructureError
from balanced_aggregation.rewards.sandboxing.execution import MIB, Ending, Execution, Limits
from balanced_aggregation.rewards.sandboxing.parent import run_program

_GOOD = "import numpy\nprint(sum(map(int, input().split())), List, numpy.arange(4).sum())"
_GOOD_OUTPUT = "42 typing.List 6\n"

# Each line of input is a name and an expression. If the expression has a value, then it was not refused.
_FORBIDDEN = """
import ctypes, os, resource, socket, subprocess, sys
for line in sys.stdin:
    name, _, expression = line.rstrip().partition(": ")
    try:
        eval(expression)
    except (PermissionError, FileNotFoundError):  # not found: /proc may hide other processes
        pass
    except BaseException as error:
        print(f"{name} ({type(error).__name__}: {error})")
    else:
        print(name)
print("done")
"""
_EXPRESSIONS = """
reading outside its folder: open({secret!r})
writing outside its folder: open({outside!r}, "w")
truncating what may be read: os.open(os.__file__, os.O_TRUNC)
listing outside its folder: os.listdir({folder!r})
reading the parent's environment: open("/proc/{parent}/environ")
reading its own descriptors: os.listdir("/proc/self/fd")
making folders: os.mkdir("folder")
making links: os.symlink({secret!r}, "link")
changing modes: os.chmod({secret!r}, 0)
new processes by fork: os.fork() or os._exit(0)
new processes by posix_spawn: os.posix_spawn(sys.executable, ["python", "-c", ""], {{}})
new programs: os.execv(sys.executable, ["python", "-c", ""])
the network: socket.socket()
sockets between processes: socket.socket(socket.AF_UNIX)
signals to the parent: os.kill({parent}, 0)
signals to its group: os.killpg(0, 0)
new sessions: os.setsid()
limits of its own: resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))
limits of the parent: resource.prlimit({parent}, resource.RLIMIT_CORE)
priorities: os.setpriority(os.PRIO_PROCESS, {parent}, 0)
memory files: os.memfd_create("file")
"""


def check_sandbox() -> None:
    """Run programs whose fate is known. Takes about two seconds.

    Raises:
        InfrastructureError: the sandbox cannot be set up here, stops a good program or lets a bad one through; the
            message says what.
    """
    good = run_program(_GOOD, "40 2\n")
    if good.ending is not Ending.OK or good.stdout != _GOOD_OUTPUT:
        raise InfrastructureError(f"the sandbox does not run a good program: {_describe(good)}")
    allowed = _allowed()
    if allowed:
        raise InfrastructureError(f"the sandbox does not refuse {'; '.join(allowed)}")
    small = Limits(cpu_seconds=0.3, wall_seconds=20, memory_bytes=512 * MIB, file_bytes=MIB, output_bytes=MIB)
    for source, ending in {
        "while True: pass": Ending.TIMEOUT,
        "x = bytearray(1 << 30)": Ending.MEMORY,
        "while True: print('x' * 1000)": Ending.OUTPUT_LIMIT,
        "open('file', 'wb').write(bytes(2 << 20))": Ending.ERROR,
    }.items():
        execution = run_program(source, "", small)
        if execution.ending is not ending:
            raise InfrastructureError(f"the sandbox does not limit {source!r}: {_describe(execution)}")


def _allowed() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder, "secret")
        secret.write_text("secret")
        outside = Path(folder, "outside")
        stdin = _EXPRESSIONS.strip().format(secret=str(secret), outside=str(outside), folder=folder, parent=os.getpid())
        execution = run_program(_FORBIDDEN, stdin)
        *allowed, last = execution.stdout.splitlines() or [""]
        if execution.ending is not Ending.OK or last != "done":
            raise InfrastructureError(f"the sandbox does not run its own probes: {_describe(execution)}")
        return allowed


def _describe(execution: Execution) -> str:
    return f"{execution.ending}, exit code {execution.exit_code}, {execution.stdout!r}, {execution.stderr[-500:]!r}"
