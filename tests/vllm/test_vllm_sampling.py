"""What the engine draws, and how it reports it. Its model is that of seed 0: it stays that."""

import numpy as np
import pytest
import torch
from random_models import END, SETTINGS, create, engine_log_probs, process_state, trainer_log_probs, write_model

from balanced_aggregation.config import TinyModel
from balanced_aggregation.errors import UserError
from balanced_aggregation.models import create_tiny_model, save_model
from balanced_aggregation.rollout import Sampling
from balanced_aggregation.rollout.transformers_engine import TransformersEngine
from balanced_aggregation.rollout.vllm_engine import VllmEngine

PROMPTS = [[5, 6, 7], [8], list(range(2, 90)), [10, 11]]
ENDS = (1, 4)  # not those that the model's folder names
FEW, MANY = {"max_sequences": 3, "ends": ENDS}, {"max_sequences": 63, "ends": ENDS}


def seeds(samples, first=0, prompts=4):
    return [[first + 2**62 + 1000 * prompt + k for k in range(samples)] for prompt in range(prompts)]


def token_ids(responses):
    return [response.token_ids for response in responses]


def test_samples_depend_on_the_seed_and_not_on_what_runs_beside(engine_of):
    sampling = Sampling(temperature=1.0, max_new_tokens=30)
    few, many = engine_of(**FEW), engine_of(**MANY)
    reference = many.generate(PROMPTS, seeds(5), sampling)
    assert len({tuple(ids) for ids in token_ids(reference)}) > 15
    assert {response.truncated for response in reference} == {True, False}
    assert token_ids(many.generate(PROMPTS, seeds(5), sampling)) == token_ids(reference)
    assert token_ids(few.generate(PROMPTS, seeds(5), sampling)) == token_ids(reference)
    alone = [few.generate([prompt], [own], sampling) for prompt, own in zip(PROMPTS, seeds(5), strict=True)]
    assert [ids for responses in alone for ids in token_ids(responses)] == token_ids(reference)
    other = many.generate(PROMPTS, seeds(5, first=7), sampling)
    assert sum(a != b for a, b in zip(token_ids(other), token_ids(reference), strict=True)) > 15


def test_sampled_frequencies_are_the_probabilities(engine_of):
    model, samples = create("qwen3", tied=False, seed=0), 4000
    responses = engine_of(**MANY).generate([[8]], seeds(samples, prompts=1), Sampling(1.0, max_new_tokens=1))
    with torch.no_grad():
        expected = model(torch.tensor([[8]])).logits[0, -1].softmax(-1).double().numpy()
    found = np.bincount([response.token_ids[0] for response in responses], minlength=len(expected)) / samples
    errors = np.sqrt(expected * (1 - expected) / samples)
    assert np.all(np.abs(found - expected) < 5 * errors + 1 / samples)


def test_greedy_is_that_of_the_other_engine(engine_of):
    model, sampling = create("qwen3", tied=False, seed=0), Sampling(temperature=0, max_new_tokens=40)
    ours = engine_of(**MANY).generate(PROMPTS, seeds(1), sampling)
    theirs = TransformersEngine(model, ENDS, 0, 64).generate(PROMPTS, seeds(1), sampling)
    assert token_ids(ours) == token_ids(theirs)
    assert [response.truncated for response in ours] == [response.truncated for response in theirs]
    torch.testing.assert_close(engine_log_probs(ours), engine_log_probs(theirs), atol=1e-4, rtol=0)


def test_a_response_ends_with_one_of_the_end_tokens_or_is_truncated(engine_of):
    responses = engine_of(**MANY).generate(PROMPTS, seeds(40), Sampling(1.0, max_new_tokens=25))
    ended = [response for response in responses if not response.truncated]
    assert {response.token_ids[-1] for response in ended} == set(ENDS)
    for response in responses:
        assert not set(response.token_ids[:-1]) & set(ENDS)
        assert response.truncated == (response.token_ids[-1] not in ENDS)
        assert len(response.token_ids) == len(response.log_probs) <= 25
        assert not response.truncated or len(response.token_ids) == 25
    inside = {token for response in responses for token in response.token_ids[:-1]}
    assert {9, 17} <= inside  # what the folder's generation_config.json calls ends
    longest = engine_of(**MANY).generate([PROMPTS[2]], [[1]], Sampling(0, max_new_tokens=200 - 88))[0]
    assert not longest.truncated or len(longest.token_ids) == 112
    with pytest.raises(ValueError, match="up to 201 tokens, in an engine for 200"):
        engine_of(**MANY).generate([PROMPTS[2]], [[1]], Sampling(0, max_new_tokens=201 - 88))


def test_each_response_is_reported_once_and_as_soon_as_it_ends(engine_of):
    reported = []
    responses = engine_of(**MANY).generate(
        PROMPTS, seeds(8), Sampling(1.0, 30), lambda place, response: reported.append((place, response))
    )
    assert sorted(place for place, _ in reported) == list(range(32))
    assert all(responses[place] is response for place, response in reported)
    lengths = [len(response.token_ids) for _, response in reported]
    assert lengths == sorted(lengths) and len(set(lengths)) > 5


def test_what_the_receiver_of_responses_raises_leaves_nothing_behind(engine_of):
    engine, sampling = engine_of(**FEW), Sampling(1.0, 30)

    def refuse(place, response):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        engine.generate(PROMPTS, seeds(5), sampling, refuse)
    reported = []
    responses = engine.generate(PROMPTS, seeds(5), sampling, lambda place, _: reported.append(place))
    assert sorted(reported) == list(range(20))
    assert token_ids(responses) == token_ids(engine_of(**MANY).generate(PROMPTS, seeds(5), sampling))


def test_the_global_generators_are_left_alone(engine_of):
    engine = engine_of()  # making it has been checked, too
    before = process_state()
    engine.generate(PROMPTS, seeds(2), Sampling(1.0, 5))
    engine.update_weights(create("qwen3", tied=False, seed=0).named_parameters())
    assert process_state() == before


def test_top_p_keeps_the_nucleus_and_gives_no_log_probs(engine_of):
    model, samples = create("qwen3", tied=False, seed=0), 1000
    sampling = Sampling(1.0, max_new_tokens=1, top_p=0.5)
    responses = engine_of(**MANY).generate([[8]], seeds(samples, prompts=1), sampling)
    with torch.no_grad():
        probs, order = model(torch.tensor([[8]])).logits[0, -1].softmax(-1).sort(descending=True)
    nucleus = set(order[probs.cumsum(0) - probs < 0.5].tolist())
    drawn = {response.token_ids[0] for response in responses}
    assert drawn <= nucleus and len(drawn) > 0.7 * len(nucleus)
    assert all(response.log_probs == [] for response in responses)


def test_a_short_cache_makes_it_slower_and_changes_nothing(engine_of):
    """Blocks for one long response and little more: vLLM throws others out and computes them again."""
    sampling = Sampling(1.0, max_new_tokens=100)
    block = 32 * 2 * 2 * 2 * 32 * 4  # tokens, layers, keys and values, heads, their size, bytes
    short = engine_of(max_sequences=16, ends=ENDS, cpu_cache_gib=14 * block / 2**30)
    ours = short.generate(PROMPTS, seeds(4), sampling)
    theirs = engine_of(**MANY).generate(PROMPTS, seeds(4), sampling)
    assert token_ids(ours) == token_ids(theirs)
    torch.testing.assert_close(engine_log_probs(ours), engine_log_probs(theirs), atol=1e-4, rtol=0)
    model = create("qwen3", tied=False, seed=0)
    assert float((trainer_log_probs(model, PROMPTS, seeds(4), ours) - engine_log_probs(ours)).abs().max()) < 1e-4


def test_models_that_it_cannot_run_are_the_users_mistake(tmp_path, tokenizer, engine_of):
    def make(folder, max_length=100):
        return VllmEngine(folder, SETTINGS, end_token_ids=[END], max_sequences=4, max_length=max_length)

    save_model(create_tiny_model(TinyModel(hidden_size=96, heads=4), tokenizer, 0), tokenizer, tmp_path / "odd")
    with pytest.raises(UserError, match=r"odd: attention heads of size 24; vLLM on a CPU has 32, 64, "):
        make(tmp_path / "odd")
    (tmp_path / "short").mkdir()
    folder = write_model(tmp_path / "short", create("qwen3", tied=False, seed=0))
    with pytest.raises(UserError, match=r"short: vLLM cannot run this model with rollout = .*257.*256"):
        make(folder, max_length=257)
    with pytest.raises(UserError, match=r"rollout.tensor_parallel = 2: must divide the number of processes, 1"):
        VllmEngine(
            folder, SETTINGS.model_copy(update={"tensor_parallel": 2}), end_token_ids=[1], max_sequences=4, max_length=9
        )
    for temperature in (0.001, 2.5):
        with pytest.raises(UserError, match=f"temperature = {temperature}: vLLM samples at 0.01 to 2"):
            engine_of().generate(PROMPTS, seeds(1), Sampling(temperature, 3))
