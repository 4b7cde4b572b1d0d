import math_verify
import pytest

import balanced_aggregation.rewards.mathematics as mathematics
from balanced_aggregation.rewards import Outcome, check_arithmetic, check_math


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


@pytest.mark.parametrize(
    ("response", "gold", "correct"),
    [
        (r"So the answer is $\boxed{34}$.", "34", True),
        (r"\boxed{\frac{1}{2}}", "0.5", True),
        (r"\boxed{0.5}", r"\frac12", True),
        (r"\boxed{\left( 3, \frac{\pi}{2} \right)}", r"\left( 3, \frac{\pi}{2} \right)", True),
        (r"\boxed{35}", "34", False),
        ("The answer is 34.", "34", False),
        (r"First \boxed{1}, no: \boxed{34}", "34", True),
        (r"First \boxed{34}, no: \boxed{1}", "34", False),
        (r"\boxed{\{1, 2\}}", r"\{2, 1\}", True),
        (r"\boxed{34", "34", False),
        (r"\boxed{34}", r"the gold is \boxed{34}", True),
        ("", "34", False),
    ],
)
def test_mathematics(response, gold, correct):
    assert check_math(response, gold).correct is correct


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{x\\}", r"x\\"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"\boxed{\begin{pmatrix}a\\{b}\end{pmatrix}}", r"\begin{pmatrix}a\\{b}\end{pmatrix}"),
        (r"\boxed{1} and \boxed{2", None),
        (r"\boxed{}", ""),
        (r"\boxed{a\}", None),
    ],
)
def test_final_boxed(text, content):
    assert mathematics.final_boxed(text) == content


def test_no_answer_is_told_from_a_wrong_one():
    assert check_math("34", "34").outcome is Outcome.NO_ANSWER
    assert check_math(r"\boxed{35}", "34").outcome is Outcome.NOT_EQUAL


def test_a_gold_that_cannot_be_read_is_an_error_and_not_a_zero():
    with pytest.raises(ValueError, match="gold answer '' cannot be read"):
        check_math(r"\boxed{3}", "")


def test_a_library_that_gives_up_is_told_from_a_wrong_answer(monkeypatch):
    def fails(*args, **kwargs):
        raise RecursionError

    def takes_too_long(*args, **kwargs):
        raise math_verify.errors.TimeoutException

    monkeypatch.setattr(mathematics, "verify", fails)
    assert check_math(r"\boxed{3}", "3").outcome is Outcome.UNREADABLE
    monkeypatch.setattr(mathematics, "verify", takes_too_long)
    assert check_math(r"\boxed{3}", "3").outcome is Outcome.TIMEOUT
