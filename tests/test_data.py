import json
import random

import pandas as pd
import pytest
import yaml

from balanced_aggregation.config import ArithmeticData, SourceData, Study, Styles
from balanced_aggregation.data import read_problems
from balanced_aggregation.data.arithmetic import SYMBOLS, Chain, draw_chains, write_solution
from balanced_aggregation.data.prepare import prepare_data
from balanced_aggregation.data.sources import read_source
from balanced_aggregation.errors import UserError
from balanced_aggregation.files import read_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.models import character_tokenizer
from balanced_aggregation.provenance import training_settings
from balanced_aggregation.rewards import check_arithmetic

PREFIX = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
SUFFIX = '\n\nRemember to put your answer on its own line after "Answer:".'


def dapo_file(path, rows):
    frame = pd.DataFrame(
        [
            {
                "prompt": [{"content": PREFIX + problem + SUFFIX, "role": "user"}],
                "reward_model": {"ground_truth": gold, "style": "rule"},
                "extra_info": {"index": index},
            }
            for index, problem, gold in rows
        ]
    )
    frame.to_parquet(path)
    return path


def math_file(path, n=3):
    rows = [{"problem": f"What is ${i}+1$?", "answer": str(i + 1), "unique_id": f"test/{i}.json"} for i in range(n)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_chains_are_what_they_say():
    data = ArithmeticData(kind="arithmetic", problems=300, terms=(2, 5), largest=20)
    taken = set()
    first = draw_chains(data, random.Random(0), taken)
    second = draw_chains(data, random.Random(0), taken)
    assert len(set(first) | set(second)) == 600
    for chain in first:
        assert Chain.parse(chain.prompt) == chain
        assert chain.answer == eval(chain.prompt[:-1])
        partial = chain.start
        for change in chain.changes:
            partial += change
            assert 0 <= partial <= 20
        solution = write_solution(chain, Styles(), random.Random(1))
        assert set(chain.prompt + solution) <= set(SYMBOLS)
        assert check_arithmetic(solution, str(chain.answer)).extracted is not None


def test_more_chains_than_there_are_is_an_error():
    data = ArithmeticData(kind="arithmetic", problems=200, terms=(2, 2))
    with pytest.raises(UserError, match=r"'arithmetic': problems = 200: only 90 were found .* terms = \[2, 2\]"):
        draw_chains(data, random.Random(0), set())


def test_dapo_problems_are_unwrapped_and_conflicting_golds_dropped(tmp_path):
    rows = [
        ("a", "What is 1+1?", "2"),
        ("b", "What is 2+2?", "4"),
        ("a", "What is 1+1?", "2"),
        ("c", "Odd?", "1"),
        ("d", "Odd?", "3"),
    ]
    data = SourceData(kind="dapo-math-17k", path=str(dapo_file(tmp_path / "dapo.parquet", rows)))
    problems, counts = read_source(data)
    assert problems.to_dict("records") == [
        {"id": "a", "problem": "What is 1+1?", "gold": "2"},
        {"id": "b", "problem": "What is 2+2?", "gold": "4"},
    ]
    assert counts == {"rows": 5, "dropped_conflicting_golds": 2, "dropped_duplicates": 1}


def test_files_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"math-500: path = 'nowhere.jsonl': no such file"):
        read_source(SourceData(kind="math-500", path="nowhere.jsonl"))
    with pytest.raises(UserError, match=r"dapo-math-17k: .* has no column 'extra_info'; it has problem, answer"):
        read_source(SourceData(kind="dapo-math-17k", path=str(math_file(tmp_path / "x.jsonl"))))
    (tmp_path / "broken.parquet").write_text("no parquet")
    with pytest.raises(UserError, match=r"broken.parquet cannot be read"):
        read_source(SourceData(kind="math-500", path=str(tmp_path / "broken.parquet")))


def study(tmp_path, **data):
    return Study.model_validate(
        yaml.safe_load(f"""
        study: test
        rules: [token]
        seeds: [0]
        model: {{kind: pretrained, path: nowhere, chat: true}}
        data: {json.dumps(data)}
        training: {{steps: 1, prompts_per_step: 1}}
        """)
    )


def test_prepared_problems(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokenizer = character_tokenizer("".join(map(chr, range(32, 127))) + "\n")
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    rows = [(f"i{i}", f"What is {i}+1?", str(i + 1)) for i in range(20)] + [("long", "x" * 500, "7")]
    test = study(
        tmp_path,
        train={"kind": "dapo-math-17k", "path": str(dapo_file(tmp_path / "d.parquet", rows)), "limit": 8},
        benchmarks=[
            {"kind": "math-500", "path": str(math_file(tmp_path / "m.jsonl")), "prompt": "Q: {problem}"},
            {"kind": "arithmetic", "problems": 5},
        ],
        max_prompt_tokens=200,
    )
    layout = Layout(test)
    manifest = prepare_data(test, layout, tokenizer, "train")
    assert manifest | {"sha256": ""} == {
        "kind": "dapo-math-17k", "rows": 21, "dropped_conflicting_golds": 0, "dropped_duplicates": 0,
        "dropped_too_long": 1, "dropped_by_limit": 12, "problems": 8, "sha256": "",
    }  # fmt: skip
    assert read_json(layout.manifest("train")) == manifest
    train = read_problems(layout.train_problems)
    assert train["verifier"].unique().tolist() == ["math"]
    assert train["prompt"].str.fullmatch(r"<user>What is \d+\+1\?\n\nPlease reason .* \\boxed\{\}\.<assistant>").all()
    prepare_data(test, layout, tokenizer, "math-500")
    benchmark = read_problems(layout.benchmark("math-500"))
    assert benchmark["prompt"].tolist() == [f"<user>Q: What is ${i}+1$?<assistant>" for i in range(3)]
    assert benchmark["gold"].tolist() == ["1", "2", "3"]
    assert prepare_data(test, layout, tokenizer, "train") == manifest
    with pytest.raises(UserError, match="--name nothing: not a dataset of study 'test'; allowed: train, math-500, ar"):
        prepare_data(test, layout, tokenizer, "nothing")


def test_sets_of_arithmetic_problems_are_disjoint_in_whatever_order_they_are_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {"kind": "arithmetic", "problems": 400, "terms": [3, 3]}
    test = study(tmp_path, train=values, benchmarks=[values | {"name": n, "problems": 100} for n in ("a", "b")])
    layout = Layout(test)
    for name in ("b", "train", "a"):
        prepare_data(test, layout, character_tokenizer(SYMBOLS), name)
    frames = [read_problems(layout.train_problems), *(read_problems(layout.benchmark(n)) for n in ("a", "b"))]
    assert pd.concat(frames)["prompt"].nunique() == 600


def test_a_further_benchmark_or_another_place_of_a_file_is_no_other_training(tmp_path):
    train = {"kind": "dapo-math-17k", "path": "here.parquet", "limit": 8}
    one = study(tmp_path, train=train, benchmarks=[{"kind": "math-500"}])
    two = study(
        tmp_path, train=train | {"path": "there.parquet"}, benchmarks=[{"kind": "math-500"}, {"kind": "arithmetic"}]
    )
    assert training_settings(one, "token") == training_settings(two, "token")
    other = study(tmp_path, train=train | {"limit": 9}, benchmarks=[{"kind": "math-500"}])
    assert training_settings(one, "token") != training_settings(other, "token")


def test_a_file_of_problems_is_checked(tmp_path):
    with pytest.raises(UserError, match="no file of problems at"):
        read_problems(tmp_path / "train.parquet")
    pd.DataFrame({"id": ["a"], "prompt": ["p"], "gold": [""], "verifier": ["math"]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(UserError, match=r"t.parquet: not a file of problems"):
        read_problems(tmp_path / "t.parquet")
