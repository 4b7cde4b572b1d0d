"""The system calls that a program may make, as a filter for the kernel (seccomp, classic BPF).

What is not listed fails with EPERM, in Python an ordinary PermissionError: no process but threads, no other program, no
socket, no signal to anybody, no change of modes, owners, limits or priorities, nothing that outlives the process.
"""

from balanced_aggregation.rewards.sandboxing.bpf import (
    ALLOW,
    CLONE,
    CLONE3,
    CLONE_NEW,
    ENOSYS,
    EPERM,
    EQUAL,
    IOCTL,
    PRLIMIT,
    Instruction,
    argument,
    assemble,
    give,
    masked,
    one_of,
)

# Numbers as (x86_64, aarch64); None where the machine has no such call.
_ALLOWED = {
    # files that Landlock lets through, and their descriptors
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "stat": (4, None), "fstat": (5, 80), "lstat": (6, None),
    "lseek": (8, 62), "pread64": (17, 67), "pwrite64": (18, 68), "readv": (19, 65), "writev": (20, 66),
    "access": (21, None), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "flock": (73, 32),
    "fsync": (74, 82), "fdatasync": (75, 83), "ftruncate": (77, 46), "getdents": (78, None), "getdents64": (217, 61),
    "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50), "readlink": (89, None), "readlinkat": (267, 78),
    "umask": (95, 166), "statfs": (137, 43), "fstatfs": (138, 44), "fadvise64": (221, 223), "newfstatat": (262, 79),
    "faccessat": (269, 48), "faccessat2": (439, 439), "statx": (332, 291), "close_range": (436, 436),
    # waiting
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72), "pipe": (22, None),
    "pipe2": (293, 59), "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, None),
    "epoll_pwait": (281, 22), "eventfd2": (290, 19), "pause": (34, None), "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115), "alarm": (37, None), "getitimer": (36, 102), "setitimer": (38, 103),
    # memory
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216),
    "madvise": (28, 233), "membarrier": (324, 283),
    # threads, and signals to oneself from the kernel
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "sigaltstack": (131, 132), "sched_yield": (24, 124), "futex": (202, 98),
    "sched_getaffinity": (204, 123), "set_tid_address": (218, 96), "restart_syscall": (219, 128),
    "set_robust_list": (273, 99), "rseq": (334, 293), "exit": (60, 93), "exit_group": (231, 94),
    # questions
    "getpid": (39, 172), "uname": (63, 160), "gettimeofday": (96, 169), "getrlimit": (97, 163),
    "getrusage": (98, 165), "sysinfo": (99, 179), "times": (100, 153), "getuid": (102, 174), "getgid": (104, 176),
    "geteuid": (107, 175), "getegid": (108, 177), "getppid": (110, 173), "getpgrp": (111, None),
    "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150), "getpgid": (121, 155),
    "getsid": (124, 156), "gettid": (186, 178), "time": (201, None), "clock_gettime": (228, 113),
    "clock_getres": (229, 114), "getcpu": (309, 168), "getrandom": (318, 278),
}  # fmt: skip
_FCNTL, _PRCTL = (72, 25), (157, 167)
_OPEN, _OPENAT = (2, None), (257, 56)

# Duplicates, flags and locks. Not F_SETOWN and F_SETSIG, which make the kernel send signals to others.
_FCNTL_COMMANDS = (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1032)
# TCGETS (isatty), TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_IOCTL_REQUESTS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# PR_SET_NAME, PR_GET_NAME, PR_SET_VMA: names of threads and of memory
_PRCTL_OPTIONS = (15, 16, 0x53564D41)
_CLONE_THREAD = 0x00010000
_O_ACCMODE, _O_TRUNC = 3, 0o1000


def seccomp_filter(machine: str | None = None) -> bytes:
    """The filter as an array of ``struct sock_filter``.

    Args:
        machine: as `platform.machine` names it; this machine if None.

    Raises:
        InfrastructureError: the numbers of the system calls are not known for this machine.
    """
    rules = [(numbers, [give(ALLOW)]) for numbers in _ALLOWED.values()]
    rules += [
        (_FCNTL, one_of(1, _FCNTL_COMMANDS)),
        (IOCTL, one_of(1, _IOCTL_REQUESTS)),
        (_PRCTL, one_of(0, _PRCTL_OPTIONS)),
        (PRLIMIT, _reading_own_limits()),
        (CLONE, masked(0, _CLONE_THREAD | CLONE_NEW, _CLONE_THREAD, equal=ALLOW, other=EPERM)),
        (CLONE3, [give(ENOSYS)]),  # its flags are behind a pointer; the C library falls back to clone
        (_OPEN, _no_truncating_read(1)),
        (_OPENAT, _no_truncating_read(2)),
    ]
    return assemble(rules, EPERM, machine)


def _reading_own_limits() -> list[Instruction]:
    """The process must be 0, oneself, and the pointer to new limits null."""
    zeros = [argument(0), argument(2), argument(2, high=True)]
    tests = [test for load in zeros for test in (load, (EQUAL, 1, 0, 0), give(EPERM))]
    return [*tests, give(ALLOW)]


def _no_truncating_read(index: int) -> list[Instruction]:
    """Opening for reading with O_TRUNC empties the file, and Landlock before its version 3 does not mind."""
    return masked(index, _O_ACCMODE | _O_TRUNC, _O_TRUNC, equal=EPERM, other=ALLOW)
