"""The trainer's gradient against an oracle that has no batches: for every rule, split, order, padding and length."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from balanced_aggregation.aggregation import RULES
from balanced_aggregation.config import Training
from balanced_aggregation.training.batch import Batch, micro_batches, share_out, token_log_probs
from balanced_aggregation.training.mismatch import engine_mismatch
from balanced_aggregation.training.policy import Policy
from balanced_aggregation.training.update import (
    accumulate_gradients,
    apply_update,
    create_optimizer,
    log_probs_by_response,
    zero_gradients,
)
from balanced_aggregation.training.world import World
from oracle import oracle_log_probs, oracle_loss, oracle_weights

VOCABULARY = 17


@st.composite
def rollouts(draw):
    """Prompts and responses of any tokens (padding and end included), uneven groups, masked responses."""
    n = draw(st.integers(1, 7))
    token = st.integers(0, VOCABULARY - 1)
    prompts = [draw(st.lists(token, min_size=1, max_size=5)) for _ in range(n)]
    responses = [draw(st.lists(token, min_size=1, max_size=9)) for _ in range(n)]
    masked = [draw(st.booleans()) and draw(st.booleans()) for _ in range(n)]
    advantages = [draw(st.sampled_from([-1.5, -0.2, 0.0, 0.4, 2.0])) for _ in range(n)]
    ids = [draw(st.integers(0, 2)) for _ in range(n)]
    lengths = [0 if hidden else len(r) for r, hidden in zip(responses, masked, strict=True)]
    return prompts, responses, lengths, advantages, ids


def gradient(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()]).clone()


@pytest.mark.parametrize("name", sorted(RULES))
@settings(max_examples=25)
@given(
    rollout=rollouts(),
    budget=st.integers(1, 60),
    kl=st.sampled_from([0.0, 0.3]),
    off_policy=st.booleans(),
    data=st.data(),
)
def test_equals_the_one_shot_oracle(name, make_model, rollout, budget, kl, off_policy, data):
    prompts, responses, lengths, advantages, ids = rollout
    model, reference, behaviour = (make_model(seed, torch.float64) for seed in (0, 1, 2))
    p, r = [torch.tensor(x) for x in prompts], [torch.tensor(x) for x in responses]
    settings_ = Training(
        steps=1, temperature=0.8, clip_low=0.1, clip_high=0.25, kl_coefficient=kl, micro_batch_tokens=budget
    )
    with torch.no_grad():
        old = [oracle_log_probs(behaviour, *pair, 0.8) for pair in zip(p, r, strict=True)] if off_policy else None
        other = [oracle_log_probs(reference, *pair, 0.8) for pair in zip(p, r, strict=True)]

    weights = oracle_weights(name, lengths, advantages, ids)
    zero_gradients(model)
    expected_loss = oracle_loss(
        model, p, r, weights, lengths, advantages, temperature=0.8, clip=(0.1, 0.25), old=old, kl=kl, reference=other
    )
    if expected_loss.requires_grad:
        expected_loss.backward()
    expected = gradient(model)

    order = torch.tensor(data.draw(st.permutations(range(len(r)))))
    batch = Batch(p, r, torch.tensor(lengths), torch.tensor(advantages, dtype=torch.float64), torch.tensor(ids)).select(
        order
    )
    zero_gradients(model)
    found = accumulate_gradients(
        Policy(model),
        batch,
        RULES[name](batch.lengths, batch.advantages, batch.group_ids),
        settings_,
        [old[i] for i in order] if off_policy else None,
        [other[i] for i in order],
    )
    torch.testing.assert_close(gradient(model), expected, rtol=1e-9, atol=1e-13)
    skipped = sum(1 for a in advantages if a == 0) if not kl else 0
    if not skipped:
        assert found.loss == pytest.approx(float(expected_loss.detach()), rel=1e-9, abs=1e-12)


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=40), budget=st.integers(1, 300), data=st.data())
def test_micro_batches_hold_every_response_once_within_the_budget(sizes, budget, data):
    indices = data.draw(st.lists(st.sampled_from(range(len(sizes))), unique=True))
    parts = micro_batches(sizes, indices, budget)
    assert sorted(i for part in parts for i in part) == sorted(indices)
    for part in parts:
        assert len(part) == 1 or len(part) * max(sizes[i] for i in part) <= budget


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=40),
    budget=st.integers(1, 300),
    processes=st.integers(1, 5),
    data=st.data(),
)
def test_processes_share_every_response_in_equally_many_micro_batches(sizes, budget, processes, data):
    indices = data.draw(st.lists(st.sampled_from(range(len(sizes))), unique=True))
    shares = share_out(sizes, indices, budget, processes)
    assert len(shares) == processes and len({len(share) for share in shares}) == 1
    assert sorted(i for share in shares for part in share for i in part) == sorted(indices)
    loads = [sum(sizes[i] for part in share for i in part) for share in shares]
    assert max(loads) - min(loads) <= max(sizes)
    if processes == 1:
        assert shares == [micro_batches(sizes, indices, budget)]


def test_a_batch_without_gradient_is_an_update_like_all_others(make_model):
    model = make_model()
    before = [p.clone() for p in model.parameters()]
    p, r = [torch.tensor([3, 4])] * 4, [torch.tensor([5, 1])] * 4
    for lengths, advantages in (([0, 0, 0, 0], [1.0, -1.0, 1.0, -1.0]), ([2, 2, 2, 2], [0.0] * 4)):
        batch = Batch(p, r, torch.tensor(lengths), torch.tensor(advantages).double(), torch.tensor([0, 0, 1, 1]))
        training = Training(steps=1)
        optimizer = create_optimizer(model, training)
        zero_gradients(model)
        weights = RULES["balanced"](batch.lengths, batch.advantages, batch.group_ids)
        found = accumulate_gradients(Policy(model), batch, weights, training)
        assert (found.loss, found.tokens) == (0.0, 0)
        assert apply_update(model, optimizer, training, 0) == 0.0
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_gradient_that_is_not_finite_is_refused_and_changes_nothing(make_model):
    model = make_model()
    zero_gradients(model)
    next(iter(model.parameters())).grad[0, 0] = float("nan")
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(FloatingPointError, match="gradient norm is nan at optimiser update 8"):
        apply_update(model, create_optimizer(model, Training(steps=1)), Training(steps=1), 7)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("architecture", "config"),
    [(LlamaForCausalLM, LlamaConfig), (Qwen2ForCausalLM, Qwen2Config)],
)
def test_log_probs_of_other_architectures(architecture, config):
    """With tied embeddings, too, and whatever token the model pads with."""
    torch.manual_seed(0)
    small = config(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=True,
    )  # fmt: skip
    model = architecture(small).double().eval()
    prompts = [torch.tensor([1, 2, 3, 4]), torch.tensor([5])]
    responses = [torch.tensor([6]), torch.tensor([0, 0, 1, 0, 7])]
    with torch.no_grad():
        expected = torch.cat([oracle_log_probs(model, *pair, 0.7) for pair in zip(prompts, responses, strict=True)])
        torch.testing.assert_close(token_log_probs(model, prompts, responses, 0.7), expected)
    batch = Batch(prompts, responses, torch.tensor([1, 5]), torch.zeros(2).double(), torch.tensor([0, 0]))
    for budget in (1, 100):
        settings = Training(steps=1, temperature=0.7, micro_batch_tokens=budget, kl_coefficient=0.1)
        torch.testing.assert_close(torch.cat(log_probs_by_response(Policy(model), batch, settings)), expected)


@pytest.mark.parametrize("off_policy", [False, True])
def test_importance_cap_multiplies_each_tokens_term(make_model, off_policy):
    """By hand, from single tokens: weight times min(pi / mu, cap) times the surrogate."""
    model, behaviour = make_model(0, torch.float64), make_model(1, torch.float64)
    p, r = [torch.tensor([3, 4]), torch.tensor([5])], [torch.tensor([5, 1]), torch.tensor([7, 8, 1])]
    training = Training(steps=1, importance_cap=1.2, micro_batch_tokens=4)
    with torch.no_grad():
        by = behaviour if off_policy else model
        old = [oracle_log_probs(by, *pair, 1.0) for pair in zip(p, r, strict=True)]
    differences = [torch.tensor([0.1, 0.5]).double(), torch.tensor([-0.3, 0.0, 2.0]).double()]
    sampled = [a - d for a, d in zip(old, differences, strict=True)]
    factors = [d.exp().clamp(max=1.2) for d in differences]
    weights, advantages = torch.tensor([0.3, 0.2]).double(), torch.tensor([1.0, -2.0]).double()
    zero_gradients(model)
    total = 0
    for i in range(2):
        ratio = (oracle_log_probs(model, p[i], r[i], 1.0) - old[i]).exp()
        loss = -torch.minimum(ratio * advantages[i], ratio.clamp(0.8, 1.2) * advantages[i])
        total = total + weights[i] * (factors[i] * loss).sum()
    total.backward()
    expected = gradient(model)
    zero_gradients(model)
    batch = Batch(p, r, torch.tensor([2, 3]), advantages, torch.tensor([0, 0]))
    found = accumulate_gradients(
        Policy(model), batch, weights, training, old if off_policy else None, sampled_log_probs=sampled
    )
    torch.testing.assert_close(gradient(model), expected, rtol=1e-6, atol=1e-12)
    assert (found.tokens, found.capped_tokens) == (5, 2)


def test_engine_mismatch_by_hand():
    ours = [torch.tensor([-1.0, -2.0]), None, torch.tensor([-0.5])]
    theirs = [torch.tensor([-1.0, -2.5]), torch.tensor([-9.0]), torch.tensor([-0.25])]
    found = engine_mismatch(World(), ours, theirs)
    k3 = (math.exp(0.5) - 1.5 + math.exp(-0.25) - 0.75) / 3
    assert found == pytest.approx({"engine_mismatch": 0.5, "engine_mismatch_mean": 0.25, "engine_kl": k3})
    assert set(engine_mismatch(World(), [None], [torch.tensor([-1.0])]).values()) == {0.0}
