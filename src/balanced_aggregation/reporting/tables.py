"""What the tables of a study say."""

import math

import numpy as np
import pandas as pd

from balanced_aggregation.config import Study
from balanced_aggregation.evaluation.metrics import average_name
from balanced_aggregation.layout import Layout
from balanced_aggregation.reporting.robust import interquartile_mean, probability_of_improvement, robust_estimate
from balanced_aggregation.reporting.scores import Scores
from balanced_aggregation.reporting.stability import COLLAPSE, collapsed, worst_drop
from balanced_aggregation.reporting.statistics import Estimate, estimate, holm, mean_over_seeds
from balanced_aggregation.reporting.writing import Row, Table, write_frame, write_table
from balanced_aggregation.seeding import derive_seed

TABLES = ("main", "benchmarks", "metrics", "aggregates", "stability", "lengths", "training")
LIGHTEVAL_TABLE = "lighteval"

COMPARED_TO = ("token", "sequence")
"""Rules that the others are compared to, where the study has them."""

_LENGTHS = {
    "response_length": "length",
    "response_length_positive": "length, positive",
    "response_length_negative": "length, negative",
    "length_variation": "length variation",
    "length_gap": "length gap",
    "truncated": "truncated",
}
_TRAINING = {
    "reward": "reward",
    "zero_variance_groups": "zero-variance groups",
    "entropy": "entropy",
    "grad_norm": "gradient norm",
    "clip_fraction": "clipped",
}
BOTH = "Brackets: 95 % intervals over training seeds and problems within benchmarks."
SEEDS_ONLY = "Brackets: 95 % intervals (Student's t) over training seeds only."


def write_tables(study: Study, layout: Layout) -> None:
    """Write every table under ``tables/``."""
    training = pd.read_parquet(layout.training_metrics)
    scores = read_scores(study, layout)
    contents = {
        "main": main_table(scores),
        "benchmarks": benchmark_table(scores),
        "metrics": metric_table(scores),
        "aggregates": aggregate_table(scores),
        "stability": stability_table(scores),
        "lengths": length_table(study, training),
        "training": training_table(study, training),
    }
    for name in TABLES:
        write_table(layout.tables / name, contents[name])
    if study.evaluation.lighteval:
        results, differing = pd.read_parquet(layout.results), pd.read_parquet(layout.disagreements)
        write_frame(layout.tables / LIGHTEVAL_TABLE, lighteval_table(study, results, differing))


def read_scores(study: Study, layout: Layout) -> Scores:
    """The study's evaluations.

    Raises:
        UserError: they are not those of the study.
    """
    return Scores(study, pd.read_parquet(layout.problem_results))


def main_table(scores: Scores) -> Table:
    """Per rule: accuracy averaged over benchmarks at the last step and at the peak, and paired differences."""
    measures = {"last": scores.last, "peak": scores.peak}
    names, benchmark = scores.rules, scores.benchmark
    others = [name for name in COMPARED_TO if name in names]
    keys = [(measure, *pair) for measure in measures for pair in compared_pairs(names)]
    tested = [
        estimate(measures[m][names.index(a)] - measures[m][names.index(b)], benchmark, tested=True) for m, a, b in keys
    ]
    differences = dict(zip(keys, holm(tested), strict=True))
    differences |= {(m, b, a): -difference for (m, a, b), difference in differences.items()}
    rows = []
    for place, name in enumerate(names):
        cells: dict[str, Estimate | str | None] = {}
        for measure, values in measures.items():
            cells[measure] = estimate(values[place], benchmark)
            cells |= {f"{measure} - {other}": differences.get((measure, name, other)) for other in others}
        rows.append(Row({"rule": name}, cells))
    notes = [f"Accuracy ({_average(scores.study)}), mean over benchmarks, at the last step and at each run's best."]
    if keys:
        notes.append(
            "Differences are paired over seeds and problems; bold: other than 0 at the 5 % level after Holm's "
            f"correction over the {len(keys)} comparisons of this table."
        )
    notes.append("The peak is chosen on the benchmarks themselves and is biased upwards.")
    return Table(rows, [*notes, *seed_notes(scores.study, BOTH)])


def compared_pairs(names: list[str]) -> list[tuple[str, str]]:
    """Pairs of rules that are compared; one comparison each, whichever way round a table shows it."""
    others = [name for name in COMPARED_TO if name in names]
    return list({frozenset((n, other)): (n, other) for other in others for n in names if n != other}.values())


def benchmark_table(scores: Scores) -> Table:
    """Per rule: accuracy at the last step on every benchmark, and the mean over them; the initial model first."""
    study = scores.study
    labels = [f"{b.name}, {average_name(study.decoding(b.name))}" for b in study.data.benchmarks]
    initial = [_without_interval(value) for value in (*scores.by_benchmark[0, 0, 0], scores.by_step[0, 0, 0])]
    rows = [Row({"rule": "initial model"}, dict(zip([*labels, "mean"], initial, strict=True)))]
    for rule, values in zip(scores.rules, scores.last, strict=True):
        cells: dict[str, Estimate | str | None] = {}
        for number, label in enumerate(labels):
            own = values[:, scores.benchmark == number]
            cells[label] = estimate(own, np.zeros(own.shape[1], dtype=int))
        rows.append(Row({"rule": rule}, cells | {"mean": estimate(values, scores.benchmark)}))
    return Table(rows, ["Accuracy at the last step.", *seed_notes(study, BOTH)])


def metric_table(scores: Scores) -> Table:
    """Per benchmark and metric: the initial model, and every rule at the last step."""
    rows = []
    for benchmark in scores.study.data.benchmarks:
        for metric in scores.metrics(benchmark.name):
            values = scores.metric(benchmark.name, metric)
            alone = np.zeros(values.shape[-1], dtype=int)
            last = {rule: estimate(own[:, -1], alone) for rule, own in zip(scores.rules, values, strict=True)}
            initial = _without_interval(values[0, 0, 0].mean())
            keys = {"benchmark": benchmark.name, "metric": metric.replace("_", " ")}
            rows.append(Row(keys, {"initial model": initial, **last}))
    return Table(rows, ["Metrics at the last step.", *seed_notes(scores.study, BOTH)])


def aggregate_table(scores: Scores) -> Table:
    """Per rule, over the (seed x benchmark) runs at the last step: mean, interquartile mean, chance to be better."""
    study, benchmark = scores.study, scores.benchmark
    seed = derive_seed(study.evaluation.seed, "bootstrap", study.full_name)
    others = [name for name in COMPARED_TO if name in scores.rules]
    last = dict(zip(scores.rules, scores.last, strict=True))
    rows = []
    for rule, values in last.items():
        cells: dict[str, Estimate | str | None] = {
            "mean": estimate(values, benchmark),
            "interquartile mean": robust_estimate(interquartile_mean, [values], benchmark, seed),
        }
        for other in others:
            pair = [values, last[other]]
            chance = robust_estimate(probability_of_improvement, pair, benchmark, seed, fewest=3)
            cells[f"P(better than {other})"] = None if other == rule else chance
        rows.append(Row({"rule": rule}, cells))
    notes = [
        "Over the runs of all seeds and benchmarks at the last step, as in rliable. P: chance that a run of the rule "
        "beats one of the other on a benchmark, whatever their seeds; 0.5 is no difference."
    ]
    return Table(rows, [*notes, *seed_notes(study, BOTH)])


def stability_table(scores: Scores) -> Table:
    """Per rule: what is lost after the peak, the worst drop between two evaluations, and how many seeds collapsed."""
    rows = []
    for place, rule in enumerate(scores.rules):
        count = sum(collapsed(run, scores.benchmark) for run in scores.accuracy[place])
        cells: dict[str, Estimate | str | None] = {
            "peak less last": estimate(scores.peak[place] - scores.last[place], scores.benchmark),
            "worst drop (over seeds)": mean_over_seeds([worst_drop(run) for run in scores.by_step[place]]),
            "collapsed": f"{count} of {len(scores.study.seeds)}",
        }
        rows.append(Row({"rule": rule}, cells))
    notes = [
        "Accuracy, mean over benchmarks. Worst drop: the largest fall between two consecutive evaluations of a run, 0 "
        f"if there is none; its interval is over seeds only. {COLLAPSE}"
    ]
    return Table(rows, [*notes, *seed_notes(scores.study, BOTH)])


def length_table(study: Study, training: pd.DataFrame) -> Table:
    """Per rule: lengths of the rollouts, averaged over training."""
    notes = [
        "Rollouts, averaged over all training steps. Positive and negative: responses with advantage above and below "
        "0; variation and gap as training logs them."
    ]
    return Table(_training_rows(study, training, _LENGTHS), [*notes, *seed_notes(study, SEEDS_ONLY)])


def training_table(study: Study, training: pd.DataFrame) -> Table:
    """Per rule: how training went, averaged over the last quarter of the steps."""
    late = training[training["step"] > study.training.steps * 3 // 4]
    notes = ["Averaged over the last quarter of the training steps."]
    return Table(_training_rows(study, late, _TRAINING), [*notes, *seed_notes(study, SEEDS_ONLY)])


def _training_rows(study: Study, training: pd.DataFrame, shown: dict[str, str]) -> list[Row]:
    by_run = training.groupby(["metric", "rule", "seed"])["value"].mean()
    return [
        Row(
            {"rule": rule.name},
            {
                label: mean_over_seeds(by_run.loc[metric].loc[rule.name].dropna().tolist() or [math.nan])
                for metric, label in shown.items()
            },
        )
        for rule in study.rules
    ]


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


def seed_notes(study: Study, intervals: str) -> list[str]:
    """What the number of seeds means for the intervals of a table."""
    seeds = len(study.seeds)
    if seeds == 1:
        return ["1 seed: no interval over seeds, and nothing can be said about another training."]
    if seeds == 2:
        return [
            intervals,
            "Warning: with 2 seeds intervals say next to nothing; no difference can be expected to show.",
        ]
    return [intervals]


def _without_interval(value: float) -> Estimate:
    return Estimate(float(value), math.nan, math.nan, 1)


def _average(study: Study) -> str:
    """Name of the primary metric of all benchmarks together."""
    names = {average_name(study.decoding(benchmark.name)) for benchmark in study.data.benchmarks}
    return names.pop() if len(names) == 1 else "avg@k"
