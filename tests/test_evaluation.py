import itertools

import pandas as pd
import pytest

from balanced_aggregation.config import Evaluation
from balanced_aggregation.evaluation.evaluate import evaluate_model
from balanced_aggregation.evaluation.metrics import benchmark_metrics, pass_at_k


@pytest.mark.parametrize(
    ("samples", "correct", "k", "value"),
    [(4, 1, 1, 0.25), (4, 1, 2, 0.5), (4, 2, 2, 5 / 6), (4, 0, 4, 0), (4, 1, 4, 1)],
)
def test_pass_at_k_by_hand(samples, correct, k, value):
    assert pass_at_k(samples, correct, k) == pytest.approx(value, rel=1e-15)


def test_pass_at_k_is_the_mean_over_all_subsets():
    for samples in range(1, 8):
        for correct in range(samples + 1):
            verdicts = [True] * correct + [False] * (samples - correct)
            for k in range(1, samples + 1):
                subsets = list(itertools.combinations(verdicts, k))
                assert pass_at_k(samples, correct, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))
    assert pass_at_k(2000, 3, 1000) == pytest.approx(1 - 0.5**3, abs=1e-3)  # no overflow


@pytest.mark.parametrize(("samples", "correct", "k"), [(4, 1, 5), (4, 1, 0), (4, 5, 1), (4, -1, 1)])
def test_pass_at_k_that_does_not_exist(samples, correct, k):
    with pytest.raises(ValueError, match="does not exist"):
        pass_at_k(samples, correct, k)


def responses(correct_by_problem, greedy):
    rows = [
        {"problem": p, "decoding": "sampled", "correct": c, "length": 10, "truncated": False}
        for p, verdicts in enumerate(correct_by_problem)
        for c in verdicts
    ]
    rows += [
        {"problem": p, "decoding": "greedy", "correct": c, "length": 99, "truncated": True}
        for p, c in enumerate(greedy)
    ]
    return pd.DataFrame(rows)


def test_metrics_by_hand():
    settings = Evaluation(samples=2, pass_at=[1, 2])
    metrics = benchmark_metrics(
        responses([[True, False], [False, False], [True, True]], [True, False, False]), settings
    )
    assert metrics == pytest.approx(
        {"avg@2": 0.5, "greedy_accuracy": 1 / 3, "pass@1": 0.5, "pass@2": 2 / 3, "response_length": 10, "truncated": 0}
    )


def test_evaluation_is_reproducible_and_complete(make_model, tokenizer):
    problems = pd.DataFrame(
        {"id": ["a", "b", "c"], "prompt": ["1+1=", "9-3+2=", "0+5="], "gold": ["2", "8", "5"], "verifier": "arithmetic"}
    )
    settings = Evaluation(samples=3, pass_at=[3], max_new_tokens=8)
    model = make_model().double()
    first = evaluate_model(model, tokenizer, {"x": problems, "y": problems}, settings)
    small_batches = settings.model_copy(update={"batch_size": 2})
    pd.testing.assert_frame_equal(
        first, evaluate_model(model, tokenizer, {"x": problems, "y": problems}, small_batches)
    )
    assert first.groupby(["benchmark", "decoding"]).size().to_dict() == {
        ("x", "greedy"): 3, ("x", "sampled"): 9, ("y", "greedy"): 3, ("y", "sampled"): 9,
    }  # fmt: skip
    sampled = first[first["decoding"] == "sampled"]
    x, y = (sampled[sampled["benchmark"] == name]["response"].tolist() for name in ("x", "y"))
    assert x != y  # benchmarks do not share their random numbers
    other_seed = evaluate_model(model, tokenizer, {"x": problems}, settings.model_copy(update={"seed": 1}))
    assert other_seed[other_seed["decoding"] == "sampled"]["response"].tolist() != x
