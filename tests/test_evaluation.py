import itertools
import math

import pandas as pd
import pytest

from balanced_aggregation.config import DecodingOf
from balanced_aggregation.errors import InfrastructureError, UserError
from balanced_aggregation.evaluation.generate import generate_responses
from balanced_aggregation.evaluation.metrics import benchmark_metrics, count_by_problem, is_average, pass_at_k
from balanced_aggregation.evaluation.parts import cut, read_described, write_in_parts
from balanced_aggregation.evaluation.schemas import EVALUATIONS, RESPONSES
from balanced_aggregation.evaluation.score import score_responses
from balanced_aggregation.models import end_token_ids
from balanced_aggregation.rewards import VerifierPool
from balanced_aggregation.rollout.transformers_engine import TransformersEngine

PROBLEMS = pd.DataFrame(
    {
        "id": ["a", "b", "c"],
        "problem": ["1+1=", "9-3+2=", "0+5="],
        "prompt": ["1+1=", "9-3+2=", "0+5="],
        "gold": ["2", "8", "5"],
        "tolerance": [math.nan] * 3,
        "verifier": "arithmetic",
    }
)
FINGERPRINT = {"model": "abc"}


def decoding(**values):
    defaults = {"samples": 3, "pass_at": [3], "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 8, "greedy": True}
    return DecodingOf(**defaults | values)


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


def evaluations(correct_by_problem, greedy):
    rows = [
        {"problem": str(p), "decoding": "sampled", "correct": c, "length": 10 * (p + 1), "truncated": p == 2}
        for p, verdicts in enumerate(correct_by_problem)
        for c in verdicts
    ]
    rows += [
        {"problem": str(p), "decoding": "greedy", "correct": c, "length": 99, "truncated": True}
        for p, c in enumerate(greedy)
    ]
    return pd.DataFrame(rows)


def test_metrics_by_hand():
    frame = evaluations([[True, False], [False, False], [True, True]], [True, False, False])
    metrics = benchmark_metrics(count_by_problem(frame), decoding(samples=2, pass_at=[1, 2])).set_index("metric")
    accuracy = {"avg@2": 0.5, "greedy_accuracy": 1 / 3, "pass@1": 0.5, "pass@2": 2 / 3}
    assert metrics["value"].to_dict() == pytest.approx(accuracy | {"response_length": 20, "truncated": 1 / 3})
    # Over problems, not samples: of 1/2, 0, 1 the standard deviation is 1/2; of 10, 20, 30 it is 10.
    assert metrics["standard_error"]["avg@2"] == pytest.approx(0.5 / math.sqrt(3))
    assert metrics["standard_error"]["response_length"] == pytest.approx(10 / math.sqrt(3))
    assert metrics["standard_error"]["greedy_accuracy"] == pytest.approx(1 / 3)
    assert [name for name in metrics.index if is_average(name)] == ["avg@2"]


def test_metrics_without_greedy_and_with_lighteval():
    frame = evaluations([[True, False], [False, False]], []).assign(lighteval=[1.0, 1.0, 0.0, 0.0])
    metrics = benchmark_metrics(count_by_problem(frame), decoding(samples=2, pass_at=[], greedy=False)).set_index(
        "metric"
    )["value"]
    assert metrics[["avg@2", "lighteval avg@2"]].tolist() == [0.25, 0.5]
    assert "greedy_accuracy" not in metrics


class Counting:
    """An engine that counts what it is asked, and may be out of order from some call on."""

    def __init__(self, engine, calls=math.inf):
        self.engine, self.calls, self.asked = engine, calls, 0

    def generate(self, prompts, seeds, sampling):
        if self.asked == self.calls:
            raise KeyboardInterrupt
        self.asked += 1
        return self.engine.generate(prompts, seeds, sampling)


def make_engine(make_model, tokenizer, **counting):
    model = make_model().double()
    return Counting(TransformersEngine(model, end_token_ids(model, tokenizer), tokenizer.pad_token_id, 64), **counting)


def test_responses_are_reproducible_complete_and_do_not_depend_on_the_cut_or_the_order(make_model, tokenizer, tmp_path):
    def generate(name, problems=PROBLEMS, seed=0, at_once=64, **values):
        engine = make_engine(make_model, tokenizer)
        path = tmp_path / f"{name}.parquet"
        generate_responses(engine, tokenizer, problems, decoding(**values), seed, at_once, path, FINGERPRINT)
        frame, made_from = read_described(path, RESPONSES)
        assert made_from == FINGERPRINT
        return frame.sort_values(["problem", "decoding", "sample"]).reset_index(drop=True)

    first = generate("first")
    assert first.groupby("decoding").size().to_dict() == {"greedy": 3, "sampled": 9}
    assert first["prompt"].tolist() == [p for p in PROBLEMS["prompt"] for _ in range(4)]
    generate("again")
    assert (tmp_path / "first.parquet").read_bytes() == (tmp_path / "again.parquet").read_bytes()
    pd.testing.assert_frame_equal(first, generate("small parts", at_once=1))
    pd.testing.assert_frame_equal(first, generate("other order", problems=PROBLEMS.iloc[::-1]))
    fewer = generate("fewer", samples=2, pass_at=[])
    pd.testing.assert_frame_equal(first[first["sample"] < 2].reset_index(drop=True), fewer)
    other = generate("other seed", seed=1)
    assert other[other["decoding"] == "sampled"]["response"].tolist() != fewer["response"].tolist()
    assert set(generate("no greedy", greedy=False)["decoding"]) == {"sampled"}


def test_generation_that_is_cut_off_goes_on_where_it_stopped(make_model, tokenizer, tmp_path):
    path = tmp_path / "r.parquet"

    def generate(engine, fingerprint=FINGERPRINT):
        return generate_responses(engine, tokenizer, PROBLEMS, decoding(), 0, 3, path, fingerprint)

    with pytest.raises(KeyboardInterrupt):  # in the middle of the second problem of three, two calls each
        generate(make_engine(make_model, tokenizer, calls=3))
    assert not path.exists()
    rest = make_engine(make_model, tokenizer)
    continued = generate(rest)
    assert rest.asked == 4
    assert {p.name for p in tmp_path.iterdir()} == {"r.parquet", ".r.parquet.lock"}
    whole = make_engine(make_model, tokenizer)
    pd.testing.assert_frame_equal(generate(whole), continued)
    assert whole.asked == 6

    with pytest.raises(KeyboardInterrupt):
        generate(make_engine(make_model, tokenizer, calls=3))
    other = make_engine(make_model, tokenizer)
    generate(other, {"model": "another"})  # parts of another model are of no use
    assert other.asked == 6
    assert read_described(path, RESPONSES)[1] == {"model": "another"}


def stored(responses):
    rows = [
        {"problem": problem, "prompt": "p", "decoding": "sampled", "sample": k, "response": response}
        for problem, own in responses.items()
        for k, response in enumerate(own)
    ]
    return pd.DataFrame(rows).assign(length=1, truncated=False)


def test_scores_by_hand(tmp_path):
    responses = stored({"a": [">2", ">3"], "b": ["8", "9-3=6;6+2=8>8"]})
    with VerifierPool() as pool:
        score_responses(pool, responses, PROBLEMS, tmp_path / "s.parquet", {"responses": FINGERPRINT})
    frame, _ = read_described(tmp_path / "s.parquet", EVALUATIONS)
    assert frame["correct"].tolist() == [True, False, False, True]
    assert frame["outcome"].tolist() == ["equal", "not_equal", "no_answer", "equal"]
    assert frame["extracted"].fillna("none").tolist() == ["2", "3", "none", "8"]
    pd.testing.assert_frame_equal(frame[list(responses.columns)], responses)


def test_machinery_that_fails_leaves_no_score(tmp_path):
    class Broken(VerifierPool):
        def verify(self, submissions):
            raise InfrastructureError("no process can be started")

    with pytest.raises(InfrastructureError):
        score_responses(Broken(), stored({"a": [">2"]}), PROBLEMS, tmp_path / "s.parquet", FINGERPRINT)
    assert not (tmp_path / "s.parquet").exists()


def test_a_part_is_only_used_again_under_the_same_fingerprint_and_a_whole_is_checked(tmp_path):
    frame = stored({"a": ["x", "y"], "b": ["z"]})
    with pytest.raises(Exception, match=r"not unique|duplicate"):
        write_in_parts(tmp_path / "x.parquet", {}, [frame, frame], lambda part: part, RESPONSES)
    assert not (tmp_path / "x.parquet").exists()
    write_in_parts(tmp_path / "x.parquet", {"n": 1}, cut(frame, 2), lambda part: part, RESPONSES)
    pd.testing.assert_frame_equal(read_described(tmp_path / "x.parquet", RESPONSES)[0], frame)


def test_files_that_are_not_what_they_should_be_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"x.parquet: no such file"):
        read_described(tmp_path / "x.parquet", RESPONSES)
    stored({"a": ["x"]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(UserError, match=r"x.parquet: not a file of the form it should have"):
        read_described(tmp_path / "x.parquet", RESPONSES)
    (tmp_path / "x.parquet").write_text("broken")
    with pytest.raises(UserError, match=r"x.parquet: not a file of the form"):
        read_described(tmp_path / "x.parquet", RESPONSES)
