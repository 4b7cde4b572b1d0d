import math
import re

import pandas as pd
import pytest
import yaml

from balanced_aggregation.config import Study
from balanced_aggregation.layout import Layout
from balanced_aggregation.reporting.figures import FIGURES, write_figures
from balanced_aggregation.reporting.statistics import Estimate, mean_over_seeds, paired_difference
from balanced_aggregation.reporting.tables import format_estimate, main_table, write_tables


def make_study(rules=("token", "sequence", "balanced"), seeds=(0, 1, 2)):
    return Study.model_validate(
        yaml.safe_load(f"""
        study: report
        rules: [{", ".join(rules)}]
        seeds: {list(seeds)}
        model: {{kind: tiny}}
        data:
          train: {{kind: arithmetic}}
          benchmarks: [{{kind: arithmetic, name: a}}, {{kind: arithmetic, name: b}}]
        training: {{steps: 4}}
        evaluation: {{every: 2, samples: 4, pass_at: [4]}}
        """)
    )


# Accuracy on a and b at step 4; at step 2 it is 0.1 more, at step 0 it is 0.2 for all.
LAST = {
    "token": [(0.5, 0.7), (0.4, 0.6), (0.6, 0.8)],
    "sequence": [(0.5, 0.9), (0.5, 0.7), (0.6, 1.0)],
    "balanced": [(0.6, 0.6), (0.5, 0.5), (0.7, 0.7)],
}


def make_results(study):
    rows, training = [], []
    for rule in study.rules:
        for seed in study.seeds:
            key = {"study": "report", "rule": rule.name, "seed": seed}
            for step, shift in ((0, None), (2, 0.1), (4, 0.0)):
                for benchmark, value in zip("ab", LAST[rule.name][seed], strict=True):
                    value = 0.2 if shift is None else value + shift
                    for metric in ("avg@4", "greedy_accuracy", "pass@4", "response_length", "truncated"):
                        values = {"value": value, "standard_error": 0.1, "n": 9, "samples": 4}
                        rows.append({**key, "step": step, "benchmark": benchmark, "metric": metric, **values})
            names = ("reward", "response_length_positive", "response_length_negative", "length_variation", "length_gap",
                     "zero_variance_groups", "truncated", "positive_share/token", "positive_share/sequence",
                     "positive_share/balanced")  # fmt: skip
            for step in range(1, 5):
                for metric in names:
                    value = math.nan if metric == "length_gap" else 0.1 * step + seed
                    training.append({**key, "step": step, "metric": metric, "value": value})
    return pd.DataFrame(rows), pd.DataFrame(training)


def write_report(study):
    """Tables and figures of made-up results, in the working directory."""
    layout = Layout(study)
    layout.root.mkdir(parents=True)
    results, training = make_results(study)
    results.to_parquet(layout.results)
    training.to_parquet(layout.training_metrics)
    write_tables(study, layout)
    write_figures(study, layout)
    return layout


def test_interval_by_hand():
    # Values 1, 2, 6: mean 3, s = sqrt(7), t(.975, 2) = 4.302653; half width 4.302653 * sqrt(7 / 3) = 6.572407.
    estimate = mean_over_seeds([1.0, 2.0, 6.0])
    assert (estimate.mean, estimate.seeds) == (3.0, 3)
    assert estimate.low == pytest.approx(3 - 6.572407, abs=1e-5)
    assert estimate.high == pytest.approx(3 + 6.572407, abs=1e-5)


def test_one_seed_has_no_interval():
    estimate = mean_over_seeds([0.4])
    assert estimate.mean == 0.4 and math.isnan(estimate.low) and math.isnan(estimate.high)
    assert format_estimate(estimate) == "0.400"
    assert mean_over_seeds([0.4, 0.4]) == Estimate(0.4, 0.4, 0.4, 2)


def test_differences_are_paired_by_seed():
    ours, theirs = pd.Series({0: 1.0, 1: 5.0}), pd.Series({1: 4.0, 0: 0.0})
    assert paired_difference(ours, theirs) == Estimate(1.0, 1.0, 1.0, 2)
    with pytest.raises(ValueError, match="seeds differ"):
        paired_difference(ours, pd.Series({0: 1.0, 2: 2.0}))


@pytest.mark.parametrize(
    ("estimate", "signed", "text"),
    [
        (Estimate(0.87654, 0.84, 0.91, 3), False, "0.877 [0.840, 0.910]"),
        (Estimate(0.01234, -0.2, 0.22, 3), True, "+0.01 [-0.20, +0.22]"),
        (Estimate(23.456, 20.0, 26.0, 3), False, "23.5 [20.0, 26.0]"),
        (Estimate(123.4, 90.0, 160.0, 3), False, "123 [90, 160]"),
        (Estimate(math.nan, math.nan, math.nan, 1), False, "–"),
        (None, False, "–"),
    ],
)
def test_numbers_are_rounded_by_their_uncertainty(estimate, signed, text):
    assert format_estimate(estimate, signed) == text


def test_main_table_by_hand():
    study = make_study()
    rows = {row.keys["rule"]: row.estimates for row in main_table(study, make_results(study)[0])}
    assert rows["token"]["last"].mean == pytest.approx(0.6)
    assert rows["sequence"]["last"].mean == pytest.approx(0.7)
    assert rows["balanced"]["peak"].mean == pytest.approx(0.7)
    assert rows["token"]["last - token"] is None
    difference = rows["sequence"]["last - token"]  # by seed: .1, .1, .1
    assert (difference.mean, difference.low) == pytest.approx((0.1, 0.1))
    difference = rows["balanced"]["last - token"]
    assert difference.mean == pytest.approx(0.0) and difference.low <= 0 <= difference.high


def test_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = make_study()
    layout = write_report(study)
    csv = pd.read_csv(layout.tables / "main.csv")
    assert csv["rule"].tolist() == ["token", "sequence", "balanced"]
    assert csv["last, mean"].tolist() == pytest.approx([0.6, 0.7, 0.6])
    assert csv["seeds"].tolist() == [3, 3, 3]
    benchmarks = pd.read_csv(layout.tables / "benchmarks.csv")
    assert benchmarks["rule"].tolist() == ["initial model", "token", "sequence", "balanced"]
    assert benchmarks["a, avg@4, mean"].tolist() == pytest.approx([0.2, 0.5, 1.6 / 3, 0.6])
    assert benchmarks["b, avg@4, mean"].tolist() == pytest.approx([0.2, 0.7, 2.6 / 3, 0.6])
    assert benchmarks["mean, mean"].tolist() == pytest.approx([0.2, 0.6, 0.7, 0.6])
    metrics = pd.read_csv(layout.tables / "metrics.csv")
    assert metrics["initial model, mean"].tolist() == [0.2] * 10
    latex = (layout.tables / "metrics.tex").read_text()
    assert r"\toprule" in latex and "greedy accuracy" in latex
    assert not re.search(r"(?<!\\)[_%#]", latex.partition("\n")[2])
    before = {path: path.read_bytes() for path in layout.figures.iterdir()}
    assert {path.stem for path in before} == set(FIGURES)
    write_figures(study, layout)
    assert {path: path.read_bytes() for path in layout.figures.iterdir()} == before


@pytest.mark.parametrize(("rules", "seeds"), [(("balanced",), (0,)), (("token", "balanced"), (0, 1))])
def test_any_number_of_rules_and_seeds(tmp_path, monkeypatch, rules, seeds):
    monkeypatch.chdir(tmp_path)
    study = make_study(rules, seeds)
    layout = write_report(study)
    text = (layout.tables / "main.md").read_text()
    assert ("[" in text) == (len(seeds) > 1)
    assert "sequence" not in text
