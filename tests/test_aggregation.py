import importlib
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from balanced_aggregation.aggregation import RULES, checked_rule, register_rule
from oracle import oracle_weights

# Two groups, interleaved. Group 5: lengths 2 (+), 6 (+), 4 (-); group 9: lengths 3 (0), 5 (0), and one masked out (-).
LENGTHS = torch.tensor([2, 3, 6, 4, 5, 0])
ADVANTAGES = torch.tensor([1.0, 0.0, 0.5, -1.5, 0.0, -1.0])
GROUPS = torch.tensor([5, 9, 5, 5, 9, 9])

# Worked by hand: P = 2; G = 3 and 2; T = 12 and 8; group 5 has n_+ = 2, T_+ = 8, n_- = 1, T_- = 4; batch of 20 tokens.
GOLDEN = {
    "sequence": ({}, [1 / 12, 1 / 12, 1 / 36, 1 / 24, 1 / 20, 0]),
    "token": ({}, [1 / 24, 1 / 16, 1 / 24, 1 / 24, 1 / 16, 0]),
    "balanced": ({}, [1 / 24, 1 / 16, 1 / 24, 1 / 24, 1 / 16, 0]),
    "token_batch": ({}, [1 / 20] * 5 + [0]),
    "constant": ({"max_length": 10}, [1 / 60, 1 / 40, 1 / 60, 1 / 60, 1 / 40, 0]),
    "length_power": ({"exponent": 2}, [3 / 22, 5 / 48, 1 / 66, 3 / 88, 3 / 80, 0]),
}
# A group in which token and balanced differ: lengths 1 (+), 2 (-), 7 (-); P = 1, G = 3, T = 10, T_- = 9.
SKEWED = (torch.tensor([1, 2, 7]), torch.tensor([2.0, -1.0, -1.0]), torch.tensor([0, 0, 0]))
GOLDEN_SKEWED = {"sequence": [1 / 3, 1 / 6, 1 / 21], "token": [1 / 10] * 3, "balanced": [1 / 3, 2 / 27, 2 / 27]}


@st.composite
def batches(draw, zero_lengths=True):
    n = draw(st.integers(1, 24))
    lengths = draw(st.lists(st.integers(0 if zero_lengths else 1, 60), min_size=n, max_size=n))
    advantages = draw(st.lists(st.sampled_from([-2.0, -0.3, 0.0, 0.7, 1.0]), min_size=n, max_size=n))
    ids = draw(st.lists(st.sampled_from([-7, 0, 1, 5, 10**12]), min_size=n, max_size=n))
    return lengths, advantages, ids


def tensors(batch):
    lengths, advantages, ids = batch
    return torch.tensor(lengths), torch.tensor(advantages, dtype=torch.float64), torch.tensor(ids)


def test_golden_weights_cover_every_rule():
    assert set(GOLDEN) == set(RULES)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_weights(name):
    parameters, expected = GOLDEN[name]
    weights = RULES[name](LENGTHS, ADVANTAGES, GROUPS, **parameters)
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", GOLDEN_SKEWED)
def test_golden_weights_of_a_skewed_group(name):
    expected = torch.tensor(GOLDEN_SKEWED[name], dtype=torch.float64)
    torch.testing.assert_close(RULES[name](*SKEWED), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", sorted(RULES))
@given(batch=batches())
def test_equals_the_oracle(name, batch):
    expected = torch.tensor(oracle_weights(name, *batch), dtype=torch.float64)
    weights = RULES[name](*tensors(batch))
    torch.testing.assert_close(weights, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("exponent", [-1.0, 0.0, 0.5, 1.0, 3.0])
@given(batch=batches())
def test_length_power_equals_the_oracle(exponent, batch):
    expected = torch.tensor(oracle_weights("length_power", *batch, exponent=exponent), dtype=torch.float64)
    torch.testing.assert_close(RULES["length_power"](*tensors(batch), exponent=exponent), expected, rtol=1e-11, atol=0)


@pytest.mark.parametrize("name", sorted(RULES))
@given(batch=batches(), data=st.data())
def test_order_and_names_of_groups_do_not_matter(name, batch, data):
    lengths, advantages, ids = tensors(batch)
    order = torch.tensor(data.draw(st.permutations(range(len(lengths)))))
    names = {int(g): 1000 - 13 * k for k, g in enumerate(ids.unique())}
    renamed = torch.tensor([names[int(g)] for g in ids])
    weights = RULES[name](lengths, advantages, ids)
    moved = RULES[name](lengths[order], advantages[order], renamed[order])
    torch.testing.assert_close(moved, weights[order], rtol=1e-13, atol=0)


@given(batch=batches())
def test_balanced_keeps_the_sign_masses_of_sequence_and_treats_tokens_of_a_class_equally(batch):
    lengths, advantages, ids = tensors(batch)
    balanced, sequence = (RULES[name](lengths, advantages, ids) for name in ("balanced", "sequence"))
    for group in ids.unique():
        for sign in (-1, 0, 1):
            chosen = (ids == group) & (torch.sign(advantages) == sign) & (lengths > 0)
            if chosen.any():
                mass = (balanced * lengths)[chosen].sum()
                torch.testing.assert_close(mass, (sequence * lengths)[chosen].sum(), rtol=1e-12, atol=0)
                assert balanced[chosen].max() == balanced[chosen].min()


@pytest.mark.parametrize("name", ["sequence", "token", "balanced", "length_power"])
@given(batch=batches(zero_lengths=False))
def test_each_group_has_mass_one_over_p(name, batch):
    lengths, advantages, ids = tensors(batch)
    mass = RULES[name](lengths, advantages, ids) * lengths
    for group in ids.unique():
        assert float(mass[ids == group].sum()) == pytest.approx(1 / len(ids.unique()), rel=1e-12)


@given(batch=batches())
def test_length_power_joins_token_and_sequence(batch):
    inputs = tensors(batch)
    for exponent, name in ((0, "token"), (1, "sequence")):
        torch.testing.assert_close(RULES["length_power"](*inputs, exponent=exponent), RULES[name](*inputs))


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_masked_group_stays_in_p_and_nothing_divides_by_zero(name):
    lengths, ids = torch.tensor([4, 4, 0, 0]), torch.tensor([0, 0, 1, 1])
    weights = RULES[name](lengths, torch.tensor([1.0, -1.0, 1.0, -1.0]), ids)
    assert weights[2:].tolist() == [0, 0]
    if name != "token_batch":  # which knows no groups
        assert float((weights * lengths).sum()) == pytest.approx(0.5)
    assert RULES[name](torch.zeros(3), torch.zeros(3), torch.zeros(3, dtype=torch.int64)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", sorted(RULES))
def test_result_is_float64_whatever_comes_in(name):
    for dtype in (torch.int32, torch.int64, torch.float32, torch.bfloat16):
        weights = RULES[name](LENGTHS.to(dtype), ADVANTAGES.float(), GROUPS.to(torch.int32))
        assert weights.dtype == torch.float64
    empty = torch.empty(0, dtype=torch.int64)
    assert RULES[name](empty, empty.double(), empty).shape == (0,)


@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": torch.tensor([1, -2, 3])}, "lengths must be whole numbers of tokens, >= 0; at index 1: -2"),
        ({"lengths": torch.tensor([1.0, 2.0, 2.5])}, "at index 2: 2.5"),
        ({"lengths": torch.tensor([1.0, float("nan"), 2.0])}, "at index 1: nan"),
        ({"advantages": torch.tensor([float("nan"), 0.0, 1.0])}, "advantages must be finite; at index 0: nan"),
        ({"advantages": torch.tensor([0.0, float("inf"), 1.0])}, "advantages must be finite; at index 1: inf"),
        ({"advantages": torch.tensor([0.0, 1.0])}, "same shape, got lengths (3,), advantages (2,), group_ids (3,)"),
        ({"group_ids": torch.tensor([[0, 0, 0]])}, "group_ids must be a one-dimensional tensor, got shape (1, 3)"),
        ({"group_ids": torch.tensor([0.0, 0.0, 1.0])}, "group_ids must be integers, got torch.float32"),
        ({"lengths": [1, 2, 3]}, "lengths must be a one-dimensional tensor, got list"),
    ],
)
def test_wrong_input_is_refused(name, change, message):
    good = {"lengths": torch.tensor([1, 2, 3]), "advantages": torch.zeros(3), "group_ids": torch.zeros(3).long()}
    with pytest.raises(ValueError, match="must") as caught:
        RULES[name](**(good | change))
    assert message in str(caught.value)


def test_rule_parameters_are_checked():
    inputs = (LENGTHS, ADVANTAGES, GROUPS)
    with pytest.raises(ValueError, match="max_length = 0: must be at least 1"):
        RULES["constant"](*inputs, max_length=0)
    with pytest.raises(ValueError, match="exponent = nan"):
        RULES["length_power"](*inputs, exponent=float("nan"))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda lengths: lengths[:1], "must return weights of shape (6,), got (1,)"),
        (lambda lengths: 1.0, "got float"),
        (lambda lengths: lengths * float("nan"), "finite, >= 0; at index 0: nan"),
        (lambda lengths: -lengths, "finite, >= 0; at index 0: -2"),
    ],
)
def test_a_formula_that_breaks_the_contract_is_refused(result, message):
    @checked_rule
    def mine(lengths, advantages, group_ids):
        return result(lengths)

    with pytest.raises(ValueError, match="must") as caught:
        mine(LENGTHS, ADVANTAGES, GROUPS)
    assert message in str(caught.value)


def test_a_formula_that_works_in_place_changes_nothing_outside():
    @checked_rule
    def mine(lengths, advantages, group_ids):
        advantages.abs_()
        group_ids.zero_()
        return lengths.clamp_(min=1)

    inputs = LENGTHS.double(), ADVANTAGES.double(), GROUPS - 5
    before = [tensor.clone() for tensor in inputs]
    assert mine(*inputs).tolist() == [2, 3, 6, 4, 5, 0]
    assert all(torch.equal(a, b) for a, b in zip(before, inputs, strict=True))


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="'token' is already registered"):

        @register_rule("token")
        def another(lengths, advantages, group_ids):
            return lengths


def test_the_rules_need_nothing_but_torch():
    module = importlib.import_module("balanced_aggregation.aggregation")
    text = Path(module.__file__).read_text()
    assert "from balanced_aggregation" not in text and "import transformers" not in text
