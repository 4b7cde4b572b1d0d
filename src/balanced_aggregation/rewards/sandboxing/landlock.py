"""The files that may be seen and changed (Landlock).

A program sees the Python installation and its own folder, and nothing else. A confined command sees all files, but
changes only those in the folders it is given.
"""

import ctypes
import functools
import importlib.util
import os
import struct
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from balanced_aggregation.errors import InfrastructureError

_CREATE_RULESET = 444  # on every machine
_VERSION_FLAG = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _MAKE_REG, _TRUNCATE = 1, 1 << 1, 1 << 2, 1 << 3, 1 << 8, 1 << 14
_MAKE_CHAR, _MAKE_BLOCK, _IOCTL_DEV = 1 << 6, 1 << 11, 1 << 15
# How many of the rights to files, to TCP ports and to reach out of the sandbox are known from which version on.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
_PORT_RIGHTS, _SCOPES = {4: 2}, {6: 2}

_SYSTEM_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/dev/urandom", "/dev/random", "/dev/zero")
_PACKAGES = ("numpy",)

Rules = list[tuple[str, int]]


def landlock_version() -> int:
    """Version of Landlock in the running kernel.

    Raises:
        InfrastructureError: there is none.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    if version < 1:
        reason = os.strerror(ctypes.get_errno())
        raise InfrastructureError(f"the sandbox needs a kernel with Landlock enabled (Linux 5.13 or later): {reason}")
    return version


@functools.cache
def landlock_ruleset() -> bytes:
    """``struct landlock_ruleset_attr`` that refuses everything the running kernel can refuse."""
    version = landlock_version()
    masks = [_mask(_FILE_RIGHTS, version), _mask(_PORT_RIGHTS, version), _mask(_SCOPES, version)]
    known = 3 if version >= 6 else 2 if version >= 4 else 1
    return struct.pack(f"={known}Q", *masks[:known])


@functools.cache
def reading_rules() -> Rules:
    """The paths that may be read and the rights on them: interpreter, standard library, shared libraries, numpy.

    Neither ``sys.prefix`` nor ``site-packages`` as a whole: a virtual environment may lie in the project's folder.
    """
    base = [Path(prefix, name) for prefix in {sys.base_prefix, sys.base_exec_prefix} for name in ("lib", "lib64")]
    standard = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    packages = [Path(folder) for name in package_folders().values() for folder in (name, f"{name}.libs")]
    folders = [Path(folder) for folder in _SYSTEM_FOLDERS] + base + standard + packages
    rules = {str(folder.resolve()): _READ_FILE | _READ_DIR for folder in folders if folder.is_dir()}
    rules |= {file: _READ_FILE for file in _SYSTEM_FILES if Path(file).exists()}
    rules["/dev/null"] = _READ_FILE | _WRITE_FILE
    return list(rules.items())


def writing_rule(folder: str) -> tuple[str, int]:
    """Rights on the program's own folder.

    It may create files there and no folders or links, and remove nothing: then one look at the folder sees all that
    was written.
    """
    rights = _READ_FILE | _READ_DIR | _WRITE_FILE | _MAKE_REG | _TRUNCATE
    return folder, rights & _mask(_FILE_RIGHTS, landlock_version())


def confinement_rules(writable: Sequence[Path]) -> Rules:
    """Reading and running of any file, and in the writable folders everything but devices."""
    every = _mask(_FILE_RIGHTS, landlock_version())
    rules = [("/", _EXECUTE | _READ_FILE | _READ_DIR), ("/dev/null", _READ_FILE | _WRITE_FILE | _TRUNCATE)]
    rules += [(str(folder), every & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV)) for folder in writable]
    return [(path, rights & every) for path, rights in rules]


@functools.cache
def package_folders() -> dict[str, str]:
    """Folders of the packages that a program may import besides the standard library."""
    specs = [importlib.util.find_spec(name) for name in _PACKAGES]
    return {spec.name: spec.submodule_search_locations[0] for spec in specs if spec}


def _mask(counts: dict[int, int], version: int) -> int:
    known = [count for since, count in counts.items() if since <= version]
    return (1 << max(known, default=0)) - 1
