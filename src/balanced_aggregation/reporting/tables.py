"""The tables of a study as CSV (full precision), Markdown and LaTeX (booktabs)."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from balanced_aggregation.config import Study
from balanced_aggregation.evaluation.metrics import average_name
from balanced_aggregation.files import write_text
from balanced_aggregation.layout import Layout
from balanced_aggregation.reporting.statistics import (
    Estimate,
    accuracy,
    accuracy_by_step,
    last_and_peak,
    mean_over_seeds,
    paired_difference,
)

TABLES = ("main", "benchmarks", "metrics", "training")
LIGHTEVAL_TABLE = "lighteval"
SUFFIXES = ("csv", "md", "tex")

COMPARED_TO = ("token", "sequence")
"""Rules that the others are compared to, where the study has them."""

_SHOWN_OF_TRAINING = {
    "reward": "reward",
    "response_length_positive": "length, positive",
    "response_length_negative": "length, negative",
    "length_variation": "length variation",
    "length_gap": "length gap",
    "zero_variance_groups": "zero-variance groups",
    "truncated": "truncated",
}


@dataclass(frozen=True)
class Row:
    """One row of a table: what it is about, and its estimates by column (None where there is nothing to say)."""

    keys: dict[str, str]
    estimates: dict[str, Estimate | None]


def write_tables(study: Study, layout: Layout) -> None:
    """Write every table under ``tables/``."""
    results, training = pd.read_parquet(layout.results), pd.read_parquet(layout.training_metrics)
    _write(layout.tables / "main", main_table(study, results))
    _write(layout.tables / "benchmarks", benchmark_table(study, results))
    _write(layout.tables / "metrics", metric_table(study, results))
    _write(layout.tables / "training", training_table(study, training))
    if study.evaluation.lighteval:
        table = lighteval_table(study, results, pd.read_parquet(layout.disagreements))
        _write_frame(layout.tables / LIGHTEVAL_TABLE, table, table.map(_rounded))


def main_table(study: Study, results: pd.DataFrame) -> list[Row]:
    """Per rule: accuracy averaged over benchmarks at the last step and at the peak, and paired differences."""
    runs = last_and_peak(accuracy_by_step(results))
    names = [rule.name for rule in study.rules]
    rows = []
    for name in names:
        estimates: dict[str, Estimate | None] = {}
        for measure in ("last", "peak"):
            estimates[measure] = mean_over_seeds(runs.loc[name, measure].tolist())
            for other in COMPARED_TO:
                if other in names:
                    difference = paired_difference(runs.loc[name, measure], runs.loc[other, measure])
                    estimates[f"{measure} - {other}"] = None if other == name else difference
        rows.append(Row({"rule": name}, estimates))
    return rows


def benchmark_table(study: Study, results: pd.DataFrame) -> list[Row]:
    """Per rule: accuracy at the last step on every benchmark, and the mean over them; the initial model first."""
    chosen = accuracy(results)
    columns = {b.name: f"{b.name}, {average_name(study.decoding(b.name))}" for b in study.data.benchmarks}
    last = chosen[chosen["step"] == study.training.steps].set_index(["rule", "benchmark", "seed"])["value"]
    initial = chosen[chosen["step"] == 0].groupby("benchmark")["value"].first()
    estimates = {label: Estimate(float(initial[name]), math.nan, math.nan, 1) for name, label in columns.items()}
    mean = sum(estimate.mean for estimate in estimates.values()) / len(estimates)
    rows = [Row({"rule": "initial model"}, estimates | {"mean": Estimate(mean, math.nan, math.nan, 1)})]
    for rule in study.rules:
        own = last[rule.name]
        estimates = {label: mean_over_seeds(own[name].tolist()) for name, label in columns.items()}
        means = own.groupby("seed").mean().reindex(study.seeds)
        rows.append(Row({"rule": rule.name}, estimates | {"mean": mean_over_seeds(means.tolist())}))
    return rows


def lighteval_table(study: Study, results: pd.DataFrame, disagreements: pd.DataFrame) -> pd.DataFrame:
    """Per benchmark: the same responses by our verifier and by lighteval, all checkpoints together."""
    checkpoints = len(study.rules) * len(study.seeds) * len(study.evaluated_steps) + 1
    rows = []
    for benchmark in study.data.benchmarks:
        own = results[results["benchmark"] == benchmark.name]
        decoding = study.decoding(benchmark.name)
        responses = checkpoints * int(own["n"].iloc[0]) * (decoding.samples + decoding.greedy)
        differing = disagreements[disagreements["benchmark"] == benchmark.name]
        last = own[own["step"] == study.training.steps].groupby("metric")["value"].mean()
        rows.append(
            {
                "benchmark": benchmark.name,
                "responses": responses,
                "judged alike": 1 - len(differing) / responses,
                "right for us alone": int(differing["correct"].sum()),
                "right for lighteval alone": int((~differing["correct"]).sum()),
                "last step": last[average_name(decoding)],
                "last step, lighteval": last[f"lighteval {average_name(decoding)}"],
            }
        )
    return pd.DataFrame(rows)


def _rounded(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def metric_table(study: Study, results: pd.DataFrame) -> list[Row]:
    """Per benchmark and metric: the initial model, and every rule at the last step."""
    rows = []
    for (benchmark, metric), own in results.groupby(["benchmark", "metric"], sort=False):
        by_step = own.set_index(["step", "rule", "seed"])["value"].sort_index()
        initial = Estimate(float(by_step.loc[0].iloc[0]), math.nan, math.nan, 1)
        estimates = {
            rule.name: mean_over_seeds(by_step.loc[study.training.steps].loc[rule.name].tolist())
            for rule in study.rules
        }
        keys = {"benchmark": benchmark, "metric": metric.replace("_", " ")}
        rows.append(Row(keys, {"initial model": initial, **estimates}))
    return rows


def training_table(study: Study, training: pd.DataFrame) -> list[Row]:
    """Per rule: what rollouts were like, averaged over the last quarter of the steps."""
    late = training[training["step"] > study.training.steps * 3 // 4]
    by_run = late.groupby(["metric", "rule", "seed"])["value"].mean()
    return [
        Row(
            {"rule": rule.name},
            {
                label: mean_over_seeds(by_run.loc[metric].loc[rule.name].dropna().tolist() or [math.nan])
                for metric, label in _SHOWN_OF_TRAINING.items()
            },
        )
        for rule in study.rules
    ]


def format_estimate(estimate: Estimate | None, signed: bool = False) -> str:
    """An estimate with its interval, both to the digits that the interval's width justifies."""
    if estimate is None or math.isnan(estimate.mean):
        return "–"
    width = estimate.high - estimate.low
    digits = 3 if math.isnan(width) or width <= 0 else min(max(1 - math.floor(math.log10(width)), 0), 4)
    sign = "+" if signed else ""
    mean = f"{estimate.mean:{sign}.{digits}f}"
    if math.isnan(width):
        return mean
    return f"{mean} [{estimate.low:{sign}.{digits}f}, {estimate.high:{sign}.{digits}f}]"


def _write(path: Path, rows: list[Row]) -> None:
    numbers, texts = [], []
    for row in rows:
        number: dict[str, object] = dict(row.keys)
        text = dict(row.keys)
        for label, estimate in row.estimates.items():
            text[label] = format_estimate(estimate, signed=" - " in label)
            for part in ("mean", "low", "high"):
                number[f"{label}, {part}"] = math.nan if estimate is None else getattr(estimate, part)
        number["seeds"] = max(estimate.seeds for estimate in row.estimates.values() if estimate)
        text["seeds"] = str(number["seeds"])
        numbers.append(number)
        texts.append(text)
    _write_frame(path, pd.DataFrame(numbers), pd.DataFrame(texts))


def _write_frame(path: Path, numbers: pd.DataFrame, shown: pd.DataFrame) -> None:
    """Args: the file without its suffix, the table in full precision, and as people read it."""
    write_text(path.with_suffix(".csv"), numbers.to_csv(index=False, lineterminator="\n"))
    write_text(path.with_suffix(".md"), shown.to_markdown(index=False, disable_numparse=True) + "\n")
    latex = "% needs \\usepackage{booktabs}\n" + shown.rename(columns=_escape).map(_escape).to_latex(
        index=False, escape=False
    )
    write_text(path.with_suffix(".tex"), latex)


def _escape(text: str) -> str:
    """Text for LaTeX."""
    replacements = {"\\": r"\textbackslash{}", "–": "--"} | {sign: f"\\{sign}" for sign in "&%$#_{}"}
    escaped = "".join(replacements.get(sign, sign) for sign in text)
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped)
