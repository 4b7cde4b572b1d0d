"""After every kind of update the engine samples from exactly the trainer's weights."""

import math

import pytest
import torch
from random_models import ARCHITECTURES, create, engine_log_probs, trainer_log_probs

from balanced_aggregation.rollout import Sampling

# The long one fills whole blocks of the prefix cache, which an update must forget.
PROMPTS = [[5, 6, 7], [8], list(range(2, 90)), [10, 11]]
SEEDS = [[100 * prompt + k for k in range(4)] for prompt in range(len(PROMPTS))]
SAMPLING = Sampling(temperature=1.0, max_new_tokens=30)


def largest_difference(engine, model, sampling=SAMPLING):
    responses = engine.generate(PROMPTS, SEEDS, sampling)
    ours = trainer_log_probs(model, PROMPTS, SEEDS, responses, sampling.temperature)
    theirs = engine_log_probs(responses)
    assert len(ours) > 150
    return float((ours - theirs).abs().max())


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_log_probs_are_those_of_the_trainer_after_every_update(engine_of, architecture, tied):
    engine = engine_of(architecture, tied)
    models = [create(architecture, tied, seed) for seed in range(6)]
    assert largest_difference(engine, models[0]) < 1e-4
    assert largest_difference(engine, models[1]) > 0.5  # so a stale weight would show

    engine.update_weights(models[1].state_dict().items())  # of a tied model, too, it has the output layer
    assert largest_difference(engine, models[1]) < 1e-4
    engine.update_weights(models[2].named_parameters())  # it has not
    assert largest_difference(engine, models[2]) < 1e-4
    for model in models[3:]:
        engine.update_weights(model.named_parameters())
    assert largest_difference(engine, models[5]) < 1e-4

    # Every parameter counts: a change of one alone arrives.
    with torch.no_grad():
        for name, parameter in models[5].named_parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
            engine.update_weights(models[5].named_parameters())
            assert largest_difference(engine, models[5]) < 1e-4, name

    engine.update_weights(models[0].named_parameters())
    assert largest_difference(engine, models[0]) < 1e-4


def test_the_first_importance_ratio_is_one_at_any_temperature(engine_of):
    engine, model = engine_of(), create("qwen3", tied=False, seed=3)
    engine.update_weights(model.named_parameters())
    for temperature in (0.7, 1.5):
        sampling = Sampling(temperature, max_new_tokens=40)
        responses = engine.generate(PROMPTS, SEEDS, sampling)
        ratio = (trainer_log_probs(model, PROMPTS, SEEDS, responses, temperature) - engine_log_probs(responses)).exp()
        assert float((ratio - 1).abs().max()) < 1e-4
        untempered = trainer_log_probs(model, PROMPTS, SEEDS, responses, 1.0) - engine_log_probs(responses)
        assert float(untempered.abs().max()) > 0.1


def test_weights_arrive_in_the_engines_dtype(engine_of):
    engine, model = engine_of(dtype="bfloat16"), create("qwen3", tied=False, seed=4)
    engine.update_weights(model.named_parameters())
    responses = engine.generate(PROMPTS, SEEDS, SAMPLING)
    difference = trainer_log_probs(model, PROMPTS, SEEDS, responses) - engine_log_probs(responses)
    assert 1e-4 < float(difference.abs().mean()) < 0.1


@pytest.mark.parametrize("wrong", ["missing", "unknown"])
def test_an_update_that_is_not_the_whole_model_is_refused(engine_of, wrong):
    engine, model = engine_of("llama", tied=True), create("llama", tied=True, seed=5)
    weights = dict(model.named_parameters())
    if wrong == "missing":
        removed = weights.pop("model.layers.1.mlp.up_proj.weight")
    else:
        weights = {"lm_heads.weight": torch.zeros(3)} | weights
    taken = []
    with pytest.raises((ValueError, KeyError), match=r"model.layers.1.mlp.up_proj.weight|lm_heads"):
        engine.update_weights((taken.append(name) or name, tensor) for name, tensor in weights.items())
    assert taken == list(weights), "the other processes would wait for ever"
    if wrong == "missing":
        weights["model.layers.1.mlp.up_proj.weight"] = removed
    else:
        del weights["lm_heads.weight"]
    engine.update_weights(weights.items())
    assert largest_difference(engine, model) < 1e-4


def test_probabilities_that_are_not_numbers(engine_of):
    engine, model = engine_of("llama", tied=False), create("llama", tied=False, seed=6)
    broken = create("llama", tied=False, seed=6)
    with torch.no_grad():
        broken.get_output_embeddings().weight[3] = math.nan
    engine.update_weights(broken.named_parameters())
    with pytest.raises(FloatingPointError, match="not numbers"):
        engine.generate(PROMPTS, SEEDS, SAMPLING)
    engine.update_weights(model.named_parameters())
    assert largest_difference(engine, model) < 1e-4  # nothing is left over
