"""A disk that is full: a file system of its own that really is."""

import os
import re
import shutil
import subprocess

import pandas as pd
import pytest
import torch

import small_study
import test_training as t
from balanced_aggregation.errors import DiskFull
from balanced_aggregation.files import atomic_path, write_parquet, write_text
from balanced_aggregation.models import save_model
from balanced_aggregation.training import checkpoint as checkpoint_module
from balanced_aggregation.training.journal import Journal, read_journal
from balanced_aggregation.training.loop import run_training

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system, which needs root")


@pytest.fixture
def disk(tmp_path):
    """A file system of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(
            ["umount", "--lazy", str(folder)],  # a failed writer may have left a file open
            check=True,
        )


def fill(disk, leave=0):
    """Leave so many bytes, about."""
    free = shutil.disk_usage(disk).free
    (disk / "fill").write_bytes(bytes(max(free - leave, 0)))


def names(disk, path):
    return rf"^{re.escape(str(path))}: no space left on the device: \d\.\d MB free of 2 MB on {re.escape(str(disk))}"


def test_whatever_is_written_the_error_names_it_and_leaves_no_rest(disk, make_model, tokenizer):
    path = disk / "folder" / "file"
    path.parent.mkdir()
    fill(disk, leave=12_000)
    frame = pd.DataFrame({"x": torch.rand(40_000).double().numpy()})
    model = make_model()

    def archive():
        with atomic_path(path) as temporary:
            torch.save(torch.rand(100_000), temporary)

    for write in (
        lambda: write_text(path, "x" * 400_000),
        lambda: write_parquet(path, frame),
        lambda: save_model(model, tokenizer, path),
        archive,
    ):
        with pytest.raises(DiskFull, match=names(disk, path)) as caught:
            write()
        assert "\n" not in str(caught.value)
        assert list(path.parent.iterdir()) == []


def test_the_old_checkpoint_stays_good_and_the_training_goes_on_from_it(make_model, tokenizer, disk, monkeypatch):
    whole = disk.parent / "whole"
    run_training(t.moving_trainer(make_model, tokenizer), whole, t.FINGERPRINT, [])
    folder = disk / "run"
    save = checkpoint_module.dcp.save

    def with_a_full_disk(*arguments, **options):
        fill(disk, leave=8_000)
        save(*arguments, **options)

    class FillAt:
        def on_step(self, metrics, timing):
            if metrics["step"] == 5:
                monkeypatch.setattr(checkpoint_module.dcp, "save", with_a_full_disk)

    path = folder / "state/resume/step_000006"
    hint = r"; free some and start again: the training goes on from step 3$"
    with pytest.raises(DiskFull, match=names(disk, path) + hint):
        run_training(t.moving_trainer(make_model, tokenizer), folder, t.FINGERPRINT, [FillAt()])
    monkeypatch.undo()
    assert [p.name for p in (folder / "state/resume").iterdir()] == ["step_000003"]
    (disk / "fill").unlink()
    run_training(t.moving_trainer(make_model, tokenizer), folder, t.FINGERPRINT, [])
    assert t.contents(folder) == t.contents(whole)


def test_a_line_of_the_journal_that_did_not_fit_is_dropped(disk):
    path = disk / "metrics.jsonl"
    journal = Journal(path, 0)
    journal.append({"step": 1})
    journal.sync()
    fill(disk)
    with pytest.raises(DiskFull, match=names(disk, path)):
        for step in range(2, 1000):
            journal.append({"step": step, "value": "x" * 100})
    journal.close()
    text = path.read_text()
    assert not text.endswith("\n")  # the rest of a line
    (disk / "fill").unlink()
    journal = Journal(path, 1)
    journal.append({"step": 2})
    journal.close()
    assert read_journal(path) == [{"step": 1}, {"step": 2}]


def test_the_command_says_so_in_one_line(disk, monkeypatch):
    """With everything on the full disk, the record of the attempt and the log included."""
    small_study.prepare(disk / "study", monkeypatch)
    fill(disk, leave=30_000)
    log = disk / "study" / "log"
    line = f"{' '.join(small_study.TRAIN)} 2>&1 | tee {log}; exit ${{PIPESTATUS[0]}}"
    process = small_study.start(["bash", "-c", line], disk / "study")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    last = output.splitlines()[-1]
    assert last.startswith("error: results/t/runs/token/seed0/")
    assert re.search(rf"no space left on the device: 0\.\d MB free of 2 MB on {disk}; free some and start again", last)
    assert "Traceback" not in output


def test_a_process_of_several_that_meets_it_is_named(tmp_path):
    """Its error travels to the others without its number, and is known by its words."""
    cause = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598")

    def save(failures):
        with checkpoint_module.names_full_disk(tmp_path / "step"), checkpoint_module._dcp_at_work(tmp_path / "step"):
            raise checkpoint_module.CheckpointException("write", failures)

    with pytest.raises(DiskFull, match="no space left on the device") as caught:
        save({1: (cause, None)})
    assert "process 1" in str(caught.value.__cause__)
    with pytest.raises(checkpoint_module.CheckpointException):
        save({1: (ValueError("no tensor"), None)})
