"""The whole DAG on a study that takes seconds a job: what a person who clones the repository goes through."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
import yaml
from mlflow import MlflowClient

import miniatures
import tracked
from balanced_aggregation.config import TinyModel
from balanced_aggregation.models import character_tokenizer, create_tiny_model, save_model

ROOT = Path(__file__).parent.parent
SNAKEMAKE = [str(Path(sys.executable).parent / "snakemake"), "--snakefile", str(ROOT / "Snakefile")]
STUDY = yaml.safe_load((ROOT / "studies" / "smoke.yaml").read_text()) | {"study": "t"}


def start(folder, *arguments, study=None, stdout=subprocess.PIPE):
    folder.mkdir(exist_ok=True)
    if study is not None:
        (folder / "study.yaml").write_text(yaml.safe_dump(study))
    command = [*SNAKEMAKE, *arguments, "--directory", str(folder), "--configfile", str(folder / "study.yaml")]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW")}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=stdout, stderr=subprocess.STDOUT, text=True)


def snakemake(folder, *arguments, study=None):
    process = start(folder, *arguments, study=study)
    output, _ = process.communicate(timeout=1200)
    return process.returncode, output


def succeed(folder, *arguments, study=None):
    code, output = snakemake(folder, *arguments, study=study)
    assert code == 0, output
    return output


def jobs(dry_run):
    """Rules that a dry run would run, with their numbers."""
    table = dry_run.partition("Job stats:")[2].partition("total")[0]
    return {name: int(count) for name, count in re.findall(r"^(\w+)\s+(\d+)$", table, re.MULTILINE)}


def deterministic_files(folder):
    results = folder / "results" / "t"
    files = [*results.glob("tables/*"), *results.glob("figures/*"), *results.glob("runs/*/*/metrics.jsonl")]
    files += [*results.glob("*.parquet"), *results.glob("evaluations/**/*.parquet")]
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    for path in results.glob("runs/*/*/run.json"):  # the commit may change while tests run
        contents[path.relative_to(folder).as_posix()] = json.loads(path.read_text()) | {"commit": None}
    return contents


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    output = succeed(folder, study=STUDY)
    return folder, output


@pytest.mark.slow
def test_from_nothing_to_tables_figures_and_tracked_runs(undisturbed):
    folder, output = undisturbed
    results = pd.read_parquet(folder / "results/t/results.parquet")
    columns = ["study", "rule", "seed", "step", "benchmark", "metric", "value", "standard_error", "n", "samples"]
    assert results.columns.tolist() == columns
    names = ["token", "sequence", "balanced", "square_root"]
    assert set(results["rule"]) == set(names)
    assert results.groupby(["rule", "seed", "step", "benchmark", "metric"]).size().max() == 1
    assert set(results["step"]) == {0, 8}
    problems = pd.read_parquet(folder / "results/t/problems.parquet")
    accuracy = problems.assign(value=problems["correct"] / problems["samples"])
    key = ["rule", "seed", "step", "benchmark"]
    own = results[results["metric"] == "avg@2"].set_index(key)["value"].sort_index()
    pd.testing.assert_series_equal(accuracy.groupby(key)["value"].mean(), own)
    assert problems.groupby(key)["problem"].nunique().eq(16).all()
    initial = results[results["step"] == 0].groupby(["benchmark", "metric"])["value"].nunique()
    assert (initial == 1).all()
    table = pd.read_csv(folder / "results/t/tables/main.csv")
    assert table["rule"].tolist() == names
    for name in ("learning_curves", "benchmarks", "differences"):
        assert (folder / f"results/t/figures/{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (folder / f"results/t/figures/{name}.pdf").read_bytes().startswith(b"%PDF")
    assert re.search(
        r"^balanced seed 1 +step +8/8  reward 0\.\d+ +[\d,]+ tokens/s  0:00:00 left$", output, re.MULTILINE
    )

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("t").experiment_id
    runs = client.search_runs([experiment])
    parents = [run for run in runs if run.data.tags["balagg.role"] == "study"]
    children = [run for run in runs if run.data.tags["balagg.role"] == "training"]
    assert len(parents) == 1 and len(children) == 8
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parents[0].info.run_id}
    assert {run.info.status for run in runs} == {"FINISHED"}
    for run in children:
        assert [m.step for m in client.get_metric_history(run.info.run_id, "reward")] == list(range(1, 9))
        evaluated = client.get_metric_history(run.info.run_id, "eval/sums/avg_at_2")
        assert [m.step for m in evaluated] == [0, 8]
    artifacts = [
        f.path for folder in ("tables", "figures") for f in client.list_artifacts(parents[0].info.run_id, folder)
    ]
    assert {"tables/main.csv", "figures/learning_curves.png"} <= set(artifacts)


@pytest.mark.slow
def test_mlflow_rebuilt_from_the_files(undisturbed, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(undisturbed[0], folder, ignore=shutil.ignore_patterns("mlflow*"))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW")}
    balagg = Path(sys.executable).parent / "balagg"
    subprocess.run([balagg, "track", "rebuild", "study.yaml"], cwd=folder, env=environment, check=True)
    before, after = (tracked.shown(f"sqlite:///{place}/mlflow.db", "t") for place in (undisturbed[0], folder))
    assert len(after) == 9 and after == before


@pytest.mark.slow
def test_a_training_in_two_processes(undisturbed, tmp_path):
    """Started by the workflow; which process does what changes nothing but the rounding."""
    folder = tmp_path / "copy"
    shutil.copytree(undisturbed[0], folder)
    run = folder / "results/t/runs/token/seed0"
    alone = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(run)
    study = STUDY | {"compute": {"cpu_processes": 2, "strategy": "fsdp"}}
    output = succeed(folder, "results/t/runs/token/seed0/run.json", study=study)
    assert jobs(succeed(folder, "-n", "results/t/runs/token/seed0/run.json", study=study)) == {}
    assert "balagg-torchrun --standalone --nproc-per-node 2 --no-python balagg train" in output
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 9))
    assert rows[0] == pytest.approx(alone[0], rel=1e-3, abs=1e-6)
    assert len(list((run / "state/resume/step_000008").glob("*.distcp"))) == 2


@pytest.mark.slow
def test_killed_trainings_end_with_the_same_bytes(undisturbed, tmp_path):
    """SIGKILL at random moments, then snakemake again: each training is killed once after a random number of steps.

    Half of them are killed a second time, at a random moment between the start of the process and its first steps.
    """
    generator = random.Random(0)
    folder = tmp_path / "killed"
    names = [rule if isinstance(rule, str) else rule["name"] for rule in STUDY["rules"]]
    runs = [(name, seed) for name in names for seed in STUDY["seeds"]]
    after_steps = {run: generator.randrange(8) for run in runs}
    early = set(generator.sample(runs, len(runs) // 2))
    kills = []
    for _ in range(8):
        process = start(folder, study=STUDY, stdout=subprocess.DEVNULL)
        while process.poll() is None:
            for training in trainings(process):
                run = run_of(training)
                if run in after_steps and steps_done(folder, run) >= after_steps[run]:
                    kills += [run] * kill(training)
                    del after_steps[run]
                elif run in early and run not in after_steps:
                    early.remove(run)
                    time.sleep(generator.uniform(0, 4))
                    kills += [run] * kill(training)
            time.sleep(0.02)
        statuses = {run.data.tags["balagg.role"]: run.info.status for run in tracked_runs(folder)}
        if process.returncode == 0:
            break
        # None shows as running once the workflow has ended, not even those that could not say so themselves.
        assert "RUNNING" not in {run.info.status for run in tracked_runs(folder)}
        assert statuses["study"] == "FAILED"
    assert statuses["study"] == "FINISHED"
    assert set(kills) >= {run for run in runs if run not in after_steps}
    assert process.returncode == 0 and len(kills) >= 8
    expected, found = deterministic_files(undisturbed[0]), deterministic_files(folder)
    assert found.keys() == expected.keys()
    differing = [name for name in expected if found[name] != expected[name]]
    assert differing == []
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("t").experiment_id], "tags.`balagg.role` = 'training'")
    assert len(runs) == 8 and {run.info.status for run in runs} == {"FINISHED"}
    for run in runs:
        # Each step once; those that were pending at a kill arrive at the end.
        assert sorted(m.step for m in client.get_metric_history(run.info.run_id, "reward")) == list(range(1, 9))


def tracked_runs(folder):
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    return client.search_runs([client.get_experiment_by_name("t").experiment_id])


def trainings(process):
    found = []
    try:
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.name().startswith("balagg") and "train" in child.cmdline():
                found.append(child)
    except psutil.NoSuchProcess:
        pass
    return found


def run_of(training):
    try:
        command = training.cmdline()
        return command[command.index("--rule") + 1], int(command[command.index("--seed") + 1])
    except (psutil.NoSuchProcess, ValueError):
        return None


def steps_done(folder, run):
    journal = folder / "results/t/runs" / run[0] / f"seed{run[1]}" / "state/metrics.jsonl"
    return journal.read_text().count("\n") if journal.exists() else -1


def kill(process):
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return 0
    return 1


@pytest.mark.slow
def test_a_rule_in_one_file_of_ones_own_is_everywhere(undisturbed, tmp_path):
    """And the runs of the other rules are not repeated."""
    folder = tmp_path / "own"
    shutil.copytree(undisturbed[0], folder)
    (folder / "my_rules.py").write_text(
        '"""A rule of my own."""\n\n'
        "from balanced_aggregation.aggregation import num_groups\n\n\n"
        "def inverse_square(lengths, advantages, group_ids):\n"
        '    """Every token of a response of L tokens weighs 1 / L^2."""\n'
        "    return 1 / (num_groups(group_ids) * lengths.clamp(min=1) ** 2)\n"
    )
    study = STUDY | {"rules": [*STUDY["rules"], "my_rules.py:inverse_square"]}
    planned = jobs(succeed(folder, "--dry-run", study=study))
    assert (planned["train"], planned["generate"], planned["score"]) == (2, 2, 2)
    succeed(folder, study=study)
    table = pd.read_csv(folder / "results/t/tables/main.csv")
    assert table["rule"].tolist() == ["token", "sequence", "balanced", "square_root", "inverse_square"]
    # No p-value where all seeds differ by the same.
    assert table.iloc[-1].filter(regex="mean$").notna().all()
    training = pd.read_parquet(folder / "results/t/training.parquet")
    assert "positive_share/inverse_square" in set(training["metric"])
    for name in ("learning_curves", "benchmarks", "differences"):
        before, after = (f / "results/t/figures" / f"{name}.png" for f in (undisturbed[0], folder))
        assert before.read_bytes() != after.read_bytes()
    before, after = deterministic_files(undisturbed[0]), deterministic_files(folder)
    assert all(after[name] == before[name] for name in before if "/runs/" in name)

    # A change of the file is noticed, and concerns its own runs only.
    rules = folder / "my_rules.py"
    rules.write_text(rules.read_text().replace("** 2", "** 3"))
    assert jobs(succeed(folder, "--dry-run"))["train"] == 2


@pytest.mark.slow
def test_tables_and_figures_from_copied_results_alone(undisturbed, tmp_path):
    """Older than this clone, without data, models, trainings and evaluations."""
    folder = tmp_path / "copied"
    results = folder / "results/t"
    results.mkdir(parents=True)
    for path in (undisturbed[0] / "results/t").glob("*.parquet"):
        shutil.copy(path, results)
        os.utime(results / path.name, (0, 0))
    succeed(folder, "tables", "figures", study=STUDY)
    expected, found = deterministic_files(undisturbed[0]), deterministic_files(folder)
    kinds = ("results/t/tables/", "results/t/figures/")
    assert {name: found[name] for name in found if name.startswith(kinds)} == {
        name: expected[name] for name in expected if name.startswith(kinds)
    }
    assert not (results / "runs").exists() and not (results / "model").exists()


@pytest.mark.slow
def test_what_is_run_again(undisturbed, tmp_path):
    folder = tmp_path / "again"
    shutil.copytree(undisturbed[0], folder)
    assert "Nothing to be done" in succeed(folder)

    shutil.rmtree(folder / "results/t/tables")
    # `tables` and `figures` stand for the files of all variants; those of `figures` are there.
    assert jobs(succeed(folder, "--dry-run", "tables", "figures")) == {"tabulate": 1, "paper_table": 1, "tables": 1}
    succeed(folder, "tables", "figures")
    expected, found = deterministic_files(undisturbed[0]), deterministic_files(folder)
    assert found == expected
    forced = ("--forcerun", "tabulate", "draw")
    assert jobs(succeed(folder, "--dry-run", "tables", "figures", *forced)) == {
        "tabulate": 1, "tables": 1, "draw": 1, "figures": 1,
    }  # fmt: skip
    assert jobs(succeed(folder, "--dry-run", *forced)) == {"tabulate": 1, "draw": 1, "track_finish": 1, "all": 1}

    figures = ROOT / "src/balanced_aggregation/reporting/figures.py"
    times = figures.stat()
    try:
        figures.touch()
        planned = jobs(succeed(folder, "--dry-run"))
    finally:
        os.utime(figures, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "train" not in planned and "tabulate" not in planned

    def planned_after(change):
        study = yaml.safe_load(yaml.safe_dump(STUDY))
        change(study)
        return jobs(succeed(folder, "--dry-run", study=study))

    assert planned_after(lambda s: s.update(description="other words")) == {}
    assert "train" not in planned_after(lambda s: s["training"].update(checkpoint_every=3))
    # Nor does it matter how many processes a training has.
    assert planned_after(lambda s: s.update(compute={"cpu_processes": 2})) == {}
    planned = planned_after(lambda s: s["evaluation"].update(pass_at=[1, 2]))
    assert set(planned) == {"collect", "tabulate", "paper_table", "draw", "track_finish", "all"}
    planned = planned_after(lambda s: s.update(tracking={"enabled": False}))
    assert set(planned) == {"track_start", "track_finish", "all"}
    assert planned_after(lambda s: s["training"].update(learning_rate=1e-5))["train"] == 8
    planned = planned_after(lambda s: s["evaluation"].update(temperature=0.5))
    assert (planned["generate"], planned["score"]) == (9, 9) and "train" not in planned
    planned = planned_after(lambda s: s.update(seeds=[0, 1, 2]))
    assert (planned["train"], planned["generate"], planned["score"]) == (4, 4, 4)
    # A further benchmark is answered by all models; nothing else is repeated.
    further = {"kind": "arithmetic", "name": "more", "problems": 4, "terms": [2, 2]}
    planned = planned_after(lambda s: s["data"]["benchmarks"].append(further))
    assert (planned["generate"], planned["score"]) == (9, 9) and "train" not in planned


@pytest.fixture(scope="module")
def six_benchmarks(tmp_path_factory):
    """A study of the public datasets, in miniature, with a random model that writes characters."""
    folder = tmp_path_factory.mktemp("six")
    tokenizer = character_tokenizer("".join(map(chr, range(32, 127))) + "\n")
    model = create_tiny_model(TinyModel(hidden_size=16, layers=1, heads=2, intermediate_size=16), tokenizer, 0)
    save_model(model, tokenizer, folder / "model")
    rows = [(f"i{i}", f"What is {i}+1?", str(i + 1)) for i in range(8)]
    training = {
        "dapo-math-17k": (miniatures.dapo(folder / "dapo.parquet", [*rows, ("same", "What is $1+1$?", "2")]), 9),
        "polaris-53k": (miniatures.polaris(folder / "polaris.jsonl", [row[1:] for row in rows]), 8),
    }
    study = {
        "study": "t",
        "rules": ["balanced"],
        "seeds": [0],
        "verifiers": 2,
        "model": {"kind": "pretrained", "path": "model", "chat": False},
        "data": {"benchmarks": miniatures.write_benchmarks(folder), "contamination": {"remove": "exact"}},
        "training": {"steps": 1, "prompts_per_step": 2, "group_size": 2, "max_new_tokens": 12},
        "evaluation": {"samples": 2, "lighteval": True},
        "tracking": {"enabled": False},
    }
    return folder, study, training


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dapo-math-17k", "polaris-53k"])
def test_public_datasets_from_training_to_a_table_of_six_benchmarks(six_benchmarks, kind):
    folder, study, training = six_benchmarks
    path, rows = training[kind]
    study["study"] = kind
    study["data"]["train"] = {"kind": kind, "path": str(path), "rows": rows}
    study["evaluation"]["lighteval"] = kind == "dapo-math-17k"
    succeed(folder, study=study)
    results = folder / "results" / kind
    table = pd.read_csv(results / "tables/benchmarks.csv")
    names = [b["kind"] for b in study["data"]["benchmarks"]]
    assert [c for c in table.columns if c.endswith(", avg@2, mean")] == [f"{name}, avg@2, mean" for name in names]
    assert table["rule"].tolist() == ["initial model", "balanced"]
    tidy = pd.read_parquet(results / "results.parquet")
    assert set(tidy["benchmark"]) == set(names) and set(tidy["samples"]) == {2}
    assert tidy.set_index("benchmark")["n"].to_dict() == {b["kind"]: b["rows"] for b in study["data"]["benchmarks"]}
    assert "| math-500" in (results / "data/contamination.md").read_text()
    manifest = json.loads((results / "data/train.json").read_text())
    # What is 0+1, 1+1 and 2+1 are problems of the benchmark, too; DAPO has one of them twice.
    assert manifest["dropped_contaminated"] == (4 if kind == "dapo-math-17k" else 3)
    evaluation = pd.read_parquet(results / "evaluations/balanced/seed0/step1/livecodebench.parquet")
    assert len(evaluation) == 2 * 3 and set(evaluation["outcome"]) <= {"no_answer", "crash", "not_equal"}
    if study["evaluation"]["lighteval"]:
        assert len(pd.read_csv(results / "tables/lighteval.csv")) == 6
        assert {f"lighteval avg@{2}"} <= set(tidy["metric"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": []}, "seeds = []: list should have at least 1 item"),
        ({"rules": ["tokens"]}, "rules[0] = 'tokens': unknown rule; allowed: balanced, constant,"),
        ({"typo": 1}, "typo = 1: unknown key; allowed: study, description,"),
        ({"training": STUDY["training"] | {"group_size": 1}}, "training.group_size = 1: input should be greater"),
    ],
)
def test_a_wrong_study_stops_before_the_dag_with_one_line(tmp_path, change, message):
    code, output = snakemake(tmp_path, study=STUDY | change)
    assert code == 1
    lines = [line for line in output.splitlines() if not line.startswith("Using workflow specific profile")]
    assert len(lines) == 1 and lines[0].startswith(f"error: {tmp_path}/study.yaml: ") and message in lines[0]
    assert not (tmp_path / "results").exists()


def test_a_job_on_a_cluster_may_have_more_processors_than_this_machine(tmp_path):
    more = os.cpu_count() + 1
    study = STUDY | {"threads": more, "verifiers": more + 1, "compute": {"cpu_processes": 2}}
    output = succeed(tmp_path, "-n", "--profile", "slurm", study=study)
    jobs_shown = [re.search(r"^rule (\w+):\n.*cpus_per_task=(\d+)", part, re.M | re.S) for part in output.split("\n\n")]
    asked = dict(shown.groups() for shown in jobs_shown if shown)
    expected = {"warm_start": more, "train": 2 * more, "generate": more, "score": more + 1}
    assert asked == {rule: str(count) for rule, count in expected.items()}


def test_one_study_is_not_mixed_with_another(tmp_path):
    """A study file is whole: nothing of the default study stands in for what it leaves out."""
    study = {key: value for key, value in STUDY.items() if key != "training"}
    code, output = snakemake(tmp_path, study=study)
    assert code == 1 and "training: missing; it must be given" in output


@pytest.mark.parametrize("tool", [["snakemake", "--lint"], ["snakefmt", "--check", "Snakefile", "workflow"]])
def test_the_workflow_is_clean(tool):
    command = [str(Path(sys.executable).parent / tool[0]), *tool[1:]]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_conda_environments_hold_the_lock_that_the_makefile_installs():
    used = set()
    for rules in ROOT.glob("workflow/rules/*.smk"):
        text = rules.read_text()
        used |= {(rules.parent / path).resolve() for path in re.findall(r'conda:\s+"(.+?)"', text)}
        assert text.count("    shell:") == text.count("    conda:") > 0 or rules.name == "common.smk"
    assert used == {ROOT / "envs" / "cpu.yaml"}
    assert "-r envs/cpu.lock" in (ROOT / "Makefile").read_text()
    pinned = [line for line in (ROOT / "envs/cpu.lock").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[^ ]+", line) for line in pinned)
    python, _, pip = yaml.safe_load((ROOT / "envs/cpu.yaml").read_text())["dependencies"]
    assert python == "python=3.11" and pip == {"pip": pinned}
