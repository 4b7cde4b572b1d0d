"""Whether two expressions are the same number or function, with or without variables.

Not by simplification, which is slow and gives up, nor by fifteen digits, for which 1/2004! is 1/2006!: rational numbers
are compared exactly, all else to fifty digits, at many points if there are variables.
"""

import hashlib
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import sympy

_PRECISION = 60
_POINTS = 8
_WIDE_POINTS = 24
_STEPS = (sympy.floor, sympy.ceiling, sympy.Abs, sympy.Mod, sympy.sign)


def is_constant(value: sympy.Expr) -> bool:
    """Whether it has no variables."""
    return not value.free_symbols


def exact_fraction(value: sympy.Expr) -> Fraction | None:
    """The value of a rational number, or of another real one to sixty digits; None if it is no real number."""
    if value.is_Rational:
        return Fraction(int(value.p), int(value.q))
    number = _number(value)
    if number is None or not number.is_Float:
        return None
    rational = sympy.Rational(number)
    return Fraction(int(rational.p), int(rational.q))


def same(gold: sympy.Expr, answer: sympy.Expr) -> bool:
    """Whether two expressions are equal: exactly if they are rational, to fifty digits otherwise.

    Expressions with variables are compared at points that nobody chose: at two or more of eight, and wherever both
    are real. Some are negative: the root of x² is not x.
    """
    if gold == answer:
        return not gold.has(sympy.nan, sympy.zoo)
    if (gold - answer).is_Rational:
        return gold - answer == 0  # exactly, however small it is
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=lambda s: s.name)
    if not symbols:
        return _close(_number(gold), _number(answer))
    return _agree_everywhere(gold, answer, symbols)


def proportional(gold: sympy.Expr, answer: sympy.Expr, positive: bool) -> bool:
    """Whether one is a constant times the other (a positive constant), neither being zero throughout."""
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=lambda s: s.name)
    quotients = []
    for point in _points(gold, answer, symbols):
        above, below = _number(gold.subs(point)), _number(answer.subs(point))
        if above is None or below is None or not above or not below or not (above.is_Float and below.is_Float):
            continue
        quotients.append(above / below)
    if len(quotients) < 3:
        return False
    return all(_close(quotients[0], other) for other in quotients) and (not positive or quotients[0] > 0)


@lru_cache(maxsize=4096)
def _number(value: sympy.Expr) -> sympy.Expr | None:
    """The value to sixty digits; None if it isn't finite or cannot be evaluated."""
    if value.is_Rational:
        return value
    number = value.evalf(_PRECISION, maxn=4 * _PRECISION)
    if number.has(sympy.nan, sympy.zoo, sympy.oo) or not number.is_number or number.is_comparable is None:
        return None
    real, imaginary = number.as_real_imag()
    if not (real.is_Float or real.is_Rational) or not (imaginary.is_Float or imaginary.is_Rational):
        return None
    if abs(imaginary) <= sympy.Float("1e-50", _PRECISION) * (1 + abs(real)):
        return sympy.Float(real, _PRECISION)
    return number


def _close(one: sympy.Expr | None, other: sympy.Expr | None) -> bool:
    if one is None or other is None:
        return False
    scale = max(abs(one.evalf(_PRECISION)), abs(other.evalf(_PRECISION)))
    return bool(abs((one - other).evalf(_PRECISION)) <= scale * sympy.Float("1e-50", _PRECISION))


def _agree_everywhere(gold: sympy.Expr, answer: sympy.Expr, symbols: list[sympy.Symbol]) -> bool:
    """Whether they agree wherever both are real, and where all variables are positive, which must be two places."""
    places = 0
    for point in _points(gold, answer, symbols):
        one, other = _number(gold.subs(point)), _number(answer.subs(point))
        if one is None or other is None:
            continue
        if (one.is_real and other.is_real) or all(value > 0 for value in point.values()):
            scale = max(abs(one), abs(other))
            if not abs((one - other).evalf(_PRECISION)) <= scale * sympy.Float("1e-40", _PRECISION):
                return False
            places += 1
    return places >= 2


def _points(
    gold: sympy.Expr, answer: sympy.Expr, symbols: list[sympy.Symbol]
) -> Iterator[dict[sympy.Symbol, sympy.Float]]:
    """Values for the variables, from a hash of their names: positive in the first half, of both signs in the other.

    From 1/3 to 7/3; up to 60 if there are steps (floor, absolute value), which need not differ near zero.
    """
    wide = gold.has(*_STEPS) or answer.has(*_STEPS)
    count = _WIDE_POINTS if wide else _POINTS
    for i in range(count):
        point = {}
        for symbol in symbols:
            digest = int(hashlib.sha256(f"{i}/{symbol.name}".encode()).hexdigest(), 16)
            part = sympy.Rational(digest % 10**40, 10**40)
            size = sympy.Float(part * (60 if wide and i % 2 else 2) + sympy.Rational(1, 3), _PRECISION)
            point[symbol] = -size if i >= count // 2 and digest >> 200 & 1 else size
        yield point
