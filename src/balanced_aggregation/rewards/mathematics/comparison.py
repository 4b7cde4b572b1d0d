"""Whether two answers are the same, part by part. The first is the gold: it decides what is asked for."""

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import sympy

from balanced_aggregation.rewards.mathematics.identity import exact_fraction, is_constant, proportional, same
from balanced_aggregation.rewards.mathematics.literals import read_literal
from balanced_aggregation.rewards.mathematics.names import function
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
from balanced_aggregation.rewards.mathematics.notation import key
from balanced_aggregation.rewards.mathematics.structure import read
from balanced_aggregation.rewards.mathematics.units import split_unit
from balanced_aggregation.rewards.mathematics.values import formula, same_value, words

_CHAIN = Fraction(1, 100)


def equal(gold: Node, answer: Node, tolerance: float | None = None) -> bool:
    """Whether the answer is the gold.

    Raises:
        Exception: whatever sympy comes up with on reading the answer.
    """
    if gold == answer:
        return True
    match gold, answer:
        case (Rounded(), _):
            return equal(gold.value, answer, tolerance)
        case (_, Rounded()):
            return all(_rounding(answer.exact, side) for side in answer.rounded) and equal(
                gold, answer.value, tolerance
            )
        case (Chain(), _):
            return equal(read(gold.sides[-1])[0], answer, tolerance)
        case (Named(), Named()):
            return _compatible(gold.name, answer.name) and equal(gold.value, _renamed(gold, answer), tolerance)
        case (Named(relation="="), Relation()):
            return _same_relation(Relation(gold.name, "=", _text(gold.value)), answer)
        case (Relation(), Named(relation="=")):
            return _same_relation(gold, Relation(answer.name, "=", _text(answer.value)))
        case (Named(relation="<"), Relation()):
            return _same_relation(_inequality(gold), answer)
        case (Relation(), Named(relation="<")):
            return _same_relation(gold, _inequality(answer))
        case (Named(), Chain()):
            return False
        case (Named(), _):
            return equal(gold.value, answer, tolerance)
        case (_, Named()):
            return not _is_choice(gold) and equal(gold, answer.value, tolerance)
        case (_, Chain()):
            end = _end(answer.sides)
            return end is not None and equal(gold, read(end)[0], tolerance)
        case (Several(items=(only,)), _):
            return equal(only, answer, tolerance)
        case (_, Several(items=(only,))):
            return equal(gold, only, tolerance)
        case (Several(), Several()):
            return _same_values(gold.items, answer.items, tolerance)
        case (Union(), Union()):
            return _matched(gold.parts, answer.parts, tolerance)
        case (Group(), Group()):
            return (gold.opening, gold.closing) == (answer.opening, answer.closing) and _in_order(
                gold.items, answer.items, tolerance
            )
        case (Group("(", items, ")"), Several()):
            return _in_order(items, answer.items, tolerance)
        case (Several(), Group("(", items, ")")):
            return _in_order(gold.items, items, tolerance)
        case (Matrix(), Matrix()):
            return len(gold.rows) == len(answer.rows) and all(
                _in_order(one, other, tolerance) for one, other in zip(gold.rows, answer.rows, strict=True)
            )
        case (Matrix(), Group("(", items, ")")):
            return _in_order(_vector(gold), items, tolerance)
        case (Group("(", items, ")"), Matrix()):
            return _in_order(items, _vector(answer), tolerance)
        case (Relation(), Relation()):
            return _same_relation(gold, answer)
        case (Leaf(), Relation(sign="=")):
            end = _end((answer.left, answer.right), constant=True)
            return end is not None and same_value(gold.text, end, tolerance)
        case (Leaf(), Leaf()):
            return same_value(gold.text, answer.text, tolerance)
    return False


def readable(node: Node) -> bool:
    """Whether everything in it is words or maths that we can compare.

    Raises:
        Exception: as `equal`.
    """
    match node:
        case Leaf(text):
            core = split_unit(text)[0]
            return bool(words(text)) or read_literal(core) is not None or formula(core) is not None
        case Several(items) | Union(items) | Group(_, items, _):
            return all(map(readable, items))
        case Matrix(rows):
            return all(readable(entry) for row in rows for entry in row)
        case Named():
            return readable(node.value)
        case Relation(left, _, right):
            return formula(left) is not None and formula(right) is not None
        case Chain(sides):
            return all(formula(side) is not None for side in sides)
        case Rounded():
            return readable(node.value)
    return False


def _is_choice(gold: Node) -> bool:
    """Whether the gold is a word or the letter of a choice: ``A = B`` is no answer to that."""
    if not isinstance(gold, Leaf) or re.search(r"\d", gold.text):  # 90 degrees are a number
        return False
    return bool(words(gold.text) or re.fullmatch("[A-Z]", gold.text))


def _side(text: str) -> sympy.Expr | None:
    """The formula without its unit, or the degrees within."""
    core, unit = split_unit(text.replace(r"\text{degree}", ""))
    value = formula(core)
    if value is None or not unit:
        return value
    return value * sympy.Rational(unit.scale * (unit.factor if unit.percent else 1))


def _close(exact: str, rounded: str) -> bool:
    """Whether the two sides are numbers that differ by no more than a rounding."""
    sides = _side(exact), _side(rounded)
    if None in sides or not all(map(is_constant, sides)):
        return False
    ends = [exact_fraction(side) for side in sides]
    return None not in ends and abs(ends[0] - ends[1]) <= _CHAIN * abs(ends[1])


def _rounding(exact: str, rounded: str) -> bool:
    """As `_close`, or rounded to fewer digits: 1/30 is about 0.03."""
    if _close(exact, rounded):
        return True
    written, value = read_literal(split_unit(rounded)[0]), _side(exact)
    number = exact_fraction(value) if value is not None and is_constant(value) else None
    if written is None or number is None or written.value == 0:
        return False
    return abs(number - written.value) <= (written.step or 1) / Fraction(2)


def _end(sides: tuple[str, ...], constant: bool = False) -> str | None:
    r"""What ``\log_2 8 = 3`` amounts to: its last side, or the one before if the last is its rounding.

    None if the sides contradict each other, or say nothing, as ``5 = 5``; or have variables, if they must not.
    """
    values = [_side(side) for side in sides]
    if len(set(map(key, sides))) == 1 or None in values or (constant and not all(map(is_constant, values))):
        return None
    if not all(same(one, other) for one, other in pairwise(values[:-1])):
        return None
    before, last = sides[-2:]
    if same(*values[-2:]):
        return last
    if not _close(before, last):
        return None
    written, exact = read_literal(last), read_literal(before)  # 1/3 = 0.333: the exact value is the answer
    return before if written and written.step and not (exact and (exact.step or exact.value.denominator == 1)) else None


def _same_relation(gold: Relation, answer: Relation) -> bool:
    """Whether two equations or inequalities have the same solutions, as far as that can be seen.

    They do if one is a multiple of the other, or is the other solved for a variable that occurs in it linearly.
    """
    if {gold.sign, answer.sign} - {"=", "<", ">", r"\le", r"\ge"}:
        return False
    if (key(gold.left), gold.sign, key(gold.right)) == (key(answer.left), answer.sign, key(answer.right)):
        return True
    sides = [formula(side) for side in (gold.left, gold.right, answer.left, answer.right)]
    if any(side is None for side in sides):
        return False
    wanted, given = sides[0] - sides[1], sides[2] - sides[3]
    if gold.sign in (">", r"\ge"):
        wanted = -wanted
    if answer.sign in (">", r"\ge"):
        given = -given
    if (gold.sign == "=") != (answer.sign == "=") or (gold.sign in "<>") != (answer.sign in "<>"):
        return False
    if proportional(wanted, given, positive=gold.sign != "="):
        return True
    if gold.sign != "=":
        return False
    return _solves(wanted, sides[2], sides[3]) or _solves(given, sides[0], sides[1])


def _solves(equation: sympy.Expr, name: sympy.Expr, value: sympy.Expr) -> bool:
    """Whether ``name = value`` is the equation, solved for the name."""
    if not name.is_Symbol or name in value.free_symbols or name not in equation.free_symbols:
        return False
    slope = sympy.diff(equation, name)
    return not slope.free_symbols and slope != 0 and same(sympy.S.Zero, sympy.simplify(equation.subs(name, value)))


def _same_values(gold: Sequence[Node], answer: Sequence[Node], tolerance: float | None) -> bool:
    """In any order, except that values given without names are in the order of a gold that names each."""
    if len(set(gold)) == len(gold):
        answer = tuple(dict.fromkeys(answer))  # saying a value twice adds nothing
    names = [item.name if isinstance(item, Named) else None for item in gold]
    if len(set(names)) == len(names) and None not in names and not any(isinstance(item, Named) for item in answer):
        return _in_order(gold, answer, tolerance)
    return _matched(gold, answer, tolerance)


def _in_order(gold: Sequence[Node], answer: Sequence[Node], tolerance: float | None) -> bool:
    return len(gold) == len(answer) and all(
        equal(one, other, tolerance) for one, other in zip(gold, answer, strict=True)
    )


def _matched(gold: Sequence[Node], answer: Sequence[Node], tolerance: float | None) -> bool:
    """Whether each value of the gold can be given one of the answer: a matching by augmenting paths."""
    if len(gold) != len(answer):
        return False
    partners = [[j for j, other in enumerate(answer) if equal(one, other, tolerance)] for one in gold]
    taken: dict[int, int] = {}

    def place(i: int, seen: set[int]) -> bool:
        for j in partners[i]:
            if j not in seen:
                seen.add(j)
                if j not in taken or place(taken[j], seen):
                    taken[j] = i
                    return True
        return False

    return all(place(i, set()) for i in range(len(gold)))


def _vector(matrix: Matrix) -> tuple[Node, ...]:
    """Entries of a matrix of one row or column; none of any other."""
    if len(matrix.rows) == 1:
        return matrix.rows[0]
    return tuple(row[0] for row in matrix.rows) if all(len(row) == 1 for row in matrix.rows) else ()


def _inequality(named: Named) -> Relation:
    """The inequality that was read as a half-line."""
    match named.value:
        case Group("(", (Leaf(r"-\infty"), Leaf(bound)), closing):
            return Relation(named.name, "<" if closing == ")" else r"\le", bound)
        case Group(opening, (Leaf(bound), Leaf(r"\infty")), ")"):
            return Relation(named.name, ">" if opening == "(" else r"\ge", bound)
    return Relation(named.name, "", "")


def _text(node: Node) -> str:
    return node.text if isinstance(node, Leaf) else ""


def _compatible(gold: str, answer: str) -> bool:
    r"""Whether two names may be those of one thing: ``m_{\max}`` and ``m``, ``f(n)`` and ``f(m)``; not x_1 and x_2."""
    functions = function(gold), function(answer)
    if all(functions):
        return key(functions[0][0]) == key(functions[1][0]) and (
            all(len(f[1].strip()) == 1 and f[1].strip().isalpha() for f in functions) or functions[0] == functions[1]
        )
    bases = [re.sub(r"_(?:\{[^{}]*\}|\\?\w+)|[{}]", "", name) for name in (gold, answer)]
    plain = [key(name).translate({ord("{"): None, ord("}"): None}) for name in (gold, answer)]
    return plain[0] == plain[1] or (bases[0] == bases[1] and (bases[0] == plain[0] or bases[1] == plain[1]))


def _renamed(gold: Named, answer: Named) -> Node:
    """The value of the answer with the argument of its function called as in the gold: f(m) = 2m is f(n) = 2n."""
    functions = function(gold.name), function(answer.name)
    if not all(functions) or not isinstance(answer.value, Leaf):
        return answer.value
    wanted, given = (f[1].strip() for f in functions)
    letters = re.findall(r"\\[a-zA-Z]+|[a-zA-Z]", answer.value.text)
    if wanted == given or wanted in letters:
        return answer.value
    return Leaf(re.sub(r"\\[a-zA-Z]+|[a-zA-Z]", lambda m: wanted if m[0] == given else m[0], answer.value.text))
