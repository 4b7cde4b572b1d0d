"""What the files of a study say of its trainings."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from balanced_aggregation.attempts import read_attempt
from balanced_aggregation.config import Study
from balanced_aggregation.files import json_digest, read_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.provenance import training_settings
from balanced_aggregation.tracking.runs import Step, Training, describe_training


@dataclass(frozen=True)
class StoredTraining:
    """A training as its folder shows it."""

    training: Training
    status: str
    """As MLflow calls it: FINISHED, FAILED, or KILLED if it has not come to an end."""
    steps: list[Step]
    changed: float
    """When its journal was last written to, in seconds since the epoch."""

    def times(self) -> list[float]:
        """When each step ended, in seconds since the epoch: the last one when the journal was last written to.

        Results hold no times of day, so the others follow from how long the steps after them took. Pauses between
        attempts are not in it.
        """
        times, ended = [], self.changed
        for _, timing in reversed(self.steps):
            times.append(ended)
            ended -= _seconds(timing)
        return times[::-1]

    @property
    def started(self) -> float:
        """When it would have started without pauses."""
        return self.changed - sum(_seconds(timing) for _, timing in self.steps)


def stored_trainings(study: Study, layout: Layout) -> list[StoredTraining]:
    """The trainings of a study that have begun, of its present settings, in the order of rules and seeds."""
    found = [_stored_training(study, layout, rule.name, seed) for rule in study.rules for seed in study.seeds]
    return [stored for stored in found if stored is not None]


def _stored_training(study: Study, layout: Layout, rule: str, seed: int) -> StoredTraining | None:
    folder, commit, status = layout.run(rule, seed), None, "KILLED"
    if (folder / "run.json").exists():
        run = read_json(folder / "run.json")
        fingerprint, commit, status = run["fingerprint"], run["commit"], "FINISHED"
    else:
        folder = folder / "state"
        if not (folder / "fingerprint.json").exists():
            return None
        fingerprint = read_json(folder / "fingerprint.json")
        attempt = read_attempt(layout.attempt(rule, seed))
        if attempt and attempt.state == "failed":
            status = "FAILED"
    if fingerprint["settings"] != json_digest(training_settings(study, rule)):
        return None  # left from before the study was changed
    journals = [folder / "metrics.jsonl", folder / "timing.jsonl"]
    steps = list(zip(*map(_complete_rows, journals), strict=False))
    written = journals[1] if journals[1].exists() else folder / "fingerprint.json"
    return StoredTraining(
        describe_training(study, rule, seed, fingerprint, commit), status, steps, written.stat().st_mtime
    )


def _complete_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a journal, which a killed training may have left in the middle of a line, or not have begun."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _seconds(timing: dict[str, Any]) -> float:
    return sum(value for name, value in timing.items() if name.endswith("_seconds"))
