"""A study of one training that takes seconds, up to where its trainings can start."""

import os
import subprocess
import sys
from pathlib import Path

import yaml

from balanced_aggregation import cli
from balanced_aggregation.commands import track
from balanced_aggregation.study_file import load_study

STUDY = {
    "study": "t",
    "rules": ["token"],
    "seeds": [0],
    "model": {"kind": "tiny", "hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 64},
    "data": {
        "train": {"kind": "arithmetic", "problems": 64, "terms": [2, 2]},
        "benchmarks": [{"kind": "arithmetic", "name": "sums", "problems": 8, "terms": [2, 2]}],
    },
    "training": {
        "steps": 30, "prompts_per_step": 4, "group_size": 4, "mini_batches": 2, "kl_coefficient": 0.01,
        "learning_rate": 1e-3, "max_new_tokens": 24, "checkpoint_every": 1000,
    },
    "evaluation": {"every": 30, "samples": 2, "pass_at": [2], "max_new_tokens": 24},
    "tracking": {"enabled": False},
}  # fmt: skip
RUN = Path("results/t/runs/token/seed0")
TRAIN = ["balagg", "train", "results/t/study.yaml", "--rule", "token", "--seed", "0"]
BIN = Path(sys.executable).parent


def prepare(folder, monkeypatch, **changes):
    """All that a training needs, in an empty folder, which becomes the working directory."""
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    write_study(folder, **changes)
    file = Path("results/t/study.yaml")
    cli.source_model(file)
    for name in ("train", "sums"):
        cli.prepare_statements(file, name)
        cli.prepare_problems(file, name)
    track.start(file)


def write_study(folder, **changes):
    """The study that the workflow is given, and the one that it writes for its commands."""
    given = folder / "study.yaml"
    given.write_text(yaml.safe_dump(STUDY | changes))
    file = folder / "results/t/study.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(load_study(given).model_dump(mode="json"), sort_keys=False))


def start(command, folder, **environment):
    """Start it in a process group of its own."""
    path = f"{BIN}:{os.environ['PATH']}"
    return subprocess.Popen(
        list(map(str, command)), cwd=folder, env={**os.environ, "PATH": path, **environment}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def finish(process):
    """Wait for it; it must end well."""
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output


def outcome(folder):
    """Files of a finished training that are the same whatever happened to it."""
    run = folder / RUN
    files = [run / "metrics.jsonl", *run.glob("checkpoints/*/*.safetensors"), *run.glob("state/resume/*/progress.json")]
    assert len(files) == 3
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in files}
