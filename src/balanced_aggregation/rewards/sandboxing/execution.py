"""What a program may use, and what became of it."""

import enum
from dataclasses import dataclass

MIB = 1 << 20


class Ending(enum.StrEnum):
    """How a program ended. That it could not be started is no ending: it raises.

    ``error``: an exception, a non-zero exit code or a signal of its own doing, such as a segmentation fault.
    ``killed``: a SIGKILL that no limit explains; the kernel does that when the machine runs out of memory.
    """

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    FILE_LIMIT = "file_limit"
    THREAD_LIMIT = "thread_limit"
    KILLED = "killed"


@dataclass(frozen=True)
class Limits:
    """What one program may use.

    CPU time decides, since it depends little on what else the machine does; ``wall_seconds`` only ends programs that
    sleep or wait, and must be a generous multiple.

    Attributes:
        cpu_seconds: CPU time of all threads together, the start of the interpreter included. LiveCodeBench allows 6 s,
            but runs a program as the body of a function, where variables are faster.
        wall_seconds: time since the start.
        memory_bytes: address space, of which the interpreter and the stack take about 320 MiB (little of it real).
        stack_bytes: stack of the thread that runs the program, for deep recursion.
        output_bytes: standard output and standard error together.
        file_bytes: all files that the program writes in its folder, together.
        files: number of files in its folder.
        open_files: file descriptors.
        threads: threads, the one that runs the program included.
    """

    cpu_seconds: float = 10.0
    wall_seconds: float = 60.0
    memory_bytes: int = 2048 * MIB
    stack_bytes: int = 256 * MIB
    output_bytes: int = 16 * MIB
    file_bytes: int = 16 * MIB
    files: int = 64
    open_files: int = 64
    threads: int = 64


@dataclass(frozen=True)
class Execution:
    """What a program did.

    Attributes:
        ending: how it ended.
        stdout: its standard output; what is not UTF-8 is replaced by U+FFFD.
        stderr: the end of its standard error.
        exit_code: negative is the number of the signal that ended it.
        cpu_seconds: CPU time it used.
    """

    ending: Ending
    stdout: str
    stderr: str
    exit_code: int
    cpu_seconds: float
