import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from balanced_aggregation.advantages import group_advantages
from balanced_aggregation.aggregation import RULES
from balanced_aggregation.diagnostics import (
    effective_responses,
    effective_tokens,
    group_length_statistics,
    length_statistics,
    rule_shifts,
    sign_mass,
    total_variation,
    update_mass,
)

# Group 0: lengths 2 and 6 (+), 4 (-). Group 1: lengths 3 and 9, equal rewards. Group 2: 5 (+), and one masked (-).
LENGTHS = torch.tensor([2, 6, 4, 3, 9, 5, 0])
ADVANTAGES = torch.tensor([1.0, 1.0, -2.0, 0.0, 0.0, 1.0, -1.0])
GROUPS = torch.tensor([0, 0, 0, 1, 1, 2, 2])


def test_sign_mass_by_hand():
    def share(rule):
        weights = RULES[rule](LENGTHS, ADVANTAGES, GROUPS)
        return sign_mass(weights, LENGTHS, ADVANTAGES)

    assert share("sequence") == pytest.approx({"positive": 5 / 9, "negative": 1 / 9, "positive_share": 5 / 6})
    assert share("balanced") == pytest.approx({"positive": 5 / 9, "negative": 1 / 9, "positive_share": 5 / 6})
    assert share("token") == pytest.approx({"positive": 5 / 9, "negative": 1 / 9, "positive_share": 5 / 6})
    long_negative = torch.tensor([2, 2, 12, 3, 9, 5, 0])
    token = sign_mass(RULES["token"](long_negative, ADVANTAGES, GROUPS), long_negative, ADVANTAGES)
    assert token == pytest.approx({"positive": 5 / 12, "negative": 3 / 12, "positive_share": 5 / 8})


def test_length_statistics_by_hand():
    statistics = length_statistics(LENGTHS, ADVANTAGES, GROUPS)
    variations = [math.sqrt(8 / 3) / 4, 3 / 6, 0.0]
    assert statistics == pytest.approx(
        {"variation": sum(variations) / 3, "gap": 0.0, "positive": 13 / 3, "negative": 4.0}
    )
    shorter = length_statistics(torch.tensor([2, 6, 1, 3, 9, 5, 0]), ADVANTAGES, GROUPS)
    assert shorter["gap"] == pytest.approx((4 - 1) / 3)  # only group 0 has both signs


def test_what_does_not_exist_is_nan():
    statistics = length_statistics(torch.tensor([3, 5]), torch.zeros(2), torch.zeros(2).long())
    assert statistics["variation"] == pytest.approx(0.25)
    assert all(math.isnan(statistics[name]) for name in ("gap", "positive", "negative"))
    nothing = length_statistics(torch.zeros(2), torch.zeros(2), torch.zeros(2).long())
    assert all(math.isnan(value) for value in nothing.values())
    assert math.isnan(sign_mass(torch.zeros(2).double(), torch.zeros(2), torch.zeros(2))["positive_share"])


def test_group_length_statistics_by_hand():
    by_group = group_length_statistics(LENGTHS, ADVANTAGES, GROUPS + 7)
    assert by_group["variation"].tolist() == pytest.approx([math.sqrt(8 / 3) / 4, 3 / 6, 0.0])
    assert by_group["gap"].tolist() == pytest.approx([0.0, math.nan, math.nan], nan_ok=True)


# One group: lengths 2 and 6 (+1 each), 4 (-2). Another: 5 (+1) and 5 (-1).
UPDATE = torch.tensor([2, 6, 4, 5, 5]), torch.tensor([1.0, 1.0, -2.0, 1.0, -1.0]), torch.tensor([0, 0, 0, 1, 1])
ONE_GROUP = tuple(tensor[:3] for tensor in UPDATE)


def mass_of(rule, batch):
    return update_mass(RULES[rule](*batch), batch[0], batch[1])


def test_masses_of_an_update_by_hand():
    sequence, token = mass_of("sequence", ONE_GROUP), mass_of("token", ONE_GROUP)
    assert sequence.tolist() == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    assert token.tolist() == pytest.approx([2 / 12, 6 / 12, 8 / 12])
    assert effective_responses(sequence) == pytest.approx(16 / 6)
    assert effective_responses(token) == pytest.approx(256 / 104)
    assert effective_tokens(sequence, ONE_GROUP[0]) == pytest.approx(16 / (1 / 2 + 1 / 6 + 4 / 4))
    assert effective_tokens(token, ONE_GROUP[0]) == pytest.approx(256 / (2 + 6 + 16))
    assert total_variation(sequence, token) == pytest.approx((1 / 8 + 1 / 8) / 2)
    masked = torch.tensor([2, 6, 0]), ONE_GROUP[1], ONE_GROUP[2]
    assert effective_tokens(mass_of("token", masked), masked[0]) == pytest.approx(8)


def test_rule_shifts_by_hand():
    def shifts(rule, batch):
        return {name: by_group.tolist() for name, by_group in rule_shifts(RULES[rule](*batch), *batch).items()}

    sequence = shifts("sequence", ONE_GROUP)
    # Half of the say is the positive side's, where [1/2, 1/2] stands for [1/4, 3/4] by tokens.
    assert sequence == {name: pytest.approx([value]) for name, value in
                        {"say": 4 / 3, "sign": 0, "length": 1 / 8, "group": 0}.items()}  # fmt: skip
    square = rule_shifts(ONE_GROUP[0].double(), *ONE_GROUP)  # weights proportional to length: [4, 36] for [1/4, 3/4]
    assert square["length"].tolist() == pytest.approx([-(1 / 4 - 4 / 40) / 2])
    long_negative = torch.tensor([2, 6, 12]), ONE_GROUP[1], ONE_GROUP[2]
    assert shifts("token", long_negative)["sign"] == pytest.approx([8 / 32 - 1 / 2])
    assert shifts("balanced", long_negative)["sign"] == pytest.approx([0])
    batch = shifts("token_batch", UPDATE)
    assert batch["say"] == pytest.approx([4 / 3, 1])
    assert batch["group"] == pytest.approx([16 / 26 - 4 / 7, 10 / 26 - 3 / 7])


def test_rule_shifts_where_nothing_is_learned():
    silent = torch.tensor([3, 5, 0]), torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0, 0, 1])
    assert all(not by_group.any() for by_group in rule_shifts(RULES["token"](*silent), *silent).values())
    assert math.isnan(effective_responses(torch.zeros(2)))


@st.composite
def binary_batches(draw):
    count = draw(st.integers(2, 30))
    lengths = torch.tensor(draw(st.lists(st.integers(1, 500), min_size=count, max_size=count)))
    rewards = torch.tensor(draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=count, max_size=count)))
    groups = torch.tensor(draw(st.lists(st.integers(0, 4), min_size=count, max_size=count)))
    return lengths, group_advantages(rewards, groups), groups


@given(binary_batches())
def test_what_the_rules_are_made_for(batch):
    """With binary rewards `balanced` moves nothing, `sequence` nothing between signs, `token` nothing within one."""
    of_rule = {rule: rule_shifts(RULES[rule](*batch), *batch) for rule in ("balanced", "sequence", "token")}
    zero = pytest.approx([0.0] * len(of_rule["token"]["say"]), abs=1e-9)
    for rule, names in {
        "balanced": ("sign", "length", "group"),
        "sequence": ("sign", "group"),
        "token": ("length",),
    }.items():
        for name in names:
            assert of_rule[rule][name].tolist() == zero
    assert (of_rule["sequence"]["length"] >= -1e-9).all()


@given(binary_batches(), st.sampled_from(sorted(RULES)), st.sampled_from(sorted(RULES)), st.floats(0.01, 100))
def test_bounds_of_effective_numbers_and_distances(batch, rule, other, factor):
    lengths, advantages, _ = batch
    some = advantages != 0
    if not some.any():
        return
    one, two = mass_of(rule, batch), mass_of(other, batch)
    assert 1 - 1e-9 <= effective_responses(one) <= int(some.sum()) + 1e-9
    assert 1 - 1e-9 <= effective_tokens(one, lengths) <= int(lengths[some].sum()) * (1 + 1e-9)
    assert 0 <= total_variation(one, two) <= 1 + 1e-9
    assert total_variation(one, two) == pytest.approx(total_variation(two, one))
    assert total_variation(one, factor * one) == pytest.approx(0, abs=1e-12)
    shifts = rule_shifts(RULES[rule](*batch), *batch)
    assert all(bool((by_group.abs() <= 1 + 1e-9).all()) for name, by_group in shifts.items() if name != "say")
