"""An interpreter that starts fast and has nothing of ours, to run code that is handed to it."""

import contextlib
import fcntl
import functools
import marshal
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

# Modules under the names that they have here, so that they find each other.
_LOADER = (
    "import marshal, sys\n"
    "with open(int(sys.argv[1]), 'rb') as file: modules, settings = marshal.load(file)\n"
    "for name, code in modules:\n"
    "    module = sys.modules[name] = type(sys)(name)\n"
    "    exec(code, module.__dict__)\n"
    "module.main(settings)\n"
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


@contextlib.contextmanager
def bare_python(module: str, settings: dict[str, Any]) -> Iterator[tuple[list[str], int]]:
    """A command that calls ``main(settings)`` of a module of this folder, which may import `rights` and no other.

    Yields:
        The command, and the file descriptor that it must inherit.
    """
    codes = [_compiled(name) for name in ("rights", module)]
    with memory_file(marshal.dumps((codes, settings))) as payload:
        yield [os.path.realpath(sys.executable), *_PYTHON_OPTIONS, str(payload)], payload


@functools.cache
def bare_environment() -> dict[str, str]:
    """Its environment: nothing of ours, but the folder of libpython if the loader needs to be told."""
    mapped = re.findall(r"(/\S*)/libpython[^/\s]*\.so\S*$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    return _ENVIRONMENT | ({"LD_LIBRARY_PATH": mapped[0]} if mapped else {})


@contextlib.contextmanager
def memory_file(content: bytes) -> Iterator[int]:
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


@functools.cache
def _compiled(module: str) -> tuple[str, CodeType]:
    path = Path(__file__).with_name(f"{module}.py")
    code = compile(path.read_bytes(), f"<{module}>", "exec", dont_inherit=True, optimize=2)
    return f"{__package__}.{module}", code
