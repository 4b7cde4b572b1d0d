"""How far a study is besides its trainings: data, warm start, evaluations, tables and figures."""

from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from balanced_aggregation.checkpoints import checkpoints
from balanced_aggregation.config import BASE, TRAIN, Study
from balanced_aggregation.layout import Layout
from balanced_aggregation.slurm import comment_of
from balanced_aggregation.status.living import Living
from balanced_aggregation.status.tail import last_line, modified
from balanced_aggregation.status.words import looks_like_error


@dataclass(frozen=True)
class StageStatus:
    """One stage of a study, or several of a kind."""

    name: str
    done: bool
    detail: str
    """In one line."""


@dataclass(frozen=True)
class StageFailure:
    """A job without result whose log ends with an error."""

    job: str
    line: str
    """The log's last one."""
    log: str


class Folders:
    """Which files there are: each folder is listed once, since asking for thousands of files takes long."""

    def __init__(self):
        self._names: dict[Path, set[str]] = {}

    def have(self, path: Path) -> bool:
        """Whether the path is there."""
        if path.parent not in self._names:
            try:
                self._names[path.parent] = {entry.name for entry in path.parent.iterdir()}
            except OSError:
                self._names[path.parent] = set()
        return path.name in self._names[path.parent]


def stage_statuses(
    study: Study, layout: Layout, living: Living, folders: Folders, trained: Set[tuple[str, int]]
) -> list[StageStatus]:
    """Tell how far everything but the trainings is.

    Args:
        study: the study.
        layout: where its files are.
        living: jobs of Slurm.
        folders: of the study.
        trained: rules and seeds that are done; evaluations of others are of an earlier training and do not count.
    """
    sets = [layout.train_problems, *(layout.benchmark(b.name) for b in study.data.benchmarks)]
    ready = sum(map(folders.have, sets))
    warm = folders.have(layout.initial_model)
    evaluated, evaluations_done = _evaluations(study, layout, living, folders, trained)
    collected = modified(layout.results)
    return [
        StageStatus("data", ready == len(sets), f"{ready} of {len(sets)} datasets"),
        StageStatus("warm start" if study.warm_start else "model", warm, "done" if warm else "not there yet"),
        StageStatus("evaluations", evaluations_done, evaluated),
        _report("tables", layout, layout.tables, collected, evaluations_done),
        _report("figures", layout, layout.figures, collected, evaluations_done),
    ]


def stage_failures(study: Study, layout: Layout, folders: Folders) -> list[StageFailure]:
    """Jobs other than trainings whose result is missing and whose log ends with an error, in the workflow's order."""
    failures = []
    for job, stage, result in _jobs(study, layout):
        log = layout.log(stage)
        if folders.have(log) and not folders.have(result):
            line = last_line(log)
            if line and looks_like_error(line):
                failures.append(StageFailure(job, line, str(log)))
    return failures


def _evaluations(
    study: Study, layout: Layout, living: Living, folders: Folders, trained: Set[tuple[str, int]]
) -> tuple[str, bool]:
    names = [benchmark.name for benchmark in study.data.benchmarks]
    pairs = [(c.name, name) for c in checkpoints(study) for name in names]
    possible = [c for c in checkpoints(study) if c.rule == BASE or (c.rule, c.seed) in trained]
    there = [(c.name, name) for c in possible for name in names]
    kinds = {"responses": layout.responses, "scored": layout.evaluation}
    if study.evaluation.lighteval:
        kinds["scored by lighteval"] = layout.lighteval
    counts = {kind: sum(folders.have(path(*pair)) for pair in there) for kind, path in kinds.items()}
    text = ", ".join(f"{kind} {count:,} of {len(pairs):,}" for kind, count in counts.items())
    stages = ("generate", "score", "lighteval")
    jobs = living.submitted({comment_of(stage, [study.full_name, *pair]) for stage in stages for pair in pairs})
    if jobs:
        waiting = sum(job.waits for job in jobs)
        text += f"; Slurm jobs: {len(jobs) - waiting:,} running, {waiting:,} waiting"
    return text, all(count == len(pairs) for count in counts.values())


def _report(name: str, layout: Layout, folder: Path, collected: float | None, evaluated: bool) -> StageStatus:
    """Tables or figures; they are made after the results have been collected, and these after the last evaluation."""
    times = [t for t in map(modified, _files(folder)) if t is not None]
    if not times:
        return StageStatus(name, False, "not there yet")
    if collected is None or not evaluated:
        return StageStatus(name, False, "there, of results that are being made anew")
    if min(times) < collected or collected < _newest(layout.root / "evaluations"):
        return StageStatus(name, False, "older than the results")
    return StageStatus(name, True, f"in {folder}/")


def _newest(folder: Path) -> float:
    return max((t for t in map(modified, folder.rglob("*.parquet")) if t is not None), default=0.0)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if not path.name.startswith(".")]


def _jobs(study: Study, layout: Layout) -> Iterator[tuple[str, str, Path]]:
    """What the job is called, its stage in the names of logs, and its result."""
    benchmarks = [b.name for b in study.data.benchmarks]
    yield "source_model", "source_model", layout.source_model
    for name in (TRAIN, *benchmarks):
        yield f"statements {name}", f"statements/{name}", layout.statements(name)
    yield "contamination", "contamination", layout.contamination
    yield "train_problems", "train_problems", layout.train_problems
    for name in benchmarks:
        yield f"benchmark_problems {name}", f"benchmark_problems/{name}", layout.benchmark(name)
    if study.warm_start:
        yield "warm_start", "warm_start", layout.warm_model
    yield "track_start", "track_start", layout.tracking
    for kind, path in (("generate", layout.responses), ("score", layout.evaluation), ("lighteval", layout.lighteval)):
        for checkpoint in checkpoints(study):
            for name in benchmarks:
                stage = f"{kind}/{checkpoint.name}/{name}"
                yield f"{kind} {checkpoint.name} {name}", stage, path(checkpoint.name, name)
    yield "collect", "collect", layout.results
    yield "tabulate", "tabulate", layout.tables / "main.csv"
    yield "draw", "draw", layout.figures / "learning_curves.png"
    yield "track_finish", "track_finish", layout.tracked
