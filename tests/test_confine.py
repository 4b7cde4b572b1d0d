"""What a confined command can and cannot do, and that nothing of it is left."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from balanced_aggregation.errors import InfrastructureError
from balanced_aggregation.evaluation import lighteval
from balanced_aggregation.rewards.sandboxing import bpf, confine, landlock
from balanced_aggregation.rewards.sandboxing.confine import Confines, check_confinement, run_confined
from balanced_aggregation.rewards.sandboxing.denied_calls import denying_filter

QUICK = Confines(wall_seconds=30)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "writable"
    path.mkdir()
    return path


@pytest.fixture(autouse=True)
def nothing_left():
    me = psutil.Process()
    children, handles = set(me.children(recursive=True)), me.num_fds()
    yield
    assert set(me.children(recursive=True)) <= children
    assert me.num_fds() == handles


def python(source, folder, *arguments, confines=QUICK, writable=None, **environment):
    command = [sys.executable, "-c", source, *map(str, arguments)]
    environment = os.environ | {"TMPDIR": str(folder), "FOLDER": str(folder)} | environment
    return run_confined(command, writable or [folder], environment, confines)


def test_this_machine_confines():
    check_confinement()


def test_exit_code_output_arguments_and_environment_are_passed_on(folder):
    source = "import os, sys\nprint(sys.argv[1:], os.environ['A'], repr(sys.stdin.read()))\nprint('π', file=sys.stderr)"
    result = python(source + "\nsys.exit(7)", folder, "x", "y z", A="b")
    assert (result.returncode, result.stdout, result.stderr) == (7, "['x', 'y z'] b ''\n", "π\n")
    assert python("import os\nos.kill(os.getpid(), 15)", folder).returncode == -signal.SIGTERM
    assert run_confined(["cat", __file__], []).stdout == Path(__file__).read_text()


def test_only_the_end_of_much_output_is_kept(folder):
    result = python("print('line\\n' * 300_000)\nprint('last')", folder)
    assert len(result.stdout) == 1 << 20
    assert result.stdout.endswith("line\n\nlast\n")
    result = python("while True: print('x' * 9999)", folder, confines=Confines(wall_seconds=30, file_bytes=1 << 20))
    assert result.returncode != 0


def test_inside_its_folders_everything_is_allowed(folder):
    source = """
import os, pathlib, shutil, sqlite3, tempfile
folder = pathlib.Path(os.environ["FOLDER"])
(folder / "a/b").mkdir(parents=True)
(folder / "a/b/file").write_text("x")
os.symlink("file", folder / "a/b/link")
os.link(folder / "a/b/file", folder / "hard")
os.rename(folder / "a/b/file", folder / "moved")
os.truncate(folder / "moved", 0)
os.mkfifo(folder / "fifo")
shutil.rmtree(folder / "a")
with tempfile.TemporaryDirectory() as other, tempfile.TemporaryFile() as file, open(os.devnull, "w") as null:
    assert other.startswith(str(folder))
    file.write(b"x")
    null.write("x")
connection = sqlite3.connect(folder / "base")
connection.execute("create table t (x)")
connection.commit()
print(sorted(os.listdir(folder)))
"""
    result = python(source, folder)
    assert (result.stderr, result.stdout) == ("", "['base', 'fifo', 'hard', 'moved']\n")


ATTEMPTS = {
    "writing": "open({outside!r}, 'w')",
    "appending": "open({outside!r}, 'a')",
    "creating": "open({outside!r} + '2', 'x')",
    "truncating": "os.truncate({outside!r}, 0)",
    "truncating by opening": "os.open({outside!r}, os.O_RDONLY | os.O_TRUNC)",
    "removing": "os.remove({outside!r})",
    "renaming": "os.rename({outside!r}, {outside!r} + '2')",
    "moving in": "os.rename({outside!r}, {folder!r} + '/mine')",
    "linking in": "os.link({outside!r}, {folder!r} + '/mine')",
    "writing by way of a link": "os.symlink({outside!r}, 'link') or open('link', 'w')",
    "folders": "os.mkdir({outside!r} + '2')",
    "links": "os.symlink('x', {outside!r} + '2')",
    "modes": "os.chmod({outside!r}, 0o600)",
    "modes by descriptor": "os.fchmod(os.open({outside!r}, 0), 0o600)",
    "owners": "os.chown({outside!r}, 1, 1)",
    "times": "os.utime({outside!r}, (0, 0))",
    "attributes": "os.setxattr({outside!r}, 'user.x', b'x')",
    "flags": "fcntl.ioctl(os.open({outside!r}, 0), 0x40086602, bytes(8))",
    "writing in another process": "open('/proc/{pid}/mem', 'r+b')",
    "changing what the kernel does": "open('/proc/sys/kernel/core_pattern', 'w')",
    "sparing itself from lack of memory": "open('/proc/self/oom_score_adj', 'w')",
    "shared memory": "open('/dev/shm/confined', 'w')",
    "TCP": "socket.create_connection(('127.0.0.1', {port}))",
    "TCP, IPv6": "socket.socket(socket.AF_INET6)",
    "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "listening": "socket.create_server(('127.0.0.1', 0))",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "Unix socket": "socket.socket(socket.AF_UNIX).connect({socket!r})",
    "Unix datagrams": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "pairs for datagrams": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "signals": "os.kill({pid}, 0)",
    "signals to the parent": "os.kill(above, 0)",
    "signals to its group": "os.killpg(os.getpgid(above), 0)",
    "signals by handle": "signal.pidfd_send_signal(os.pidfd_open({pid}), 0)",
    "sessions": "os.setsid()",
    "groups": "os.setpgid(0, 0)",
    "limits of others": "resource.prlimit({pid}, resource.RLIMIT_CPU, (1, 1))",
    "its own limits": "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "priorities of others": "os.setpriority(os.PRIO_PROCESS, {pid}, 19)",
    "scheduling of others": "os.sched_setscheduler({pid}, os.SCHED_IDLE, os.sched_param(0))",
    "processors of others": "os.sched_setaffinity({pid}, {{0}})",
    "tracing": "call(101, 16, {pid}, 0, 0)",
    "memory of others": "call(310, {pid}, 0, 0, 0, 0, 0)",
    "user namespaces": "call(272, 0x10000000)",
    "user namespaces by clone": "call(56, 0x10000011, 0, 0, 0, 0)",
    "mounts": "call(165, b'none', b'/mnt', b'tmpfs', 0, 0)",
    "kernel programs": "call(321, 0, 0, 0)",
    "rings": "call(425, 8, 0)",
    "keys": "call(250, 0, -3, 0)",
    "clock": "time.clock_settime(time.CLOCK_REALTIME, time.time())",
    "segments": "call(29, 0, 4096, 0o600)",
}


# Those that do no harm where nothing refuses them.
HARMLESS = [
    "writing", "appending", "truncating", "truncating by opening", "moving in", "linking in",
    "writing by way of a link", "folders", "modes", "modes by descriptor", "owners", "times", "shared memory", "TCP",
    "UDP", "listening", "Unix socket", "Unix datagrams", "pairs for datagrams", "signals", "signals by handle",
    "sessions", "groups", "limits of others", "memory of others",
]  # fmt: skip


def attempts(names, tmp_path, folder, run):
    """Output of the attempts, in a process that leads no group, each on a new file."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as named,
        subprocess.Popen(["sleep", "60"]) as other,
    ):
        path = os.path.relpath(tmp_path / "socket")  # a path of a socket must be short
        named.bind(path)
        named.listen()
        values = {
            "outside": str(tmp_path / "outside"),
            "folder": str(folder),
            "pid": other.pid,
            "port": server.getsockname()[1],
            "socket": os.path.relpath(tmp_path / "socket", folder),
        }
        expressions = {name: ATTEMPTS[name].format(**values) for name in names}
        source = f"""
import ctypes, fcntl, os, resource, signal, socket, time
os.chdir(os.environ["FOLDER"])
above = os.getppid()
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    if libc.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
for name, expression in {expressions!r}.items():
    if os.fork():
        os.wait()
        continue
    try:
        eval(expression)
        print(name)
    except PermissionError: pass
    except BaseException as error: print(f"{{name}}: {{type(error).__name__}} {{error}}")
    os._exit(print(end="", flush=True) or 0)
print("done")
"""
        output = run(source)
        other.kill()
    return output


@pytest.fixture
def outside(tmp_path):
    path = tmp_path / "outside"
    path.write_text("kept")
    path.chmod(0o644)
    return path


def test_what_is_refused(folder, tmp_path, outside):
    before = outside.stat()
    names = [name for name in ATTEMPTS if os.uname().machine == "x86_64" or "call(" not in ATTEMPTS[name]]
    result = []
    output = attempts(names, tmp_path, folder, lambda source: result.append(python(source, folder)) or result[0].stdout)
    # The kernel says so where new rights to a file would come of it, and where a limit is raised without privileges.
    other_errors = {
        "linking in": "OSError [Errno 18] Invalid cross-device link",
        "its own limits": "ValueError not allowed to raise maximum limit",
    }
    lines = output.splitlines()
    assert lines.pop() == "done", result
    assert {line.partition(": ")[0]: line.partition(": ")[2].partition(": ")[0] for line in lines} == other_errors
    after = outside.stat()
    assert outside.read_text() == "kept"
    for field in ("st_mode", "st_mtime", "st_uid", "st_nlink"):
        assert getattr(after, field) == getattr(before, field)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "socket", "writable"]


def test_it_is_the_confinement_that_refuses(folder, tmp_path, outside):
    def run(source):
        environment = os.environ | {"FOLDER": str(folder)}
        return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment).stdout

    shared = Path("/dev/shm/confined")
    names = [name for name in HARMLESS if os.uname().machine == "x86_64" or "call(" not in ATTEMPTS[name]]
    names = [name for name in names if os.getuid() == 0 or name != "owners"]
    for name in names:
        outside.write_text("kept")
        for path in (folder / "link", folder / "mine", tmp_path / "socket", shared):
            path.unlink(missing_ok=True)
        assert attempts([name], tmp_path, folder, run) == f"{name}\ndone\n"
        shared.unlink(missing_ok=True)


def test_the_owner_of_a_pipe_outside_gets_no_signal(folder):
    source = """
import fcntl, os, signal, sys
reader, writer = os.pipe()
fcntl.fcntl(reader, fcntl.F_SETOWN, int(sys.argv[1]))
fcntl.fcntl(reader, fcntl.F_SETSIG, signal.SIGTERM)
fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
os.write(writer, b"x")
"""
    with subprocess.Popen(["sleep", "60"]) as other:
        python(source, folder, other.pid)
        time.sleep(0.2)
        assert other.poll() is None
        subprocess.run([sys.executable, "-c", source, str(other.pid)], check=True)
        assert other.wait(20) == -signal.SIGTERM


def test_privileges_are_gone_also_after_another_program_is_started(folder):
    result = run_confined(["sh", "-c", "cat /proc/self/status"], [folder])
    fields = dict(re.findall(r"(\w+):\s+(\S+)", result.stdout))
    assert [int(fields[name], 16) & ~(1 << 2) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")] == [0] * 4
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")


def test_processes_inside(folder):
    source = """
import multiprocessing as m, os, signal, subprocess, sys
def square(x, writer): writer.send(x * x)
if __name__ == "__main__":
    print(subprocess.run(["sh", "-c", "echo $((1 + 2)) | cat"], capture_output=True, text=True).stdout)
    for method in ("fork", "spawn"):
        context = m.get_context(method)
        reader, writer = context.Pipe()
        process = context.Process(target=square, args=(3, writer))
        process.start()
        print(method, reader.recv())
        process.join()
    process = m.get_context("fork").Process(target=signal.pause)
    process.start()
    process.join(0.1)
    process.kill()
    process.join()
    print(process.exitcode)
"""
    (folder / "main.py").write_text(source)
    result = run_confined([sys.executable, folder / "main.py"], [folder], os.environ | {"TMPDIR": str(folder)}, QUICK)
    assert (result.stderr, result.stdout) == ("", "3\n\nfork 9\nspawn 9\n-9\n")


POOL = """
import multiprocessing as m, time
with m.get_context("fork").Pool(2) as pool:
    print(pool.map(abs, [-1, -2]))
    try:
        pool.apply_async(time.sleep, (60,)).get(0.2)
    except m.TimeoutError:
        print("in time")
"""


def test_semaphores_need_shared_memory(folder):
    result = python(POOL, folder, writable=[folder, Path("/dev/shm")])
    assert (result.stderr, result.stdout) == ("", "[1, 2]\nin time\n")
    result = python(POOL, folder)
    assert result.returncode == 1
    assert "PermissionError" in result.stderr


DAEMON = """
import os, signal, sys, time
for _ in range(3):
    if os.fork() == 0:
        if os.fork() == 0:
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
            try: os.setsid()
            except PermissionError: pass
            open(os.path.join(os.environ["FOLDER"], str(os.getpid())), "w").close()
            time.sleep(1000)
        os._exit(0)
while len(os.listdir(os.environ["FOLDER"])) < 3: time.sleep(0.01)
"""


def numbers(folder):
    return [int(path.name) for path in folder.iterdir()]


def gone(folder):
    return not any(psutil.pid_exists(number) for number in numbers(folder))


def test_daemons_end_with_the_command(folder):
    start = time.monotonic()
    assert python(DAEMON, folder).returncode == 0
    assert time.monotonic() - start < 20
    assert len(numbers(folder)) == 3
    assert gone(folder)


def test_everything_ends_at_the_time_limit(folder):
    start = time.monotonic()
    with pytest.raises(InfrastructureError, match="stopped after 2 s"):
        python(DAEMON + "time.sleep(1000)", folder, confines=Confines(wall_seconds=2))
    assert time.monotonic() - start < 20
    assert len(numbers(folder)) == 3
    assert gone(folder)


@pytest.mark.parametrize(
    ("bomb", "limits"),
    [
        ("while True: os.fork()", {"processes": 32}),
        ("while True:\n    if os.fork(): os._exit(0)", {"wall_seconds": 1}),
        ("for _ in range(300): threading.Thread(target=time.sleep, args=(60,)).start()", {"threads": 200}),
    ],
)
def test_bombs(bomb, limits, folder):
    source = f"import os, threading, time\nopen(os.environ['FOLDER'] + '/' + str(os.getpgid(0)), 'w')\n{bomb}"
    if "_exit" in bomb:  # the command itself ends at once, its descendants run on until then
        assert python(source, folder, confines=Confines(**limits)).returncode == 0
    else:
        with pytest.raises(InfrastructureError, match=r"stopped at .* processes with .* threads"):
            python(source, folder, confines=Confines(wall_seconds=30, **limits))
    [group] = numbers(folder)
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


def test_memory_is_limited_for_each_process(folder):
    result = python("x = bytearray(1 << 30)", folder, confines=Confines(memory_bytes=512 << 20))
    assert result.returncode == 1
    assert "MemoryError" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_everything_ends_with_the_process_that_started_it(number, folder, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\nfrom pathlib import Path\n"
        "from balanced_aggregation.rewards.sandboxing.confine import run_confined\n"
        "run_confined([sys.executable, '-c', sys.argv[1]], [Path(os.environ['FOLDER'])])\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "FOLDER": str(folder)}
    command = [sys.executable, script, DAEMON + "time.sleep(1000)"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 40
    while len(numbers(folder)) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    process.wait()
    while not gone(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(numbers(folder)) == 3
    assert gone(folder)


def test_threads_may_run_commands_at_once(folder):
    results = {}

    def run(number):
        results[number] = python(f"print({number})", folder).stdout

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: f"{number}\n" for number in range(6)}


def test_without_landlock_nothing_runs(monkeypatch, folder):
    monkeypatch.setattr(confine, "landlock_version", lambda: 5)
    with pytest.raises(InfrastructureError, match=r"needs Landlock 6 \(Linux 6.12\), this kernel has version 5"):
        python("", folder)
    monkeypatch.undo()
    monkeypatch.setattr(landlock, "_CREATE_RULESET", 9999)
    with pytest.raises(InfrastructureError, match=r"needs Landlock 6 \(Linux 6.12\), this kernel has none"):
        python("", folder)


@pytest.mark.parametrize(
    ("target", "value", "message"),
    [
        ("denying_filter", lambda: bytes(8), "failed OSError.*Invalid argument"),
        ("landlock_ruleset", lambda: bytes(8), "failed"),
        ("bare_environment", lambda: {"PYTHONHOME": "/nonexistent"}, "confined, .*(encodings|PYTHONHOME)"),
    ],
)
def test_what_cannot_be_confined_does_not_run(target, value, message, monkeypatch, folder):
    monkeypatch.setattr(confine, target, value)
    with pytest.raises(InfrastructureError, match=re.compile(message, re.DOTALL)):
        python("open('ran', 'w')", folder)
    assert numbers(folder) == []


def test_no_such_command_or_folder(folder):
    with pytest.raises(InfrastructureError, match="/nonexistent, confined, failed FileNotFoundError"):
        run_confined(["/nonexistent"], [folder])
    with pytest.raises(InfrastructureError, match=r"failed FileNotFoundError.*missing"):
        run_confined(["true"], [folder / "missing"])


@pytest.mark.parametrize(
    ("target", "value", "message"),
    [
        ("denying_filter", lambda: bytes.fromhex("060000000000ff7f"), "changing times, the network, new sessions"),
        ("confinement_rules", lambda writable: [("/", 0xFFFF)], "writing outside"),
        ("confinement_rules", lambda writable: [("/", 0b1101)], "does not run its own probe"),
    ],
)
def test_the_check_notices_a_hole_or_a_wall_too_many(target, value, message, monkeypatch):
    monkeypatch.setattr(confine, target, value)
    with pytest.raises(InfrastructureError, match=message):
        check_confinement()


def test_filters_for_both_machines():
    filters = {machine: denying_filter(machine) for machine in ("x86_64", "aarch64")}
    assert all(len(program) // 8 < 4096 for program in filters.values())
    assert filters["x86_64"] != filters["aarch64"]
    with pytest.raises(InfrastructureError, match="riscv64"):
        bpf.assemble([], bpf.ALLOW, "riscv64")


def test_programs_are_not_replayed_unconfined(monkeypatch, tmp_path):
    monkeypatch.setattr(confine, "landlock_version", lambda: 5)
    monkeypatch.setattr(lighteval, "run_confined", None)
    with pytest.raises(InfrastructureError, match=r"cannot be replayed.*Landlock 6.*evaluation.lighteval: false"):
        lighteval._run_with_programs(["true"], tmp_path, {}, 1)
