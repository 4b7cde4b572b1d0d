r"""What an answer consists of: lists, tuples, intervals, unions, matrices, named values, equations, and single values.

Commas are only split where no bracket is open. An answer that lists several values is equal only to a gold that lists
the same ones: naming all candidates is no way to a reward.
"""

import re
from functools import lru_cache

from balanced_aggregation.rewards.mathematics.names import (
    SYMBOL,
    closing_place,
    is_condition,
    is_label,
    is_name,
    is_number,
    split,
    top_level,
)
from balanced_aggregation.rewards.mathematics.nodes import (
    Chain,
    Group,
    Leaf,
    Matrix,
    Named,
    Node,
    Relation,
    Rounded,
    Several,
    Union,
)
from balanced_aggregation.rewards.mathematics.notation import balanced, key

LARGEST_LIST = 64
_DEEPEST = 12


class Unreadable(ValueError):
    """Not an answer in any notation that we know."""


_SIGNS = re.compile(r"\\(?:le|ge|ne|approx|in|to|subset|rightarrow|Rightarrow)(?![a-zA-Z])|[=<>]")
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", "=": "=", r"\ne": r"\ne"}
_REMARK = re.compile(r"\\text\s*\{\s*,?\s*(?:where|for|with)\b.*$|(?<=\S)\s*\([^()]*\\in[^()]*\)$")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_NO_THOUSANDS = re.compile(r",(?!\s|\d{3}(?!\d))|[(\[{]")
_CHOICE = re.compile(r"\\text\s*\{\s*\(?([A-Z](?:\s*,\s*[A-Z])*)\)?\s*\.?\}")
_OPTION = re.compile(
    r"(?:\\text\s*\{\s*\(([A-J])\)\s*\}|\(([A-J])\))\s*(?P<said>(?:\d|\\(?:frac|sqrt|pi)(?![a-zA-Z]))[^=<>]*)"
)
_SENTENCE = re.compile(
    r"(?:\\text\s*\{\s*)?The (?P<label>(?:[a-z]+ ){1,3})(?:is|are|equals)\b:?\s*\}?\s*(?P<value>.{1,80})"
)
_SIGNED = re.compile(r"\\(?:pm|mp)(?![a-zA-Z])")
_WORD = re.compile(r"[a-z]{2,}")
_NO_WORD = re.compile(r"\\text\{[a-z ]+\}|\\[a-z]+|\s[a-z]+$")
_MATRIX = re.compile(r"\\begin\s*\{([pbvBV]?matrix|array)\}(?:\s*\{[clr|]*\})?(.*)\\end\s*\{\1\}", re.DOTALL)


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
    if ", " in text and not _NO_THOUSANDS.search(text):
        text = _THOUSANDS.sub("", text)  # 1,000, 2,000
    literal = "," not in text or re.fullmatch(r"(?:\\usd\s*)?-?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?:[^\d,;][^,;]*)?", text)
    parts = [text] if literal and ";" not in text and "\\\\" not in text else split(text, r",|;")
    parts = [part for part in parts if part and not is_condition(part)] or [text]
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
    remark = _REMARK.search(text)
    if remark and is_condition(remark[0]):
        text = text[: remark.start()].strip() or text
    text = text.strip()
    letter = _CHOICE.fullmatch(text)
    if letter:
        return _read(letter[1], depth + 1)
    option = _OPTION.fullmatch(text)
    if option and is_number(option["said"]):
        return Leaf(option[1] or option[2])  # (A) 5, where the options were numbers
    sentence = _SENTENCE.fullmatch(text)
    if sentence and is_label(sentence["label"]):
        value = sentence["value"].removesuffix("" if balanced(sentence["value"]) else "}").strip(" .")
        if value and not _WORD.search(_NO_WORD.sub("", value)):
            return _read(value, depth + 1)
    label, colon, rest = re.sub(r"^(\\text\s*\{[^{}:]*):\s*\}", r"\1}:", text).partition(":")
    if colon and rest.strip() and is_label(label):
        return _read(rest.strip(), depth + 1)
    matrix = _MATRIX.search(text)
    factor = text[: matrix.start()].strip() if matrix and matrix.end() == len(text) else None
    if factor is not None and "=" not in factor and r"\begin" not in factor and matrix[1] not in ("vmatrix", "Vmatrix"):
        rows = [row for row in re.split(r"\\\\", matrix[2].replace(r"\hline", "")) if row.strip()]
        if len(rows) > LARGEST_LIST:
            raise Unreadable("too large a matrix")
        if factor:
            rows = [" & ".join(rf"({factor}) \cdot ({entry})" for entry in row.split("&")) for row in rows]
        return Matrix(tuple(tuple(_item(entry, depth + 1) for entry in row.split("&")) for row in rows))
    parts = split(text, r"\\cup(?![a-zA-Z])")
    if len(parts) > 1 and all(parts):
        return Union(tuple(_item(part, depth + 1) for part in parts))
    group = _group(text, depth)
    if group:
        return group
    signs = top_level(text, _SIGNS)
    if signs:
        return _relation(text, signs, depth)
    if _SIGNED.search(text):
        plus = re.sub(r"\\pm(?![a-zA-Z])", "+", re.sub(r"\\mp(?![a-zA-Z])", "-", text))
        minus = re.sub(r"\\pm(?![a-zA-Z])", "-", re.sub(r"\\mp(?![a-zA-Z])", "+", text))
        return Several(tuple(Leaf(re.sub(r"^\s*\+", "", sign).strip()) for sign in (plus, minus)))
    return Leaf(text)


def _group(text: str, depth: int) -> Node | None:
    """The node of a text that is in brackets as a whole; None if it isn't."""
    if text.startswith("{") and closing_place(text) == len(text) - 1:
        return _read(text[1:-1].strip(), depth + 1) if text[1:-1].strip() else None
    brace = text.startswith(r"\{")
    if not (brace or text[:1] in ("(", "[")) or closing_place(text) != len(text) - 1:
        return None
    inside = (text[2:-2] if brace else text[1:-1]).strip()
    if not inside:
        return Leaf(text)
    if brace:
        bar = re.split(r"\||:", inside, maxsplit=1)
        if len(bar) == 2 and SYMBOL.fullmatch(bar[0].split(r"\in")[0].strip()):
            return _read(bar[1].strip(), depth + 1)
        node = _read(inside, depth + 1)
        return node if isinstance(node, Several) else Several((node,))
    parts = split(inside, r",|;")
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
        if not all(sides):
            return Leaf(text)
        if first < len(kinds):
            exact, *rounded = sides[first:]
            value = _relation_of(text, sides[: first + 1], kinds[:first], depth) if first else _read(exact, depth + 1)
            return Rounded(value, exact, tuple(rounded)) if set(kinds[first:]) <= {r"\approx", "="} else Leaf(text)
    return _relation_of(text, sides, kinds, depth) if all(sides) else Leaf(text)


def _relation_of(text: str, sides: list[str], kinds: list[str], depth: int) -> Node:
    if set(kinds) == {"="}:
        return _equation(sides, depth)
    if kinds == [r"\in"] and (SYMBOL.fullmatch(sides[0]) or is_name(sides[0])):
        return Named(key(sides[0]), _read(sides[1], depth + 1), r"\in")
    return _inequality(text, sides, kinds)


def _equation(sides: list[str], depth: int) -> Node:
    first, *rest = sides
    if len(sides) == 2 and is_number(first) and is_name(rest[0]):
        first, rest = rest[0], [first]
    if is_label(first):
        return _read(rest[0], depth + 1) if len(rest) == 1 else _equation(rest, depth)
    if is_name(first):
        return Named(key(first), _read(rest[0], depth + 1) if len(rest) == 1 else Chain(tuple(rest)))
    return Relation(first, "=", rest[0]) if len(rest) == 1 else Chain(tuple(sides))


def _inequality(text: str, sides: list[str], kinds: list[str]) -> Node:
    """An interval, if one side is a name and the others aren't."""
    if len(sides) == 2:
        left, right = sides
        sign = kinds[0]
        if is_name(right) and not is_name(left):
            left, right, sign = right, left, _FLIPPED.get(sign, sign)
        if sign not in _FLIPPED:
            return Leaf(text)
        if not is_name(left) or (is_name(right) and not is_number(right)):
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


def _flat(items: list[Node]) -> tuple[Node, ...]:
    flat = [inner for item in items for inner in (item.items if isinstance(item, Several) else (item,))]
    return tuple(flat)
