"""All results of a study as two tidy tables: evaluations, and the metrics of the training steps."""

from pathlib import Path
from typing import Any

import pandas as pd
import pandera.pandas as pa

from balanced_aggregation.config import Study
from balanced_aggregation.errors import UserError
from balanced_aggregation.evaluation.metrics import benchmark_metrics, metric_names
from balanced_aggregation.files import atomic_path, json_digest, read_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.provenance import training_settings
from balanced_aggregation.training.journal import read_journal

_KEY = {
    "study": pa.Column(str),
    "rule": pa.Column(str),
    "seed": pa.Column("int64", pa.Check.ge(0)),
    "step": pa.Column("int64", pa.Check.ge(0)),
}
RESULTS = pa.DataFrameSchema(
    {
        **_KEY,
        "benchmark": pa.Column(str),
        "metric": pa.Column(str),
        "value": pa.Column("float64"),
        "n": pa.Column("int64", pa.Check.gt(0), description="Problems of the benchmark."),
    },
    unique=["rule", "seed", "step", "benchmark", "metric"],
    strict=True,
)
"""One row a (run, step, benchmark, metric). Step 0, the initial model, stands under every rule and seed."""

TRAINING = pa.DataFrameSchema(
    {**_KEY, "metric": pa.Column(str), "value": pa.Column("float64", nullable=True)},
    unique=["rule", "seed", "step", "metric"],
    strict=True,
)
"""One row a (run, step, metric) of training; null where a quantity does not exist in that step."""


def collect_results(study: Study, layout: Layout) -> list[str]:
    """Write ``results.parquet`` and ``training.parquet``.

    Returns:
        warnings: what a reader of the results must know, such as runs that different code has made.

    Raises:
        UserError: a run or an evaluation is missing or incomplete.
    """
    base = _evaluation(study, layout, layout.base_evaluation())
    results, training, runs = [], [], {}
    for rule in study.rules:
        for seed in study.seeds:
            key = {"study": study.study, "rule": rule.name, "seed": seed}
            by_step = {0: base} | {
                step: _evaluation(study, layout, layout.evaluation(rule.name, seed, step))
                for step in study.evaluated_steps
            }
            results += [{**key, "step": step, **row} for step, rows in by_step.items() for row in rows]
            runs[f"{rule.name} seed {seed}"], journal = _run(study, layout, rule.name, seed)
            training += [
                {**key, "step": row["step"], "metric": metric, "value": value}
                for row in journal
                for metric, value in row.items()
                if metric != "step"
            ]
    _write(RESULTS, results, layout.results)
    _write(TRAINING, training, layout.training_metrics)
    return _differences(runs)


def _run(study: Study, layout: Layout, rule: str, seed: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Description and journal of one finished training of this very study."""
    folder = layout.run(rule, seed)
    if not (folder / "run.json").is_file() or not (folder / "metrics.jsonl").is_file():
        raise UserError(f"no finished training in {folder}")
    run, journal = read_json(folder / "run.json"), read_journal(folder / "metrics.jsonl")
    if run["fingerprint"]["settings"] != json_digest(training_settings(study, rule)):
        raise UserError(f"{folder}: was trained with other settings than those of the study")
    if [row["step"] for row in journal] != list(range(1, study.training.steps + 1)):
        raise UserError(f"{folder / 'metrics.jsonl'}: does not hold the steps 1 to {study.training.steps}, each once")
    return run, journal


def _evaluation(study: Study, layout: Layout, path: Path) -> list[dict[str, Any]]:
    """Rows of one checkpoint; a benchmark with missing responses is an error, not a smaller mean."""
    if not path.is_file():
        raise UserError(f"no evaluation at {path}")
    responses = pd.read_parquet(path)
    rows = []
    for benchmark in study.data.benchmarks:
        problems = read_json(layout.manifest(benchmark.name))["problems"]
        own = responses[responses["benchmark"] == benchmark.name]
        expected = problems * (study.evaluation.samples + 1)
        if len(own) != expected:
            raise UserError(f"{path}: {len(own)} responses to {benchmark.name}, {expected} expected")
        metrics = benchmark_metrics(own, study.evaluation)
        rows += [
            {"benchmark": benchmark.name, "metric": name, "value": metrics[name], "n": problems}
            for name in metric_names(study.evaluation)
        ]
    return rows


def _write(schema: pa.DataFrameSchema, rows: list[dict[str, Any]], path: Path) -> None:
    frame = pd.DataFrame(rows)
    frame = schema.validate(frame.astype({"value": "float64"}))
    with atomic_path(path) as temporary:
        frame.to_parquet(temporary, index=False)


def _differences(runs: dict[str, dict[str, Any]]) -> list[str]:
    """Whether the runs were made by the same code and packages, so that only rule and seed tell them apart."""
    warnings = []
    for what in ("source", "versions"):
        made_by: dict[str, list[str]] = {}
        for name, run in runs.items():
            made_by.setdefault(str(run["fingerprint"][what]), []).append(name)
        if len(made_by) > 1:
            groups = "; ".join(", ".join(names) for names in made_by.values())
            warnings.append(f"runs differ in {what}, not only in rule and seed: {groups}")
    return warnings
