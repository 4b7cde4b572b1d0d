"""One paragraph: which bias to expect from which rule on this log, and why."""

from collections.abc import Callable, Mapping

from balanced_aggregation.diagnose.analysis import Analysis, RuleNumbers

SMALL, CLEAR, STRONG = 0.02, 0.05, 0.15
"""Shares of an update's mass that a rule moves: below the first nothing to speak of, then small, clear, strong.
They are conventions: differences of some per cent vanish in the noise of a batch, 15 % is every seventh response."""

ERRORS = 2.0
"""A net direction between signs is only claimed if it is so many standard errors over groups away from 0."""

LITTLE, MUCH = 0.1, 0.3
"""Length variation, standard deviation over mean, below and from which lengths vary little and much."""


_WHY_LENGTH = "a token's weight depends on the length of its response, and lengths vary"
_WHY_PROMPT = "these rules do not give every prompt the same say"


def verdict(analysis: Analysis) -> str:
    """The paragraph."""
    rules = analysis.rules
    sentences = [
        _situation(analysis),
        _bias("Sign bias", rules, lambda r: r.sign_shift, _sign, _why_sign(analysis)),
        _bias("Length bias", rules, lambda r: r.length_bias, _length, _WHY_LENGTH),
        _bias("Prompt bias", rules, lambda r: r.group_shift, _prompt, _WHY_PROMPT),
        _silent(rules),
        _distance(analysis),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def legend() -> str:
    """What the words of the verdict mean."""
    return (
        "Words stand for the share of an update's mass that a rule moves: "
        f"below {SMALL:.0%} none, below {CLEAR:.0%} small, below {STRONG:.0%} clear, else strong. "
        f"A direction between signs is named from {ERRORS:g} standard errors over groups; lengths vary little below "
        f"{LITTLE:.0%} and much from {MUCH:.0%}. Moved from what: every prompt and every response has one say, "
        "and within a sign every token. For binary rewards balanced does exactly that, so it is free of these biases "
        "by definition, which is no proof that it learns better."
    )


def strength(share: float) -> str:
    """A share in a word."""
    share = abs(share)
    return "none" if share < SMALL else "small" if share < CLEAR else "clear" if share < STRONG else "strong"


def _situation(analysis: Analysis) -> str:
    variation, gap = analysis.variation_with_advantages.mean, analysis.gap
    amount = "little" if variation < LITTLE else "much" if variation >= MUCH else "moderately"
    lengths = f"In the groups that teach something lengths vary {amount} ({variation:.0%} of their mean)"
    if not gap.count:
        return f"{lengths}; no group has both signs."
    spread = f"the middle half of {gap.count:,} groups from {gap.lower:+.0%} to {gap.upper:+.0%}"
    if abs(gap.mean) < SMALL:
        return f"{lengths}; positive and negative responses are equally long on average ({spread})."
    side = "positive" if gap.mean > 0 else "negative"
    return f"{lengths}; {side} responses are longer, on average by {abs(gap.mean):.0%} of the group's mean ({spread})."


def _bias(
    title: str,
    rules: Mapping[str, RuleNumbers],
    measure: Callable[[RuleNumbers], float],
    detail: Callable[[RuleNumbers], str],
    why: str,
) -> str:
    """One sentence on one bias: the rules that have it, the strongest first, those with equal numbers together."""
    together: dict[tuple[str, str], list[str]] = {}
    for name, numbers in sorted(rules.items(), key=lambda rule: -round(abs(measure(rule[1])), 3)):
        if abs(measure(numbers)) >= SMALL:
            together.setdefault((strength(measure(numbers)), detail(numbers)), []).append(name)
    parts = [f"{word} under {_list(names)} ({text})" for (word, text), names in together.items()]
    return f"{title}: {', '.join(parts)}, because {why}." if parts else ""


def _sign(numbers: RuleNumbers) -> str:
    net = f"net {numbers.sign_bias:+.1%} ± {numbers.sign_error:.1%} for the positive side"
    if not _is_net(numbers):
        net += ", so no certain direction"
    return f"{numbers.sign_shift:.1%} of a group's mass changes sides, {net}"


def _why_sign(analysis: Analysis) -> str:
    """A net direction is explained by who is longer only if that is so."""
    net = [numbers for numbers in analysis.rules.values() if numbers.sign_shift >= SMALL and _is_net(numbers)]
    if not net:
        return "these rules let the side with more tokens speak louder, which is now one, now the other"
    longer = "positive" if analysis.gap.mean > 0 else "negative"
    if all((numbers.sign_bias > 0) == (analysis.gap.mean > 0) for numbers in net):
        return f"these rules let the side with more tokens speak louder, and {longer} responses are longer"
    return "in these rules a side's say depends on how long its responses are"


def _length(numbers: RuleNumbers) -> str:
    way = "long to short" if numbers.length_bias > 0 else "short to long"
    return f"{abs(numbers.length_bias):.1%} moves from {way} responses of one sign"


def _prompt(numbers: RuleNumbers) -> str:
    return f"{numbers.group_shift:.1%} moves to prompts with {numbers.favoured_groups} responses"


def _silent(rules: Mapping[str, RuleNumbers]) -> str:
    names = [name for name, r in rules.items() if max(r.sign_shift, abs(r.length_bias), r.group_shift) < SMALL]
    return f"No bias to speak of under {_list(names)}." if names else ""


def _distance(analysis: Analysis) -> str:
    if not analysis.distances:
        return ""
    (one, other), distance = max(analysis.distances.items(), key=lambda item: item[1])
    if distance < SMALL:
        return (
            f"The choice of rule hardly matters here: no two updates differ in more than {distance:.1%} of their mass."
        )
    return f"The updates of {one} and {other} differ most, in {distance:.1%} of their mass."


def _is_net(numbers: RuleNumbers) -> bool:
    return abs(numbers.sign_bias) >= ERRORS * numbers.sign_error and abs(numbers.sign_bias) > 0


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
