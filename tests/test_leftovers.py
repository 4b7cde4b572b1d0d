"""Jobs that a Snakemake which is no more has left in Slurm; whether the comments are right, tests/slurm shows."""

import os
import stat

import pytest

from balanced_aggregation import leftovers
from balanced_aggregation.study_file import parse_studies

STUDY = {
    "study": "s",
    "rules": ["token", "balanced"],
    "seeds": [0, 1],
    "model": {"kind": "tiny"},
    "data": {"train": {"kind": "arithmetic"}, "benchmarks": [{"kind": "arithmetic", "name": "sums"}]},
    "training": {"steps": 4},
    "evaluation": {"every": 4},
}


def studies(**changes):
    return parse_studies(STUDY | changes, "test")


def test_comments_of_jobs():
    assert leftovers.job_comments(studies()[0]) >= {
        "rule_warm_start_wildcards_s",
        "rule_train_wildcards_s_balanced_1",
        "rule_generate_wildcards_s_base_sums",
        "rule_score_wildcards_s_token_seed0_step4_sums",
    }
    (variant,) = studies(variants={"a": {}})
    assert "rule_train_wildcards_s_a_token_0" in leftovers.job_comments(variant)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A `squeue` that prints a file, and a `scancel` that takes what it is given out of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for name, code in {
        "squeue": 'cat queue; exit "$(cat code 2>/dev/null || echo 0)"',
        "scancel": 'echo "$@" >>cancelled; for job; do sed -i "/^$job|/d" queue; done',
    }.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{code}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def test_only_jobs_of_this_study_in_this_folder_are_cancelled(slurm, capsys):
    (slurm / "queue").write_text(
        f"1|rule_train_wildcards_s_token_0|{slurm}\n"
        f"2|rule_train_wildcards_s_token_0|{slurm}/elsewhere\n"
        f"3|rule_train_wildcards_s_2_token_0|{slurm}\n"
        f"4|rule_train_wildcards_s_token_7|{slurm}\n"
        f"5|something else|{slurm}\n"
        f"6|rule_score_wildcards_s_base_sums|{slurm}\n"
    )
    leftovers.end_leftovers(studies())
    assert (slurm / "cancelled").read_text() == "1 6\n"
    assert "jobs of an earlier Snakemake are still in Slurm: 1 6; they are cancelled" in capsys.readouterr().err


def test_nothing_left_and_no_slurm(slurm, monkeypatch, capsys):
    (slurm / "queue").write_text("")
    leftovers.end_leftovers(studies())
    monkeypatch.setenv("PATH", "")
    leftovers.end_leftovers(studies())
    assert not (slurm / "cancelled").exists() and capsys.readouterr().err == ""


def test_nothing_is_started_when_it_is_not_known_what_runs(slurm):
    (slurm / "queue").write_text("")
    (slurm / "code").write_text("1")
    with pytest.raises(SystemExit, match="error: squeue"):
        leftovers.end_leftovers(studies())


def test_jobs_that_do_not_end_are_named(slurm, monkeypatch):
    monkeypatch.setattr(leftovers, "_PATIENCE", 0.0)
    (slurm / "scancel").write_text("#!/bin/sh\n")
    (slurm / "queue").write_text(f"1|rule_train_wildcards_s_token_0|{slurm}\n")
    with pytest.raises(SystemExit, match="Slurm jobs 1 do not end"):
        leftovers.end_leftovers(studies())
