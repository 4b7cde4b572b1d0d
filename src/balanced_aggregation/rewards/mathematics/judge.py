r"""The verifier of mathematics: is the final boxed answer of a response the gold?

Reading is done in layers, each in its module: the box (`extraction`), one spelling (`notation`), lists, intervals and
equations (`structure`), units (`units`), written numbers (`literals`), and math-verify's parser (`expressions`).
`comparison` goes through the parts of gold and answer, `values` compares single ones, `identity` formulas.

The grader of math-verify is not used. For it, 1/2004! is 1/2006!, 1e-8 is 2e-8 and R is r.
"""

import re
from functools import lru_cache

from balanced_aggregation.rewards.mathematics import comparison
from balanced_aggregation.rewards.mathematics.extraction import answer_part, final_boxed
from balanced_aggregation.rewards.mathematics.nodes import Node
from balanced_aggregation.rewards.mathematics.notation import balanced, tidy
from balanced_aggregation.rewards.mathematics.structure import Unreadable, read
from balanced_aggregation.rewards.verdict import Outcome, Verdict

LONGEST_ANSWER = 4000
"""Characters of an answer that is still looked at. The longest gold of the usual benchmarks has some 300."""


def judge_math(response: str, gold: str, tolerance: float | None = None) -> Verdict:
    r"""Compare the final boxed answer of the response with the gold.

    Needs no time limit to be correct, but has none either: run it where it can be killed.

    Args:
        response: the whole text. What counts is its last ``\boxed{}`` after the last ``</think>``.
        gold: the answer of the data set: LaTeX with or without ``$`` or box, a number, several values, words.
        tolerance: absolute difference that two numbers may have.

    Raises:
        ValueError: the gold itself cannot be read; then no response could be judged.
    """
    expected = _gold(gold)
    extracted = final_boxed(answer_part(response))
    if extracted is None:
        return Verdict(Outcome.NO_ANSWER, None)
    extracted = extracted.strip()
    if not extracted:
        return Verdict(Outcome.NO_ANSWER, extracted)
    if len(extracted) > LONGEST_ANSWER:
        return Verdict(Outcome.UNREADABLE, extracted[:LONGEST_ANSWER])
    try:
        answers = read(tidy(extracted))
        equal = any(comparison.equal(one, other, tolerance) for one in expected for other in answers)
        known = equal or any(map(comparison.readable, answers))
    except Exception:  # sympy fails in many ways on what a model writes
        return Verdict(Outcome.UNREADABLE, extracted)
    if equal:
        return Verdict(Outcome.EQUAL, extracted)
    return Verdict(Outcome.NOT_EQUAL if known else Outcome.UNREADABLE, extracted)


@lru_cache(maxsize=1024)
def _gold(gold: str) -> tuple[Node, ...]:
    """What the gold can be taken for: a group of responses shares it."""
    inside = final_boxed(gold)
    text = gold if inside is None else inside
    if len(text) > LONGEST_ANSWER:
        raise ValueError(f"gold answer {gold[:40]!r}... of {len(text)} characters is too long to be one")
    text = tidy(text)
    if not re.search(r"\w", text) or not balanced(text):
        raise ValueError(f"gold answer {gold!r} cannot be read as mathematics")
    try:
        return read(text)
    except Unreadable as error:
        raise ValueError(f"gold answer {gold!r} cannot be read: {error}") from error
