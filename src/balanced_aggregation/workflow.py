"""What the Snakefile needs of a study: kept here, so that rule files hold no logic."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from balanced_aggregation.checkpoints import Checkpoint, checkpoints
from balanced_aggregation.config import BASE, TRAIN
from balanced_aggregation.errors import UserError
from balanced_aggregation.files import json_digest, write_text
from balanced_aggregation.layout import Layout
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
from balanced_aggregation.reporting import figures, tables
from balanced_aggregation.rule_loading import rule_file
from balanced_aggregation.study_file import parse_study


class Plan(Layout):
    """A study as the workflow sees it: paths with wildcards, inputs of rules, and digests of settings.

    A digest among a rule's params makes Snakemake run the rule again when those settings change, and only then.
    """

    def __init__(self, config: dict[str, Any], origin: Sequence[str | Path]):
        """Validate Snakemake's configuration; a mistake ends the program before there is a DAG.

        Args:
            config: the merged configuration.
            origin: the files that it comes from.
        """
        try:
            super().__init__(parse_study(config, " + ".join(map(str, origin)) or "configuration"))
        except UserError as error:
            sys.exit(f"error: {error}")
        # `balagg` is found beside Python, also where the environment has not been activated.
        os.environ["PATH"] += os.pathsep + str(Path(sys.executable).parent)
        study = self.study
        self.rules = [rule.name for rule in study.rules]
        self.settings = {
            "model": json_digest(model_settings(study)),
            "initial_model": json_digest(initial_model_settings(study)),
            "verifier": verifier_digest(),
            "contamination": json_digest(contamination_settings(study)),
            "metrics": json_digest([study.decoding(b.name).model_dump(mode="json") for b in study.data.benchmarks]),
            "tracking": json_digest(study.tracking.model_dump(mode="json")),
        }
        # Once for each rule, not for each job: the file of a rule of the user's own is imported for it.
        files = {rule.name: rule_file(rule.rule) for rule in study.rules}
        self._rule_files = {name: [file] if file else [] for name, file in files.items()}
        self._training_settings = {name: json_digest(training_settings(study, name)) for name in self.rules}
        self.benchmark_names = [benchmark.name for benchmark in study.data.benchmarks]
        self.datasets = list(study.datasets)
        self.any_run = self.run("{aggregation}", "{seed}")
        self.any_responses = self.responses("{checkpoint}", "{benchmark}")
        self.any_evaluation = self.evaluation("{checkpoint}", "{benchmark}")
        self.any_lighteval = self.lighteval("{checkpoint}", "{benchmark}")
        self.checkpoints = [checkpoint.name for checkpoint in checkpoints(study)]
        self.checkpoint_pattern = "|".join([BASE, rf"(?:{'|'.join(self.rules)})/seed\d+/step\d+"])
        self.evaluated = [self.evaluation(c, b) for c in self.checkpoints for b in self.benchmark_names]
        self.scored_by_lighteval = (
            [self.lighteval(c, b) for c in self.checkpoints for b in self.benchmark_names]
            if study.evaluation.lighteval
            else []
        )
        self.disagreement_files = [self.disagreements] if study.evaluation.lighteval else []
        self.problem_files = [path(name) for name in self.benchmark_names for path in (self.benchmark, self.manifest)]
        # What a training set shares with benchmarks is of interest where both are public.
        public = public_benchmarks(study)
        self.statements_compared = [self.statements(name) for name in [TRAIN, *public]] if public else []
        self.contamination_files = (
            [self.contamination, self.contamination_counts, self.contamination_table] if public else []
        )
        self.removed_from_training = [self.contamination] if removes_contamination(study) else []
        names = [*tables.TABLES, tables.LIGHTEVAL_TABLE] if study.evaluation.lighteval else tables.TABLES
        self.table_files = [self.tables / f"{name}.{end}" for name in names for end in tables.SUFFIXES]
        self.figure_files = [self.figures / f"{name}.{end}" for name in figures.FIGURES for end in figures.SUFFIXES]
        self.metric_code = [PACKAGE / "evaluation" / "collect.py", PACKAGE / "evaluation" / "metrics.py"]
        self.repository = REPOSITORY
        self.lighteval_ready = LIGHTEVAL_PYTHON.parent.parent / "installed"
        self.lighteval_lock = REPOSITORY / "envs" / "eval.lock"
        self.lighteval_code = sorted(LIGHTEVAL_SCRIPT.parent.glob("*.py"))
        reporting = PACKAGE / "reporting"
        self.table_code = [reporting / "statistics.py", reporting / "tables.py"]
        self.figure_code = [*self.table_code, reporting / "figures.py"]

    def write_study(self) -> None:
        """Write the study that is about to run, for the commands to read; untouched if it is there already."""
        text = yaml.safe_dump(self.study.model_dump(mode="json"), sort_keys=False)
        if not self.study_file.exists() or self.study_file.read_text(encoding="utf-8") != text:
            write_text(self.study_file, text)

    def rule_files(self, wildcards: Any) -> list[Path]:
        """The user's own file of an aggregation rule, if it has one."""
        return self._rule_files[wildcards.aggregation]

    def model_of(self, wildcards: Any) -> Path:
        """What shows that a checkpoint is there."""
        if wildcards.checkpoint == BASE:
            return self.initial_model
        found = Checkpoint.parse(self.study, wildcards.checkpoint)
        return self.run(found.rule, found.seed) / "run.json"

    def local_copy(self, wildcards: Any) -> list[str]:
        """The file that a dataset is read from, if it is a local one and there."""
        path = getattr(self.study.datasets[wildcards.dataset], "path", None)
        return [path] if path and Path(path).is_file() else []

    def statements_settings(self, wildcards: Any) -> str:
        """Digest of the settings of a dataset's statements."""
        return json_digest(statements_settings(self.study, wildcards.dataset))

    def problem_settings(self, wildcards: Any) -> str:
        """Digest of the settings of a benchmark's problems, or of those to train on."""
        return json_digest(data_settings(self.study, getattr(wildcards, "benchmark", TRAIN)))

    def response_settings(self, wildcards: Any) -> str:
        """Digest of the settings of the responses to a benchmark."""
        return json_digest(response_settings(self.study, wildcards.benchmark))

    def training_settings(self, wildcards: Any) -> str:
        """Digest of the settings of a training."""
        return self._training_settings[wildcards.aggregation]

    def log(self, stage: str) -> Path:
        """Log of a stage; wildcards may be in its name."""
        return self.root / "logs" / f"{stage}.log"

    def resources(self, stage: str) -> Path:
        """Time and memory that a stage took, as Snakemake measures it."""
        return self.root / "benchmarks" / f"{stage}.jsonl"
