"""How a process gives up its rights, for good and for all that it will start.

The compiled code is handed to a bare interpreter (`bare`), so it imports nothing of this package.
"""

import ctypes
import os
import resource
import struct

_SIGKILL = 9  # the module `signal` takes milliseconds to import
PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_SECCOMP_MODE_FILTER = 2
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_RULE_PATH_BENEATH = 1
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_READ_SEARCH = 2

_libc = ctypes.CDLL(None, use_errno=True)


def limit(settings):
    """Die with the parent, before others when memory runs out, and keep to the system's limits."""
    call("prctl", PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != settings["parent"]:
        raise RuntimeError("the parent has died")
    # Should the machine run out of memory, then this process goes, not the one that trains.
    with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 (pathlib takes milliseconds to import)
        file.write("1000")
    for name, value in settings["rlimits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))


def isolate(settings):
    """Give up the rights to files and system calls, and all but one capability."""
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    attributes = settings["landlock_ruleset"]
    ruleset = call("syscall", _LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    for path, rights in settings["landlock_rules"]:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", rights, handle)
        call("syscall", _LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule, 0)
        os.close(handle)
    call("syscall", _LANDLOCK_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    _drop_capabilities()
    program = settings["seccomp_filter"]
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0)


def _drop_capabilities():
    """Root keeps one capability, to search folders that are not its own: Python may be installed in one."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    held = ctypes.create_string_buffer(24)
    call("capget", header, held)
    kept = struct.unpack("=6I", held.raw)[1] & 1 << _CAP_DAC_READ_SEARCH
    call("capset", header, struct.pack("=6I", kept, kept, 0, 0, 0, 0))


def call(function, *arguments):
    """Call a function of the C library."""
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = getattr(_libc, function)(*values)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}{tuple(a for a in arguments if isinstance(a, int))}: {os.strerror(number)}")
    return result
