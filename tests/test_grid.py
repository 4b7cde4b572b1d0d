"""Several settings in one DAG, and DAGs as large as the paper's."""

import re
import sys

import pandas as pd
import pytest
import yaml
from mlflow import MlflowClient

from balanced_aggregation.workflow import Plan
from test_workflow import ROOT, jobs, succeed

sys.path.append(str(ROOT / "benchmarks"))
from dag import study_of

TWO = """
study: two
rules: [balanced]
seeds: [0]
model: {kind: tiny, hidden_size: 16, layers: 1, heads: 2, intermediate_size: 16}
data:
  train: {kind: arithmetic, problems: 8, terms: [2, 2]}
  benchmarks: [{kind: arithmetic, name: sums, problems: 4, terms: [2, 2]}]
training: {steps: 1, prompts_per_step: 2, group_size: 2, max_new_tokens: 4}
evaluation: {samples: 1, greedy: false}
variants:
  cold: {}
  warm.1:
    warm_start: {batches: 2, batch_size: 4}
    rules: [token]
    seeds: [3]
    data: {benchmarks: [{kind: arithmetic, name: others, problems: 5, terms: [2, 2]}]}
"""


@pytest.mark.slow
def test_two_variants_from_nothing_to_tables_of_their_own(tmp_path):
    folder = tmp_path / "two"
    study = yaml.safe_load(TWO)
    planned = jobs(succeed(folder, "--dry-run", study=study))
    assert (planned["train"], planned["generate"], planned["warm_start"], planned["tabulate"]) == (2, 4, 1, 2)
    succeed(folder)
    for name, rule, seeds, benchmark in (("cold", "balanced", {0}, "sums"), ("warm.1", "token", {3}, "others")):
        results = pd.read_parquet(folder / "results/two" / name / "results.parquet")
        assert (set(results["study"]), set(results["rule"]), set(results["seed"]), set(results["benchmark"])) == (
            {f"two/{name}"},
            {rule},
            seeds,
            {benchmark},
        )
        assert pd.read_csv(folder / "results/two" / name / "tables/main.csv")["rule"].tolist() == [rule]
        client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
        runs = client.search_runs([client.get_experiment_by_name(f"two/{name}").experiment_id])
        assert len(runs) == 1 + len(seeds) and {run.info.status for run in runs} == {"FINISHED"}
    assert "Nothing to be done" in succeed(folder)
    # Settings of one variant concern its own jobs only.
    study["variants"]["cold"] = {"training": {"learning_rate": 1e-5}}
    assert jobs(succeed(folder, "--dry-run", study=study))["train"] == 1


@pytest.mark.slow
def test_the_papers_grid_is_planned_without_gpu_network_or_results(tmp_path, monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody answers there
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    study = yaml.safe_load((ROOT / "studies" / "paper.yaml").read_text())
    output = succeed(tmp_path / "paper", "--dry-run", study=study)
    planned = jobs(output)
    checkpoints = 4 * (1 + 3 * 3 * 10)
    assert (planned["train"], planned["generate"], planned["score"]) == (36, 6 * checkpoints, 6 * checkpoints)
    assert (planned["source_model"], planned["contamination"], planned["tabulate"]) == (4, 4, 4)
    assert not (tmp_path / "paper" / "results").exists()
    train = "balagg train results/paper/{}/study.yaml --rule token --seed 0 2>&1 | (trap '' TERM USR1; exec tee"
    one_node = "balagg-torchrun --standalone --nproc-per-node 8 --no-python " + train.format("qwen3-1.7b-polaris")
    assert f"Shell command: trap : TERM USR1; {one_node}" in output
    two_nodes = re.escape('"$@"\' torchrun ' + train.format("qwen2.5-math-7b-polaris"))
    assert re.search("; srun --nodes=2 .* bash -c 'exec balagg-torchrun .*" + two_nodes, output)


@pytest.mark.slow
def test_twenty_thousand_jobs_are_planned(tmp_path, monkeypatch):
    """`benchmarks/dag.py` says how long it takes."""
    monkeypatch.chdir(tmp_path)
    study = study_of(20_000)
    (one,) = Plan(study, ["x"]).studies.values()
    assert 2 * len(one.evaluated) + len(one.finished_runs) // 2 >= 20_000
    succeed(tmp_path / "large", "--dry-run", "--quiet", study=study)
