"""A real Slurm on one machine, for as long as a test session lasts: several virtual nodes, fake GPUs, no accounting.

It needs Debian's packages munge, slurmctld, slurmd and slurm-client, and neither systemd nor cgroups. Everything it
writes is in one folder, its ports are free ones, and its commands are wrappers in ``bin`` that know its configuration:
several boxes can run side by side, and the machine's own Slurm, if there is one, is not touched.
"""

import contextlib
import ctypes
import getpass
import os
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

COMMANDS = ("sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")
DAEMONS = ("munged", "slurmctld", "slurmd")
GPUS = 8

_CONFIGURATION = """\
ClusterName=box
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
# A job that is put back into the queue waits until its old credential has expired; two minutes by default.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=2
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
ReturnToService=2
MinJobAge=600
KillWait=15
InactiveLimit=0
SlurmdTimeout=10
DefMemPerCPU=500
PartitionName=cpu Nodes={cpu_nodes} Default=YES MaxTime=1-00:00:00 DefaultTime=10 State=UP PriorityTier=10
PartitionName=scavenge Nodes={cpu_nodes} MaxTime=1-00:00:00 DefaultTime=10 State=UP PriorityTier=1 PreemptMode=requeue
"""


class Box:
    """A cluster of ``cpu1..`` (partitions cpu and scavenge, which cpu preempts) and ``gpu1..`` with 8 GPUs each."""

    def __init__(self, folder: Path, cpu_nodes: int = 3, gpu_nodes: int = 2):
        self.folder = folder
        self.bin = folder / "bin"
        self.submissions = folder / "submissions"
        self._cpu = [f"cpu{k}" for k in range(1, cpu_nodes + 1)]
        self._gpu = [f"gpu{k}" for k in range(1, gpu_nodes + 1)]
        self._daemons: dict[str, subprocess.Popen] = {}

    @property
    def environment(self) -> dict[str, str]:
        """For what runs in the cluster or talks to it."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SRUN", "SBATCH", "MLFLOW"))}
        return kept | {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}

    def start(self) -> None:
        missing = [name for name in (*DAEMONS, *COMMANDS) if not _find(name)]
        if missing:
            raise RuntimeError(f"no {', '.join(missing)}: apt-get install munge slurmctld slurmd slurm-client")
        for name in ("bin", "log", "state", "spool"):
            (self.folder / name).mkdir(parents=True)
        self._write_configuration()
        self._write_wrappers()
        munge = [f"--{key}={self.folder}/munge.{key}" for key in ("socket", "seed")]
        munge += [f"--key-file={self.folder}/munge.key", f"--pid-file={self.folder}/munged.pid"]
        self._launch("munged", "--foreground", "--force", *munge, f"--log-file={self.folder}/log/munged.log")
        wait_for(lambda: (self.folder / "munge.socket").exists(), 20, "munged")
        self._launch("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
        wait_for(lambda: "UP" in self.run("scontrol", "ping", check=False), 30, "slurmctld")
        for node in (*self._cpu, *self._gpu):
            self.start_node(node)
        wait_for(lambda: set(self.node_states().values()) == {"idle"}, 60, lambda: f"nodes: {self.node_states()}")

    def start_node(self, node: str) -> None:
        (self.folder / "spool" / node).mkdir(exist_ok=True)
        self._launch("slurmd", "-D", "-N", node, "-f", str(self.folder / "slurm.conf"), name=node)

    def stop(self) -> None:
        """End all jobs, then all daemons, each by its process id."""
        if "slurmctld" in self._daemons:
            self.cancel_all()
        for name in sorted(self._daemons, key=lambda name: ("munged", "slurmctld", name).index(name), reverse=True):
            daemon = self._daemons.pop(name)
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def run(self, *command: str, check: bool = True) -> str:
        """Output of a Slurm command."""
        result = subprocess.run(
            [str(self.bin / command[0]), *command[1:]], capture_output=True, text=True, timeout=60, check=False
        )
        if check and result.returncode:
            raise RuntimeError(f"{' '.join(command)}: {result.stderr}")
        return result.stdout

    def node_states(self) -> dict[str, str]:
        return dict(line.split() for line in self.run("sinfo", "-hN", "-o", "%N %t", check=False).splitlines())

    def states(self, comment: str = "") -> dict[str, str]:
        """States of the jobs with such a comment, by id, in their order; those that have ended among them."""
        lines = self.run("squeue", "-h", "-a", "-t", "all", "-S", "i", "-o", "%i|%T|%k").splitlines()
        parts = [line.split("|") for line in lines]
        return {number: state for number, state, said in parts if said.startswith(comment)}

    def jobs(self, rule: str = "") -> dict[str, str]:
        """The same of those that Snakemake has submitted for a rule."""
        return self.states(f"rule_{rule}")

    def job(self, number: str) -> dict[str, str]:
        """What Slurm knows of a job."""
        return dict(
            part.split("=", 1) for part in self.run("scontrol", "-o", "show", "job", number).split() if "=" in part
        )

    def gpus(self, number: str) -> list[int]:
        """GPUs that a job has been given, on each of its nodes that has any."""
        described = self.run("scontrol", "-d", "show", "job", number)
        # A line for each node, or for several alike ones; the whole job's has no " GRES".
        found = re.findall(r" Nodes=(\w+?)(?:\[(\d+)-(\d+)\])? .* GRES=gpu:\w+:(\d+)", described)
        return [int(count) for _, first, last, count in found for _ in range(int(last or 0) - int(first or 0) + 1)]

    def sent(self) -> list[str]:
        """Arguments of all calls of sbatch."""
        return self.submissions.read_text().splitlines() if self.submissions.exists() else []

    def cancel_all(self) -> None:
        """And wait until they are gone."""
        self.run("scancel", "-u", getpass.getuser(), "-f", check=False)
        active = ("squeue", "-h", "-o", "%i %T")
        wait_for(lambda: not self.run(*active), 60, lambda: f"jobs: {self.run(*active)}")

    def kill_node(self, node: str) -> None:
        """A crash: its daemon and all that runs in its jobs is gone at once, without a chance to do anything."""
        daemon = self._daemons.pop(node)
        doomed = {psutil.Process(daemon.pid)}
        for process in psutil.process_iter(["environ"]):
            if (process.info["environ"] or {}).get("SLURMD_NODENAME") == node:
                # What takes care of a step has no environment to tell it by, but it is above what runs in the step.
                doomed |= {process, *(p for p in process.parents() if p.name() == "slurmstepd")}
        for process in doomed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGSTOP)
        for process in doomed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        daemon.wait()

    def _write_configuration(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        ports = free_ports(1 + len(self._cpu) + len(self._gpu))
        text = _CONFIGURATION.format(
            folder=self.folder,
            user=getpass.getuser(),
            controller=ports[0],
            cpu_nodes=",".join(self._cpu),
        )
        if self._gpu:
            nodes = ",".join(self._gpu)
            text += (
                f"PartitionName=gpu Nodes={nodes} MaxTime=1-00:00:00 DefaultTime=10 PriorityTier=10 PreemptMode=off\n"
            )
        gres = ""
        for node, port in zip((*self._cpu, *self._gpu), ports[1:], strict=True):
            extra = f" Gres=gpu:h100:{GPUS} Feature=h100" if node in self._gpu else ""
            size = f"CPUs=64 RealMemory=2000000{extra}"
            text += f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} {size}\n"
        for number in range(GPUS):  # a GPU needs a file
            (self.folder / f"gpu{number}").touch()
        for node in self._gpu:
            gres += f"NodeName={node} Name=gpu Type=h100 File={self.folder}/gpu[0-{GPUS - 1}]\n"
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text(gres)
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")

    def _write_wrappers(self) -> None:
        for name in COMMANDS:
            note = ""
            if name == "sbatch":
                note = f'printf "%s\\n" "$*" >>{self.submissions}\n'
            elif name == "scontrol":  # nodes have names that lead to them; these do not
                note = 'case "$*" in "show hostnames"*) echo localhost; exit;; esac\n'
            path = self.bin / name
            path.write_text(f'#!/bin/sh\n{note}SLURM_CONF={self.folder}/slurm.conf exec {_find(name)} "$@"\n')
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def _launch(self, program: str, *arguments: str, name: str | None = None) -> None:
        name = name or program
        with (self.folder / "log" / f"{name}.out").open("a") as log:
            self._daemons[name] = subprocess.Popen(
                [_find(program), *arguments],
                env=self.environment | {"SLURM_CONF": str(self.folder / "slurm.conf")},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=_end_with_parent,
            )  # fmt: skip


def _end_with_parent() -> None:
    """Also where the tests are killed and cannot stop the box, no daemon outlives them."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def wait_for(condition: Callable[[], object], seconds: float, what: str | Callable[[], str]) -> None:
    """Until the condition holds.

    Raises:
        TimeoutError: it did not in that time; ``what`` tells what was waited for.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"after {seconds} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.1)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _find(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"]))
