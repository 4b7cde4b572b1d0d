"""Names that answers give to values, and the brackets that commas and signs stand in."""

import re

from balanced_aggregation.rewards.mathematics.literals import read_literal

_LETTER = r"(?:\\[a-zA-Z]+|[a-zA-Z])"
_SUBSCRIPT = r"(?:\s*(?:_|\^\s*(?=\{?\s*\\?(?:prime|ast|\*)))\s*(?:\{(?:[^{}]|\{[^{}]*\})*\}|\\?[a-zA-Z]+|\d)|\s*')*"
SYMBOL = re.compile(rf"{_LETTER}{_SUBSCRIPT}")
_FUNCTION = re.compile(rf"(?P<name>{_LETTER}{_SUBSCRIPT})\s*\((?P<argument>[^()=]*)\)")
LABEL = re.compile(r"(?:\\text\s*\{[^{}]*\}|[A-Z][a-z]+(?: [a-z]+)*|[a-z]{3,})")
_NO_LABEL = re.compile(r"\\(?:sum|prod|int|lim|cdot|pm|mp)(?![a-zA-Z])|[+^]|-|\d")
_OPENING, _CLOSING = "([{", ")]}"


def is_name(text: str) -> bool:
    r"""Whether the text names a value, rather than being one: ``x``, ``f(2)``, ``AB``, ``(x, y)``, ``m_{\max}``."""
    if not text or is_number(text):
        return False
    if SYMBOL.fullmatch(text):
        return text not in (r"\pi", "e", "i", r"\infty")
    if _FUNCTION.fullmatch(text) or LABEL.fullmatch(text):
        return True
    if text[0] == "(" and closing_place(text) == len(text) - 1:
        return all(is_name(part) for part in split(text[1:-1], r",|;"))
    bare = re.sub(r"_\s*(?:\{[^{}]*\}|\\?[a-zA-Z]+|\d)", "", text)
    return not _NO_LABEL.search(bare) and bool(re.search(r"[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", bare)))


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
