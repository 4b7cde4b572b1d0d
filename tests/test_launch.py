"""The line that starts the processes of a training: what bash, Snakemake, torchrun and srun make of it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from balanced_aggregation.config import Compute
from balanced_aggregation.launch import _verdict, launch_prefix, launch_threads

BIN = Path(sys.executable).parent
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SRUN"))}

REPORT = (
    "import json, os, sys; names = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_PORT', 'NODE');"
    "sys.stdout.write(json.dumps([{n: os.environ.get(n) for n in names}, sys.argv[1:]]) + chr(10))"
)
ARGUMENTS = ["--rule", 'my rule\'s "own" $name', "--seed", "0"]

SRUN = f"""#!{sys.executable}
# Stands in for Slurm's: runs a command once for each node, as a task of a job step.
import argparse, os, subprocess, sys
parser = argparse.ArgumentParser()
for name in ("--nodes", "--ntasks", "--ntasks-per-node", "--cpu-bind", "--kill-on-bad-exit"):
    parser.add_argument(name, required=True)
parser.add_argument("--overlap", action="store_true")
parser.add_argument("command", nargs=argparse.REMAINDER)
options = parser.parse_args()
assert options.nodes == options.ntasks and options.ntasks_per_node == "1" and options.overlap
step = {{"SLURM_STEP_NODELIST": "node[1-2]", "SLURM_STEP_ID": "3"}}
tasks = []
for node in range(int(options.nodes)):
    tasks.append(subprocess.Popen(options.command, env=os.environ | step | {{"NODE": str(node)}}))
sys.exit(max(task.wait() for task in tasks))
"""
SCONTROL = """#!/bin/bash
[ "$*" = "show hostnames node[1-2]" ] && printf 'localhost\\nnode2\\n'
"""


def compute(**values):
    return Compute.model_validate(values)


@pytest.mark.parametrize(
    ("values", "prefix"),
    [
        ({}, ""),
        ({"gpus_per_node": 1}, ""),
        ({"gpus_per_node": 8}, "balagg-torchrun --standalone --nproc-per-node 8 --no-python "),
        ({"cpu_processes": 2}, "balagg-torchrun --standalone --nproc-per-node 2 --no-python "),
        (
            {"nodes": 2, "gpus_per_node": 8},
            "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --overlap --cpu-bind=none --kill-on-bad-exit=1 bash -c '"
            "exec balagg-torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint "
            '"$(scontrol show hostnames "$SLURM_STEP_NODELIST" | head -n 1)'
            ':$((10000 + (SLURM_JOB_ID + 97 * SLURM_STEP_ID) % 20000))"'
            ' --rdzv-id "$SLURM_JOB_ID.$SLURM_STEP_ID" --no-python "$@"\' torchrun ',
        ),
    ],
)
def test_the_line_for_each_kind_of_machine(values, prefix):
    found = launch_prefix(compute(**values))
    assert found == prefix
    subprocess.run(["bash", "-n", "-c", f"{found}balagg train study.yaml --rule token --seed 0"], check=True)
    assert not set(found) & {"{", "}"}


def test_the_processors_of_a_node():
    assert launch_threads(compute(), 3) == 3
    assert launch_threads(compute(cpu_processes=2), 3) == 6
    assert launch_threads(compute(nodes=2, gpus_per_node=8), 2) == 16


@pytest.mark.parametrize(
    ("codes", "asked", "verdict"),
    [
        ((75, 75), False, 75),
        ((75, -15), False, 75),  # the second was slow to leave
        ((-9, 75), False, 75),
        ((-15, -15), True, 75),
        ((-9, -15), True, "process 0 of the training failed first, with exit code -9"),
        ((), True, 75),
        ((-15, -15), False, "process 0 of the training failed first, with exit code -15"),
        ((-15, 1), True, "process 1 of the training failed first, with exit code 1"),
        ((75, 1), True, "process 1 of the training failed first, with exit code 1"),
        ((3, 1), False, "process 1 of the training failed first, with exit code 1"),
    ],
)
def test_what_torchrun_leaves_with(codes, asked, verdict):
    times = [9 - rank * (code == 1) for rank, code in enumerate(codes)]
    failed = [SimpleNamespace(exitcode=code, timestamp=at) for code, at in zip(codes, times, strict=True)]
    found = _verdict(dict(enumerate(failed)), asked)
    assert found == verdict or verdict in str(found)


def start(folder, prefix, environment=ENVIRONMENT):
    """Run it by Snakemake, as the rule of the training does."""
    folder.mkdir(exist_ok=True)
    (folder / "report.py").write_text(REPORT)
    (folder / "Snakefile").write_text(
        f"rule train:\n    output: 'out'\n    params:\n        launcher=lambda wildcards, threads: {prefix!r},\n"
        f"        arguments={ARGUMENTS!r},\n"
        '    shell: "{params.launcher}python report.py {params.arguments:q} > {output}"\n'
    )
    command = [str(BIN / "snakemake"), "--cores", "1", "--workflow-profile", "none", "--directory", str(folder)]
    path = f"{folder}:{BIN}:{os.environ['PATH']}"
    return subprocess.Popen(
        [*command, "--snakefile", str(folder / "Snakefile")],
        env=environment | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(folder, process):
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    reports = [json.loads(line) for line in (folder / "out").read_text().splitlines()]
    assert all(arguments == ARGUMENTS for _, arguments in reports)
    return sorted((report for report, _ in reports), key=lambda report: report["RANK"] or "")


def test_one_process_is_started_as_it_is(tmp_path):
    reports = finish(tmp_path, start(tmp_path, launch_prefix(compute())))
    assert [report["RANK"] for report in reports] == [None]


@pytest.mark.slow
def test_two_trainings_of_two_processes_share_a_machine(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    processes = [start(folder, launch_prefix(compute(cpu_processes=2))) for folder in folders]
    found = [finish(*pair) for pair in zip(folders, processes, strict=True)]
    for reports in found:
        assert [(r["RANK"], r["WORLD_SIZE"]) for r in reports] == [("0", "2"), ("1", "2")]
    assert found[0][0]["MASTER_PORT"] != found[1][0]["MASTER_PORT"]


@pytest.mark.slow
def test_two_nodes_of_an_allocation_meet_at_the_first(tmp_path):
    """With torchrun itself; both nodes are this machine, and Slurm's commands are stood in for."""
    for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    # Of Slurm's variables, no more than these are left where a job of Snakemake's runs.
    environment = ENVIRONMENT | {"SLURM_JOB_ID": "4242"}
    prefix = launch_prefix(compute(nodes=2, cpu_processes=2))
    reports = finish(tmp_path, start(tmp_path, prefix, environment))
    assert [report["RANK"] for report in reports] == ["0", "1", "2", "3"]
    assert {report["WORLD_SIZE"] for report in reports} == {"4"}
    assert sorted((r["NODE"], r["LOCAL_RANK"]) for r in reports) == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
