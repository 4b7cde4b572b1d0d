import hashlib
import json
import random

import pandas as pd
import pytest
import yaml

import miniatures
from balanced_aggregation.config import ArithmeticData, SourceData, Study, Styles
from balanced_aggregation.data import read_problems, read_statements
from balanced_aggregation.data.arithmetic import SYMBOLS, Chain, draw_chains, write_solution
from balanced_aggregation.data.prepare import prepare_problems, prepare_statements, report_contamination
from balanced_aggregation.data.reading import read_source
from balanced_aggregation.data.sources import SOURCES
from balanced_aggregation.errors import UserError
from balanced_aggregation.files import read_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.models import character_tokenizer
from balanced_aggregation.provenance import training_settings
from balanced_aggregation.rewards import check_arithmetic


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


def local(kind, path, **values):
    return SourceData(kind=kind, path=str(path), **values)


def test_every_source_says_where_it_comes_from():
    for kind, source in SOURCES.items():
        assert len(source.revision) == 40, kind
        assert source.licence and source.citation and source.forms and source.files
        assert all(digest is None or len(digest) == 64 for digest in source.files.values())
    assert set(SOURCES) == set(SourceData.model_fields["kind"].annotation.__args__)


def test_the_six_benchmarks_in_the_forms_of_their_copies(tmp_path):
    golds = {}
    for benchmark in miniatures.write_benchmarks(tmp_path):
        problems, origin = read_source(SourceData(**benchmark))
        golds[benchmark["kind"]] = problems["gold"].tolist()
        assert origin["in"] == benchmark["rows"] == len(problems)
        assert problems["id"].is_unique and problems["problem"].str.len().gt(0).all()
        if benchmark["kind"] == "olympiadbench":
            assert problems["tolerance"].fillna(0).tolist() == [0, 0, 0, 0.1]
        else:
            assert problems["tolerance"].isna().all()
    code = [json.loads(gold) for gold in golds.pop("livecodebench")]
    assert golds == {
        "math-500": ["1", "2", "3"],
        "aime-2024": ["025", "204", "7"],
        "aime-2025": ["70", "71", "72"],
        "olympiadbench": ["$2$", "$1,3$", "$x^2$, $-x$", "4.2"],
        "minerva-math": ["4.5e33", r"\frac{1}{2} m v^2", "-7"],
    }
    assert [len(gold["tests"]) for gold in code] == [2, 2]  # the public tests, then the private ones
    assert [gold["function"] for gold in code] == [None, "add"]
    assert code[0]["tests"][1] == {"input": "5 6\n", "output": "11\n", "testtype": "stdin"}


def test_livecodebench_in_its_other_forms(tmp_path):
    plain, _ = read_source(local("livecodebench", miniatures.livecodebench(tmp_path / "p", "plain"), rows=2))
    assert len(json.loads(plain["gold"][0])["tests"]) == 2
    assert "standard input" in plain["problem"][0] and "def add(self" in plain["problem"][1]
    public, _ = read_source(local("livecodebench", miniatures.livecodebench_public(tmp_path / "x"), rows=1))
    assert json.loads(public["gold"][0]) == {"tests": [miniatures.CODE_TESTS], "function": None}
    message = r"livecodebench: rows of .* private tests cannot be decoded: tests hold builtins.print"
    with pytest.raises(UserError, match=message):
        read_source(local("livecodebench", miniatures.livecodebench(tmp_path / "e", "evil"), rows=2))


def test_what_is_missing_in_a_parquet_file_is_missing(tmp_path):
    row = {
        "question_id": "x",
        "question_content": "Add.",
        "starter_code": None,
        "public_tests": [miniatures.CODE_TESTS],
    }
    pd.DataFrame([row, row | {"question_id": "y", "starter_code": "def f():"}]).to_parquet(tmp_path / "l.parquet")
    problems, origin = read_source(local("livecodebench", tmp_path / "l.parquet", rows=2))
    assert "nan" not in problems["problem"][0] and "standard input" in problems["problem"][0]
    assert json.loads(problems["gold"][0])["function"] is None
    assert origin["note"].startswith("public tests only")
    rows = [json.loads(line) for line in miniatures.livecodebench(tmp_path / "h").read_text().splitlines()]
    pd.DataFrame(rows).assign(private_test_cases=None).to_parquet(tmp_path / "h.parquet")
    with pytest.raises(UserError, match=r"rows of .* a problem without private tests"):
        read_source(local("livecodebench", tmp_path / "h.parquet", rows=2))


def test_a_program_whose_tests_cannot_be_read_is_found_before_anything_is_generated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = {"question_id": "x", "question_content": "Add.", "starter_code": ""}
    tests = [miniatures.FUNCTIONAL_TEST | {"output": "no JSON"}]
    path = miniatures.write_lines(tmp_path / "l.jsonl", [row | {"public_tests": tests, "function": "add"}])
    test = study(train={"kind": "arithmetic"}, benchmarks=[{"kind": "livecodebench", "path": str(path), "rows": 1}])
    with pytest.raises(UserError, match=r"livecodebench: gold .* of problem x: the verifier cannot match it"):
        prepare_statements(test, Layout(test), "livecodebench")


def test_ids_that_stand_twice_and_empty_statements_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"problem": "p", "answer": "1", "unique_id": "u"}, {"problem": "q", "answer": "1", "unique_id": "u"}]
    path = miniatures.write_lines(tmp_path / "m.jsonl", rows)
    test = study(train={"kind": "arithmetic"}, benchmarks=[{"kind": "math-500", "path": str(path), "rows": 2}])
    with pytest.raises(UserError, match=r"^math-500: two problems have the id 'u'$"):
        prepare_statements(test, Layout(test), "math-500")
    miniatures.write_lines(path, [rows[0], rows[1] | {"unique_id": "v", "problem": ""}])
    with pytest.raises(UserError, match=r"^math-500: problem 'v' has an empty problem$"):
        prepare_statements(test, Layout(test), "math-500")


def test_golds_keep_their_leading_zeros_and_dates_stay_text(tmp_path):
    rows = [{"id": "1", "problem": "2024-01-01", "answer": "007"}]
    problems, _ = read_source(local("aime-2024", miniatures.write_lines(tmp_path / "a.jsonl", rows), rows=1))
    assert problems[["problem", "gold"]].values.tolist() == [["2024-01-01", "007"]]


def test_files_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"math-500: path = 'nowhere.jsonl': no such file"):
        read_source(local("math-500", "nowhere.jsonl"))
    path = miniatures.math_500(tmp_path / "x.jsonl")
    with pytest.raises(UserError, match=r"dapo-math-17k: .* has no column 'extra_info'; it has problem, answer"):
        read_source(local("dapo-math-17k", path))
    with pytest.raises(UserError, match=r"math-500: .*x.jsonl has 3 rows, 500 are expected; .* say `rows: 3`"):
        read_source(local("math-500", path))
    with pytest.raises(UserError, match=r"has 3 rows, 4 are expected"):
        read_source(local("math-500", path, rows=4))
    with pytest.raises(UserError, match=r"olympiadbench: .* has 4 rows, 674 or 675 are expected"):
        read_source(local("olympiadbench", miniatures.olympiadbench(tmp_path / "o.jsonl")))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert len(read_source(local("math-500", path, rows=3, sha256=digest))[0]) == 3
    with pytest.raises(UserError, match=rf"x.jsonl has the SHA-256 {digest}, 0000"):
        read_source(local("math-500", path, rows=3, sha256="0" * 64))
    (tmp_path / "broken.parquet").write_text("no parquet")
    with pytest.raises(UserError, match=r"broken.parquet cannot be read"):
        read_source(local("math-500", tmp_path / "broken.parquet"))
    (tmp_path / "broken.jsonl").write_text("[1]\n")
    with pytest.raises(UserError, match=r"broken.jsonl cannot be read: a line is not a JSON object"):
        read_source(local("math-500", tmp_path / "broken.jsonl"))
    rows = [{"problem": "p", "answer": None, "unique_id": "u"}]
    with pytest.raises(UserError, match=r"rows of .* do not have the form of HuggingFaceH4/MATH-500: None where text"):
        read_source(local("math-500", miniatures.write_lines(tmp_path / "n.jsonl", rows), rows=1))
    prompt = [{"content": "What?", "role": "user"}]
    bare = {"prompt": [prompt], "reward_model": [{"ground_truth": "1"}], "extra_info": [{"index": "a"}]}
    pd.DataFrame(bare).to_parquet(tmp_path / "bare.parquet")
    with pytest.raises(UserError, match=r"a prompt without the instruction around it: 'What\?'"):
        read_source(local("dapo-math-17k", tmp_path / "bare.parquet", rows=1))


def test_the_hub_is_asked_for_the_pinned_revision_and_goes_through_the_same_checks(tmp_path, monkeypatch):
    import balanced_aggregation.data.reading as reading

    path, asked = miniatures.math_500(tmp_path / "test.jsonl", 500), []

    def download(repository, file, **options):
        asked.append((repository, file, options["revision"]))
        return str(path)

    monkeypatch.setattr(reading, "hf_hub_download", download)
    with pytest.raises(UserError, match=r"has the SHA-256 .*, 35dc4108"):
        read_source(SourceData(kind="math-500"))
    assert asked == [("HuggingFaceH4/MATH-500", "test.jsonl", SOURCES["math-500"].revision)]
    monkeypatch.setitem(SOURCES["math-500"].files, "test.jsonl", hashlib.sha256(path.read_bytes()).hexdigest())
    problems, origin = read_source(SourceData(kind="math-500"))
    assert len(problems) == 500 and origin["revision"] == SOURCES["math-500"].revision

    def unreachable(*arguments, **options):
        raise ConnectionError

    monkeypatch.setattr(reading, "hf_hub_download", unreachable)
    with pytest.raises(UserError, match=r"cannot be fetched from the hub \(ConnectionError\); give a local copy"):
        read_source(SourceData(kind="aime-2025"))


def study(model=None, **data):
    return Study.model_validate(
        yaml.safe_load(f"""
        study: test
        rules: [token]
        seeds: [0]
        model: {json.dumps({"kind": "pretrained", "path": "nowhere"} | (model or {}))}
        data: {json.dumps(data)}
        training: {{steps: 1, prompts_per_step: 1}}
        """)
    )


@pytest.fixture
def chat_tokenizer():
    tokenizer = character_tokenizer("".join(map(chr, range(32, 127))) + "\n")
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
        "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    )
    return tokenizer


def test_training_statements_are_unwrapped_and_what_cannot_be_learned_from_is_dropped_and_counted(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    rows = [
        ("a", "What is 1+1?", "2"),
        ("b", "What is 2+2?", "4"),
        ("a", "What is 1+1?", "2"),
        ("c", "Odd?", "1"),
        ("d", "Odd?", "3"),
        ("e", "What cannot be read?", r"\frac{"),
    ]
    path = miniatures.dapo(tmp_path / "dapo.parquet", rows)
    test = study(
        train={"kind": "dapo-math-17k", "path": str(path), "rows": 6},
        benchmarks=[{"kind": "arithmetic", "problems": 9}],
    )
    manifest = prepare_statements(test, Layout(test), "train")
    statements = read_statements(Layout(test).statements("train"))
    assert statements[["id", "problem", "gold", "verifier"]].values.tolist() == [
        ["a", "What is 1+1?", "2", "math"],
        ["b", "What is 2+2?", "4", "math"],
    ]
    counts = {key: value for key, value in manifest.items() if isinstance(value, int)}
    assert counts == {
        "in": 6, "dropped_conflicting_golds": 2, "dropped_duplicates": 1, "dropped_unmatchable_gold": 1, "out": 2,
    }  # fmt: skip
    assert manifest["files_sha256"] == [hashlib.sha256(path.read_bytes()).hexdigest()]
    assert manifest["licence"] == "Apache-2.0" and "2503.14476" in manifest["citation"]
    assert read_json(Layout(test).statements_manifest("train")) == manifest
    assert str(tmp_path) not in json.dumps(manifest)
    assert prepare_statements(test, Layout(test), "train") == manifest


def test_a_benchmark_is_whole_or_refused(tmp_path, monkeypatch, chat_tokenizer):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"problem": "p", "answer": "1", "unique_id": "u"},
        {"problem": "q" * 99, "answer": r"\frac{", "unique_id": "v"},
    ]
    path = miniatures.write_lines(tmp_path / "m.jsonl", rows)
    test = study(
        train={"kind": "arithmetic"}, benchmarks=[{"kind": "math-500", "path": str(path), "rows": 2}],
        max_prompt_tokens=120,
    )  # fmt: skip
    with pytest.raises(UserError, match=r"math-500: gold '\\\\frac\{' of problem v: the verifier cannot match it"):
        prepare_statements(test, Layout(test), "math-500")
    miniatures.write_lines(path, [rows[0], rows[1] | {"answer": "2"}])
    prepare_statements(test, Layout(test), "math-500")
    message = r"math-500: 1 of 2 prompts are longer than data.max_prompt_tokens = 120; the longest has \d+ tokens"
    with pytest.raises(UserError, match=message):
        prepare_problems(test, Layout(test), chat_tokenizer, "math-500")


def test_prepared_problems(tmp_path, monkeypatch, chat_tokenizer):
    monkeypatch.chdir(tmp_path)
    rows = [(f"i{i}", f"What is {i}+1?", str(i + 1)) for i in range(20)] + [("long", "x" * 500, "7")]
    train = {"path": str(miniatures.dapo(tmp_path / "d.parquet", rows)), "rows": 21, "limit": 8}
    benchmark = {"path": str(miniatures.math_500(tmp_path / "m.jsonl")), "rows": 3, "prompt": "Q: {problem}"}
    test = study(
        train={"kind": "dapo-math-17k", **train},
        benchmarks=[{"kind": "math-500", **benchmark}, {"kind": "arithmetic", "problems": 5}],
        max_prompt_tokens=200,
    )
    layout = Layout(test)
    for name in ("train", "math-500", "arithmetic"):
        prepare_statements(test, layout, name)
    manifest = prepare_problems(test, layout, chat_tokenizer, "train")
    assert manifest | {"sha256": ""} == {
        "kind": "dapo-math-17k", "in": 21, "dropped_too_long": 1, "dropped_by_limit": 12, "out": 8, "sha256": "",
    }  # fmt: skip
    assert read_json(layout.manifest("train")) == manifest
    problems = read_problems(layout.train_problems)
    assert problems["verifier"].unique().tolist() == ["math"]
    assert problems["problem"].str.fullmatch(r"What is \d+\+1\?").all()
    assert (
        problems["prompt"].str.fullmatch(r"<user>What is \d+\+1\?\n\nPlease reason .* \\boxed\{\}\.<assistant>").all()
    )
    prepare_problems(test, layout, chat_tokenizer, "math-500")
    benchmark = read_problems(layout.benchmark("math-500"))
    assert benchmark["prompt"].tolist() == [f"<user>Q: What is ${i}+1$?<assistant>" for i in range(3)]
    assert benchmark["gold"].tolist() == ["1", "2", "3"]
    assert prepare_problems(test, layout, chat_tokenizer, "train") == manifest
    assert prepare_problems(test, layout, chat_tokenizer, "arithmetic")["out"] == 5
    with pytest.raises(UserError, match="--name nothing: not a dataset of study 'test'; allowed: train, math-500, ar"):
        prepare_problems(test, layout, chat_tokenizer, "nothing")


INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."


@pytest.mark.parametrize(
    ("model", "prompt"),
    [
        ({}, f"<user>P{{}}%\n\n{INSTRUCTION}<assistant>"),
        ({"chat": False}, f"P{{}}%\n\n{INSTRUCTION}"),
        ({"family": "qwen2.5-math"}, f"<system>{INSTRUCTION}<user>P{{}}%<assistant>"),
        ({"family": "qwen2.5-math", "chat": False}, f"P{{}}%\n\n{INSTRUCTION}"),
        ({"family": "qwen3"}, f"<user>P{{}}%\n{INSTRUCTION}<assistant>"),
        ({"family": "qwen3", "thinking": True}, f"<user>P{{}}%\n{INSTRUCTION}<assistant>"),
        ({"family": "qwen3", "thinking": False}, f"<user>P{{}}%\n{INSTRUCTION}<assistant><think></think>"),
    ],
)
def test_each_family_is_asked_in_its_way(tmp_path, monkeypatch, chat_tokenizer, model, prompt):
    monkeypatch.chdir(tmp_path)
    rows = [{"problem": "P{}%", "answer": "1", "unique_id": "u"}]
    path = miniatures.write_lines(tmp_path / "m.jsonl", rows)
    test = study(model, train={"kind": "arithmetic"}, benchmarks=[{"kind": "math-500", "path": str(path), "rows": 1}])
    prepare_statements(test, Layout(test), "math-500")
    prepare_problems(test, Layout(test), chat_tokenizer, "math-500")
    assert read_problems(Layout(test).benchmark("math-500"))["prompt"].tolist() == [prompt]


def test_programs_are_asked_for_as_programs(tmp_path, monkeypatch, chat_tokenizer):
    monkeypatch.chdir(tmp_path)
    path = miniatures.livecodebench(tmp_path / "l.jsonl")
    test = study(
        {"family": "qwen2.5-math"}, train={"kind": "arithmetic"},
        benchmarks=[{"kind": "livecodebench", "path": str(path), "rows": 2}],
    )  # fmt: skip
    prepare_statements(test, Layout(test), "livecodebench")
    prepare_problems(test, Layout(test), chat_tokenizer, "livecodebench")
    problems = read_problems(Layout(test).benchmark("livecodebench"))
    assert problems["verifier"].tolist() == ["code", "code"]
    assert problems["prompt"].str.contains("```python").all() and not problems["prompt"].str.contains("boxed").any()


def test_thinking_is_a_switch_of_qwen3_alone():
    with pytest.raises(ValueError, match="only family = 'qwen3'"):
        study({"thinking": True}, train={"kind": "arithmetic"}, benchmarks=[{"kind": "math-500"}])


def test_sets_of_arithmetic_problems_are_disjoint_in_whatever_order_they_are_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {"kind": "arithmetic", "problems": 400, "terms": [3, 3]}
    test = study(train=values, benchmarks=[values | {"name": n, "problems": 100} for n in ("a", "b")])
    layout = Layout(test)
    for name in ("b", "train", "a"):
        prepare_statements(test, layout, name)
    frames = [read_statements(layout.statements(name)) for name in ("train", "a", "b")]
    assert pd.concat(frames)["problem"].nunique() == 600


def test_a_further_benchmark_or_another_place_of_a_file_is_no_other_training():
    train = {"kind": "dapo-math-17k", "path": "here.parquet", "limit": 8}
    one = study(train=train, benchmarks=[{"kind": "math-500"}])
    two = study(train=train | {"path": "there.parquet"}, benchmarks=[{"kind": "math-500"}, {"kind": "arithmetic"}])
    assert training_settings(one, "token") == training_settings(two, "token")
    sums = {"kind": "arithmetic", "name": "sums"}
    alone, together = (
        study(train={"kind": "arithmetic"}, benchmarks=b) for b in ([sums], [sums, sums | {"name": "m"}])
    )
    assert training_settings(alone, "token") == training_settings(together, "token")
    other = study(train=train | {"limit": 9}, benchmarks=[{"kind": "math-500"}])
    assert training_settings(one, "token") != training_settings(other, "token")
    # But where problems of benchmarks are taken out of the training set, it is another one.
    removing = study(train=train, benchmarks=[{"kind": "math-500"}], contamination={"remove": "exact"})
    further = study(
        train=train, benchmarks=[{"kind": "math-500"}, {"kind": "aime-2024"}], contamination={"remove": "exact"}
    )
    assert training_settings(one, "token") != training_settings(removing, "token")
    assert training_settings(removing, "token") != training_settings(further, "token")


def test_a_file_of_problems_is_checked(tmp_path):
    with pytest.raises(UserError, match="no file of problems at"):
        read_problems(tmp_path / "train.parquet")
    row = {"id": ["a"], "problem": ["p"], "prompt": ["p"], "gold": [""], "tolerance": [0.1], "verifier": ["math"]}
    pd.DataFrame(row).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(UserError, match=r"t.parquet: not a file of problems"):
        read_problems(tmp_path / "t.parquet")


def test_problems_of_benchmarks_are_found_and_taken_out(tmp_path, monkeypatch, chat_tokenizer):
    monkeypatch.chdir(tmp_path)
    long = "Let one two three four five six seven eight nine ten be numbers. What is {}?"
    rows = [
        ("same", r"What is  $1 + 1$ ?", "2"),
        ("near", long.format("their sum"), "55"),
        ("other", "An unrelated problem with quite different words in it, and more than eight.", "1"),
    ]
    dapo = {"kind": "dapo-math-17k", "path": str(miniatures.dapo(tmp_path / "d.parquet", rows)), "rows": 3}
    questions = [r"What is $\displaystyle 1+1$?", long.format("the product"), "Short?"]
    golds = [{"problem": q, "answer": "2", "unique_id": f"u{i}"} for i, q in enumerate(questions)]
    math = {"kind": "math-500", "path": str(miniatures.write_lines(tmp_path / "m.jsonl", golds)), "rows": 3}
    kept = {}
    for remove in ("none", "exact", "overlapping"):
        test = study(train=dapo, benchmarks=[math], contamination={"remove": remove})
        layout = Layout(test)
        for name in ("train", "math-500"):
            prepare_statements(test, layout, name)
        table = report_contamination(test, layout)
        counts = {"exact": 1, "overlapping": 2, "train, exact": 1, "train, overlapping": 2}
        assert table.to_dict("records") == [{"benchmark": "math-500", "problems": 3, **counts}]
        manifest = prepare_problems(test, layout, chat_tokenizer, "train")
        kept[remove] = read_problems(layout.train_problems)["id"].tolist()
        assert manifest.get("dropped_contaminated", 0) == 3 - len(kept[remove])
    assert kept == {"none": ["same", "near", "other"], "exact": ["near", "other"], "overlapping": ["other"]}
    found = pd.read_parquet(layout.contamination)
    assert found[["benchmark_id", "train_id", "exact"]].values.tolist() == [["u0", "same", True], ["u1", "near", False]]
    # The benchmark's second problem has 17 words, so 10 8-grams; the first 15 words, 8 8-grams, are shared.
    assert found["overlap"].tolist() == pytest.approx([1.0, 8 / 10])
    assert "at least 50% of the benchmark problem's 8-grams" in layout.contamination_table.read_text()
