"""The status of a whole study: its runs, its other stages, and what failed."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from balanced_aggregation.config import Study
from balanced_aggregation.layout import Layout
from balanced_aggregation.status.living import Living, look_around
from balanced_aggregation.status.runs import STATES, RunStatus, run_status
from balanced_aggregation.status.stages import Folders, StageFailure, StageStatus, stage_failures, stage_statuses


@dataclass(frozen=True)
class StudyStatus:
    """One study, or one variant."""

    study: str
    """Its full name."""
    runs: tuple[RunStatus, ...]
    stages: tuple[StageStatus, ...]
    failures: tuple[StageFailure, ...]
    slurm_problem: str | None = None
    """Why nothing is known of the jobs of unfinished runs."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return all(run.state == "done" for run in self.runs) and all(stage.done for stage in self.stages)


def study_statuses(studies: Sequence[Study], now: float) -> list[StudyStatus]:
    """Tell the status of the variants of a study, asking Slurm once.

    Args:
        studies: the variants, or the one study.
        now: seconds since the epoch.
    """
    layouts = [Layout(study) for study in studies]
    living = look_around(_owners(layouts))
    return [study_status(layout, living, now) for layout in layouts]


def study_status(layout: Layout, living: Living, now: float) -> StudyStatus:
    """Tell the status of one study.

    Args:
        layout: where its files are.
        living: processes and jobs.
        now: seconds since the epoch.
    """
    study, folders = layout.study, Folders()
    places = [(rule.name, seed) for rule in study.rules for seed in study.seeds]
    runs = tuple(run_status(study, layout, *place, living, now) for place in places)
    trained = {(run.rule, run.seed) for run in runs if run.state == "done"}
    missed = any(run.slurm_job for run in runs if run.state != "done")
    return StudyStatus(
        study=study.full_name,
        runs=runs,
        stages=tuple(stage_statuses(study, layout, living, folders, trained)),
        failures=tuple(stage_failures(study, layout, folders)),
        slurm_problem=living.problem if missed else None,
    )


def totals(runs: Iterable[RunStatus]) -> dict[str, int]:
    """How many runs are in each state, those without any left out."""
    counts = Counter(run.state for run in runs)
    return {state: counts[state] for state in STATES if counts[state]}


def longest_left(runs: Iterable[RunStatus]) -> float | None:
    """Seconds until the last of the running ones is done; None if that is not known of any."""
    return max((run.seconds_left for run in runs if run.seconds_left is not None), default=None)


def to_json(statuses: Sequence[StudyStatus]) -> list[dict[str, Any]]:
    """The same for other programs: an object for each variant, with the fields of the classes."""
    return [dataclasses.asdict(status) for status in statuses]


def _owners(layouts: Iterable[Layout]) -> set[int]:
    """Who runs the studies: those whose files these are, which may not be the one who asks."""
    paths = [layout.study_file for layout in layouts]
    for layout in layouts:
        paths += [layout.attempt(rule.name, seed) for rule in layout.study.rules for seed in layout.study.seeds]
    owners = set()
    for path in paths:
        try:
            owners.add(path.stat().st_uid)
        except OSError:
            continue
    return owners
