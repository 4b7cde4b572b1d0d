r"""What an answer consists of: lists, tuples, intervals, unions, matrices, named values, equations, and single values.

Commas are only split where no bracket is open. An answer that lists several values is equal only to a gold that lists
the same ones: naming all candidates is no way to a reward.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from balanced_aggregation.rewards.literals import read_literal
from balanced_aggregation.rewards.notation import key

LARGEST_LIST = 64
_DEEPEST = 12


class Unreadable(ValueError):
    """Not an answer in any notation that we know."""


@dataclass(frozen=True)
class Leaf:
    """A single value, in the notation of `notation.tidy`."""

    text: str


@dataclass(frozen=True)
class Several:
    r"""Values in any order, as in ``1, 2`` or ``\\{1, 2\\}``; ``ordered`` if each has a place of its own."""

    items: tuple["Node", ...]


@dataclass(frozen=True)
class Group:
    """Values in order between brackets: a tuple, or an interval. ``(1, 2)`` may be either."""

    opening: str
    items: tuple["Node", ...]
    closing: str


@dataclass(frozen=True)
class Union:
    """A union of intervals, in any order."""

    parts: tuple["Node", ...]


@dataclass(frozen=True)
class Matrix:
    """Rows of entries."""

    rows: tuple[tuple["Node", ...], ...]


@dataclass(frozen=True)
class Named:
    r"""A value with the name that it was given: ``x = 5``, ``f(n) = 2n``, ``x \\in [0, 1]``, ``0 < x < 1``."""

    name: str
    value: "Node"
    relation: str = "="


@dataclass(frozen=True)
class Relation:
    r"""An equation or inequality between two expressions, neither of them a name, or ``exact \approx rounded``."""

    left: str
    sign: str
    right: str


Node = Leaf | Several | Group | Union | Matrix | Named | Relation

_OPENING, _CLOSING = "([{", ")]}"
_SIGNS = re.compile(r"\\(?:le|ge|ne|approx|in|to|subset|rightarrow|Rightarrow)(?![a-zA-Z])|[=<>]")
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", "=": "=", r"\ne": r"\ne"}
_CONDITION = re.compile(
    r"[a-zA-Z](?:\s*,\s*[a-zA-Z])*\s*\\in\s*\\?(?:mathbb\s*\{?\s*)?[ZNRQ]\}?(?:[_^]\{?[+*\d]?\}?)*"
    r"|(?:\\text\s*\{)?\s*(?:where|for (?:all|any|every|each|some))\b.*"
)
_REMARK = re.compile(
    r"\\text\s*\{\s*(?:,\s*)?(?:where|for (?:all|any|every|each)|for)\b[^{}]*\}.*$|\\pmod\s*(?:\{[^{}]*\}|\w+)\s*$"
)
_CHOICE = re.compile(r"\\text\s*\{\s*\(?([A-Z](?:\s*,\s*[A-Z])*)\)?\s*\.?\}")
_MATRIX = re.compile(r"\\begin\s*\{([pbvBV]?matrix|array)\}(?:\s*\{[clr|]*\})?(.*)\\end\s*\{\1\}", re.DOTALL)
_LETTER = r"(?:\\[a-zA-Z]+|[a-zA-Z])"
_SUBSCRIPT = r"(?:\s*(?:_|\^\s*(?=\{?\s*\\?(?:prime|ast|\*)))\s*(?:\{(?:[^{}]|\{[^{}]*\})*\}|\\?[a-zA-Z]+|\d)|\s*')*"
_SYMBOL = re.compile(rf"{_LETTER}{_SUBSCRIPT}")
_FUNCTION = re.compile(rf"(?P<name>{_LETTER}{_SUBSCRIPT})\s*\((?P<argument>[^()=]*)\)")
_LABEL = re.compile(r"(?:\\text\s*\{[^{}]*\}|[A-Z][a-z]+(?: [a-z]+)*|[a-z]{3,})")
_NO_LABEL = re.compile(r"\\(?:sum|prod|int|lim|cdot|pm|mp)(?![a-zA-Z])|[+^]|-|\d")


@lru_cache(maxsize=4096)
def read(text: str) -> tuple[Node, ...]:
    """What the tidy text can be taken for; mostly one thing, but ``100,200`` is a number or two.

    Raises:
        Unreadable: it is too long a list, or too deep.
    """
    readings = [_read(text, 0)]
    if isinstance(readings[0], Leaf) and re.fullmatch(r"-?\d{1,3}(?:,\d{3})+", text):
        readings.append(Several(tuple(Leaf(part) for part in text.split(","))))
    return tuple(readings)


def _read(text: str, depth: int) -> Node:
    if depth > _DEEPEST:
        raise Unreadable("nested too deeply")
    literal = "," not in text or re.fullmatch(r"(?:\\usd\s*)?-?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?:\D.*)?", text)
    parts = [text] if literal and ";" not in text and "\\\\" not in text else _split(text, r",|;")
    parts = [part for part in parts if part and not _CONDITION.fullmatch(part)] or [text]
    if len(parts) > LARGEST_LIST:
        raise Unreadable("a list of too many values")
    if len(parts) == 1:
        return _item(parts[0], depth)
    items = [_item(part, depth + 1) for part in parts]
    if isinstance(items[0], Named) and not any(isinstance(item, (Named, Relation)) for item in items[1:]):
        items[0] = items[0].value  # x = 1, 2
    return Several(_flat(items))


def _item(text: str, depth: int) -> Node:
    if depth > _DEEPEST:
        raise Unreadable("nested too deeply")
    text = _REMARK.sub("", text).strip() or text.strip()
    letter = _CHOICE.fullmatch(text)
    if letter:
        return _read(letter[1], depth + 1)
    label, colon, rest = text.partition(":")
    if colon and _LABEL.fullmatch(label.strip()) and rest.strip():
        return Named(key(label), _read(rest.strip(), depth + 1), ":")
    matrix = _MATRIX.fullmatch(text)
    if matrix:
        rows = [row for row in re.split(r"\\\\", matrix[2].replace(r"\hline", "")) if row.strip()]
        if len(rows) > LARGEST_LIST:
            raise Unreadable("too large a matrix")
        return Matrix(tuple(tuple(_item(entry, depth + 1) for entry in row.split("&")) for row in rows))
    parts = _split(text, r"\\cup(?![a-zA-Z])")
    if len(parts) > 1 and all(parts):
        return Union(tuple(_item(part, depth + 1) for part in parts))
    group = _group(text, depth)
    if group:
        return group
    signs = _top_level(text, _SIGNS)
    if signs:
        return _relation(text, signs, depth)
    if r"\pm" in text or r"\mp" in text:
        plus = re.sub(r"\\pm(?![a-zA-Z])", "+", re.sub(r"\\mp(?![a-zA-Z])", "-", text))
        minus = re.sub(r"\\pm(?![a-zA-Z])", "-", re.sub(r"\\mp(?![a-zA-Z])", "+", text))
        return Several(tuple(Leaf(re.sub(r"^\s*\+", "", sign).strip()) for sign in (plus, minus)))
    return Leaf(text)


def _group(text: str, depth: int) -> Node | None:
    """The node of a text that is in brackets as a whole; None if it isn't."""
    if text.startswith("{") and _closing_place(text) == len(text) - 1:
        return _read(text[1:-1].strip(), depth + 1) if text[1:-1].strip() else None
    brace = text.startswith(r"\{")
    if not (brace or text[:1] in ("(", "[")) or _closing_place(text) != len(text) - 1:
        return None
    inside = (text[2:-2] if brace else text[1:-1]).strip()
    if not inside:
        return Leaf(text)
    if brace:
        bar = re.split(r"\||:", inside, maxsplit=1)
        if len(bar) == 2 and _SYMBOL.fullmatch(bar[0].split(r"\in")[0].strip()):
            return _read(bar[1].strip(), depth + 1)
        node = _read(inside, depth + 1)
        return node if isinstance(node, Several) else Several((node,))
    parts = _split(inside, r",|;")
    if len(parts) == 1:
        return _read(inside, depth + 1) if (text[0] == "(" and text[-1] == ")") or text[-1] == "]" else None
    if len(parts) > LARGEST_LIST or not all(parts):
        raise Unreadable("a list of too many or empty values")
    items = [_item(part, depth + 1) for part in parts]
    choices: list[tuple[Node, ...]] = [()]
    for item in items:  # each sign of (±1, ±2) by itself
        options = item.items if isinstance(item, Several) and r"\pm" in text else (item,)
        choices = [(*chosen, option) for chosen in choices for option in options]
        if len(choices) > LARGEST_LIST:
            raise Unreadable("too many signs")
    groups = [Group(text[0], chosen, text[-1]) for chosen in choices]
    return groups[0] if len(groups) == 1 else Several(tuple(groups))


def _relation(text: str, signs: list[re.Match], depth: int) -> Node:
    places = [0, *(place for sign in signs for place in sign.span()), len(text)]
    sides = [text[a:b].strip() for a, b in zip(places[::2], places[1::2], strict=True)]
    kinds = [sign[0] for sign in signs]
    if r"\approx" in kinds:
        first = kinds.index(r"\approx")
        if first == 0 and is_name(sides[0]):
            kinds[0] = "="
            first = next((i for i, kind in enumerate(kinds) if kind == r"\approx"), len(kinds))
        rounded = sides[first + 1] if first < len(kinds) else ""
        sides, kinds = sides[: first + 1], kinds[:first]  # the exact value stands before the rounded one
        if not kinds:
            return Relation(sides[0], r"\approx", rounded) if rounded else _read(sides[0], depth + 1)
    if not all(sides):
        return Leaf(text)
    if set(kinds) == {"="}:
        return _equation(sides, depth)
    if kinds == [r"\in"] and (_SYMBOL.fullmatch(sides[0]) or is_name(sides[0])):
        return Named(key(sides[0]), _read(sides[1], depth + 1), r"\in")
    return _inequality(text, sides, kinds)


def _equation(sides: list[str], depth: int) -> Node:
    *names, last = sides
    if _is_number(names[0]) and is_name(last) and len(sides) == 2:
        names, last = [last], names[0]
    if all(is_name(name) for name in names):
        return Named(key(names[0]), _read(last, depth + 1))
    if len(sides) == 2:
        return Relation(sides[0], "=", sides[1])
    if is_name(names[0]):
        return Named(key(names[0]), Relation(sides[-2], "=", last))
    return Relation(sides[-2], "=", last)


def _inequality(text: str, sides: list[str], kinds: list[str]) -> Node:
    """An interval, if one side is a name and the others aren't."""
    if len(sides) == 2:
        left, right = sides
        sign = kinds[0]
        if is_name(right) and not is_name(left):
            left, right, sign = right, left, _FLIPPED.get(sign, sign)
        if sign not in _FLIPPED:
            return Leaf(text)
        if not is_name(left) or (is_name(right) and not _is_number(right)):
            return Relation(left, sign, right)
        low, high, bound = Leaf(r"-\infty"), Leaf(r"\infty"), Leaf(right)
        value = {
            "<": Group("(", (low, bound), ")"),
            r"\le": Group("(", (low, bound), "]"),
            ">": Group("(", (bound, high), ")"),
            r"\ge": Group("[", (bound, high), ")"),
            r"\ne": Union((Group("(", (low, bound), ")"), Group("(", (bound, high), ")"))),
        }[sign]
        return Named(key(left), value, "<")
    if len(sides) == 3 and is_name(sides[1]) and not is_name(sides[0]) and not is_name(sides[2]):
        ends = [Leaf(sides[0]), Leaf(sides[2])]
        if set(kinds) <= {">", r"\ge"}:
            kinds, ends = [_FLIPPED[kind] for kind in reversed(kinds)], ends[::-1]
        if set(kinds) <= {"<", r"\le"}:
            brackets = "(" if kinds[0] == "<" else "[", ")" if kinds[1] == "<" else "]"
            return Named(key(sides[1]), Group(brackets[0], tuple(ends), brackets[1]), "<")
    return Leaf(text)


def is_name(text: str) -> bool:
    r"""Whether the text names a value, rather than being one: ``x``, ``f(2)``, ``AB``, ``(x, y)``, ``m_{\\max}``."""
    if not text or _is_number(text):
        return False
    if _SYMBOL.fullmatch(text):
        return text not in (r"\pi", "e", "i", r"\infty")
    if _FUNCTION.fullmatch(text) or _LABEL.fullmatch(text):
        return True
    if text[0] == "(" and _closing_place(text) == len(text) - 1:
        return all(is_name(part) for part in _split(text[1:-1], r",|;"))
    bare = re.sub(r"_\s*(?:\{[^{}]*\}|\\?[a-zA-Z]+|\d)", "", text)
    return not _NO_LABEL.search(bare) and bool(re.search(r"[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", bare)))


def function(name: str) -> tuple[str, str] | None:
    """Name and argument of ``f(x)``; None for other names."""
    found = _FUNCTION.fullmatch(name)
    return (found["name"], found["argument"]) if found else None


def _is_number(text: str) -> bool:
    try:
        return read_literal(text) is not None or not re.search(
            r"[a-zA-Z]", re.sub(r"\\(?:frac|sqrt|pi|infty|cdot|ln|log)(?![a-zA-Z])", "", text)
        )
    except ValueError:
        return True


def _flat(items: list[Node]) -> tuple[Node, ...]:
    flat = [inner for item in items for inner in (item.items if isinstance(item, Several) else (item,))]
    return tuple(flat)


def _top_level(text: str, pattern: re.Pattern) -> list[re.Match]:
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


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators that stand outside of all brackets."""
    parts, start = [], 0
    for found in _top_level(text, re.compile(separator)):
        parts.append(text[start : found.start()].strip())
        start = found.end()
    return [*parts, text[start:].strip()]


def _closing_place(text: str) -> int | None:
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
