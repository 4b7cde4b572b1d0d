"""What the Snakefile needs of a study: kept here, so that rule files hold no logic."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from balanced_aggregation.checkpoints import checkpoints
from balanced_aggregation.config import BASE, RESULTS, TRAIN, Study
from balanced_aggregation.errors import UserError
from balanced_aggregation.files import digest, json_digest, write_text
from balanced_aggregation.launch import job_resources, launch_prefix, launch_threads
from balanced_aggregation.layout import Layout, Paths
from balanced_aggregation.leftovers import end_leftovers
from balanced_aggregation.provenance import (
    LIGHTEVAL_PYTHON,
    LIGHTEVAL_SCRIPT,
    PACKAGE,
    REPOSITORY,
    contamination_settings,
    data_settings,
    initial_model_settings,
    model_settings,
    public_benchmarks,
    removes_contamination,
    response_settings,
    statements_settings,
    training_settings,
    verifier_digest,
)
from balanced_aggregation.reporting import figures, paper_table, tables
from balanced_aggregation.reporting.writing import SUFFIXES as TABLE_SUFFIXES
from balanced_aggregation.rule_loading import rule_file
from balanced_aggregation.slurm import comment_of
from balanced_aggregation.study_file import parse_studies


class StudyPlan(Layout):
    """One study of the workflow: inputs and params of its jobs, all worked out once, so that a job is a look-up.

    A digest among a rule's params makes Snakemake run the rule again when those settings change, and only then.
    """

    def __init__(self, study: Study):
        """Args: the study."""
        super().__init__(study)
        self.threads, self.verifiers = study.threads, study.verifiers
        self.launcher = launch_prefix(study.compute)
        self.training_threads = launch_threads(study.compute, study.threads)
        self.cluster = job_resources(study.compute)
        self.training_mem_mb = round(1000 * study.compute.memory_gb)
        # Whole nodes have no more to give.
        self.training_mem_grows = study.compute.nodes == 1 and not study.compute.gpus_per_node
        self.evaluation_gpus = min(study.compute.gpus_per_node, 1)
        benchmarks = [benchmark.name for benchmark in study.data.benchmarks]
        rules = [rule.name for rule in study.rules]

        self.model_settings = json_digest(model_settings(study))
        self.initial_model_settings = json_digest(initial_model_settings(study))
        self.contamination_settings = json_digest(contamination_settings(study))
        self.tracking_settings = json_digest(study.tracking.model_dump(mode="json"))
        self.metric_settings = json_digest([study.decoding(name).model_dump(mode="json") for name in benchmarks])
        self.statements_settings = {name: json_digest(statements_settings(study, name)) for name in study.datasets}
        self.problem_settings = {name: json_digest(data_settings(study, name)) for name in study.datasets}
        self.train_problem_settings = self.problem_settings[TRAIN]
        self.response_settings = {name: json_digest(response_settings(study, name)) for name in benchmarks}
        self.training_settings = {name: json_digest(training_settings(study, name)) for name in rules}

        # What a training set shares with benchmarks is of interest where both are public.
        public = public_benchmarks(study)
        self.statements_compared = [self.statements(name) for name in [TRAIN, *public]] if public else []
        self.contamination_files = (
            [self.contamination, self.contamination_counts, self.contamination_table] if public else []
        )
        self.removed_from_training = [self.contamination] if removes_contamination(study) else []
        self.local_copy = {name: self._local_copy(name) for name in study.datasets}
        files = {rule.name: rule_file(rule.rule) for rule in study.rules}
        self.rule_files = {name: [file] if file else [] for name, file in files.items()}
        # What shows that a checkpoint is there.
        self.model_of = {
            c.name: self.initial_model if c.rule == BASE else self.run(c.rule, c.seed) / "run.json"
            for c in checkpoints(study)
        }
        self.finished_runs = [
            self.run(rule, seed) / name
            for rule in rules
            for seed in study.seeds
            for name in ("run.json", "metrics.jsonl")
        ]
        self.evaluated = [self.evaluation(c, b) for c in self.model_of for b in benchmarks]
        with_lighteval = study.evaluation.lighteval
        self.scored_by_lighteval = [self.lighteval(c, b) for c in self.model_of for b in benchmarks if with_lighteval]
        self.problem_files = [path(name) for name in benchmarks for path in (self.benchmark, self.manifest)]

    def _local_copy(self, name: str) -> list[str]:
        """The file that a dataset is read from, if it is a local one and there."""
        path = getattr(self.study.datasets[name], "path", None)
        return [path] if path and Path(path).is_file() else []

    def write(self) -> None:
        """Write the study that is about to run, for the commands to read; untouched if it is there already."""
        text = yaml.safe_dump(self.study.model_dump(mode="json"), sort_keys=False)
        if not self.study_file.exists() or self.study_file.read_text(encoding="utf-8") != text:
            write_text(self.study_file, text)


class Plan(Paths):
    """The studies of a file, one for each variant: paths with wildcards, and inputs and params of rules."""

    def __init__(self, config: dict[str, Any], origin: Sequence[str | Path]):
        """Validate Snakemake's configuration; a mistake ends the program before there is a DAG.

        Args:
            config: the merged configuration.
            origin: the files that it comes from.
        """
        super().__init__(RESULTS / "{study}")
        try:
            studies = parse_studies(config, " + ".join(map(str, origin)) or "configuration")
        except UserError as error:
            sys.exit(f"error: {error}")
        if threading.current_thread() is threading.main_thread():
            # Sent to a job before its time limit, to this process too, which must wait for the training that it runs.
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        # `balagg` is the one beside this Python, whether its environment has been activated, another one, or none.
        os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]
        self.studies = {study.full_name: StudyPlan(study) for study in studies}
        self.study_pattern = "|".join(map(re.escape, self.studies))
        self.rules = _distinct(rule.name for study in studies for rule in study.rules)
        self.benchmark_names = _distinct(benchmark.name for study in studies for benchmark in study.data.benchmarks)
        self.datasets = [TRAIN, *self.benchmark_names]
        self.checkpoint_pattern = "|".join([BASE, rf"(?:{'|'.join(self.rules)})/seed\d+/step\d+"])

        # A string, in which Snakemake fills in the study; it leaves paths as they are.
        self.study_argument = str(self.study_file)
        self.any_run = self.run("{aggregation}", "{seed}")
        self.any_responses = self.responses("{checkpoint}", "{benchmark}")
        self.any_evaluation = self.evaluation("{checkpoint}", "{benchmark}")
        self.any_lighteval = self.lighteval("{checkpoint}", "{benchmark}")
        self.repository = REPOSITORY
        self.verifier = verifier_digest()
        # A digest, not files: results that were copied from elsewhere may well be older than the files of this clone.
        self.metric_code = json_digest(
            [digest(PACKAGE / "evaluation" / f"{name}.py") for name in ("collect", "metrics")]
        )
        reporting = PACKAGE / "reporting"
        self.figure_code = [*sorted(reporting.glob("*.py")), PACKAGE / "evaluation" / "metrics.py"]
        self.table_code = [path for path in self.figure_code if path.name not in ("figures.py", "drawing.py")]
        self.lighteval_ready = LIGHTEVAL_PYTHON.parent.parent / "installed"
        self.lighteval_lock = REPOSITORY / "envs" / "eval.lock"
        self.lighteval_code = sorted(LIGHTEVAL_SCRIPT.parent.glob("*.py"))
        # One environment for all variants: what it leaves behind has no wildcard.
        shared = Paths(studies[0].shared_folder)
        self.lighteval_log = shared.log("lighteval_environment")
        self.lighteval_resources = shared.resources("lighteval_environment")
        # One table of all variants.
        self.paper_files = [shared.tables / f"{paper_table.NAME}.{end}" for end in TABLE_SUFFIXES]
        # With variants it is none of theirs.
        self.tracked_paper_files = [] if studies[0].variant else self.paper_files
        self.paper_log, self.paper_resources = shared.log("paper_table"), shared.resources("paper_table")
        self.all_studies = [str(study.study_file) for study in self.studies.values()]
        # The same in all variants: outputs cannot depend on wildcards.
        with_lighteval = studies[0].evaluation.lighteval
        names = [*tables.TABLES, tables.LIGHTEVAL_TABLE] if with_lighteval else tables.TABLES
        self.table_files = [self.tables / f"{name}.{end}" for name in names for end in TABLE_SUFFIXES]
        self.figure_files = [self.figures / f"{name}.{end}" for name in figures.FIGURES for end in figures.SUFFIXES]
        self.disagreement_files = [self.disagreements] if with_lighteval else []
        # What there is in the end, of every study.
        self.all_tables = [*self._of_all_studies(self.table_files), *self.paper_files]
        self.all_problem_results = self._of_all_studies([self.problem_results])
        self.all_figures = self._of_all_studies(self.figure_files)
        self.all_tracked = self._of_all_studies([self.tracked])
        self.all_contamination = [path for study in self.studies.values() for path in study.contamination_files]

    def cluster(self, name: str) -> Callable[[Any], int | str | None]:
        """A resource of trainings (`launch.job_resources`)."""
        return lambda wildcards: self.studies[wildcards.study].cluster[name]

    def of(self, attribute: str, wildcard: str | None = None) -> Callable[[Any], Any]:
        """An input, a param or threads of a rule: an attribute of the `StudyPlan` that the job's wildcards name.

        Args:
            attribute: its name.
            wildcard: the wildcard whose value to look up in the attribute; None takes the whole attribute.
        """
        values = {name: getattr(study, attribute) for name, study in self.studies.items()}

        def look_up(wildcards: Any) -> Any:
            if wildcard is None:
                return values[wildcards.study]
            key = getattr(wildcards, wildcard)
            try:
                return values[wildcards.study][key]
            except KeyError:
                raise UserError(f"study {wildcards.study!r} has no {wildcard} {key!r}") from None

        return look_up

    def launcher(self, wildcards: Any, threads: Any) -> str:
        """What starts the processes of a training.

        It asks for ``threads`` since Snakemake runs a rule again when its params change, save those that follow from
        resources: no result depends on how many processes a training has.
        """
        return self.studies[wildcards.study].launcher

    def training_mem_mb(self, wildcards: Any, attempt: int) -> int:
        """Memory of a node that a training asks a cluster for, in 10^6 bytes: on a CPU, more at each attempt."""
        study = self.studies[wildcards.study]
        return study.training_mem_mb * (attempt if study.training_mem_grows else 1)

    def end_leftovers(self, jobs: Iterable[Any], submits: bool) -> None:
        """End what a Snakemake that is no more has left in Slurm of jobs that are about to be started.

        Args:
            jobs: Snakemake's, whose outputs it has locked.
            submits: whether they go to Slurm.
        """
        try:
            end_leftovers({comment_of(job.rule.name, job.wildcards) for job in jobs}, submits)
        except UserError as error:
            sys.exit(f"error: {error}")

    def write_studies(self) -> None:
        """Write the files that the commands read."""
        for study in self.studies.values():
            study.write()

    def stop_tracking(self) -> None:
        """Tell MLflow that the workflow has failed; in a process of its own, since it is a mirror and may hang."""
        for study in self.studies.values():
            if study.tracking.exists():
                command = ["balagg", "track", "stop", str(study.study_file)]
                with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                    subprocess.run(command, timeout=60, check=False)

    def _of_all_studies(self, patterns: Sequence[Path]) -> list[Path]:
        return [Path(str(path).format(study=name)) for name in self.studies for path in patterns]


def _distinct(names: Any) -> list[str]:
    return list(dict.fromkeys(names))
