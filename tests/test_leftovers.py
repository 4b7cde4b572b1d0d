"""What a Snakemake that was killed has left in Slurm, by commands that a test puts in place of Slurm's."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from balanced_aggregation.errors import UserError
from balanced_aggregation.leftovers import end_leftovers
from balanced_aggregation.slurm import comment_of
from balanced_aggregation.status.living import look_around

ROOT = Path(__file__).parent.parent
OWN = comment_of("train", ["t", "token", "0"])


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A queue in a file, from which scancel takes jobs."""
    commands, folder = tmp_path / "bin", tmp_path / "work"
    commands.mkdir()
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    monkeypatch.chdir(folder)
    queue = tmp_path / "queue"
    queue.touch()
    script(commands / "squeue", f"cat {queue}")
    script(commands / "scancel", f'for job; do sed -i "/^$job|/d" {queue}; done')
    return queue


def test_only_the_jobs_that_are_about_to_be_started_are_cancelled(slurm, tmp_path):
    others = [
        f"2|{comment_of('train', ['t', 'balanced', '0'])}|{tmp_path}/work",  # another Snakemake's, perhaps
        f"3|{OWN}|{tmp_path}/elsewhere",
        f"5||{tmp_path}/work",
        "what somebody has written",
        f"into a comment|{tmp_path}/work",
    ]
    slurm.write_text("\n".join([f"1|{OWN}|{tmp_path}/work", *others, f"4_[1-3]|{OWN}|{tmp_path}/work"]) + "\n")
    script(tmp_path / "bin/scancel", f'echo "$@" >{tmp_path}/cancelled; sed -i -e "/^1|/d" -e "/^4_/d" {slurm}')
    end_leftovers({OWN}, submits=True)
    assert (tmp_path / "cancelled").read_text() == "1 4_[1-3]\n"
    assert slurm.read_text().splitlines() == others


def test_commands_without_a_cluster_hinder_only_who_needs_it(slurm, tmp_path):
    script(tmp_path / "bin/squeue", "echo 'squeue: fatal: no configuration' >&2; exit 1")
    end_leftovers({OWN}, submits=False)
    with pytest.raises(UserError, match=r"squeue --me .*: squeue: fatal: no configuration"):
        end_leftovers({OWN}, submits=True)
    Path(".snakemake/slurm_logs").mkdir(parents=True)  # jobs have been submitted from here
    with pytest.raises(UserError):
        end_leftovers({OWN}, submits=False)


@pytest.mark.slow
def test_snakemake_asks_slurm_for_the_jobs_that_it_is_about_to_start(slurm, tmp_path):
    study = yaml.safe_load((ROOT / "studies" / "smoke.yaml").read_text()) | {"study": "t"}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    command = [Path(sys.executable).parent / "snakemake", "results/t/model/source", "--snakefile", ROOT / "Snakefile"]
    command += ["--cores", "1", "--directory", tmp_path / "work", "--configfile", tmp_path / "study.yaml"]
    lines = [f"1|{comment_of('source_model', ['t'])}|{tmp_path}/work", f"2|{OWN}|{tmp_path}/work"]
    slurm.write_text("\n".join(lines) + "\n")
    Path(".snakemake/slurm_logs").mkdir(parents=True)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "jobs of an earlier Snakemake are still in Slurm: 1;" in done.stderr
    assert slurm.read_text().splitlines() == lines[1:]

    script(tmp_path / "bin/squeue", "exit 3")
    again = [*command, "--forcerun", "source_model"]
    done = subprocess.run(again, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("error: squeue --me"), done.stderr
    assert not list(Path(".snakemake/locks").glob("*"))  # and the folder is not left locked


def test_a_persons_settings_of_squeue_do_not_count(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("SQUEUE_STATES", "all")
    script(tmp_path / "bin/squeue", '[ -z "$SQUEUE_STATES" ] || exit 1')
    end_leftovers({OWN}, submits=True)
    assert look_around([0]).jobs == ()
