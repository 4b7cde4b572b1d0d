r"""Expressions, read by math-verify's parser.

What its parser is given is restricted to a list of commands. Sums, integrals, limits, remainders and the like are not
among them: an answer may not be the question, left for sympy to evaluate.
"""

import hashlib
import re
from functools import lru_cache

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from sympy.core.function import AppliedUndef, UndefinedFunction

from balanced_aggregation.rewards.mathematics.literals import TooLarge

_LARGEST_BITS = 100_000
_LARGEST_FACTORIAL = 3000
_LARGEST_ROUNDED_BITS = 60
_LONGEST = 800
_DEEPEST = 16

_READING = ConversionConfig(lowercase_symbols=False)  # else r/R would be 1

_GREEK_NAMES = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho varrho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega ell hbar"
)
_FUNCTION_NAMES = (
    "frac sqrt binom cdot pi infty sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log exp "
    "lfloor rfloor lceil rceil"
)
_GREEK = frozenset(_GREEK_NAMES.split())
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_COMMAND = re.compile(r"\\([a-zA-Z]+|.)")
_TOKENS = re.compile(
    r"(?P<decimal>\d+\.\d+)"
    r"|\\log\s*_"
    r"|(?P<symbol>(?:\\(?:" + "|".join(sorted(_GREEK, key=len, reverse=True)) + r")(?![a-zA-Z])|(?<![\\a-zA-Z])[a-zA-Z]"
    r"|(?<=[a-zA-Z])(?<!\\)[a-zA-Z]|\\(?:dot|ddot|bar|overline|hat|vec|tilde)\s*\{\s*\\?[a-zA-Z]{1,8}\s*\}))"
    r"(?P<prime>(?:'|\^\s*\{\s*(?:\\prime\s*)+\}|\^\s*\\prime(?![a-zA-Z]))*)"
    r"(?:\s*_\s*(?:\{(?P<long>[^{}]*(?:\{[^{}]*\}[^{}]*)*)\}|(?P<short>\\?[a-zA-Z]+|\d)))?"
    r"|\\[a-zA-Z]+"
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


def _prepare(text: str) -> str | None:
    """The text for the parser; None if it has what we don't let it read."""
    if len(text) > _LONGEST or not text:
        return None
    if r"\infty" in text and not re.fullmatch(r"[+-]?\s*\\infty", text.strip()):
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
        r"\.|!\s*!|\^\s*\^|(?<![a-zA-Z\\])\d\s*[eE]\s*\d|[_^/+\-(\[{]\s*$|(?<![_\d])\d+\s+\d", text
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
        if subscript is None and not found["prime"] and not base.endswith("}") and base != "I":  # not the unit i
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
    if isinstance(value, (sympy.floor, sympy.ceiling)) and sizes[0] > _LARGEST_ROUNDED_BITS:
        raise TooLarge("the rounding of a large number")  # which computes a remainder, too
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
