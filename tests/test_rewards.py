import pytest

from balanced_aggregation.rewards import Outcome, check_arithmetic


@pytest.mark.parametrize(
    ("response", "gold", "outcome", "extracted"),
    [
        (">14", "14", Outcome.EQUAL, "14"),
        ("7+2=9;9-4=5>5", "5", Outcome.EQUAL, "5"),
        (">014", "14", Outcome.EQUAL, "014"),
        (">15", "14", Outcome.NOT_EQUAL, "15"),
        (">3>5", "5", Outcome.EQUAL, "5"),
        (">5>3", "5", Outcome.NOT_EQUAL, "3"),
        (">5;", "5", Outcome.NO_ANSWER, None),
        ("5", "5", Outcome.NO_ANSWER, None),
        (">-5", "5", Outcome.NO_ANSWER, None),
        ("1<pad>5", "5", Outcome.NO_ANSWER, None),
        ("", "5", Outcome.NO_ANSWER, None),
    ],
)
def test_arithmetic(response, gold, outcome, extracted):
    verdict = check_arithmetic(response, gold)
    assert (verdict.outcome, verdict.extracted) == (outcome, extracted)
    assert verdict.reward == float(outcome is Outcome.EQUAL)
