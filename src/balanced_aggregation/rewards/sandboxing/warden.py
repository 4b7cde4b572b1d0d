"""What starts a confined command, watches over it, and leaves none of its descendants behind.

Its compiled code is handed to a bare interpreter (`bare`), together with that of `rights`. The warden itself is not
confined, and the confined cannot reach it. It says on the descriptor ``status`` what happened: one line, of which the
first word is "failed" (to start), "stopped" (by a limit or a signal) or "ended".
"""

import contextlib
import os
import signal
import time

from balanced_aggregation.rewards.sandboxing.rights import PR_SET_PDEATHSIG, call, isolate, limit

_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM}
_LOOK_SECONDS = 0.02
_COUNT_SECONDS, _COUNT_SHARE = 1.0, 0.02  # how often to count processes, and how much of a core it may take


def main(settings):
    """Run the command to its end."""
    status = settings["status"]
    os.set_inheritable(status, False)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    call("prctl", PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != settings["parent"]:
        os._exit(1)
    settings["parent"] = os.getpid()
    reading, writing = os.pipe()
    group = os.fork()
    if group == 0:
        os.close(reading)
        _become_command(settings, status, writing)
    os.close(writing)
    os.read(reading, 1)  # until it leads a group, or is dead
    reason = None
    try:
        reason = _watch(group, settings)
    finally:
        # The leader is not reaped yet, so that its number cannot have become somebody else's; all others are in its
        # group, which none can leave.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        exit_code = _reap(group)
    os.write(status, (f"stopped {reason}\n" if reason else f"ended {exit_code}\n").encode())
    os._exit(0)


def _become_command(settings, status, leads):
    try:
        os.setsid()  # a session, too: many kernels share out time among sessions, so that it takes none of the warden's
        os.write(leads, b"x")
        os.close(leads)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        limit(settings)
        isolate(settings)
        os.execvpe(settings["command"][0], settings["command"], settings["environment"])
    except BaseException as error:
        os.write(status, f"failed {type(error).__name__}: {error}\n".encode(errors="replace"))
    os._exit(1)


def _watch(group, settings):
    """Return once the leader has ended, or why it must."""
    deadline = time.monotonic() + settings["wall_seconds"]
    count_time, alarm = 0.0, float("inf")
    while True:
        received = signal.sigtimedwait(_SIGNALS, _LOOK_SECONDS)
        if received and received.si_signo == signal.SIGTERM:
            return "by a signal"
        if _leader_ended(group):
            return None
        start = time.monotonic()
        if start > deadline:
            return f"after {settings['wall_seconds']:g} s"
        # To count takes long, and all the longer the more there are: many new threads on the machine are a reason to,
        # and must not become more meanwhile.
        everywhere = _threads_everywhere()
        alarm = min(alarm, everywhere + settings["processes"])
        if everywhere > alarm:
            os.killpg(group, signal.SIGSTOP)
        if everywhere > alarm or start > count_time:
            processes, threads = _members(group)
            if processes > settings["processes"] or threads > settings["threads"]:
                return f"at {processes} processes with {threads} threads"
            if everywhere > alarm:
                os.killpg(group, signal.SIGCONT)
            alarm = everywhere + settings["processes"] - processes
            now = time.monotonic()
            count_time = now + max(_COUNT_SECONDS, (now - start) / _COUNT_SHARE)


def _threads_everywhere():
    with open("/proc/loadavg") as file:  # noqa: PTH123 (pathlib takes milliseconds to import)
        return int(file.read().split()[3].partition("/")[2])


def _leader_ended(group):
    """Reap orphans that have ended, but not the leader."""
    while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if ended.si_pid == group:
            return True
        os.waitpid(ended.si_pid, 0)
    return False


def _members(group):
    """Number of processes in the group, and of their threads."""
    processes = threads = 0
    for entry in os.listdir("/proc"):  # noqa: PTH208 (pathlib takes milliseconds to import)
        if entry.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:  # noqa: PTH123
                fields = file.read().rpartition(b")")[2].split()
                if int(fields[2]) == group:
                    processes += 1
                    threads += int(fields[17])
    return processes, threads


def _reap(group):
    """Wait for all descendants, since orphans become children of this process; return the leader's exit code."""
    exit_code = None
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return exit_code
        if pid == group:
            exit_code = os.waitstatus_to_exitcode(status)
