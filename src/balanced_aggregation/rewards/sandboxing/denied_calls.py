"""The system calls that a confined command may not make: what Landlock does not cover (seccomp, a list of refusals).

Landlock, as of version 6, says nothing of changes to modes, owners, times and attributes of files, of limits and
priorities of other processes, nor of sockets with names in the file system, behind which a service may do anything for
whoever connects. New sessions and process groups are refused so that one signal reaches all descendants.
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
_DENIED = {
    # sockets; those between parent and child are below
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200),
    # leaving the process group
    "setsid": (112, 157), "setpgid": (109, 154),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    # what files are, rather than what is in them
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "setxattrat": (463, 463), "removexattrat": (466, 466), "file_setattr": (469, 469),
    # what outlives its process, or is common to all
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191),
    "semtimedop": (220, 192), "mq_open": (240, 180), "mq_unlink": (241, 181), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219),
    # file systems and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "unshare": (272, 97),
    "setns": (308, 268), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262), "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # ways into the kernel that are mostly of use to attackers, and the machine as a whole
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171), "sethostname": (170, 161),
    "setdomainname": (171, 162), "syslog": (103, 116), "vhangup": (153, 58), "iopl": (172, None),
    "ioperm": (173, None),
}  # fmt: skip
_SOCKETPAIR, _SETAFFINITY = (53, 199), (203, 122)
# TIOCSTI and TIOCLINUX, which type on a terminal; FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR, attributes of files
_IOCTL_REQUESTS = (0x5412, 0x541C, 0x40086602, 0x401C5820)
_SOCK_TYPE_MASK, _SOCK_STREAM = 0xF, 1


def denying_filter(machine: str | None = None) -> bytes:
    """The filter as an array of ``struct sock_filter``.

    Args:
        machine: as `platform.machine` names it; this machine if None.

    Raises:
        InfrastructureError: the numbers of the system calls are not known for this machine.
    """
    rules = [(numbers, [give(EPERM)]) for numbers in _DENIED.values()]
    rules += [
        # A datagram from one of a pair could go to any socket with a name; a stream has only its other end.
        (_SOCKETPAIR, masked(1, _SOCK_TYPE_MASK, _SOCK_STREAM, equal=ALLOW, other=EPERM)),
        (IOCTL, one_of(1, _IOCTL_REQUESTS, found=EPERM, other=ALLOW)),
        (PRLIMIT, _own_process()),
        (_SETAFFINITY, _own_process()),
        (CLONE, masked(0, CLONE_NEW, 0, equal=ALLOW, other=EPERM)),
        (CLONE3, [give(ENOSYS)]),  # its flags are behind a pointer; the C library falls back to clone
    ]
    return assemble(rules, ALLOW, machine)


def _own_process() -> list[Instruction]:
    return [argument(0), (EQUAL, 0, 1, 0), give(ALLOW), give(EPERM)]
