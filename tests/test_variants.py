"""Studies with variants: one file, several settings."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from balanced_aggregation.cli import app
from balanced_aggregation.errors import UserError
from balanced_aggregation.layout import Layout
from balanced_aggregation.study_file import load_studies, load_study, parse_studies
from balanced_aggregation.study_schema import json_schema
from balanced_aggregation.workflow import Plan

ROOT = Path(__file__).parent.parent
PAPER = ROOT / "studies" / "paper.yaml"
STUDY = """
study: s
rules: [token, balanced]
seeds: [0, 1]
model: {kind: tiny, layers: 2, heads: 2}
data:
  train: {kind: arithmetic, problems: 50}
  benchmarks: [{kind: arithmetic, name: a, problems: 5}]
training: {steps: 4, group_size: 4}
evaluation: {every: 2}
compute: {cpu_processes: 2}
threads: 3
variants:
  small: {model: {hidden_size: 32}, training: {group_size: 8}, seeds: [5]}
  real.1:
    model: {kind: pretrained, path: somewhere}
    data:
      train: {kind: dapo-math-17k}
      benchmarks: [{kind: arithmetic, name: b, problems: 7}, {kind: math-500}]
    rules: [sequence]
    compute: {cpu_processes: 1}
"""


def values(**changes):
    return yaml.safe_load(STUDY) | changes


def test_each_variant_is_the_common_part_with_its_changes(tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    small, real = load_studies(tmp_path / "study.yaml")
    assert [str(study.folder) for study in (small, real)] == ["results/s/small", "results/s/real.1"]
    # Mappings are merged, lists replaced.
    assert (small.model.layers, small.model.hidden_size) == (2, 32)
    assert (small.training.steps, small.training.group_size, small.seeds) == (4, 8, [5])
    assert (real.training.group_size, real.seeds, real.rules[0].name, len(real.rules)) == (4, [0, 1], "sequence", 1)
    assert [benchmark.name for benchmark in real.data.benchmarks] == ["b", "math-500"]
    # A section of another kind is replaced: nothing of the other kind is left in it.
    assert real.model.model_dump(exclude_defaults=True) == {"kind": "pretrained", "path": "somewhere"}
    assert real.data.train.limit is None


def test_the_values_that_were_read_are_left_alone():
    before = values()
    given = copy.deepcopy(before)
    parse_studies(given, "x")
    assert given == before


def test_a_study_without_variants_is_as_it_was():
    one = {key: value for key, value in values().items() if key != "variants"}
    (study,) = parse_studies(one, "x")
    assert study.variant is None and str(Layout(study).study_file) == "results/s/study.yaml"


def test_each_kind_of_rollout_replaces_the_other():
    rollout = {"engine": "vllm", "tensor_parallel": 1, "memory_share": 0.5}
    variants = {"a": {"rollout": {"sleep": False}}, "b": {"rollout": {"engine": "transformers"}}}
    small, other = parse_studies(values(rollout=rollout, variants=variants), "x")
    assert (small.rollout.memory_share, small.rollout.sleep, other.rollout.engine) == (0.5, False, "transformers")


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"variants": {}}, ["x: variants = {}: must be a mapping of at least one name"]),
        ({"variants": ["a"]}, ["x: variants = ['a']: must be a mapping"]),
        ({"variants": {"a/b": {}}}, ["x: variants: name 'a/b': string should match pattern"]),
        ({"variants": {1: {}}}, ["x: variants: name 1: input should be a valid string"]),
        ({"variants": {"a": None}}, ["x: variant a = None: must be a mapping of settings"]),
        ({"variants": {"a": {"study": "other"}}}, ["x: variant a: study = 'other': no variant has this key"]),
        ({"variant": "a"}, ["x: variant = 'a': a file with variants does not give it"]),
        (
            {"variants": {"a": {"training": {"stepz": 3}}, "b": {}}},
            ["x: variant a: training.stepz = 3: unknown key; allowed: steps, prompts_per_step,"],
        ),
        ({"variants": {"a": {"training": {"steps": 0}}}}, ["x: variant a: training.steps = 0: input should"]),
        ({"variants": {"a": {}, "b": {"model": {"kind": "pretrained"}}}}, ["x: variant b: model.path: missing"]),
        # A mistake of the common part is told once.
        ({"seeds": [], "variants": {"a": {}, "b": {}}}, ["x: seeds = []: list should have at least 1 item"]),
        (
            {"typo": 1, "variants": {"a": {"threads": 0}, "b": {}}},
            ["x: typo = 1: unknown key; allowed: study, ", "x: variant a: threads = 0: input should be greater"],
        ),
        (
            {
                "model": {"kind": "pretrained", "path": "p"},
                "data": {"train": {"kind": "polaris-53k"}, "benchmarks": [{"kind": "math-500"}]},
                "variants": {"a": {}, "b": {"evaluation": {"lighteval": True}}},
            },
            ["x: evaluation.lighteval: must be the same in all variants; it is False in a, True in b"],
        ),
    ],
)
def test_a_mistake_names_variant_and_key(changes, messages):
    with pytest.raises(UserError) as caught:
        parse_studies(values(**changes), "x")
    lines = str(caught.value).splitlines()
    assert len(lines) == len(messages)
    for line, message in zip(lines, messages, strict=True):
        assert line.startswith(message)


def test_commands_take_the_file_of_one_variant(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text(STUDY)
    with pytest.raises(UserError, match=r"has variants; give .*: results/s/small/study.yaml, results/s/real.1/study.y"):
        load_study("study.yaml")
    plan = Plan(values(), ["study.yaml"])
    plan.write_studies()
    for study in load_studies("study.yaml"):
        assert load_study(study.folder / "study.yaml") == study
    app.cli(args=["validate", "study.yaml"])
    assert capsys.readouterr().out.splitlines() == [
        "study.yaml, variant small: 2 rules (token, balanced) x 1 seeds = 2 trainings of 4 steps, evaluated at [2, 4]",
        "study.yaml, variant real.1: 1 rules (sequence) x 2 seeds = 2 trainings of 4 steps, evaluated at [2, 4]",
    ]


def test_the_workflow_asks_each_variant_for_what_is_its_own(tmp_path, monkeypatch):
    class Wildcards:
        def __init__(self, **named):
            self.__dict__.update(named)

    monkeypatch.chdir(tmp_path)
    plan = Plan(values(), ["x"])
    small, real = (Wildcards(study=f"s/{name}", benchmark="a", aggregation="token") for name in ("small", "real.1"))
    assert plan.of("training_threads")(small) == 6 and plan.of("training_threads")(real) == 3
    assert plan.launcher(small, None).startswith("balagg-torchrun ") and plan.launcher(real, None) == ""
    assert len(plan.of("evaluated")(small)) == 1 + 2 * 2 and len(plan.of("evaluated")(real)) == 2 * (1 + 2 * 2)
    assert plan.of("response_settings", "benchmark")(small) != ""
    with pytest.raises(UserError, match=r"study 's/real.1' has no benchmark 'a'"):
        plan.of("response_settings", "benchmark")(real)
    with pytest.raises(UserError, match="has no aggregation 'token'"):
        plan.of("training_settings", "aggregation")(real)
    assert plan.all_tracked == [Path("results/s/small/tracked.json"), Path("results/s/real.1/tracked.json")]
    assert plan.all_contamination == [
        Path(f"results/s/real.1/data/contamination.{end}") for end in ("parquet", "json", "md")
    ]


def test_the_schema_takes_variants_and_the_parts_of_them():
    validator = jsonschema.Draft202012Validator(json.loads(json_schema()))
    files = [ROOT / "config.yaml", *ROOT.glob("studies/*.yaml")]
    for study in [values(), *(yaml.safe_load(file.read_text()) for file in files)]:
        assert list(validator.iter_errors(study)) == []
    one = {key: value for key, value in values().items() if key != "variants"}
    wrong = [
        values(variants={"a": {"training": {"stepz": 1}}}),
        values(variants={"a": {"study": "b"}}),
        values(variants={"a/b": {}}),
        values(variants={}),
        values(typo=1),
        one | {"typo": 1},
        {key: value for key, value in one.items() if key != "training"},
        values(variants={"a": {"data": {"benchmarks": [{"name": "without-kind"}]}}}),
    ]
    for study in wrong:
        assert list(validator.iter_errors(study)), study


def test_the_papers_grid():
    """What Table 1 of the paper compares, and settings that its models can work with."""
    studies = load_studies(PAPER)
    assert {(study.model.path, study.data.train.kind) for study in studies} == {
        (model, data)
        for model in ("Qwen/Qwen2.5-Math-7B", "Qwen/Qwen3-1.7B")
        for data in ("dapo-math-17k", "polaris-53k")
    }
    six = ["math-500", "aime-2024", "aime-2025", "olympiadbench", "minerva-math", "livecodebench"]
    for study in studies:
        assert [rule.name for rule in study.rules] == ["token", "sequence", "balanced"] and len(study.seeds) == 3
        assert [benchmark.name for benchmark in study.data.benchmarks] == six
        longest = study.data.max_prompt_tokens + study.training.max_new_tokens
        assert longest <= (study.model.max_positions or 40960)
        assert study.training.micro_batch_tokens >= longest
    # Both training sets are used in the same way.
    for one, other in (studies[:2], studies[2:]):
        different = {name for name in type(one).model_fields if getattr(one, name) != getattr(other, name)}
        assert different == {"variant", "data"}
        assert one.data.model_copy(update={"train": None}) == other.data.model_copy(update={"train": None})


def test_every_value_of_the_papers_grid_has_its_source():
    sources = ("[BA]", "[DAPO]", "[POLARIS]", "[ours]")
    text = PAPER.read_text().splitlines()
    values = [line for line in text if ": " in line.partition("#")[0] and not line.startswith("#")]
    structural = ("kind: pretrained", "engine: vllm", "model: *", "training: *", "data: *", "- {kind: ")
    unmarked = [
        line
        for line in values
        if not any(source in line for source in sources)
        and not line.strip().startswith(structural)
        and not line.rstrip().endswith(("&model_qwen2_5", "&model_qwen3", "&training_qwen2_5", "&training_qwen3"))
    ]
    assert unmarked == []
