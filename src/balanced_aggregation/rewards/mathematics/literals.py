r"""Numbers as they are written: their exact value, and how far they were rounded.

``4.5e33``, ``4.5 \cdot 10^{33}``, ``10,080``, ``025``, ``\frac{3}{4}``, ``3/4``, ``1\frac{4}{5}`` are read without any
float. The grader of math-verify compares decimals after rounding to six places, so that for it 2e-10 is 3e-10.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

MEASURED = Fraction(1, 100)
"""Relative tolerance to a gold in e-notation: these are rounded measurements, most of two digits."""

_LARGEST_EXPONENT = 5000
_FINEST = 10**30
"""Decimals of more places than this are none: a root's value has sixty digits, a third any number."""
_DIGITS_OF_A_ROUNDED_GOLD = 4
_DIGITS_OF_A_ROUNDED_ANSWER = 6

_DECIMAL = r"(?P<whole>\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+|\d+)(?:\.(?P<places>\d+))?"
_POWER_OF_TEN = r"10\s*\^\s*(?:\{\s*(?P<exponent>[+-]?\d+)\s*\}|(?P<digit>\d))"
_LITERAL = re.compile(
    rf"(?P<sign>[+-]?)\s*(?:{_DECIMAL}\s*(?:\\cdot\s*{_POWER_OF_TEN}"
    r"|(?:[eE]|\\text\s*\{\s*[eE]\s*\})\s*(?:\{\s*(?P<e1>[+-]?\d+)\s*\}|(?P<e2>[+-]?\d+)))?)"
)
_TEN = re.compile(rf"(?P<sign>[+-]?)\s*{_POWER_OF_TEN}")
_RATIO = re.compile(
    r"(?P<sign>[+-]?)\s*(?:(?P<whole>\d+)\s*)?(?:\\frac\s*\{\s*(?P<minus>-?)\s*(?P<top>\d+)\s*\}\s*\{\s*(?P<bottom>\d+)\s*\}"
    r"|(?<=\s)(?P<top2>\d+)\s*/\s*(?P<bottom2>\d+))"
)
_SLASH = re.compile(r"(?P<sign>[+-]?)\s*(?P<top>\d+)\s*/\s*(?P<bottom>\d+)")


class TooLarge(ValueError):
    """A number that would fill the memory or take too long."""


@dataclass(frozen=True)
class Literal:
    """A number as it was written.

    Attributes:
        value: exact.
        step: what one unit of its last decimal place is worth; 0 for a number without a decimal point.
        digits: how many digits it has, without the zeros that lead.
        measured: whether it is in e-notation.
    """

    value: Fraction
    step: Fraction = Fraction(0)
    digits: int = 0
    measured: bool = False

    def scaled(self, factor: Fraction) -> "Literal":
        """The same number in another unit."""
        return Literal(self.value * factor, self.step * abs(factor), self.digits, self.measured)


@lru_cache(maxsize=4096)
def read_literal(text: str) -> Literal | None:
    """The number that the whole text is; None if it is something else.

    Raises:
        TooLarge: its exponent is beyond thousands.
    """
    text = text.strip()
    found = _LITERAL.fullmatch(text)
    if found:
        return _decimal(found)
    found = _TEN.fullmatch(text)
    if found:
        value = _ten(found["exponent"] or found["digit"])
        return Literal(-value if found["sign"] == "-" else value)
    found = _SLASH.fullmatch(text)
    if found:
        return _ratio(found["sign"], "0", found["top"], found["bottom"])
    found = _RATIO.fullmatch(text)
    if found and not (found["minus"] and found["whole"]):
        top, bottom = found["top"] or found["top2"], found["bottom"] or found["bottom2"]
        if found["whole"] and int(top) >= int(bottom):
            return None  # 3\frac{7}{2}: is it a sum or a product?
        sign = "-" if (found["sign"] == "-") != (found["minus"] == "-") else ""
        return _ratio(sign, found["whole"] or "0", top, bottom)
    return None


def agree(gold: Literal, answer: Literal, tolerance: float | None = None) -> bool:
    """Whether two written numbers are the same one: exactly, or `near` enough."""
    return gold.value == answer.value or near(gold, answer, tolerance)


def near(gold: Literal, answer: Literal, tolerance: float | None = None) -> bool:
    """Whether two numbers, one of them perhaps a root's value to very many digits, may differ as much as they do.

    They may by ``tolerance``, which is absolute and stands instead of what follows; or by `MEASURED` from a gold in
    e-notation. Beyond that, a decimal is only taken for the rounding of a fraction or root if it has so many digits
    that it can hardly be a coincidence: four in the gold, six in the answer. So 0.333 is not 1/3, and 3.14 not π. Of
    two decimals, none is taken for the rounding of the other.
    """
    difference = abs(gold.value - answer.value)
    if tolerance is not None:
        return difference <= Fraction(str(tolerance))
    if gold.measured:
        return difference <= MEASURED * abs(gold.value)
    return _rounded(gold, answer, _DIGITS_OF_A_ROUNDED_GOLD) or _rounded(answer, gold, _DIGITS_OF_A_ROUNDED_ANSWER)


def _rounded(coarse: Literal, exact: Literal, digits: int) -> bool:
    """Whether ``coarse`` is a decimal of at least so many digits, and ``exact`` a fraction or root that it stands for.

    Rounded, or cut off if no decimal is exact. Not if ``exact`` could have been written with as many places, or is a
    decimal itself.
    """
    if not coarse.step or coarse.digits < digits or exact.step or (exact.value / coarse.step).denominator == 1:
        return False
    if abs(coarse.value - exact.value) <= coarse.step / 2:
        return True
    missing = exact.value - coarse.value if exact.value > 0 else coarse.value - exact.value
    return 0 <= missing < coarse.step and (exact.value * _FINEST).denominator != 1


def _decimal(found: re.Match) -> Literal:
    whole, places = found["whole"].replace(",", "").replace(" ", ""), found["places"] or ""
    exponent = found["exponent"] or found["digit"] or found["e1"] or found["e2"]
    scale = _ten(exponent) if exponent else Fraction(1)
    digits = whole + places
    if len(digits) > _LARGEST_EXPONENT // 2:
        raise TooLarge("a number of thousands of digits")
    value = Fraction(int(digits), 10 ** len(places)) * scale
    step = scale / 10 ** len(places) if places else Fraction(0)
    measured = (found["e1"] or found["e2"]) is not None
    return Literal(-value if found["sign"] == "-" else value, step, len(digits.lstrip("0")), measured)


def _ratio(sign: str, whole: str, top: str, bottom: str) -> Literal | None:
    if max(map(len, (whole, top, bottom))) > _LARGEST_EXPONENT // 2:
        raise TooLarge("a number of thousands of digits")
    if int(bottom) == 0:
        return None
    value = int(whole) + Fraction(int(top), int(bottom))
    return Literal(-value if sign == "-" else value)


def _ten(exponent: str) -> Fraction:
    if len(exponent) > 6 or abs(int(exponent)) > _LARGEST_EXPONENT:
        raise TooLarge(f"10 to the power {exponent[:20]}")
    return Fraction(10) ** int(exponent)
