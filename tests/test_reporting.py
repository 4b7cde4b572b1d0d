import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from balanced_aggregation import cli
from balanced_aggregation.config import Study
from balanced_aggregation.errors import UserError
from balanced_aggregation.evaluation.collect import PROBLEMS
from balanced_aggregation.files import write_text
from balanced_aggregation.layout import Layout
from balanced_aggregation.reporting.figures import FIGURES, write_figures
from balanced_aggregation.reporting.paper_table import paper_table, write_paper_table
from balanced_aggregation.reporting.power_report import print_power
from balanced_aggregation.reporting.scores import Scores
from balanced_aggregation.reporting.simulation import World
from balanced_aggregation.reporting.statistics import Estimate
from balanced_aggregation.reporting.tables import TABLES, main_table, stability_table, write_tables
from balanced_aggregation.reporting.writing import SUFFIXES, Row, Table, escape, format_estimate, write_table

PROBLEMS_OF_EACH = 40


def make_study(rules=("token", "sequence", "balanced"), seeds=(0, 1, 2), **changes):
    values = yaml.safe_load(f"""
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
    return Study.model_validate(values | changes)


# Accuracy on a and b at step 4; at step 2 it is 0.1 more, at step 0 it is 0.2 for all.
LAST = {
    "token": [(0.5, 0.7), (0.4, 0.6), (0.6, 0.8)],
    "sequence": [(0.5, 0.8), (0.5, 0.6), (0.6, 0.8)],
    "balanced": [(0.6, 0.6), (0.5, 0.4), (0.7, 0.6)],
}


def fixed_accuracies(study):
    """Problems are right or wrong throughout, in each run others."""
    values = np.zeros((len(study.rules), len(study.seeds), 3, 2 * PROBLEMS_OF_EACH))
    generator = np.random.default_rng(0)
    for place, rule in enumerate(study.rules):
        for run, seed in enumerate(study.seeds):
            for step, shift in enumerate((None, 0.1, 0.0)):
                for half, value in enumerate(LAST.get(rule.name, LAST["token"])[seed]):
                    value = 0.2 if shift is None else value + shift
                    # The initial model is one model.
                    order = np.arange(PROBLEMS_OF_EACH) if shift is None else generator.permutation(PROBLEMS_OF_EACH)
                    right = order < round(PROBLEMS_OF_EACH * value)
                    values[place, run, step, half * PROBLEMS_OF_EACH : (half + 1) * PROBLEMS_OF_EACH] = right
    return values


def simulated_accuracies(study, differences, seed=0):
    world = World(
        problems=(PROBLEMS_OF_EACH,) * 2, seeds=len(study.seeds), differences=differences, accuracy=0.3, samples=4
    )
    draws = [world.draw(1, np.random.default_rng(seed + step))[0] for step in range(3)]
    draws[0][:] = draws[0][0, 0]
    return np.stack(draws, axis=2)


def problem_frame(study, accuracies):
    """The study's ``problems.parquet`` with these accuracies by rule, seed, step and problem."""
    rows = []
    for place, rule in enumerate(study.rules):
        for run, seed in enumerate(study.seeds):
            for number, step in enumerate((0, 2, 4)):
                for problem, value in enumerate(accuracies[place, run, number]):
                    benchmark = "ab"[problem // PROBLEMS_OF_EACH]
                    key = {"study": "report", "rule": rule.name, "seed": seed, "step": step, "benchmark": benchmark}
                    counts = {"samples": 4, "correct": round(4 * float(value)), "truncated": 1, "length": 7.0 + problem}
                    greedy = {"greedy": float(value > 0.5), "lighteval": math.nan}
                    rows.append({**key, "problem": f"p{problem}", **counts, **greedy})
    return PROBLEMS.validate(pd.DataFrame(rows))


def make_scores(study, accuracies=None):
    return Scores(study, problem_frame(study, fixed_accuracies(study) if accuracies is None else accuracies))


def write_results(study, accuracies=None):
    """Made-up results, in the working directory."""
    layout = Layout(study)
    layout.root.mkdir(parents=True, exist_ok=True)
    problems = problem_frame(study, fixed_accuracies(study) if accuracies is None else accuracies)
    key = ["study", "rule", "seed", "step", "benchmark"]
    means = problems.assign(value=problems["correct"] / problems["samples"]).groupby(key, sort=False)["value"].mean()
    means.reset_index().assign(metric="avg@4", standard_error=0.1, n=40, samples=4).to_parquet(layout.results)
    problems.to_parquet(layout.problem_results)
    names = ("reward", "response_length", "response_length_positive", "response_length_negative", "length_variation",
             "length_gap", "truncated", "zero_variance_groups", "entropy", "grad_norm", "clip_fraction",
             "positive_share/token", "positive_share/sequence", "positive_share/balanced")  # fmt: skip
    training = [
        {"study": "report", "rule": rule.name, "seed": seed, "step": step, "metric": metric,
         "value": math.nan if metric == "length_gap" else 0.1 * step + seed}
        for rule in study.rules for seed in study.seeds for step in range(1, 5) for metric in names
    ]  # fmt: skip
    pd.DataFrame(training).to_parquet(layout.training_metrics)
    return layout


def write_report(study, accuracies=None):
    layout = write_results(study, accuracies)
    write_tables(study, layout)
    write_paper_table([study])
    return layout


@pytest.mark.parametrize(
    ("estimate", "signed", "text"),
    [
        (Estimate(0.87654, 0.84, 0.91, 3), False, "0.877 [0.840, 0.910]"),
        (Estimate(0.01234, -0.2, 0.22, 3), True, "+0.01 [-0.20, +0.22]"),
        (Estimate(0.01234, 0.011, 0.0136, 3), True, "+0.0123 [+0.0110, +0.0136]"),
        (Estimate(0.5, 0.4002, 0.5998, 3), False, "0.50 [0.40, 0.60]"),  # half of it rounds to 0.10
        (Estimate(23.456, 20.0, 26.0, 3), False, "23.5 [20.0, 26.0]"),
        (Estimate(123.4, 90.0, 160.0, 3), False, "123 [90, 160]"),
        (Estimate(0.4, math.nan, math.nan, 1), False, "0.400"),
        (Estimate(math.nan, math.nan, math.nan, 1), False, "–"),
        (Estimate(-0.0001, -0.1, 0.1, 3), True, "+0.00 [-0.10, +0.10]"),
        (None, False, "–"),
    ],
)
def test_numbers_are_rounded_by_their_uncertainty(estimate, signed, text):
    assert format_estimate(estimate, signed) == text


def test_scores_by_hand():
    study = make_study()
    scores = make_scores(study)
    assert scores.steps == [0, 2, 4] and scores.accuracy.shape == (3, 3, 3, 80)
    assert scores.by_benchmark[1, 2, 2] == pytest.approx([0.6, 0.8])
    assert scores.by_step[0, 1] == pytest.approx([0.2, 0.6, 0.5])
    assert scores.peak.mean(axis=-1)[0] == pytest.approx([0.7, 0.6, 0.8])
    assert scores.metric("b", "pass@4")[0, 0, 2].mean() == pytest.approx(0.7)
    assert scores.metric("b", "response_length")[0, 0, 0].tolist() == [47.0 + n for n in range(40)]


def test_scores_of_another_study_are_refused():
    frame = problem_frame(make_study(), fixed_accuracies(make_study()))
    with pytest.raises(UserError, match="holds other rules, seeds, steps or benchmarks"):
        Scores(make_study(seeds=(0, 1)), frame)
    with pytest.raises(UserError, match="`balagg collect` makes it anew"):
        Scores(make_study(), frame[frame["benchmark"] == "a"])


def test_main_table_by_hand():
    table = main_table(make_scores(make_study()))
    rows = {row.keys["rule"]: row.cells for row in table.rows}
    assert rows["token"]["last"].mean == pytest.approx(0.6)
    assert rows["sequence"]["last"].mean == pytest.approx(1.9 / 3)
    assert rows["balanced"]["peak"].mean == pytest.approx(2.0 / 3)
    assert rows["token"]["last - token"] is None
    ours, theirs = rows["sequence"]["last - token"], rows["token"]["last - sequence"]
    assert ours.mean == pytest.approx(0.1 / 3) and ours.low < 0 < ours.high
    assert (theirs.mean, theirs.low, theirs.high, theirs.p_corrected) == pytest.approx(
        (-ours.mean, -ours.high, -ours.low, ours.p_corrected)
    )
    assert "over the 6 comparisons of this table" in " ".join(table.notes)
    # Holm: the smallest of six p-values counts six times.
    tested = [e for row in table.rows for label, e in row.cells.items() if " - " in label and e]
    assert len(tested) == 2 * 6 - 2 * 2  # balanced is nobody's reference
    first = min(tested, key=lambda e: e.p)
    assert first.p_corrected == pytest.approx(min(6 * first.p, 1))


def test_only_supported_differences_are_bold(tmp_path):
    study = make_study(seeds=range(6))
    for differences in ((0.0, 0.3), (0.0, 0.0)):
        table = main_table(make_scores(study, simulated_accuracies(study, differences)))
        write_table(tmp_path / "main", table)
        csv = pd.read_csv(tmp_path / "main.csv").set_index("rule")
        markdown = (tmp_path / "main.md").read_text()
        latex = (tmp_path / "main.tex").read_text()
        bold = 0
        for row in table.rows:
            for label, cell in row.cells.items():
                if " - " not in label or cell is None:
                    continue
                low, high, p = (csv.loc[row.keys["rule"], f"{label}, {part}"] for part in ("low", "high", "p (Holm)"))
                text = format_estimate(cell, signed=True)
                assert cell.supported == (p <= 0.05)
                assert not cell.supported or low > 0 or high < 0
                if cell.supported:
                    assert f"**{text}**" in markdown and rf"\textbf{{{escape(text)}}}" in latex
                bold += cell.supported
        assert markdown.count("**") == 2 * bold and latex.count(r"\textbf") == bold
        assert bool(bold) == (0.3 in differences)


def test_what_does_not_survive_correction_is_not_bold(tmp_path):
    cells = {"a - b": Estimate(0.2, 0.1, 0.3, 3, p=0.03, p_corrected=0.06), "c - d": Estimate(0.2, 0.1, 0.3, 3, p=0.01)}
    write_table(tmp_path / "t", Table([Row({"rule": "r"}, cells)]))
    assert "**" not in (tmp_path / "t.md").read_text() and r"\textbf" not in (tmp_path / "t.tex").read_text()


def test_stability_by_hand():
    study = make_study()
    accuracies = fixed_accuracies(study)
    accuracies[0, 1, 2] = 0.0  # token collapses with seed 1
    rows = {row.keys["rule"]: row.cells for row in stability_table(make_scores(study, accuracies)).rows}
    assert rows["token"]["collapsed"] == "1 of 3" and rows["sequence"]["collapsed"] == "0 of 3"
    assert rows["token"]["peak less last"].mean == pytest.approx((0.1 + 0.6 + 0.1) / 3)
    assert rows["sequence"]["worst drop (over seeds)"].mean == pytest.approx(0.1)


def test_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = make_study()
    layout = write_report(study)
    assert {path.name for path in layout.tables.iterdir()} == {f"{n}.{s}" for n in (*TABLES, "paper") for s in SUFFIXES}
    csv = pd.read_csv(layout.tables / "main.csv")
    assert csv["rule"].tolist() == ["token", "sequence", "balanced"]
    assert csv["last, mean"].tolist() == pytest.approx([0.6, 1.9 / 3, 1.7 / 3])
    assert csv["seeds"].tolist() == [3, 3, 3]
    benchmarks = pd.read_csv(layout.tables / "benchmarks.csv")
    assert benchmarks["rule"].tolist() == ["initial model", "token", "sequence", "balanced"]
    assert benchmarks["a, avg@4, mean"].tolist() == pytest.approx([0.2, 0.5, 1.6 / 3, 0.6])
    assert benchmarks["b, avg@4, mean"].tolist() == pytest.approx([0.2, 0.7, 2.2 / 3, 1.6 / 3])
    assert benchmarks["mean, mean"].tolist() == pytest.approx([0.2, 0.6, 1.9 / 3, 1.7 / 3])
    metrics = pd.read_csv(layout.tables / "metrics.csv")
    assert metrics["metric"].tolist() == 2 * ["avg@4", "greedy accuracy", "pass@4", "response length", "truncated"]
    assert metrics["initial model, mean"].tolist() == pytest.approx(
        [0.2, 0.2, 0.2, 26.5, 0.25, 0.2, 0.2, 0.2, 66.5, 0.25]
    )
    lengths = pd.read_csv(layout.tables / "lengths.csv")
    assert lengths["length, positive, mean"].tolist() == pytest.approx([1.25] * 3)  # all steps: 0.25 + 0, 1, 2
    assert lengths["length gap, mean"].isna().all()
    training = pd.read_csv(layout.tables / "training.csv")
    assert training["reward, mean"].tolist() == pytest.approx([1.4] * 3)  # the last quarter: step 4
    before = {path: path.read_bytes() for path in layout.tables.iterdir()}
    write_report(study)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(("rules", "seeds"), [(("balanced",), (0,)), (("token", "balanced"), (0, 1))])
def test_any_number_of_rules_and_seeds(tmp_path, monkeypatch, rules, seeds):
    monkeypatch.chdir(tmp_path)
    study = make_study(rules, seeds)
    layout = write_report(study)
    for name in (*TABLES, "paper"):
        text = (layout.tables / f"{name}.md").read_text()
        assert ("1 seed: no interval over seeds" in text) == (len(seeds) == 1)
        assert ("Warning: with 2 seeds" in text) == (len(seeds) == 2)
        if len(seeds) == 1:
            assert "[" not in text and "| 1 seed" in text
    text = (layout.tables / "main.md").read_text()
    assert ("[" in text) == (len(seeds) > 1)
    assert "sequence" not in text
    chances = pd.read_csv(layout.tables / "aggregates.csv").filter(like="better").filter(like="low")
    assert chances.isna().all().all()  # two seeds are too few


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_figures_are_the_same_bytes_again(tmp_path, monkeypatch, seeds):
    monkeypatch.chdir(tmp_path)
    study = make_study(seeds=seeds)
    layout = write_results(study)
    write_figures(study, layout)
    before = {path: path.read_bytes() for path in layout.figures.iterdir()}
    assert {path.stem for path in before} == set(FIGURES)
    if len(seeds) > 1:
        write_figures(study, layout)
        assert {path: path.read_bytes() for path in before} == before


def columns(line):
    return len(re.findall(r"(?<!\\)&", line)) + 1


def test_latex_is_well_formed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    layout = write_report(make_study())
    for path in layout.tables.glob("*.tex"):
        text = path.read_text()
        body = text.partition("\n")[2]
        specification = re.search(r"\\begin{tabular}{(l+)}", body)[1]
        lines = body[body.index(r"\toprule") : body.index(r"\bottomrule")].splitlines()
        assert {columns(line) for line in lines if line.endswith(r"\\")} == {len(specification)}
        assert re.findall(r"\\begin{(\w+)}", body) == re.findall(r"\\end{(\w+)}", body)[::-1]
        assert not re.search(r"(?<!\\)[_#$%](?!$)", re.sub(r"\$[^$]*\$|\\label{[^}]*}", "", body), re.M)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no pdflatex")
def test_latex_compiles(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    layout = write_report(make_study(rules=("token", "{rule: token, name: odd_name-1}")))
    strange = Row(
        {"rule": "a_b & 50 % ~^\\ {x} #1 $", "n": "1 – 2"}, {"x - y": Estimate(-0.1, -0.2, -0.01, 3, 0.01, 0.01)}
    )
    write_table(layout.tables / "strange", Table([strange], ["A note: 95 % of a_b."]))
    inputs = "\n".join(rf"\input{{{path}}}" for path in sorted(layout.tables.glob("*.tex")))
    packages = r"\usepackage{booktabs,graphicx}"
    document = rf"\documentclass{{article}}{packages}\begin{{document}}{inputs}\end{{document}}"
    write_text(tmp_path / "all.tex", document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout[-2000:]
    assert (tmp_path / "all.pdf").read_bytes().startswith(b"%PDF")


PAPERS = {"kind": "pretrained", "path": "some/where/Qwen3-1.7B"}


def test_paper_table_by_hand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = make_study(
        variant="known",
        model=PAPERS,
        data={
            "train": {"kind": "polaris-53k"},
            "benchmarks": [{"kind": "arithmetic", "name": "a"}, {"kind": "arithmetic", "name": "b"}],
        },
    )
    other = make_study(variant="other")
    for study in (known, other):
        write_results(study)
    write_paper_table([known, other])
    csv = pd.read_csv("results/report/tables/paper.csv", dtype={"last, published": str})
    assert csv["model"].tolist() == ["Qwen3-1.7B"] * 3 + ["tiny model"] * 3
    assert csv["training set"].tolist() == ["polaris-53k"] * 3 + ["arithmetic"] * 3
    assert csv["rule"].tolist() == 2 * ["token", "sequence", "balanced"]
    assert csv["last, published"].tolist() == ["0.4349", "0.4614", "0.4640", "–", "–", "–"]
    assert csv["last, mean"].tolist() == pytest.approx(2 * [0.6, 1.9 / 3, 1.7 / 3])
    assert "as a secondary report gives them" in Path("results/report/tables/paper.md").read_text()
    with pytest.raises(UserError, match="one table is of the variants of one study"):
        write_paper_table([known, make_study(study="another")])


def test_paper_table_warns_by_the_fewest_seeds():
    studies = [make_study(seeds=seeds) for seeds in ((0, 1, 2), (0,))]
    assert "1 seed" in " ".join(paper_table([make_scores(study) for study in studies]).notes)


def test_power_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    study = make_study(seeds=range(3))
    layout = write_results(study, simulated_accuracies(study, (0.0, 0.0)))
    print_power(study, layout, (1, 20))
    output = " ".join(capsys.readouterr().out.split())
    assert "balanced - token" in output and "balanced - sequence" in output and "sequence - token" in output
    assert "corrected for 6 comparisons" in output
    assert "x problems" in output and "problems, not seeds, are the limit" in output
    assert re.search(r"\d+ \(to (> 1000|\d+)\)", output)
    assert "3 seeds measure a variance badly" in output
    alone = make_study(study="alone", seeds=(0,))
    with pytest.raises(UserError, match="1 seeds"):
        print_power(alone, write_results(alone), (1,))


def test_power_command_refuses_what_makes_no_sense(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "study.yaml"
    write_text(path, yaml.safe_dump(make_study().model_dump(mode="json")))
    with pytest.raises(UserError, match="--points 0: must each be above 0"):
        cli.power(path, points=(0.0,))
    with pytest.raises(UserError, match="--comparisons 0: must be at least 1"):
        cli.power(path, comparisons=0)
    with pytest.raises(FileNotFoundError, match=r"problems\.parquet"):  # one line, in `main`
        cli.power(path)
