"""Whether two single values are the same: words, numbers with units, or formulas. The first is always the gold."""

import re
from fractions import Fraction

import sympy

from balanced_aggregation.rewards.mathematics.expressions import expression
from balanced_aggregation.rewards.mathematics.identity import exact_fraction, is_constant, same
from balanced_aggregation.rewards.mathematics.literals import Literal, agree, near, read_literal
from balanced_aggregation.rewards.mathematics.notation import key
from balanced_aggregation.rewards.mathematics.units import Unit, conversion, split_unit

_PERCENT = Fraction(1, 100)
_PMOD = re.compile(r"(?<=\S)\s*\\pmod\s*(?P<modulus>\{[^{}]*\}|\w+)$")
_MODULUS = re.compile(r"\d+|[a-z]")
_TIME = re.compile(r"\d{1,2}:\d{2}")  # 12:30 is no ratio
_BASE = re.compile(r"\(?(\d[\dA-Fa-f]*|[A-F][\dA-F]+)\)?\s*_\s*\{?\s*(\d+)\s*\}?")


def words(text: str) -> str | None:
    r"""The words of a text answer, such as ``\text{Evelyn}`` or ``even``; None for formulas.

    In lower case, except letters that may be variables: ``AB`` is not ``ab``.
    """
    bare = re.sub(r"\\text\s*\{([^{}]*)\}", lambda m: f" {m[1].lower()} ", text)
    if not re.search(r"[^\W\d_]{2,}", bare) or re.search(r"[^\w\s.,;:'\"()-]|_", bare):
        return None
    said = re.findall(r"[\w'.-]+", bare)
    return " ".join(word if word.isupper() else word.lower() for word in said).strip(".") or None


def same_value(gold: str, answer: str, tolerance: float | None) -> bool:
    """Whether two texts without commas, brackets or signs of relation around them mean the same.

    Raises:
        Exception: whatever sympy comes up with on reading the answer.
    """
    if key(gold) == key(answer):
        return True
    gold, gold_modulus = _without_modulus(gold)
    answer, answer_modulus = _without_modulus(answer)
    if answer_modulus and gold_modulus != answer_modulus and (gold_modulus or not _MODULUS.fullmatch(answer_modulus)):
        return False
    bases = _BASE.fullmatch(gold), _BASE.fullmatch(answer)
    if any(bases):  # 66 in base 8 is 54, but who is asked for the one may not answer the other
        return all(bases) and bases[0].groups() == bases[1].groups()
    said = words(gold), words(answer)
    if all(said) and said[0] == said[1]:
        return True
    gold_core, gold_unit = split_unit(gold)
    answer_core, answer_unit = split_unit(answer)
    factor = conversion(gold_unit, answer_unit)
    if factor is None or not gold_core or not answer_core:
        return False
    if _TIME.fullmatch(key(gold_core)):
        return key(gold_core) == key(answer_core)
    return any(
        _same_number(gold_core, gold_scale, answer_core, answer_scale * factor, tolerance)
        for gold_scale, answer_scale in _percent_scales(gold_core, gold_unit, answer_unit)
    )


def _without_modulus(text: str) -> tuple[str, str]:
    """The text and the modulus that follows it; empty if there is none."""
    found = _PMOD.search(text)
    return (text[: found.start()].strip(), key(found["modulus"].strip("{} "))) if found else (text, "")


def _percent_scales(number: str, gold: Unit | None, answer: Unit | None) -> list[tuple[Fraction, Fraction]]:
    """A gold of 12 % may be given as 12, or as 0.12; a gold of 12 or 0.12, the ``number``, in one way as percent."""
    one = Fraction(1)
    if gold and gold.percent and not answer:
        return [(one, one), (_PERCENT, one)]
    if answer and answer.percent and not gold:
        value = _gold_expression(number)
        size = exact_fraction(value) if value is not None and is_constant(value) else None
        return [(one, _PERCENT if size is not None and abs(size) < 1 else one)]
    return [(one, one)]


def _same_number(gold: str, gold_scale: Fraction, answer: str, answer_scale: Fraction, tolerance: float | None) -> bool:
    """Compare single values, numbers or formulas, each multiplied with its scale."""
    gold_literal, answer_literal = _gold_literal(gold), read_literal(answer)
    if gold_literal and answer_literal:
        return agree(gold_literal.scaled(gold_scale), answer_literal.scaled(answer_scale), tolerance)
    gold_value, answer_value = _gold_expression(gold), formula(answer)
    if gold_value is None or answer_value is None:
        return False
    gold_value, answer_value = _times(gold_value, gold_scale), _times(answer_value, answer_scale)
    if same(gold_value, answer_value):
        return True
    if not is_constant(gold_value) or not is_constant(answer_value):
        return False
    gold_literal = gold_literal.scaled(gold_scale) if gold_literal else _as_literal(gold_value)
    answer_literal = answer_literal.scaled(answer_scale) if answer_literal else _as_literal(answer_value)
    return bool(gold_literal and answer_literal) and near(gold_literal, answer_literal, tolerance)


def _times(value: sympy.Expr, scale: Fraction) -> sympy.Expr:
    return value if scale == 1 else value * sympy.Rational(scale.numerator, scale.denominator)


def _as_literal(value: sympy.Expr) -> Literal | None:
    number = exact_fraction(value)
    return None if number is None else Literal(number)


def _gold_literal(text: str) -> Literal | None:
    try:
        return read_literal(text)
    except ValueError:
        return None


def formula(text: str) -> sympy.Expr | None:
    """The expression, or ratio: ``5:8`` is 5/8. Written numbers are taken as such: 3e8 is not 24e."""
    literal = read_literal(text)
    if literal:
        return sympy.Rational(literal.value.numerator, literal.value.denominator)
    above, colon, below = text.partition(":")
    if colon and ":" not in below:
        above, below = expression(above.strip()), expression(below.strip())
        return above / below if above is not None and below is not None and not below.is_zero else None
    return expression(text)


def _gold_expression(text: str) -> sympy.Expr | None:
    """As `formula`; a gold that sympy cannot take is compared as text."""
    try:
        return formula(text)
    except Exception:
        return None
