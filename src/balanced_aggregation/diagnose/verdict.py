"""One paragraph: which bias to expect from which rule on this log, and why."""

import math

from balanced_aggregation.diagnose.analysis import Analysis, RuleNumbers

SMALL, CLEAR, STRONG = 0.02, 0.05, 0.15
"""Shares of an update's mass that a rule moves: below the first nothing to speak of, then small, clear, strong.
They are conventions: differences of some per cent vanish in the noise of a batch, 15 % is every seventh response."""

ERRORS = 2.0
"""A net direction between signs is only claimed if it is so many standard errors over groups away from 0."""


def size(share: float) -> str:
    """A share in words."""
    share = abs(share)
    return "none" if share < SMALL else "small" if share < CLEAR else "clear" if share < STRONG else "strong"


def verdict(analysis: Analysis) -> str:
    """The paragraph."""
    silent: list[str] = []
    sentences = [_situation(analysis)]
    for name, numbers in analysis.rules.items():
        biases = _biases(numbers, analysis)
        if biases:
            sentences.append(f"{name}: {'; '.join(biases)}.")
        else:
            silent.append(name)
    if silent:
        sentences.append(f"No bias to speak of under {_list(silent)}.")
    if analysis.distances:
        pair, distance = max(analysis.distances.items(), key=lambda item: item[1])
        if distance < SMALL:
            sentences.append(
                f"All updates are nearly the same: no two differ in more than {distance:.1%} of their mass."
            )
        else:
            sentences.append(f"The updates of {pair[0]} and {pair[1]} differ most, in {distance:.1%} of their mass.")
    return " ".join(sentences)


def legend() -> str:
    """What the words of the verdict mean."""
    return (
        f"Words stand for the share of an update's mass that a rule moves: below {SMALL:.0%} none, below {CLEAR:.0%} small, "
        f"below {STRONG:.0%} clear, else strong; a direction between signs is named from {ERRORS:g} standard errors over "
        "groups. Reference: every response has one say, and within a sign every token; that is what balanced does for "
        "binary rewards, so it is free of these biases by definition, which is no proof that it learns better."
    )


def _situation(analysis: Analysis) -> str:
    variation, gap = analysis.variation.mean, analysis.gap
    lengths = f"Lengths vary by {variation:.0%} within a group ({_how_much(variation, 0.1, 0.3)})"
    if not gap.count:
        return f"{lengths}; no group has both signs."
    spread = f"from {gap.lower:+.0%} to {gap.upper:+.0%} in the middle half of {gap.count:,} groups"
    side = "positive" if gap.mean > 0 else "negative"
    if abs(gap.mean) < SMALL:
        return f"{lengths}, and on average positive and negative responses are equally long ({spread})."
    return f"{lengths}, and {side} responses are longer by {abs(gap.mean):.0%} of the mean length ({spread})."


def _biases(numbers: RuleNumbers, analysis: Analysis) -> list[str]:
    found = []
    if numbers.sign_shift >= SMALL:
        found.append(_sign(numbers, analysis))
    if abs(numbers.length_bias) >= SMALL:
        towards = ("long to short", "short") if numbers.length_bias > 0 else ("short to long", "long")
        found.append(
            f"{size(numbers.length_bias)} length bias, {abs(numbers.length_bias):.1%} of the mass moves from {towards[0]} "
            f"responses of the same sign, because a token weighs the more the {towards[1]}er its response is and lengths "
            f"vary by {analysis.variation.mean:.0%}"
        )
    if numbers.group_shift >= SMALL:
        shorter = "shorter" if numbers.short_groups else "longer"
        found.append(
            f"{size(numbers.group_shift)} prompt bias, {numbers.group_shift:.1%} of the mass moves to prompts with "
            f"{shorter} responses"
        )
    return found


def _sign(numbers: RuleNumbers, analysis: Analysis) -> str:
    text = f"{size(numbers.sign_shift)} sign bias, {numbers.sign_shift:.1%} of a group's mass changes sides"
    known = math.isfinite(numbers.sign_error) and abs(numbers.sign_bias) >= ERRORS * numbers.sign_error
    if not known:
        return (
            f"{text}, in no certain direction ({numbers.sign_bias:+.1%} ± {numbers.sign_error:.1%} for the positive side), "
            "because it follows which side happens to be longer"
        )
    louder = "positive" if numbers.sign_bias > 0 else "negative"
    longer = (numbers.sign_bias > 0) == (analysis.gap.mean > 0)
    cause = "longer, and tokens count" if longer else "shorter, and a token of a short response weighs more"
    return (
        f"{text}, on balance to the {louder} one ({numbers.sign_bias:+.1%} ± {numbers.sign_error:.1%} for the positive "
        f"side, which gets {numbers.positive_share:.1%} of the update), because {louder} responses are {cause}"
    )


def _how_much(value: float, little: float, much: float) -> str:
    return "little" if value < little else "much" if value >= much else "moderately"


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
