"""Names that answers give to values, and the brackets that commas and signs stand in."""

import re

from balanced_aggregation.rewards.mathematics.literals import read_literal

_GREEK = (
    "alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|vartheta|iota|kappa|lambda|mu|nu|xi|rho|varrho|sigma|tau|"
    "upsilon|phi|varphi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Sigma|Upsilon|Phi|Psi|Omega|ell|hbar"
)
_ACCENT = (
    "vec|hat|bar|overline|overrightarrow|widehat|widetilde|tilde|dot|ddot|mathcal|mathbb|mathscr|mathfrak|boldsymbol"
)
_LETTER = rf"(?:\\(?:{_GREEK})(?![a-zA-Z])|\\(?:{_ACCENT})\s*\{{\s*\\?[a-zA-Z]{{1,8}}\s*\}}|[a-zA-Z])"
_SUBSCRIPT = r"(?:\s*(?:_|\^\s*(?=\{?\s*\\?(?:prime|ast|\*)))\s*(?:\{(?:[^{}]|\{[^{}]*\})*\}|\\?[a-zA-Z]+|\d)|\s*')*"
SYMBOL = re.compile(rf"{_LETTER}{_SUBSCRIPT}")
_FUNCTION = re.compile(rf"(?P<name>{_LETTER}{_SUBSCRIPT})\s*\((?P<argument>[^()=]*)\)")
_FIGURE = re.compile(
    rf"(?:\\(?:angle|triangle)\s*|m\s*\\angle\s*|\\Delta\s*|d)?(?:(?:[A-Z]{_SUBSCRIPT}\s*){{1,5}}|{_LETTER}{_SUBSCRIPT})"
    rf"|{_LETTER}{_SUBSCRIPT}\s*:\s*{_LETTER}{_SUBSCRIPT}|\\frac\s*\{{\s*[A-Z]{{2}}\s*\}}\s*\{{\s*[A-Z]{{2}}\s*\}}"
    r"|\|[A-Z]{2}\||\[[A-Z]{3,6}\]|P\s*\([^()]*\)"
    r"|\\frac\s*\{\s*d[^{}]{0,10}\}\s*\{\s*d\s*[a-z](?:\^\{?\d\}?)?\s*\}"
)
_SAID_OF_VALUES = (
    "answer answers solution solutions result results value values total sum difference product quotient area "
    "perimeter circumference volume length width height depth distance radius diameter angle side slope "
    "probability number mean median mode range average maximum minimum max min ratio speed velocity acceleration "
    "time age cost price profit rate mass weight force energy power work density pressure temperature count "
    "remainder root roots"
)
_LABEL_WORDS = frozenset(_SAID_OF_VALUES.split())
_SAID_BESIDES = (
    "the a final correct overall total maximum minimum average expected surface shaded largest smallest new "
    "initial greatest least possible of"
)
_LABEL_OTHERS = frozenset(_SAID_BESIDES.split())
_SET = r"\\?(?:mathbb\s*\{?\s*)?[ZNRQC]\}?(?:[_^]\{?(?:[+*\d>]|\\ge\s*){0,2}\}?|\+)*"
_VARIABLE = rf"(?:[a-zA-Z]|\\(?:{_GREEK}))(?:_\{{?\w\}}?)?"
_VARIABLES = rf"{_VARIABLE}(?:\s*(?:,|and)\s*{_VARIABLE})*"
_KIND = (
    r"(?:(?:an?|any|all|every|each|some|arbitrary|real|positive|negative|non-?negative|non-?zero|natural|odd|even|"
    r"rational|complex|constant|the)\s+)*(?:integer|number|constant|real|natural|parameter)s?(?:\s+numbers?)?"
)
_BOUND = r"-?(?:\d+|\\pi)"
_CONDITION = re.compile(
    rf"(?P<word>(?:where|for|with)\s+)?(?:(?:all|any|every|each|some|an?|{_KIND})\s+)?(?:"
    rf"(?P<member>{_VARIABLES}\s*\\in\s*{_SET})"
    rf"|{_VARIABLES}(?:\s*(?:is|are|be|denotes?)\s+{_KIND})?"
    rf"|(?:{_BOUND}\s*(?:\\le|<)\s*)?{_VARIABLE}(?:\s*(?:\\le|\\ge|\\ne|<|>)\s*{_BOUND})+)"
)
_OPENING, _CLOSING = "([{", ")]}"


def is_name(text: str) -> bool:
    r"""Whether the text names a value, rather than being one: ``x``, ``f(2)``, ``AB``, ``(x, y)``, ``m_{\max}``."""
    if not text or is_number(text):
        return False
    if SYMBOL.fullmatch(text):
        return text not in (r"\pi", "e", "i", r"\infty")
    if _FUNCTION.fullmatch(text) or _FIGURE.fullmatch(text):
        return True
    if text[0] == "(" and closing_place(text) == len(text) - 1:
        parts = split(text[1:-1], r",|;")
        return len(parts) > 1 and all(is_name(part) for part in parts)
    return False


def is_label(text: str) -> bool:
    r"""Whether the text says what a value is and no more: ``\text{Answer}``, ``The total area``, ``probability``."""
    said = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text).lower()
    if not re.fullmatch(r"[a-z\s]+", said):
        return False
    said = said.split()
    return bool(_LABEL_WORDS & set(said)) and set(said) <= _LABEL_WORDS | _LABEL_OTHERS


def is_condition(text: str) -> bool:
    r"""Whether the text only says what a variable may be: ``k \in \mathbb{Z}``, ``\text{for all integers } n``."""
    said = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text)
    found = _CONDITION.fullmatch(re.sub(r"\s+", " ", said).strip(" ,.;()"))
    return bool(found and (found["word"] or found["member"]))


def function(name: str) -> tuple[str, str] | None:
    """Name and argument of ``f(x)``; None for other names."""
    found = _FUNCTION.fullmatch(name)
    return (found["name"], found["argument"]) if found else None


def is_number(text: str) -> bool:
    """Whether the text is a number, or made of numbers alone."""
    try:
        return read_literal(text) is not None or not re.search(
            r"[a-zA-Z]", re.sub(r"\\(?:frac|sqrt|pi|infty|cdot|ln|log)(?![a-zA-Z])", "", text)
        )
    except ValueError:
        return True


def top_level(text: str, pattern: re.Pattern) -> list[re.Match]:
    """Matches outside of all brackets."""
    depth, depths = 0, []
    for place, character in enumerate(text):
        depths.append(depth)
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
            depths[place] = depth
    return [found for found in pattern.finditer(text) if depths[found.start()] == 0]


def split(text: str, separator: str) -> list[str]:
    """The parts between separators that stand outside of all brackets."""
    parts, start = [], 0
    for found in top_level(text, re.compile(separator)):
        parts.append(text[start : found.start()].strip())
        start = found.end()
    return [*parts, text[start:].strip()]


def closing_place(text: str) -> int | None:
    """Where the bracket that opens the text is closed; ``(`` and ``]`` may go together."""
    depth = 0
    for place, character in enumerate(text):
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
            if depth == 0:
                return place
    return None
