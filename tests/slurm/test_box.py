"""The Slurm that the other tests run on."""

import subprocess
import sys
from pathlib import Path

import psutil
from box import Box, wait_for


def belonging_to(folder):
    found = []
    for process in psutil.process_iter(["cmdline", "environ", "status"]):
        known = " ".join([*(process.info["cmdline"] or []), *(process.info["environ"] or {}).values()])
        if str(folder) in known and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def test_nothing_is_left_behind(tmp_path):
    """Neither by jobs that are running when it stops, nor by a node that has crashed."""
    cluster = Box(tmp_path / "box", cpu_nodes=2, gpu_nodes=0)
    try:
        cluster.start()
        for node in ("cpu1", "cpu2"):
            cluster.run(
                "sbatch", "-w", node, "--comment", "rule_", "-o", "/dev/null", "--wrap", "trap '' TERM; sleep 1000"
            )
        wait_for(lambda: list(cluster.jobs().values()) == ["RUNNING"] * 2, 30, lambda: str(cluster.jobs()))
        wait_for(lambda: sum(p.name() == "sleep" for p in belonging_to(tmp_path)) == 2, 30, "two jobs")
        cluster.kill_node("cpu1")
        assert sum(p.name() == "sleep" for p in belonging_to(tmp_path)) == 1
    finally:
        cluster.stop()
    wait_for(lambda: not belonging_to(tmp_path), 10, lambda: str(belonging_to(tmp_path)))


def test_no_daemon_outlives_tests_that_are_killed(tmp_path):
    code = f"from box import Box; Box(Path({str(tmp_path / 'box')!r}), 1, 0).start(); os.kill(os.getpid(), 9)"
    code = f"import os; from pathlib import Path; {code}"
    result = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, check=False, timeout=60)
    assert result.returncode == -9
    wait_for(lambda: not belonging_to(tmp_path), 20, lambda: str(belonging_to(tmp_path)))
