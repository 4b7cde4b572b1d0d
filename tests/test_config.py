import copy
import json
from pathlib import Path

import pytest
import yaml

from balanced_aggregation.errors import UserError
from balanced_aggregation.rule_loading import bind_rule, load_rule, rule_file
from balanced_aggregation.study_file import load_studies, load_study, parse_study
from balanced_aggregation.study_schema import json_schema

ROOT = Path(__file__).parent.parent
DEFAULT = yaml.safe_load((ROOT / "config.yaml").read_text())


UNUSED = {"share": 0, "error_rate": 0}


def changed(path, value):
    study = copy.deepcopy(DEFAULT)
    section = study
    *parents, last = path.split("/")
    for key in parents:
        section = section[int(key) if key.isdigit() else key]
    section[last] = value
    return study


@pytest.mark.parametrize("file", ["config.yaml", *(p.relative_to(ROOT) for p in ROOT.glob("studies/*.yaml"))], ids=str)
def test_every_study_in_the_repository_is_valid(file, monkeypatch):
    monkeypatch.chdir(ROOT)
    for study in load_studies(file):
        assert {rule.name for rule in study.rules} >= {"token", "sequence", "balanced"}
        assert study.evaluated_steps[-1] == study.training.steps


def test_the_schema_is_the_one_in_the_repository():
    stored = (ROOT / "workflow" / "schemas" / "study.schema.json").read_text()
    assert stored == json_schema(), "run: balagg schema workflow/schemas/study.schema.json"
    for part in ("Study", "StudyWithVariants", "PartialTraining"):
        assert json.loads(stored)["$defs"][part]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("trainig", 3, "trainig = 3: unknown key; allowed: study, description, rules, seeds,"),
        ("training/lr", 1, "training.lr = 1: unknown key; allowed: steps, prompts_per_step,"),
        ("data/train/foo", 1, "data.train.foo = 1: unknown key; allowed: kind, name, problems, terms, largest"),
        ("data/benchmarks/0/foo", 1, "data.benchmarks[0].foo = 1: unknown key; allowed: kind, name,"),
        ("model/layer", 2, "model.layer = 2: unknown key; allowed: kind, hidden_size,"),
        ("model", {"kind": "huge"}, "model = {'kind': 'huge'}: input tag 'huge'"),
        ("rules", ["tokn"], "rules[0] = 'tokn': unknown rule; allowed: balanced, constant, length_power, sequence,"),
        ("rules", [], "rules = []: list should have at least 1 item"),
        ("rules", ["token", "token"], "rules = ['token', 'token']: name 'token' appears twice"),
        ("rules", ["nowhere:rule"], "rules[0] = 'nowhere:rule': no module 'nowhere'"),
        ("rules", ["nowhere.py:rule"], "rules[0] = 'nowhere.py:rule': no file nowhere.py"),
        ("rules", ["math:nothing"], "rules[0] = 'math:nothing': math has no function 'nothing'"),
        ("rules", ["math:floor"], "rules[0] = 'math:floor': fails on a small batch: TypeError"),
        ("rules", [{"rule": "constant", "parameters": {"l": 3}}], "parameter 'l': not one of the rule's; allowed: max"),
        ("rules", [{"rule": "token", "name": "base"}], "'base' is the name of the initial model"),
        ("seeds", [], "seeds = []: list should have at least 1 item"),
        ("seeds", [1, 1], "seeds = [1, 1]: seed 1 appears twice"),
        ("seeds", [-1], "seeds[0] = -1: input should be greater than or equal to 0"),
        ("training/group_size", 1, "training.group_size = 1: input should be greater than or equal to 2"),
        ("training/steps", "many", "training.steps = 'many': input should be a valid integer"),
        ("training/learning_rate", float("nan"), "training.learning_rate = nan: input should be"),
        ("training/mini_batches", 3, "mini_batches = 3: must divide prompts_per_step = 16"),
        ("training/prompts_per_step", 5000, "prompts_per_step = 5000: at most the 4096 problems of data.train"),
        ("evaluation/pass_at", [9], "pass_at = 9: at most samples = 4"),
        ("data/train/terms", [4, 2], "data.train.terms = [4, 2]: must be [fewest, most] with 2 <= fewest <= most"),
        ("data/benchmarks", [], "data.benchmarks = []: list should have at least 1 item"),
        ("data/train", {"kind": "dapo-math-17k"}, "model.kind = 'tiny': reads arithmetic only"),
        ("evaluation/pass_at", [2, 2], "pass_at: 2 appears twice"),
        ("data/benchmarks/0/name", "train", "'train' is the name of the training set"),
        ("seeds", [2**63], "seeds[0] = 9223372036854775808: input should be less than"),
        ("data/kind", 1, "data.kind = 1: unknown key; allowed: seed, train, benchmarks, max_prompt_tokens"),
        ("rules", [{"rule": "sequence", "name": "token"}], "name = 'token': belongs to the registered rule"),
        ("warm_start/styles", {k: UNUSED for k in ("terse", "worked", "long_winded")}, "at least one style must have"),
        ("model", {"kind": "tiny", "heads": 5}, "model = {'kind': 'tiny', 'heads': 5}: hidden_size 96 must be"),
        ("training/top_p", 0.9, "training.top_p = 0.9: unknown key"),
        ("training/top_k", 20, "training.top_k = 20: unknown key"),
        ("rollout", {"engine": "vllm", "dtyp": 1}, "rollout.dtyp = 1: unknown key; allowed: engine, dtype, tensor_"),
        ("rollout", {"engine": "vllm", "sleep": "no way"}, "rollout.sleep = 'no way': input should be a valid boolean"),
        ("rollout", {"engine": "transformers", "dtype": 1}, "rollout.dtype = 1: unknown key; allowed: engine"),
        ("rollout", {"engine": "sglang"}, "rollout = {'engine': 'sglang'}: input tag 'sglang'"),
        ("study", "a/b", "study = 'a/b': string should match pattern"),
    ],
)  # fmt: skip
def test_a_wrong_study_is_one_line_that_names_key_value_and_what_is_allowed(path, value, message, tmp_path):
    with pytest.raises(UserError) as caught:
        parse_study(changed(path, value), "config.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("config.yaml: ")
    assert "\n" not in str(caught.value)


def test_gpus_sample_with_vllm():
    with pytest.raises(UserError, match=r"rollout\.engine = .transformers.: samples on a CPU; compute\.gpus_per_node"):
        parse_study({**changed("training/steps", 1), "compute": {"gpus_per_node": 1}}, "x")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("training/temperature", 2.5, "temperature = 2.5 of training: rollout.engine = 'vllm' has 0.01 to 2"),
        ("training/temperature", 0.001, "temperature = 0.001 of training: rollout.engine = 'vllm' has 0.01 to 2"),
        ("evaluation/temperature", 3, "temperature = 3.0 of benchmark short-chains: rollout.engine = 'vllm' has"),
        ("rollout/tensor_parallel", 2, "rollout.tensor_parallel = 2: must divide the 1 processes of a node"),
    ],
)
def test_what_vllm_would_quietly_change_is_refused(path, value, message):
    study = {**changed("training/steps", 1), "rollout": {"engine": "vllm"}}
    section, key = path.split("/")
    study[section] = {**study[section], key: value}
    with pytest.raises(UserError, match=r"^x: ") as caught:
        parse_study(study, "x")
    assert message in str(caught.value)
    if section != "rollout":
        parse_study({**study, "rollout": {"engine": "transformers"}}, "x")


def test_every_mistake_has_its_line():
    study = changed("training/group_size", 0)
    del study["model"]
    with pytest.raises(UserError) as caught:
        parse_study(study, "x.yaml")
    lines = str(caught.value).splitlines()
    assert [line.split(" ")[1] for line in lines] == ["model:", "training.group_size"]


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "No such file"), ("a: [", "is not YAML"), ("- 1", "must be a mapping"), ("", "must be a mapping")],
)
def test_a_file_that_is_no_study(tmp_path, text, message):
    path = tmp_path / "study.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=message):
        load_study(path)


def test_a_rule_of_the_users_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_rules.py").write_text(
        "def flat(lengths, advantages, group_ids, *, scale=1.0):\n    return lengths * 0 + scale\n"
        "def broken(lengths, advantages, group_ids):\n    return lengths[:2]\n"
    )
    for reference in ("my_rules.py:flat", "my_rules:flat"):
        study = parse_study(changed("rules", [{"rule": reference, "parameters": {"scale": 2}}, "token"]), "x")
        assert study.rules[0].name == "flat"
        assert rule_file(reference) == Path("my_rules.py")
        weights = bind_rule(reference, {"scale": 2}, max_length=9)(*_batch())
        assert weights.tolist() == [2, 2]
    with pytest.raises(UserError, match="must return weights of shape"):
        parse_study(changed("rules", ["my_rules.py:broken"]), "x")
    (tmp_path / "typo.py").write_text("def f(:\n")
    with pytest.raises(UserError, match=r"typo.py cannot be imported: SyntaxError"):
        parse_study(changed("rules", ["typo.py:f"]), "x")


def test_the_trainer_fills_in_the_longest_response_for_rules_that_ask_for_it():
    assert bind_rule("constant", {}, max_length=50)(*_batch()).tolist() == [1 / 100, 1 / 100]
    assert bind_rule("constant", {"max_length": 10}, max_length=50)(*_batch()).tolist() == [1 / 20, 1 / 20]
    assert bind_rule("token", {}, max_length=50)(*_batch()).tolist() == [1 / 5, 1 / 5]
    assert load_rule("balanced_aggregation.aggregation:token") is load_rule("token")
    assert rule_file("token") is None


def _batch():
    import torch

    return torch.tensor([2, 3]), torch.tensor([1.0, -1.0]), torch.tensor([0, 0])
