"""What Slurm is asked for: the sbatch line, and what the job is given."""

import re

import pytest
from box import wait_for
from cluster_study import STUDY

SHARDED = {"gpus_per_node": 8, "strategy": "fsdp"}


@pytest.mark.parametrize(
    ("compute", "gpu_model", "asked", "given"),
    [
        ({"memory_gb": 20}, None, "--mem 20000 --nodes=1 --requeue --ntasks=1 --cpus-per-task=1 --signal=USR1@300", []),
        (
            {"gpus_per_node": 1},
            None,
            "--mem 8000 --nodes=1 --requeue --cpus-per-task=1 --signal=USR1@300 --gpus=1",
            [1],
        ),
        (
            {"gpus_per_node": 1},
            "h100",
            "--mem 8000 --nodes=1 --requeue --cpus-per-task=1 --signal=USR1@300 --gpus=h100:1",
            [1],
        ),
        (SHARDED, None, "--mem 8000 --nodes=1 --requeue --cpus-per-task=8 --signal=USR1@300 --gpus=8", [8]),
        (SHARDED, "h100", "--mem 8000 --nodes=1 --requeue --cpus-per-task=8 --signal=USR1@300 --gpus=h100:8", [8]),
        (
            SHARDED | {"nodes": 2, "memory_gb": 800},
            None,
            "--mem 800000 --nodes=2 --requeue --ntasks=2 --cpus-per-task=8 --signal=USR1@300 --gpus=16",
            [8, 8],
        ),
        (
            SHARDED | {"nodes": 2, "memory_gb": 800},
            "h100",
            "--mem 800000 --nodes=2 --requeue --ntasks=2 --cpus-per-task=8 --signal=USR1@300 --gpus=h100:16",
            [8, 8],
        ),
    ],
    ids=["CPU", "1 GPU", "1 H100", "8 GPUs", "8 H100", "2 x 8 GPUs", "2 x 8 H100"],
)
def test_what_a_training_asks_for(clone, box, compute, gpu_model, asked, given):
    rollout = {"engine": "vllm" if given else "transformers"}
    clone.write_study(STUDY | {"compute": compute, "rollout": rollout})
    partition = "gpu" if given else "cpu"
    changes = {"slurm_partition": partition} | ({"gpu_model": gpu_model} if gpu_model else {})
    before, sent = set(box.jobs()), len(box.sent())
    snakemake = clone.start("results/t/runs/paced/seed0/run.json", "--retries", "0", train=changes)
    wait_for(lambda: set(box.jobs()) - before or snakemake.poll() is not None, 240, clone.output)
    assert snakemake.poll() is None, clone.output()
    (job,), (line,) = set(box.jobs()) - before, box.sent()[sent:]
    arguments = re.search(r"-p .*(?= --wrap)", line)[0].replace(f" -D {clone.folder}", "")
    assert arguments == f"-p {partition} -t 1440 {asked}"
    wait_for(lambda: box.job(job)["JobState"] != "PENDING", 30, lambda: str(box.job(job)))
    assert box.gpus(job) == given
