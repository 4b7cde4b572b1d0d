"""All results of a study as tidy tables: evaluations, metrics of the training steps, and where verifiers disagree."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pandera.pandas as pa

from balanced_aggregation.checkpoints import Checkpoint, checkpoints
from balanced_aggregation.config import BASE, Study
from balanced_aggregation.data import read_problems
from balanced_aggregation.errors import UserError
from balanced_aggregation.evaluation.metrics import benchmark_metrics, count_by_problem
from balanced_aggregation.evaluation.parts import read_described
from balanced_aggregation.evaluation.schemas import EVALUATIONS, LIGHTEVAL
from balanced_aggregation.files import json_digest, read_json, write_parquet
from balanced_aggregation.layout import Layout
from balanced_aggregation.provenance import response_settings, training_settings, weights_digest
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
        "standard_error": pa.Column("float64", pa.Check.ge(0), nullable=True, description="Over problems."),
        "n": pa.Column("int64", pa.Check.gt(0), description="Problems of the benchmark."),
        "samples": pa.Column("int64", pa.Check.gt(0), description="Sampled responses to each of them."),
    },
    unique=["rule", "seed", "step", "benchmark", "metric"],
    strict=True,
)
"""One row a (run, step, benchmark, metric). Step 0, the initial model, stands under every rule and seed."""

PROBLEMS = pa.DataFrameSchema(
    {
        **_KEY,
        "benchmark": pa.Column(str),
        "problem": pa.Column(str, description="Its id."),
        "samples": pa.Column("int64", pa.Check.gt(0), description="Sampled responses."),
        "correct": pa.Column("int64", pa.Check.ge(0), description="How many of them are."),
        "truncated": pa.Column("int64", pa.Check.ge(0), description="How many of them are."),
        "length": pa.Column("float64", pa.Check.gt(0), description="Their mean, in tokens."),
        "greedy": pa.Column("float64", pa.Check.isin([0, 1]), nullable=True, description="1: its response is correct."),
        "lighteval": pa.Column("float64", pa.Check.ge(0), nullable=True, description="Sum of lighteval's scores."),
    },
    unique=["rule", "seed", "step", "benchmark", "problem"],
    strict=True,
)
"""One row a (run, step, problem), from which all metrics of the evaluations follow, and their intervals.

Step 0 stands under every rule and seed, and every problem has all its steps: a run's peak may be at any of them.
"""

TRAINING = pa.DataFrameSchema(
    {**_KEY, "metric": pa.Column(str), "value": pa.Column("float64", nullable=True)},
    unique=["rule", "seed", "step", "metric"],
    strict=True,
)
"""One row a (run, step, metric) of training; null where a quantity does not exist in that step."""

DISAGREEMENTS = pa.DataFrameSchema(
    {
        "checkpoint": pa.Column(str),
        "benchmark": pa.Column(str),
        "problem": pa.Column(str),
        "decoding": pa.Column(str),
        "sample": pa.Column("int64"),
        "gold": pa.Column(str),
        "extracted": pa.Column(str, nullable=True),
        "outcome": pa.Column(str),
        "correct": pa.Column(bool),
        "lighteval": pa.Column("float64"),
    },
    strict=True,
)
"""One row a response that our verifier and lighteval judge differently."""


def collect_results(study: Study, layout: Layout) -> list[str]:
    """Write ``results``, ``problems``, ``training`` and, with lighteval, ``disagreements``, each as ``.parquet``.

    Returns:
        warnings: what a reader of the results must know, such as runs that different code has made.

    Raises:
        UserError: a run or an evaluation is missing, incomplete, or of another model, dataset or decoding.
    """
    runs = {(rule.name, seed): _run(study, layout, rule.name, seed) for rule in study.rules for seed in study.seeds}
    results, problems, disagreements, evaluated = [], [], [], {}
    for checkpoint in checkpoints(study):
        if checkpoint.rule == BASE:
            model = weights_digest(layout.initial_model)
        else:
            model = runs[checkpoint.rule, checkpoint.seed][0]["checkpoints"][str(checkpoint.step)]
        rows, counts, differing, made_by = _evaluations(study, layout, checkpoint, model)
        evaluated |= made_by
        disagreements += differing
        for rule, seed in list(runs) if checkpoint.rule == BASE else [(checkpoint.rule, checkpoint.seed)]:
            key = {"study": study.full_name, "rule": rule, "seed": seed, "step": checkpoint.step}
            results += [key | row for row in rows]
            problems.append(counts.assign(**key))
    training = [
        {"study": study.full_name, "rule": rule, "seed": seed, "step": row["step"], "metric": metric, "value": value}
        for (rule, seed), (_, journal) in runs.items()
        for row in journal
        for metric, value in row.items()
        if metric != "step"
    ]
    order = {run: place for place, run in enumerate(runs)}
    results.sort(key=lambda row: (order[row["rule"], row["seed"]], row["step"]))
    problems.sort(key=lambda own: (order[own["rule"].iloc[0], own["seed"].iloc[0]], own["step"].iloc[0]))
    _write(RESULTS, pd.DataFrame(results), layout.results)
    _write(PROBLEMS, pd.concat(problems, ignore_index=True), layout.problem_results)
    _write(TRAINING, pd.DataFrame(training).astype({"value": "float64"}), layout.training_metrics)
    if study.evaluation.lighteval:
        _write_disagreements(disagreements, layout)
    fingerprints = {f"{rule} seed {seed}": run["fingerprint"] for (rule, seed), (run, _) in runs.items()}
    return _differences("runs", fingerprints, ("source", "versions")) + _differences(
        "evaluations", evaluated, ("source", "versions", "verifier")
    )


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


def _evaluations(
    study: Study, layout: Layout, checkpoint: Checkpoint, model: str
) -> tuple[list[dict[str, Any]], pd.DataFrame, list[pd.DataFrame], dict[str, dict[str, Any]]]:
    """Rows of one checkpoint, counts by problem, responses that are judged differently, and what made them.

    What is incomplete, or belongs to another model, is an error.
    """
    rows, counted, differing, made_by = [], [], [], {}
    for benchmark in study.data.benchmarks:
        decoding = study.decoding(benchmark.name)
        path = layout.evaluation(checkpoint.name, benchmark.name)
        evaluations, made_from = read_described(path, EVALUATIONS)
        problems = read_problems(layout.benchmark(benchmark.name))
        _check_complete(path, evaluations, problems, decoding.samples, decoding.greedy)
        responses = made_from["responses"]
        if responses["problems"] != read_json(layout.manifest(benchmark.name))["sha256"]:
            raise UserError(f"{path}: holds responses to other problems than {layout.benchmark(benchmark.name)}")
        if responses["settings"] != response_settings(study, benchmark.name):
            raise UserError(f"{path}: was made by other settings of evaluation than the study's")
        if responses["model"] != model:
            raise UserError(f"{path}: holds responses of another model than {checkpoint.name}")
        made_by[f"{checkpoint.name} on {benchmark.name}"] = {**responses, "verifier": made_from["verifier"]}
        if study.evaluation.lighteval:
            evaluations = _with_lighteval(layout, checkpoint.name, benchmark.name, evaluations, responses)
            differs = evaluations["correct"] != (evaluations["lighteval"] > 0)
            golds = problems.set_index("id")["gold"].where(problems["verifier"].to_numpy() != "code", "tests")
            own = evaluations[differs].assign(checkpoint=checkpoint.name, benchmark=benchmark.name)
            differing.append(own.assign(gold=own["problem"].map(golds)))
        counts = count_by_problem(evaluations)
        counted.append(counts.assign(benchmark=benchmark.name))
        numbers = {"n": len(problems), "samples": decoding.samples}
        metrics = benchmark_metrics(counts, decoding).to_dict("records")
        rows += [{"benchmark": benchmark.name, **row, **numbers} for row in metrics]
    return rows, pd.concat(counted), differing, made_by


def _check_complete(path: Any, evaluations: pd.DataFrame, problems: pd.DataFrame, samples: int, greedy: bool) -> None:
    """Every problem, with every sample: a missing one is an error, not a smaller mean."""
    expected = {(problem, "sampled", k) for problem in problems["id"] for k in range(samples)}
    if greedy:
        expected |= {(problem, "greedy", 0) for problem in problems["id"]}
    found = set(zip(evaluations["problem"], evaluations["decoding"], evaluations["sample"], strict=True))
    if found != expected:
        example = sorted(expected ^ found)[0]
        raise UserError(
            f"{path}: {len(expected - found)} responses are missing and {len(found - expected)} are too many, "
            f"such as {example[1]} response {example[2]} to problem {example[0]}"
        )


def _with_lighteval(
    layout: Layout, checkpoint: str, benchmark: str, evaluations: pd.DataFrame, responses: dict[str, Any]
) -> pd.DataFrame:
    path = layout.lighteval(checkpoint, benchmark)
    scores, made_from = read_described(path, LIGHTEVAL)
    if made_from["responses"] != responses:
        raise UserError(f"{path}: holds scores of other responses than {layout.evaluation(checkpoint, benchmark)}")
    key = ["problem", "decoding", "sample"]
    merged = evaluations.merge(scores, on=key, how="left", validate="one_to_one")
    if len(scores) != len(evaluations) or merged["lighteval"].isna().any():
        raise UserError(f"{path}: does not hold a score for each of the {len(evaluations)} responses")
    return merged


def _write(schema: pa.DataFrameSchema, frame: pd.DataFrame, path: Any) -> None:
    write_parquet(path, schema.validate(frame[list(schema.columns)]))


def _write_disagreements(frames: list[pd.DataFrame], layout: Layout) -> None:
    _write(DISAGREEMENTS, pd.concat(frames, ignore_index=True), layout.disagreements)


def _differences(what: str, fingerprints: dict[str, dict[str, Any]], parts: Sequence[str]) -> list[str]:
    """Whether all were made by the same code and packages, so that only rule, seed and step tell them apart."""
    warnings = []
    for part in parts:
        made_by: dict[str, list[str]] = {}
        for name, fingerprint in fingerprints.items():
            made_by.setdefault(str(fingerprint[part]), []).append(name)
        if len(made_by) > 1:
            groups = "; ".join(", ".join(names) for names in made_by.values())
            warnings.append(f"{what} differ in {part}, not only in rule and seed: {groups}")
    return warnings
