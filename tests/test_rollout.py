import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import DynamicLayer

from balanced_aggregation.models import create_tiny_model
from balanced_aggregation.rollout import Sampling
from balanced_aggregation.rollout.decoding import InPlaceLayer, keep_rows
from balanced_aggregation.rollout.transformers_engine import TransformersEngine, choose_tokens
from balanced_aggregation.training.batch import token_log_probs

PROMPTS = [[5, 6, 7], [8], [3, 3, 4, 9, 2], [10, 11]]
END = 1


def seeds(samples, first=0):
    """A seed for each response to each of the prompts."""
    return [[first + 1000 * prompt + k for k in range(samples)] for prompt in range(len(PROMPTS))]


def engine(model, batch_size=64, ends=(END,), pad=0):
    return TransformersEngine(model, ends, pad, batch_size)


def test_greedy_equals_generate_of_transformers(make_model):
    model = make_model(seed=3, dtype=torch.float64)
    responses = engine(model).generate(PROMPTS, seeds(1), Sampling(temperature=0, max_new_tokens=20))
    for prompt, response in zip(PROMPTS, responses, strict=True):
        output = model.generate(
            torch.tensor([prompt]), do_sample=False, max_new_tokens=20, eos_token_id=END, pad_token_id=0,
            attention_mask=torch.ones(1, len(prompt)),
        )  # fmt: skip
        assert response.token_ids == output[0, len(prompt) :].tolist()
        assert response.truncated == (response.token_ids[-1] != END)


@pytest.mark.parametrize("key_value_heads", [1, 2, 4])
def test_query_heads_that_share_keys(key_value_heads):
    """Greedy decoding with grouped-query attention, padding, and responses that end at different lengths."""
    torch.manual_seed(2)
    config = LlamaConfig(
        vocab_size=17, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=key_value_heads, initializer_range=0.5,
    )  # fmt: skip
    model = LlamaForCausalLM(config).double().eval()
    before = model.config._attn_implementation
    responses = engine(model, ends=(1, 5, 9)).generate(PROMPTS, seeds(1), Sampling(0, max_new_tokens=40))
    assert len({len(r.token_ids) for r in responses}) > 1
    for prompt, response in zip(PROMPTS, responses, strict=True):
        ids = torch.tensor([prompt + response.token_ids])
        with torch.no_grad():
            expected = torch.log_softmax(model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float(), -1).max(-1)
        assert response.token_ids == expected.indices.tolist()
        torch.testing.assert_close(torch.tensor(response.log_probs), expected.values)
    assert model.config._attn_implementation == before


@given(keep=st.lists(st.booleans(), min_size=1, max_size=30).filter(any))
def test_rows_that_are_kept_move_only_into_gaps(keep):
    order = keep_rows(torch.tensor(keep)).tolist()
    assert sorted(order) == [i for i, kept in enumerate(keep) if kept]
    assert all(order[i] == i for i in range(len(order)) if keep[i])


def test_the_cache_holds_what_it_was_given():
    """Against a cache that concatenates, through growth, expansion of the rows, and rows that leave."""
    layer, reference = InPlaceLayer(longest=20), DynamicLayer()
    generator = torch.Generator().manual_seed(0)
    for step, rows in enumerate([[0], [0, 0, 0, 0], None, None, [0, 3, 2], None, None, [2, 1], None, [1], None]):
        if rows is None:
            rows = range(len(reference.keys))
        elif step:
            layer.batch_select_indices(torch.tensor(rows))
            reference.batch_select_indices(torch.tensor(rows))
        new = torch.randn(2, len(rows), 2, 3 if step == 0 else 1, 4, generator=generator)
        found, expected = layer.update(*new), reference.update(*new)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert layer.get_seq_length() == reference.get_seq_length() <= 20


@pytest.mark.parametrize("pad", [0, END])
def test_samples_depend_on_the_seed_and_not_on_the_batch_size_or_the_padding(make_model, pad):
    model = make_model(dtype=torch.float64)
    sampling = Sampling(temperature=1.0, max_new_tokens=30)
    reference = engine(model, 64).generate(PROMPTS, seeds(3), sampling)
    assert len(reference) == 12
    assert len({tuple(r.token_ids) for r in reference}) > 9
    assert {r.truncated for r in reference} == {True, False}
    for batch_size in (1, 2, 5, 12):
        again = engine(model, batch_size, pad=pad).generate(PROMPTS, seeds(3), sampling)
        assert [r.token_ids for r in again] == [r.token_ids for r in reference]
    backwards = engine(model).generate(PROMPTS[::-1], seeds(3)[::-1], sampling)
    by_prompt = [backwards[i : i + 3] for i in range(9, -1, -3)]
    assert [r.token_ids for own in by_prompt for r in own] == [r.token_ids for r in reference]
    other = engine(model).generate(PROMPTS, seeds(3, first=7), sampling)
    assert [r.token_ids for r in other] != [r.token_ids for r in reference]


def test_a_response_ends_with_its_end_token_or_is_truncated(make_model):
    responses = engine(make_model()).generate(PROMPTS, seeds(50), Sampling(temperature=1.0, max_new_tokens=12))
    for response in responses:
        assert END not in response.token_ids[:-1]
        assert response.truncated == (response.token_ids[-1] != END)
        assert len(response.token_ids) == len(response.log_probs) <= 12
        assert not response.truncated or len(response.token_ids) == 12


def test_each_response_is_reported_once_and_as_soon_as_it_ends(make_model):
    reported = []
    responses = engine(make_model(), batch_size=7).generate(
        PROMPTS, seeds(5), Sampling(1.0, max_new_tokens=30), lambda place, response: reported.append((place, response))
    )
    assert sorted(place for place, _ in reported) == list(range(20))
    assert all(responses[place] is response for place, response in reported)
    first_batch = [len(response.token_ids) for place, response in reported if place < 7]
    assert first_batch == sorted(first_batch) and len(set(first_batch)) > 1


def test_several_end_tokens(make_model):
    responses = engine(make_model(), ends=(1, 4)).generate(PROMPTS, seeds(20), Sampling(1.0, max_new_tokens=40))
    assert {r.token_ids[-1] for r in responses if not r.truncated} == {1, 4}


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_are_those_of_the_trainer_at_the_same_temperature(make_model, temperature):
    model = make_model()
    responses = engine(model, batch_size=7).generate(PROMPTS, seeds(4), Sampling(temperature, max_new_tokens=25))
    with torch.no_grad():
        ours = token_log_probs(
            model,
            [torch.tensor(p) for p in PROMPTS for _ in range(4)],
            [torch.tensor(r.token_ids) for r in responses],
            temperature,
        )
    theirs = torch.tensor([value for r in responses for value in r.log_probs])
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_finished_responses_cost_nothing(make_model):
    """Rows that the model computes: the prompts once each, then only responses that go on."""
    model = make_model()
    rows = []
    forward = model.forward

    def counting(*args, **kwargs):
        rows.append(kwargs["input_ids"].shape[0])
        return forward(*args, **kwargs)

    model.forward = counting
    responses = engine(model).generate(PROMPTS, seeds(8), Sampling(temperature=1.0, max_new_tokens=40))
    assert rows[0] == len(PROMPTS)
    lengths = [len(r.token_ids) for r in responses]
    assert rows[1:] == [sum(length > step for length in lengths) for step in range(1, max(lengths))]
    assert min(lengths) < max(lengths)


def test_sampled_frequencies_are_the_probabilities():
    logits = torch.tensor([[0.0, 1.0, -1.0, 2.0, -torch.inf]])
    n = 40_000
    uniform = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    for temperature in (1.0, 0.5):
        tokens, log_probs = choose_tokens(logits.expand(n, -1), uniform, Sampling(temperature, 1))
        expected = torch.softmax(logits[0] / temperature, -1)
        torch.testing.assert_close(torch.bincount(tokens, minlength=5) / n, expected, atol=1e-4, rtol=0)
        torch.testing.assert_close(log_probs.exp(), expected[tokens])


def test_top_p_keeps_the_smallest_sufficient_set():
    logits = torch.tensor([[0.1, 0.5, 0.15, 0.25]]).log()
    uniform = torch.linspace(0, 1 - 1e-9, 1000, dtype=torch.float64)
    for top_p, kept in ((0.4, {1}), (0.49, {1}), (0.6, {1, 3}), (0.85, {1, 2, 3}), (1.0, {0, 1, 2, 3})):
        tokens, _ = choose_tokens(logits.expand(1000, -1), uniform, Sampling(1.0, 1, top_p=top_p))
        assert set(tokens.tolist()) == kept


@given(uniform=st.floats(0, 1, exclude_max=True), spread=st.floats(0, 80), seed=st.integers(0, 99))
def test_a_token_without_probability_is_never_drawn(uniform, spread, seed):
    logits = torch.randn(1, 9, generator=torch.Generator().manual_seed(seed)) * spread
    logits[0, ::2] = -torch.inf
    for point in (uniform, 0.0, 1 - 2**-53):
        token, _ = choose_tokens(logits, torch.tensor([point], dtype=torch.float64), Sampling(1.0, 1))
        assert token.item() % 2 == 1


def test_initial_weights_depend_on_their_seed_alone(tokenizer):
    from balanced_aggregation.config import TinyModel

    config = TinyModel(hidden_size=16, layers=1, heads=2, intermediate_size=16)
    torch.manual_seed(1)
    first = create_tiny_model(config, tokenizer, 5).state_dict()
    torch.manual_seed(2)
    again, other = (create_tiny_model(config, tokenizer, seed).state_dict() for seed in (5, 6))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])
