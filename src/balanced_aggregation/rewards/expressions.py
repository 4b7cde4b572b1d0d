r"""Expressions: read by math-verify's parser, compared exactly.

What its parser is given is restricted to a list of commands. Sums, integrals, limits, remainders and the like are not
among them: an answer may not be the question, left for sympy to evaluate.
"""

import hashlib
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from sympy.core.function import AppliedUndef, UndefinedFunction

from balanced_aggregation.rewards.literals import TooLarge

_PRECISION = 60
_POINTS = 8
_WIDE_POINTS = 24
_LARGEST_BITS = 100_000
_LARGEST_FACTORIAL = 3000
_LONGEST = 800
_DEEPEST = 16

# Symbols keep their case (else r/R would be 1), and 3(4) is a product (else it would be 7).
_STEPS = (sympy.floor, sympy.ceiling, sympy.Abs, sympy.Mod, sympy.sign)

_READING = ConversionConfig(interpret_as_mixed_fractions=False, lowercase_symbols=False)

_GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho varrho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega ell hbar".split()
)
_FUNCTIONS = frozenset(
    "frac sqrt binom cdot pi infty sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log exp "
    "lfloor rfloor lceil rceil".split()
)
_COMMAND = re.compile(r"\\([a-zA-Z]+|.)")
_TOKENS = re.compile(
    r"(?P<decimal>\d+\.\d+)"
    r"|(?P<function>\\(?:log|lim)\s*_)"
    r"|(?P<symbol>(?:\\(?:" + "|".join(sorted(_GREEK, key=len, reverse=True)) + r")(?![a-zA-Z])|(?<![\\a-zA-Z])[a-zA-Z]"
    r"|(?<=[a-zA-Z])(?<!\\)[a-zA-Z]|\\(?:dot|ddot|bar|overline|hat|vec|tilde)\s*\{\s*\\?[a-zA-Z]{1,8}\s*\}))"
    r"(?P<prime>(?:'|\^\s*\{\s*(?:\\prime\s*)+\}|\^\s*\\prime(?![a-zA-Z]))*)"
    r"(?:\s*_\s*(?:\{(?P<long>[^{}]*(?:\{[^{}]*\}[^{}]*)*)\}|(?P<short>\\?[a-zA-Z]+|\d)))?"
    r"|(?P<command>\\[a-zA-Z]+)"
)


@lru_cache(maxsize=1024)
def expression(text: str) -> sympy.Expr | None:
    """The expression that a tidy text is, evaluated as far as that is exact; None if it is none that we read.

    Raises:
        TooLarge: it has a number that would fill the memory.
        Exception: whatever the parser and sympy come up with.
    """
    prepared = _prepare(text)
    if prepared is None:
        return None
    try:
        with sympy.evaluate(False):  # it would compute a binomial coefficient at once, of whatever size
            parsed = latex2sympy(prepared, is_real=True, normalization_config=None, conversion_config=_READING)
    except RecursionError:
        raise
    except Exception:  # antlr's, all of them plain Exception: not a formula, perhaps words
        return None
    if not isinstance(parsed, sympy.Expr) or parsed.has(sympy.Derivative, sympy.Integral, sympy.Sum):
        return None
    _size(parsed)
    parsed = parsed.replace(
        lambda e: isinstance(e, AppliedUndef) or isinstance(e.func, UndefinedFunction),
        lambda e: sympy.Symbol(sympy.srepr(e), real=True),
    )
    for symbol in parsed.free_symbols:
        if symbol.name == "i":
            parsed = parsed.subs(symbol, sympy.I)
    return parsed.doit()


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
    if gold.is_Rational and answer.is_Rational:
        return False
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=lambda s: s.name)
    if not symbols:
        return _close(_number(gold), _number(answer))
    if (gold - answer).is_Rational:
        return bool(gold == answer)
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


def _prepare(text: str) -> str | None:
    """The text for the parser; None if it has what we don't let it read."""
    if len(text) > _LONGEST or not text:
        return None
    depth = deepest = 0
    for character in text:
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(character, 0)
        deepest = max(deepest, depth)
    if depth or deepest > _DEEPEST:
        return None
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    text = _TOKENS.sub(_token, text)
    for command in _COMMAND.findall(text):
        if command not in _GREEK and command not in _FUNCTIONS:
            return None
    if not re.fullmatch(r"[\w+\-/^(){}\[\]|!.\\ ]*", text) or re.search(
        r"\.|!\s*!|\^\s*\^|[_^/+\-(\[{]\s*$|(?<![_\d])\d+\s+\d", text
    ):
        return None
    return _explicit(text)


def _token(found: re.Match) -> str:
    if found["decimal"]:
        whole, _, places = found["decimal"].partition(".")
        fraction = rf"\frac{{{int(whole + places)}}}{{1{'0' * len(places)}}}"
        return f"{{{fraction}}}" if found.string[: found.start()].rstrip().endswith("^") else fraction
    if found["symbol"]:
        subscript = found["long"] if found["long"] is not None else found["short"]
        base = found["symbol"]
        if subscript is None and not found["prime"] and not base.endswith("}"):
            return base + " " if base.startswith("\\") else base
        name = re.sub(r"\\text|\\prime|[\s{}^]", lambda m: "'" if m[0] == r"\prime" else "", found[0])
        # The parser knows few subscripts and drops primes; a number is the one thing it always takes.
        code = int(hashlib.sha256(name.encode()).hexdigest()[:10], 16)
        letter = base if re.fullmatch(r"[a-zA-Z]", base) and base not in "eEiId" else "z"
        return f"{letter}_{{{code}}}"
    return found[0]


def _explicit(text: str) -> str:
    r"""Braces that are no argument become parentheses, and a product of two numbers gets its sign.

    The parser would take ``{x}`` for a set, and ``2(3)`` or ``\frac{4}{2}(3)`` for a mixed number, which is 5.
    """
    pieces, open_braces, before, closed, factor_ended = [], [], "", "", False
    for place, character in enumerate(text):
        if character == " ":
            pieces.append(character)
            continue
        if factor_ended and (character in "(" or character.isdigit() or text.startswith((r"\frac", r"\sqrt"), place)):
            pieces.append(r"\cdot ")
        factor_ended = character == ")" or (character.isdigit() and not text[place + 1 : place + 2].isdigit())
        if character == "{":
            written = "".join(pieces).rstrip()
            idle = not before or before in "+-(|/="
            kind = "idle" if idle else "frac" if written.endswith(r"\frac") else "other"
            if before == "}" and closed == "frac":
                kind = "factor"
            open_braces.append(kind)
            pieces.append("(" if idle else "{")
        elif character == "}":
            closed = open_braces.pop()
            factor_ended = closed in ("idle", "factor")
            pieces.append(")" if closed == "idle" else "}")
        else:
            pieces.append(character)
        before = character
    return "".join(pieces)


def _size(value: sympy.Basic, tower: int = 0) -> float:
    """Bits that the value may have, at most; raises TooLarge before anything is evaluated."""
    if isinstance(value, sympy.Rational):
        return float(max(abs(value.p), value.q).bit_length())
    if not value.args:
        return 4.0
    if isinstance(value, (sympy.Pow, sympy.exp)):
        base, exponent = value.as_base_exp() if isinstance(value, sympy.exp) else value.args
        tower += 1
        bits = _size(exponent, tower)
        if bits > 40 or tower > 4:
            raise TooLarge("a tower of powers")
        magnitude = 2.0**bits if not exponent.is_Rational else abs(float(exponent))
        return _bounded(max(1.0, _size(base, tower)) * max(1.0, magnitude if not exponent.free_symbols else 4.0))
    sizes = [_size(part, tower) for part in value.args]
    if isinstance(value, (sympy.factorial, sympy.gamma, sympy.binomial)):
        if sizes[0] > _LARGEST_FACTORIAL.bit_length():
            raise TooLarge("the factorial of a large number")
        return _bounded(2.0 ** min(sizes) * sizes[0])
    if isinstance(value, sympy.Add):
        return _bounded(sum(sizes))
    if isinstance(value, sympy.Mul):
        return _bounded(sum(sizes))
    return _bounded(max(sizes))


def _bounded(bits: float) -> float:
    if bits > _LARGEST_BITS:
        raise TooLarge(f"a number of {bits:.0f} bits")
    return bits


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
