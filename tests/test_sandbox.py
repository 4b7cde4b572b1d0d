"""Programs that behave, and programs that attack: each ends as an `Execution`, and nothing of it is left."""

import concurrent.futures
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from balanced_aggregation.errors import InfrastructureError
from balanced_aggregation.rewards.sandbox import Ending, Limits, check_sandbox, run_program
from balanced_aggregation.rewards.sandboxing import bpf, landlock, parent, seccomp, watch

MIB = 1 << 20
SMALL = Limits(
    cpu_seconds=0.5, wall_seconds=3, memory_bytes=256 * MIB, stack_bytes=64 * MIB, output_bytes=MIB, file_bytes=MIB
)
SECRET = "the-expected-output-is-4711"


@pytest.fixture(autouse=True)
def nothing_left(tmp_path, monkeypatch):
    """After each test: no process, no folder, no open file, no shared memory."""
    folder = tmp_path / "sandboxes"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    me = psutil.Process()
    children, handles, shared = set(me.children(recursive=True)), me.num_fds(), set(Path("/dev/shm").iterdir())
    yield
    assert set(me.children(recursive=True)) <= children
    assert not [p for p in psutil.process_iter() if folder in Path(working_folder(p)).parents]
    assert list(folder.iterdir()) == []
    assert me.num_fds() == handles
    assert not [path for path in set(Path("/dev/shm").iterdir()) - shared if path.name.startswith("sandbox")]


def working_folder(process):
    try:
        return process.cwd()
    except psutil.Error:
        return ""


@pytest.fixture
def secret(tmp_path, monkeypatch):
    """In a file, an inheritable descriptor, the environment and the memory of this process."""
    path = tmp_path / "secret"
    path.write_text(SECRET)
    monkeypatch.setenv("SANDBOX_SECRET", SECRET)
    handle = os.open(path, os.O_RDWR)
    os.set_inheritable(handle, True)
    yield path
    os.close(handle)
    assert path.read_text() == SECRET
    assert path.stat().st_mode & 0o777 == 0o644


def test_the_sandbox_works_here():
    check_sandbox()


@pytest.mark.parametrize(
    ("source", "stdin", "stdout"),
    [
        ("print(input())", "hello\n", "hello\n"),
        ("import sys\nprint(sys.stdin.buffer.read())", "a\r\nb", "b'a\\r\\nb'\n"),
        ("print(open(0).read().split())", "1 2", "['1', '2']\n"),
        ("import os\nprint(os.read(0, os.fstat(0).st_size))", "abc", "b'abc'\n"),
        ("import sys\nprint(sys.stdin.read(), repr(sys.stdin.read()))", "once", "once ''\n"),
        ("print('π', input())", "é", "π é\n"),
        ("if __name__ == '__main__': print('main')", "", "main\n"),
        ("import sys\nprint('kept')\nsys.exit()", "", "kept\n"),
        ("import os\nprint('kept', flush=True)\nos._exit(0)", "", "kept\n"),
        ("import os\nos.write(1, b'\\xff\\xfe\\n')", "", "��\n"),
        ("import sys\nsys.stdout.close()", "", ""),
        ("import atexit\natexit.register(print, 'late')", "", "late\n"),
        ("from threading import *\nThread(target=lambda: print('not joined')).start()", "", "not joined\n"),
        ("import threading\nthreading.stack_size(1 << 26)\nt = threading.Thread(target=print)\nt.start()", "", "\n"),
        (
            "x: List[int] = [gcd(12, 18), comb(5, 2)]\nprint(x, Counter('aa'), inf)",
            "",
            "[6, 10] Counter({'a': 2}) inf\n",
        ),
        ("print(pow(2, 3, 5), open is __builtins__.open)", "", "3 True\n"),
        ("print({'a', 'b', 'c', 'd'} and hash('a') % 1000)", "", "None"),
        ("open('note', 'w').write('x' * 10)\nprint(open('note').read())", "", "xxxxxxxxxx\n"),
        ("import numpy as np\nprint(np.dot(np.ones((9, 9)), np.ones(9)).sum())", "", "81.0\n"),
        ("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nprint(A(1))", "", "A(x=1)\n"),
        ("import random, decimal, fractions, string, re, json, time, bisect\nprint(decimal.Decimal(1))", "", "1\n"),
    ],
)
def test_good_programs(source, stdin, stdout):
    execution = run_program(source, stdin)
    assert execution.ending is Ending.OK, execution
    if stdout == "None":  # the same in every run, whatever it is
        stdout = run_program(source, stdin).stdout
    assert execution.stdout == stdout


def test_deep_recursion_in_python_and_through_c():
    source = """
import sys
from functools import lru_cache
sys.setrecursionlimit(10**6)
def plain(n): return n and 1 + plain(n - 1)
@lru_cache(None)
def cached(n): return n and 1 + cached(n - 1)
print(plain(200_000), cached(100_000))
"""
    assert run_program(source, "").stdout == "200000 100000\n"


E_, T_, M_ = Ending.ERROR, Ending.TIMEOUT, Ending.MEMORY
CATCHING = "import os\nwhile True:\n    try: {}\n    except OSError: pass"
ATTACKS = {
    "fork bomb": ("import os\nwhile True: os.fork()", E_),
    "fork bomb that does not give up": (CATCHING.format("os.fork()"), T_),
    "multiprocessing": ("import multiprocessing as m\nm.Process(target=print).start()", E_),
    "thread bomb": (
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(9,)).start()",
        {T_, Ending.THREAD_LIMIT},  # out of memory after some threads, it waits for them
    ),
    "thread bomb with tiny stacks": (
        "import _thread, time\n_thread.stack_size(32768)\nwhile True: _thread.start_new_thread(time.sleep, (9,))",
        Ending.THREAD_LIMIT,
    ),
    "memory bomb": ("x = []\nwhile True: x.append(bytearray(1 << 26))", M_),
    "memory bomb, page by page": ("x = []\nwhile True: x.append(x.copy() or [1])", {M_, T_}),
    "memory bomb at once": ("x = 'x' * (1 << 40)", M_),
    "memory that is only mapped": ("import mmap\nx = [mmap.mmap(-1, 1 << 26) for _ in range(99)]", E_),
    "infinite output": ("while True: print('ok' * 99)", Ending.OUTPUT_LIMIT),
    "infinite output in one line": ("while True: print('ok' * 99, end='')", Ending.OUTPUT_LIMIT),
    "infinite standard error": ("import sys\nwhile True: print('ok' * 9999, file=sys.stderr)", Ending.OUTPUT_LIMIT),
    "too much output, then an end": ("print('x' * (1 << 21))", Ending.OUTPUT_LIMIT),
    "infinite loop": ("while True: pass", T_),
    "infinite loops in threads": (
        "import threading\ndef f():\n    while True: pass\nfor _ in range(9): threading.Thread(target=f).start()",
        T_,
    ),
    "catastrophic regular expression": ("import re\nre.match('(a+)+$', 'a' * 40 + 'b')", T_),
    "sleeping for ever": ("import time\ntime.sleep(1e6)", T_),
    "waiting for a pipe": ("import os\nr, w = os.pipe()\nos.read(r, 1)", T_),
    "closing everything and sleeping": ("import os, time\nos.closerange(0, 99)\ntime.sleep(1e6)", T_),
    "ignoring signals": (
        "import ctypes\nfor i in range(65): ctypes.CDLL(None).signal(i, ctypes.c_void_p(1))\nwhile True: pass",
        T_,
    ),
    "blocking signals": ("import signal\nsignal.pthread_sigmask(0, range(1, 65))\nwhile True: pass", T_),
    "hanging at exit": ("import atexit, time\natexit.register(time.sleep, 1e6)", T_),
    "hanging in a thread at exit": (
        "import threading, time\nthreading.Timer(1e6, print).start()",
        T_,
    ),
    "killing the parent": ("import os\nos.kill(os.getppid(), 9)", E_),
    "killing the group of the parent": ("import os\nos.killpg(os.getpgid(os.getppid()), 9)", E_),
    "killing everybody": ("import os\nos.kill(-1, 9)", E_),
    "SIGIO to the parent": ("import fcntl, os\nfcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())", E_),
    "SIGIO to the parent by ioctl": (
        "import fcntl, os\nfcntl.ioctl(1, 0x8901, os.getppid().to_bytes(4, 'little'))",
        E_,
    ),
    "a daemon": ("import os\nos.setsid()\nos.fork() and os._exit(0)\nos.fork() and os._exit(0)\nwhile 1: pass", E_),
    "a shell": ("import os\nos.execv('/bin/sh', ['sh', '-c', 'echo ok'])", E_),
    "a shell by system": ("import os\nos.system('echo ok') and 1 / 0", E_),
    "a shell by subprocess": ("import subprocess\nsubprocess.run('echo ok', shell=True, check=True)", E_),
    "TCP": ("import socket\nsocket.create_connection(('127.0.0.1', 22))", E_),
    "UDP": ("import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 53))", E_),
    "Unix socket": ("import socket\nsocket.socket(socket.AF_UNIX).connect('/run/docker.sock')", E_),
    "abstract Unix socket": ("import socket\nsocket.socket(socket.AF_UNIX).bind('\\0sandbox')", E_),
    "netlink": ("import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", E_),
    "DNS": ("import socket\nsocket.getaddrinfo('example.org', 80)", E_),
    "higher limits": ("import resource as r\nr.setrlimit(r.RLIMIT_AS, (-1, -1))", E_),
    "limits of the parent": ("import os, resource as r\nr.prlimit(os.getppid(), r.RLIMIT_CPU, (1, 1))", E_),
    "priority": ("import os\nos.nice(-1)", E_),
    "priority of the parent": ("import os\nos.setpriority(os.PRIO_PROCESS, os.getppid(), 19)", E_),
    "real-time scheduling": ("import os\nos.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))", E_),
    "affinity of the parent": ("import os\nos.sched_setaffinity(os.getppid(), [0])", E_),
    "shared memory": ("open('/dev/shm/sandbox-left', 'w')", E_),
    "shared memory, multiprocessing": (
        "from multiprocessing.shared_memory import SharedMemory\nSharedMemory('sandbox-left', True, 4096)",
        E_,
    ),
    "one large file": ("f = open('f', 'wb')\nwhile True: f.write(bytes(65536))", E_),
    "large files": ("for i in range(99): open(str(i), 'wb').write(bytes(1 << 19))\nwhile 1: pass", Ending.FILE_LIMIT),
    "large files, then an end": ("for i in range(3): open(str(i), 'wb').write(bytes(1 << 19))", Ending.FILE_LIMIT),
    "many files": ("i = 0\nwhile True: i += 1; open(str(i), 'w').close()", Ending.FILE_LIMIT),
    "many open files": ("x = [open('/dev/null') for _ in range(999)]", E_),
    "folders": ("import os\nos.makedirs('a/b')", E_),
    "segmentation fault": ("import ctypes\nctypes.string_at(0)", E_),
    "abort": ("import os\nos.abort()", E_),
    "exhausted stack": (
        "import sys\nfrom functools import lru_cache\nsys.setrecursionlimit(10**9)\n"
        "@lru_cache(None)\ndef f(n): return f(n + 1)\nf(0)",
        {E_, M_},
    ),
    "huge integer": ("print(10 ** 5000)", E_),
    "endless integer": ("x = 3\nwhile True: x *= x", {T_, M_}),
    "compiler bomb": ("x = " + "(" * 5000 + ")" * 5000, E_),
    "compiler recursion": ("x = " + "-" * 200_000 + "1", {E_, M_}),
    "syntax error": ("def", E_),
    "null byte": ("x = '\0'", E_),
    "lone surrogate": ("x = '\ud800'", E_),
    "exit code": ("import sys\nprint('ok')\nsys.exit(1)", E_),
    "exit message": ("exit('ok')", E_),
    "exit code of 256": ("import sys\nsys.exit(256 + 1)", E_),
    "exception": ("1 / 0", E_),
    "exception nobody sees": ("import sys\nsys.excepthook = sys.stderr = None\n1 / 0", E_),
    "forged status": (
        "import os\nfor i in range(3, 64):\n    try: os.write(i, b'ready')\n    except OSError: pass\n1 / 0",
        E_,
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks(attack):
    source, expected = ATTACKS[attack]
    started = time.monotonic()
    execution = run_program(source, "", SMALL)
    assert execution.ending in (expected if isinstance(expected, set) else {expected}), execution
    assert time.monotonic() - started < 2 * SMALL.wall_seconds
    assert len(execution.stdout) + len(execution.stderr) <= SMALL.output_bytes + (1 << 17)


SPIES = {
    "file": "open({path!r}).read()",
    "file by way of a link": "os.symlink({path!r}, 'link') or open('link').read()",
    "file by way of a hard link": "os.link({path!r}, 'link') or open('link').read()",
    "file by its inode": "ctypes.CDLL(None).syscall(304, 3, b'', 0) >= 0 or 1 / 0",
    "writing": "open({path!r}, 'a').write('x')",
    "emptying": "os.truncate({path!r}, 0)",
    "emptying by opening": "os.open({path!r}, os.O_RDONLY | os.O_TRUNC)",
    "removing": "os.remove({path!r})",
    "renaming": "os.rename({path!r}, 'mine')",
    "modes": "os.chmod({path!r}, 0o600)",
    "owners": "os.chown({path!r}, 1, 1)",
    "times": "os.utime({path!r}, (0, 0))",
    "attributes": "os.setxattr({path!r}, 'user.x', b'x')",
    "listing": "os.listdir(os.path.dirname({path!r}))",
    "watching": "ctypes.CDLL(None).inotify_init1(0) >= 0 or 1 / 0",
    "memory of the parent": "open('/proc/{pid}/mem', 'rb')",
    "map of the parent": "open('/proc/{pid}/maps').read()",
    "environment of the parent": "open('/proc/{pid}/environ').read()",
    "command line of the parent": "open('/proc/{pid}/cmdline').read()",
    "folder of the parent": "os.readlink('/proc/{pid}/cwd')",
    "descriptors of the parent": "os.listdir('/proc/{pid}/fd')",
    "root of the parent": "os.listdir('/proc/{pid}/root')",
    "own descriptors by name": "os.listdir('/proc/self/fd')",
    "own memory by name": "open('/proc/self/mem', 'rb')",
    "inherited descriptors": "[os.fstat(i) for i in range(3, 1024) if exists(i)][0]",
    "own environment": "os.environ['SANDBOX_SECRET']",
    "home": "os.listdir(os.path.expanduser('~root'))",
    "the project": "open({project!r}).read()",
    "passwords": "open('/etc/passwd').read()",
    "disks": "os.listdir('/dev')",
    "terminal": "open('/dev/tty')",
    "other sandboxes": "os.listdir('..')",
}


@pytest.mark.parametrize("spy", SPIES)
def test_nothing_outside_can_be_read_or_changed(spy, secret):
    expression = SPIES[spy].format(path=str(secret), pid=os.getpid(), project=parent.__file__)
    exists = "def exists(i):\n    try: return os.fstat(i)\n    except OSError: return False\n"
    execution = run_program(f"import ctypes, os\n{exists}print('reached', {expression})", "", SMALL)
    assert execution.ending is Ending.ERROR
    assert "reached" not in execution.stdout
    assert SECRET not in execution.stdout + execution.stderr


# By number (x86_64, aarch64), since Python has no name for most of them.
FORBIDDEN_CALLS = {
    "vfork": (58, None), "fork": (57, None), "execve": (59, 221), "execveat": (322, 281), "kill": (62, 129),
    "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272), "mount": (165, 40),
    "umount2": (166, 39), "unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51), "pivot_root": (155, 41),
    "open_tree": (428, 428), "fsopen": (430, 430), "bpf": (321, 280), "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "userfaultfd": (323, 282), "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "socket": (41, 198), "socketpair": (53, 199),
    "setuid": (105, 146), "setgid": (106, 144), "setgroups": (116, 159), "capset": (126, 91), "setsid": (112, 157),
    "setpgid": (109, 154), "setrlimit": (160, 164), "setpriority": (141, 140), "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274), "ioprio_set": (251, 30), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    "personality": (135, 92), "seccomp": (317, 277), "landlock_create_ruleset": (444, 444), "openat2": (437, 437),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "fallocate": (285, 47), "mknodat": (259, 33),
    "fchmod": (91, 52), "fchownat": (260, 54), "utimensat": (280, 88), "truncate": (76, 45), "splice": (275, 76),
    "timer_create": (222, 107), "reboot": (169, 142), "init_module": (175, 105), "kexec_load": (246, 104),
    "syslog": (103, 116), "swapon": (167, 224), "acct": (163, 89), "quotactl": (179, 60), "sethostname": (170, 161),
    "clock_settime": (227, 112), "move_pages": (317 - 38, 239), "an unknown one": (600, 600),
}  # fmt: skip


def test_system_calls_are_refused():
    column = ["x86_64", "aarch64"].index(platform.machine())
    numbers = {numbers[column]: name for name, numbers in FORBIDDEN_CALLS.items() if numbers[column] is not None}
    source = f"""
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for number in {list(numbers)}:
    result = libc.syscall(number, *[ctypes.c_long(0)] * 6)
    print(number, result, errno.errorcode[ctypes.get_errno()])
"""
    lines = run_program(source, "").stdout.splitlines()
    assert [numbers[int(line.split()[0])] for line in lines if line.split()[1:] != ["-1", "EPERM"]] == []
    assert len(lines) == len(numbers)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("clone(0x11, 0, 0, 0, 0)", "EPERM"),  # SIGCHLD: a process
        ("clone(0x10000100 | 0x10000, 0, 0, 0, 0)", "EPERM"),  # a thread in a user namespace of its own
        ("clone3(0, 0)", "ENOSYS"),
        ("prctl(1, 0, 0, 0, 0)", "EPERM"),  # to outlive the parent
        ("prctl(4, 1, 0, 0, 0)", "EPERM"),
        ("prlimit64(0, 7, 1, 0)", "EPERM"),
        ("prlimit64(0, 7, 1 << 32, 0)", "EPERM"),  # the upper half of the pointer counts, too
        ("prlimit64(1, 7, 0, 0)", "EPERM"),
        ("fcntl(0, 8, 1)", "EPERM"),
        ("fcntl(0, 15, 1)", "EPERM"),
        ("fcntl(1, 1031, 1 << 30)", "EPERM"),
        ("ioctl(0, 0x5412, 0)", "EPERM"),  # TIOCSTI
    ],
)
def test_arguments_are_refused(call, code):
    name, _, arguments = call.partition("(")
    pairs = {
        "clone": bpf.CLONE, "clone3": bpf.CLONE3, "prctl": seccomp._PRCTL, "prlimit64": bpf.PRLIMIT,
        "fcntl": seccomp._FCNTL, "ioctl": bpf.IOCTL,
    }  # fmt: skip
    number = pairs[name][["x86_64", "aarch64"].index(platform.machine())]
    source = f"""
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall({number}, *map(ctypes.c_long, ({arguments}))
print(result, errno.errorcode[ctypes.get_errno()])
"""
    assert run_program(source, "").stdout == f"-1 {code}\n"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="ways around a filter that only x86_64 has")
@pytest.mark.parametrize("code", ["b814000000cd80c3", "b827000040" + "0f05c3"], ids=["int 0x80", "x32"])
def test_other_ways_into_the_kernel_end_the_program(code):
    source = f"""
import ctypes, mmap
memory = mmap.mmap(-1, 4096, prot=7)
memory.write(bytes.fromhex({code!r}))
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))())
"""
    execution = run_program(source, "")
    assert (execution.ending, execution.exit_code, execution.stdout) == (Ending.ERROR, -signal.SIGSYS, "")


def test_a_file_that_may_be_read_cannot_be_emptied():
    source = "import os\nos.open(os.__file__, os.O_RDONLY | os.O_TRUNC)"
    assert run_program(source, "").ending is Ending.ERROR
    assert Path(os.__file__).stat().st_size > 0


def test_cpu_time_decides_and_is_reported():
    execution = run_program("while True: pass", "", SMALL)
    assert SMALL.cpu_seconds < execution.cpu_seconds < SMALL.cpu_seconds + 0.3
    assert run_program("pass", "", SMALL).cpu_seconds < SMALL.cpu_seconds


def test_a_program_cannot_overdraw_its_cpu_time_and_end_well(monkeypatch):
    monkeypatch.setattr(watch, "_LOOK_SECONDS", 60)
    source = "import time\nwhile time.process_time() < 0.8: pass\nprint('done')"
    execution = run_program(source, "", SMALL)
    assert (execution.ending, execution.exit_code) == (Ending.TIMEOUT, 0)


def test_threads_run_programs_at_once_and_do_not_mix_them_up():
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        outputs = list(pool.map(lambda i: run_program("print(input())", f"{i}\n").stdout, range(24)))
    assert outputs == [f"{i}\n" for i in range(24)]


def test_function_call():
    program = (
        "print('said')\nclass Solution:\n    def f(self, a, b):\n        print('inside')\n        return (a, b, None)"
    )
    execution = run_program(program, '[1, 2.5]\n{"k": "é"}\n', function="f")
    assert (execution.ending, execution.stdout) == (Ending.OK, '[[1, 2.5], {"k": "\\u00e9"}, null]')
    assert execution.stderr == "said\ninside\n"
    assert run_program("def f(x): return x + 1", "4", function="f").stdout == "5"
    assert run_program("if __name__ == '__main__': 1 / 0\ndef f(): return True", "", function="f").stdout == "true"


def test_the_program_dies_with_its_parent(tmp_path):
    script = "from balanced_aggregation.rewards.sandboxing.parent import run_program\n"
    script += "run_program('import time\\nprint(1)\\nopen(\"started\", \"w\").close()\\ntime.sleep(50)', '')"
    environment = os.environ | {"TMPDIR": str(tmp_path / "sandboxes"), "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment)
    wait_until(lambda: list((tmp_path / "sandboxes").glob("*/started")), 40)
    [child] = psutil.Process(process.pid).children()
    process.kill()
    process.wait()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 5)
    [folder] = (tmp_path / "sandboxes").iterdir()
    shutil.rmtree(folder)


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("target", "value", "message"),
    [
        ((sys, "executable"), "/nonexistent/python", "could not run"),
        ((sys, "executable"), "/bin/true", "did not start"),
        ((tempfile, "tempdir"), "/nonexistent", "could not run"),
        ((parent, "seccomp_filter"), lambda: bytes(8), "did not start.*Invalid argument"),
        ((parent, "landlock_ruleset"), lambda: bytes(8), "did not start"),
        ((parent, "reading_rules"), lambda: [("/nonexistent", 4)], "did not start.*nonexistent"),
        ((landlock, "_CREATE_RULESET"), 9999, "needs a kernel with Landlock.*not implemented"),
        ((platform, "machine"), lambda: "riscv64", "knows x86_64 and aarch64, not riscv64"),
    ],
)
def test_a_sandbox_that_fails_is_no_verdict(target, value, message, monkeypatch):
    landlock.landlock_ruleset.cache_clear()
    monkeypatch.setattr(*target, value)
    with pytest.raises(InfrastructureError, match=message):
        run_program("print('ran')", "")
    landlock.landlock_ruleset.cache_clear()


def test_limits_too_small_for_the_sandbox_are_no_verdict():
    with pytest.raises(InfrastructureError, match="did not start"):
        run_program("pass", "", Limits(memory_bytes=MIB))
    with pytest.raises(InfrastructureError, match="did not start"):
        run_program("pass", "", Limits(memory_bytes=128 * MIB))


@pytest.mark.parametrize(
    ("target", "value", "message"),
    [
        ("seccomp_filter", lambda: bytes.fromhex("060000000000ff7f"), "fork.*network.*parent.*memory files"),
        ("reading_rules", lambda: [("/", landlock._READ_FILE | landlock._READ_DIR)], "reading outside"),
        ("writing_rule", lambda folder: ("/", 0x1FFF), "writing outside"),
        ("reading_rules", lambda: [], "does not run a good program"),
    ],
)
def test_the_check_notices_a_hole_or_a_wall_too_many(target, value, message, monkeypatch):
    monkeypatch.setattr(parent, target, value)
    with pytest.raises(InfrastructureError, match=message):
        check_sandbox()


def test_filters_for_both_machines():
    filters = {machine: seccomp.seccomp_filter(machine) for machine in ("x86_64", "aarch64")}
    assert all(len(program) % 8 == 0 and len(program) // 8 < 4096 for program in filters.values())
    assert filters["x86_64"] != filters["aarch64"]


UNPRIVILEGED = """
import os, sys, types
import balanced_aggregation
rewards = types.ModuleType("balanced_aggregation.rewards")  # its imports are not what is tested, and not all there
rewards.__path__ = [os.path.join(balanced_aggregation.__path__[0], "rewards")]
sys.modules[rewards.__name__] = rewards
from balanced_aggregation.rewards.sandbox import check_sandbox
assert os.getresuid() == (65534,) * 3
check_sandbox()
print("works")
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else; every other test ran without rights")
def test_an_unprivileged_user_has_the_same_sandbox(tmp_path):
    import numpy

    import balanced_aggregation

    python = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    version = python and subprocess.run([python, "-V"], capture_output=True, text=True).stdout.split()[1].split(".")
    if not version or [int(part) for part in version[:2]] != list(sys.version_info[:2]):
        pytest.skip("no system Python of this version: another user may not be able to read this one")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        for package in (balanced_aggregation, numpy):
            source = Path(package.__file__).parent
            shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__", "tests"))
        libraries = Path(numpy.__file__).parent.with_name("numpy.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, folder / "numpy.libs")
        (folder / "temporary").mkdir()
        (folder / "temporary").chmod(0o777)
        folder.chmod(0o755)
        result = subprocess.run(
            [python, "-B", "-c", UNPRIVILEGED],
            env={"PYTHONPATH": str(folder), "TMPDIR": str(folder / "temporary")},
            cwd=folder,
            user=65534,
            group=65534,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.stdout == "works\n", result.stderr
        assert list((folder / "temporary").iterdir()) == []
    finally:
        shutil.rmtree(folder)
