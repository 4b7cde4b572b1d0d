"""What clusters do to jobs. Each test ends with the results of an undisturbed run, byte by byte."""

import json
import re
import shutil
import signal
import subprocess

import pytest
from box import wait_for
from cluster_study import STUDY
from mlflow import MlflowClient


def test_a_cancelled_training_is_tried_again(clone, box, same_as_undisturbed):
    clone.hold(3)
    snakemake = clone.start()
    job = clone.wait_for_steps(3)
    box.run("scancel", job)
    clone.go_on()
    assert clone.wait_for_attempt(state="interrupted", slurm_job=job)["reason"].startswith("SIGTERM")
    clone.finish(snakemake)
    assert box.job(job)["JobState"] == "CANCELLED"
    assert len(clone.jobs()) == 2
    assert clone.attempt()["first_step"] == 4  # the step that was under way was finished, and stored
    same_as_undisturbed()


def test_a_preempted_training_goes_on_by_itself(clone, box, same_as_undisturbed):
    clone.hold(3)
    clone.write_profile(slurm_partition="scavenge")
    clone.write_study(STUDY | {"tracking": {"enabled": True}})
    snakemake = clone.start()
    job = clone.wait_for_steps(3)
    node = box.job(job)["NodeList"]
    box.run("sbatch", "-p", "cpu", "-w", node, "--exclusive", "-o", "/dev/null", "--wrap", "sleep 3")
    wait_for(lambda: box.job(job)["JobState"] in ("COMPLETING", "PENDING", "REQUEUED"), 30, lambda: str(box.job(job)))
    clone.go_on()
    clone.finish(snakemake)
    assert box.job(job)["Restarts"] == "1" and box.job(job)["JobState"] == "COMPLETED"
    assert clone.attempt()["slurm_job"] == job and clone.attempt()["first_step"] == 4
    assert "attempt 2" not in clone.output()
    client = MlflowClient(f"sqlite:///{clone.folder}/mlflow.db")
    runs = client.search_runs(
        [client.get_experiment_by_name("t").experiment_id], "tags.rule = 'paced' and attributes.status = 'FINISHED'"
    )
    (histories,) = [[m.step for m in client.get_metric_history(run.info.run_id, "reward")] for run in runs]
    assert sorted(histories) == list(range(1, 9))  # one run for both attempts, each step once
    same_as_undisturbed()


def test_a_time_limit_shorter_than_the_training_twice(clone, box, same_as_undisturbed):
    """The first time it is warned, and puts itself back into the queue. The second time it does not react in time."""
    clone.hold(1)
    clone.write_profile(slurm_extra="'--signal=USR1@30'", runtime="2 * attempt")
    snakemake = clone.start()
    job = clone.wait_for_steps(1)
    box.run("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    wait_for(lambda: "SIGUSR1" in clone.log(), 90, clone.output)  # heard in the middle of a step
    clone.hold(5)  # which may now be finished
    clone.wait_for_attempt(state="interrupted", slurm_job=job)
    wait_for(lambda: box.job(job)["Restarts"] == "1", 30, lambda: str(box.job(job)))
    box.run("scontrol", "update", f"JobId={job}", "TimeLimit=10")

    clone.wait_for_attempt(state="running", first_step=2)
    assert clone.wait_for_steps(5) == job
    box.run("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    wait_for(lambda: box.job(job)["JobState"] == "TIMEOUT", 150, lambda: str(box.job(job)))
    clone.go_on()
    clone.finish(snakemake)
    assert clone.attempt()["first_step"] == 4 and clone.attempt()["slurm_job"] != job
    assert [box.job(number)["TimeLimit"] for number in clone.jobs()] == ["00:01:00", "00:04:00"]
    same_as_undisturbed()


def test_a_node_that_dies_while_a_checkpoint_is_written(clone, box, same_as_undisturbed):
    clone.hold(3)
    snakemake = clone.start()
    job = clone.wait_for_steps(3)
    assert clone.checkpoint() == 2
    (clone.folder / "hold_checkpoint").touch()
    clone.go_on()
    wait_for((clone.folder / "held").exists, 60, clone.output)
    node = box.job(job)["NodeList"]
    box.kill_node(node)
    assert list(clone.run_folder.glob("state/resume/.step_000004.partial")) and clone.checkpoint() == 2
    (clone.folder / "hold_checkpoint").unlink()
    clone.finish(snakemake)
    box.start_node(node)
    wait_for(lambda: box.node_states()[node] == "idle", 60, lambda: str(box.node_states()))
    assert clone.attempt()["first_step"] == 2
    same_as_undisturbed()


def test_snakemake_is_killed_and_started_again(clone, box, same_as_undisturbed):
    clone.hold(3)
    snakemake = clone.start()
    job = clone.wait_for_steps(3)
    snakemake.send_signal(signal.SIGKILL)
    snakemake.wait()
    again = clone.start()
    assert again.wait(240) == 1 and "--unlock" in clone.output()
    assert box.job(job)["JobState"] == "RUNNING"
    clone.finish(clone.start("--unlock"))
    third = clone.start()
    told = f"jobs of an earlier Snakemake are still in Slurm: {job}; they"
    wait_for(lambda: told in clone.output(), 240, clone.output)
    clone.go_on()
    clone.finish(third)
    assert clone.attempt()["first_step"] == 4
    assert box.job(job)["JobState"] == "CANCELLED"
    same_as_undisturbed()


def test_the_second_of_two_snakemakes_is_refused(clone, box, same_as_undisturbed):
    clone.hold(3)
    first = clone.start()
    job = clone.wait_for_steps(3)
    second = clone.start()
    assert second.wait(240) == 1
    assert "Directory cannot be locked. Please make sure that no other Snakemake process" in clone.output()
    assert box.job(job)["JobState"] == "RUNNING" and len(clone.jobs()) == 1
    clone.go_on()
    clone.finish(first)
    same_as_undisturbed()


@pytest.fixture
def small_disk(clone):
    """Checkpoints to resume from on a disk of their own, which nothing but a file of ballast need fill."""
    folder = clone.run_folder / "state/resume"
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_the_disk_is_full_when_a_checkpoint_is_written(clone, box, small_disk, same_as_undisturbed):
    clone.hold(3)
    snakemake = clone.start("--retries", "0")
    clone.wait_for_steps(3)
    assert clone.checkpoint() == 2
    (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free - 50_000))
    clone.go_on()
    assert snakemake.wait(300) == 1
    reason = clone.attempt()["reason"]
    assert re.search(r"state/resume/step_000004: .*no space left.* 0\.\d MB free of 2 MB on .*state/resume", reason), (
        reason
    )
    assert reason in clone.output()
    assert clone.checkpoint() == 2 and not list(small_disk.glob(".*partial"))

    (small_disk / "ballast").unlink()
    clone.finish(clone.start())
    assert clone.attempt()["first_step"] == 2
    same_as_undisturbed()


def test_a_training_on_two_nodes(clone, box):
    """Started by srun on both, sharded over them; which process does what changes nothing but the rounding."""
    clone.write_study(STUDY | {"compute": {"nodes": 2, "cpu_processes": 1, "strategy": "fsdp"}})
    clone.hold(3)
    snakemake = clone.start("results/t/runs/paced/seed0/run.json")
    job = clone.wait_for_steps(3)
    assert box.job(job)["NumNodes"] == "2"
    box.run("scancel", "--signal=USR1", job)  # as at the time limit
    wait_for(lambda: "SIGUSR1" in clone.log(), 60, clone.output)
    clone.go_on()
    clone.finish(snakemake)
    assert box.job(job)["Restarts"] == "1" and clone.attempt()["first_step"] == 4
    assert len(list(clone.run_folder.glob("state/resume/step_000008/*.distcp"))) == 2
    rows = [json.loads(line) for line in (clone.run_folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 9))
