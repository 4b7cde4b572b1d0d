"""One training in several processes is the same training: gloo on a CPU, weights replicated or sharded."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import many_processes
from balanced_aggregation.aggregation import RULES
from balanced_aggregation.checkpoints import checkpoint_folder
from balanced_aggregation.config import Compute
from balanced_aggregation.errors import UserError
from balanced_aggregation.models import load_model
from balanced_aggregation.training.journal import read_journal
from balanced_aggregation.training.world import start_world

SCRIPT = Path(many_processes.__file__)


def torchrun(processes, what, folder, strategy, check=True):
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", SCRIPT]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    result = subprocess.run(
        [sys.executable, *map(str, command), what, str(folder), strategy],
        capture_output=True, text=True, timeout=300, env=environment,
    )  # fmt: skip
    assert not check or result.returncode == 0, result.stderr[-3000:]
    return result


@pytest.fixture(scope="module")
def alone():
    """Rows and weights of each rule's training in this one process."""
    trained = {}
    for rule in RULES:
        trainer = many_processes.make_trainer(rule)
        rows = [trainer.step()[0] for _ in range(many_processes.SETTINGS.steps)]
        trained[rule] = rows, many_processes.whole_weights(trainer)
    return trained


def close(rows, expected):
    assert len(rows) == len(expected)
    for row, other in zip(rows, expected, strict=True):
        assert row == pytest.approx(other, rel=1e-4, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "strategy"), [(1, "fsdp"), (2, "ddp"), (2, "fsdp"), (3, "ddp"), (3, "fsdp")])
def test_every_rule_gives_the_same_weights_in_any_number_of_processes(alone, tmp_path, processes, strategy):
    torchrun(processes, "rules", tmp_path, strategy)
    start = dict(many_processes.make_trainer("token").policy.full_weights())
    for rule, (expected_rows, expected) in alone.items():
        rows, weights = torch.load(tmp_path / f"{rule}.pt")
        close(rows, expected_rows)
        assert weights.keys() == expected.keys()
        moved = max(float((expected[name] - start[name]).abs().max()) for name in expected)
        apart = max(float((weights[name] - expected[name]).abs().max()) for name in expected)
        assert moved > 1e-3 and apart < many_processes.TOLERANCE, (rule, moved, apart)


@pytest.mark.slow
def test_a_sharded_training_goes_on_in_another_number_of_processes(tmp_path):
    torchrun(2, "stopped", tmp_path, "fsdp")
    assert [p.name for p in (tmp_path / "run" / "state" / "resume").iterdir()] == ["step_000003"]
    torchrun(3, "resumed", tmp_path, "fsdp")
    (tmp_path / "alone").mkdir()
    many_processes.resumed(tmp_path / "alone", Compute(), many_processes.World())
    runs = [folder / "run" for folder in (tmp_path, tmp_path / "alone")]
    close(*(read_journal(run / "state" / "metrics.jsonl") for run in runs))
    for step in (2, 7):  # both as plain Hugging Face folders
        models = [load_model(checkpoint_folder(run, step))[0].state_dict() for run in runs]
        for name, weight in models[0].items():
            torch.testing.assert_close(weight, models[1][name], rtol=0, atol=5 * many_processes.TOLERANCE)


@pytest.mark.slow
def test_recomputed_activations_change_nothing_and_bfloat16_little(tmp_path):
    torchrun(2, "variants", tmp_path, "fsdp")
    (row, plain, saved), (other, checkpointed, less), (rough, bfloat16, _) = (
        torch.load(tmp_path / f"{name}.pt") for name in ("plain", "checkpointed", "bfloat16")
    )
    assert other == row and all(torch.equal(plain[name], checkpointed[name]) for name in plain)
    assert less < 0.6 * saved
    start = dict(many_processes.make_trainer("token").policy.full_weights())
    moves = [torch.cat([(weights[name] - start[name]).flatten() for name in start]) for weights in (plain, bfloat16)]
    assert torch.nn.functional.cosine_similarity(*moves, dim=0) > 0.97
    assert not torch.equal(*moves)
    assert 1e-5 < rough["engine_mismatch"] < 0.2 and row["engine_mismatch"] < 1e-5
    assert 0 < rough["engine_mismatch_mean"] < rough["engine_mismatch"] and 0 < rough["engine_kl"] < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_process_that_dies_ends_the_training_within_a_minute(tmp_path, strategy):
    started = time.monotonic()
    result = torchrun(2, "killed", tmp_path, strategy, check=False)
    assert result.returncode != 0
    assert time.monotonic() - started < 60
    assert "Signal 9 (SIGKILL)" in result.stderr
    assert len((tmp_path / "run" / "state" / "metrics.jsonl").read_text().splitlines()) == 2


def test_the_processes_are_those_of_the_study(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UserError, match=r"asks for 4 processes \(2 nodes of 2\), and 3 were started"):
        start_world(Compute(nodes=2, cpu_processes=2))
    monkeypatch.delenv("WORLD_SIZE")
    with pytest.raises(UserError, match=r"gpus_per_node = 1: this node shows 0 GPUs"):
        start_world(Compute(gpus_per_node=1))
