"""The engine that a study asks for, where vLLM is not installed."""

import json

import pytest

from balanced_aggregation.config import TransformersRollout, VllmRollout
from balanced_aggregation.errors import UserError
from balanced_aggregation.models import end_token_ids, load_model, save_model
from balanced_aggregation.rollout import Sampling
from balanced_aggregation.rollout.engines import create_engine, longest_request


@pytest.fixture
def folder(tmp_path, make_model, tokenizer):
    save_model(make_model(), tokenizer, tmp_path / "model")
    return tmp_path / "model"


def test_the_one_on_transformers_samples_from_the_given_model_or_from_the_folders(folder, make_model, tokenizer):
    other = make_model(seed=1)

    def greedy(model):
        engine = create_engine(TransformersRollout(), folder, tokenizer, max_sequences=4, max_length=9, model=model)
        assert model is None or engine.model is model
        return engine.generate([[5, 6]], [[0]], Sampling(temperature=0, max_new_tokens=7))[0].token_ids

    assert greedy(None) == greedy(make_model()) != greedy(other)


def test_vllm_that_is_not_installed_is_said_with_what_helps(folder, tokenizer):
    with pytest.raises(UserError, match=r"rollout.engine = 'vllm': vllm is not installed .* `make vllm`.*`make gpu`"):
        create_engine(VllmRollout(engine="vllm"), folder, tokenizer, max_sequences=4, max_length=9)


@pytest.mark.parametrize("settings", [TransformersRollout(), VllmRollout(engine="vllm")])
def test_lengths_beyond_the_models_positions_are_refused(folder, tokenizer, settings):
    with pytest.raises(UserError, match=r"max_new_tokens: .* can have 1025 tokens together; .* has 1024 positions"):
        create_engine(settings, folder, tokenizer, max_sequences=4, max_length=1025)


@pytest.mark.parametrize("declared", ["in a file", "in config.json", "as a list", "nowhere"])
def test_end_tokens_of_a_folder_are_those_of_the_model_in_it(folder, tokenizer, declared):
    file = folder / "generation_config.json"
    if declared == "as a list":
        file.write_text(json.dumps({"eos_token_id": [7, 3]}))
    elif declared != "in a file":
        file.unlink()
    if declared == "nowhere":
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": None}))
    ids = end_token_ids(folder, tokenizer)
    assert ids == end_token_ids(load_model(folder)[0], tokenizer)
    assert ids == ([1, 3, 7] if declared == "as a list" else [1])


def test_the_longest_request(tokenizer):
    assert longest_request(tokenizer, ["1+2=", "1+2+3="], 10) == 16
