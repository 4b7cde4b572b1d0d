import math

import pytest
import torch

from balanced_aggregation.aggregation import RULES
from balanced_aggregation.diagnostics import length_statistics, sign_mass

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
