"""Filters of system calls as the kernel wants them (seccomp, classic BPF)."""

import platform
import struct
import sys
from collections.abc import Sequence

from balanced_aggregation.errors import InfrastructureError

_AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_KILL, ALLOW, EPERM, ENOSYS = 0x80000000, 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 38
LOAD, EQUAL, _AT_LEAST, AND, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06

Numbers = tuple[int | None, int | None]
"""Of a system call on x86_64 and on aarch64; None where the machine has no such call."""
Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, constant."""

CLONE, CLONE3, PRLIMIT, IOCTL = (56, 220), (435, 435), (302, 261), (16, 29)
CLONE_NEW = 0x7E020000
"""The flags that ask for a new namespace."""


def assemble(rules: Sequence[tuple[Numbers, list[Instruction]]], otherwise: int, machine: str | None = None) -> bytes:
    """The filter as an array of ``struct sock_filter``.

    Args:
        rules: system calls and what to do with them; each block must return.
        otherwise: what to do with all other calls. Those of another architecture kill the process.
        machine: as `platform.machine` names it; this machine if None.

    Raises:
        InfrastructureError: the numbers of the system calls are not known for this machine.
    """
    machine = machine or platform.machine()
    if machine not in _AUDIT_ARCHITECTURES or sys.byteorder != "little" or sys.maxsize < 2**32:
        raise InfrastructureError(f"the sandbox knows {' and '.join(_AUDIT_ARCHITECTURES)}, not {machine}")
    column = list(_AUDIT_ARCHITECTURES).index(machine)
    program = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, _AUDIT_ARCHITECTURES[machine]), give(_KILL), (LOAD, 0, 0, 0)]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32_BIT), give(_KILL)]
    for numbers, block in rules:
        if numbers[column] is not None:
            program += [(EQUAL, 0, len(block), numbers[column]), *block]
    program.append(give(otherwise))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def give(action: int) -> Instruction:
    """Let the call through, or let it fail."""
    return (RETURN, 0, 0, action)


def argument(index: int, high: bool = False) -> Instruction:
    """Load one half of an argument. The kernel itself looks at the lower half only, where the argument is an int."""
    return (LOAD, 0, 0, 16 + 8 * index + 4 * high)


def one_of(index: int, values: Sequence[int], found: int = ALLOW, other: int = EPERM) -> list[Instruction]:
    """Decide by whether an argument is among the values."""
    tests = [test for value in values for test in ((EQUAL, 0, 1, value), give(found))]
    return [argument(index), *tests, give(other)]


def masked(index: int, mask: int, value: int, equal: int, other: int) -> list[Instruction]:
    """Decide by some bits of an argument."""
    return [argument(index), (AND, 0, 0, mask), (EQUAL, 0, 1, value), give(equal), give(other)]
