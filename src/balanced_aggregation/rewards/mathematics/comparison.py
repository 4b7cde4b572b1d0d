"""Whether two answers are the same, part by part. The first is the gold: it decides what is asked for."""

import re
from collections.abc import Sequence
from fractions import Fraction

import sympy

from balanced_aggregation.rewards.mathematics.identity import exact_fraction, is_constant, proportional, same
from balanced_aggregation.rewards.mathematics.literals import read_literal
from balanced_aggregation.rewards.mathematics.names import function
from balanced_aggregation.rewards.mathematics.nodes import Group, Leaf, Matrix, Named, Node, Relation, Several, Union
from balanced_aggregation.rewards.mathematics.notation import key
from balanced_aggregation.rewards.mathematics.units import split_unit
from balanced_aggregation.rewards.mathematics.values import formula, same_value, words

_CHAIN = Fraction(1, 100)
_NAME = r"\\?[a-zA-Z]+(?:_(?:\{\w+\}|\w))?"
_SUM_OF_NAMES = re.compile(rf"-?\s*{_NAME}(?:\s*[+-]\s*{_NAME})*")
_UNEVALUATED = re.compile(r"\\(?:lim|sum|prod|int|bmod|gcd|lcm|max|min|det|begin)(?![a-zA-Z])")


def equal(gold: Node, answer: Node, tolerance: float | None = None) -> bool:
    """Whether the answer is the gold.

    Raises:
        Exception: whatever sympy comes up with on reading the answer.
    """
    if gold == answer:
        return True
    match gold, answer:
        case (Relation(sign=r"\approx"), _):
            return equal(Leaf(gold.left), answer, tolerance)
        case (_, Relation(sign=r"\approx")):
            return _consistent(answer) and equal(gold, Leaf(answer.left), tolerance)
        case (Named(), Named()):
            return _compatible(gold.name, answer.name) and equal(gold.value, _renamed(gold, answer), tolerance)
        case (Named(relation="="), Relation()):
            return _same_relation(Relation(gold.name, "=", _text(gold.value)), answer) or equal(
                gold.value, answer, tolerance
            )
        case (Relation(), Named(relation="=")):
            return _same_relation(gold, Relation(answer.name, "=", _text(answer.value)))
        case (Named(relation="<"), Relation()):
            return _same_relation(_inequality(gold), answer)
        case (Relation(), Named(relation="<")):
            return _same_relation(gold, _inequality(answer))
        case (Named(), _):
            return equal(gold.value, answer, tolerance)
        case (_, Named()):
            return equal(gold, answer.value, tolerance)
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
            return _result(gold, answer, tolerance)
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
    return False


def _consistent(stated: Relation) -> bool:
    """Whether the two sides are numbers that differ by no more than a rounding."""
    sides = formula(stated.left), formula(stated.right)
    if None in sides or not all(map(is_constant, sides)):
        return False
    ends = [exact_fraction(side) for side in sides]
    return None not in ends and abs(ends[0] - ends[1]) <= _CHAIN * abs(ends[1])


def _result(gold: Leaf, answer: Relation, tolerance: float | None) -> bool:
    r"""Whether the right side of ``\log_2 8 = 3`` is the gold, and its left side doesn't say something else."""
    if key(answer.left) == key(answer.right):
        return False  # 5 = 5 says nothing
    right_equal = same_value(gold.text, answer.right, tolerance)
    if _UNEVALUATED.search(answer.left) or _SUM_OF_NAMES.fullmatch(answer.left):
        return right_equal
    left, right = formula(answer.left), formula(answer.right)
    if left is None or right is None or not is_constant(left) or not is_constant(right):
        return False
    if same(left, right):
        return right_equal
    if not _consistent(answer):
        return False
    written = read_literal(answer.right)  # 1/3 = 0.333: the exact value is the answer
    exact = read_literal(answer.left)
    return bool(written and written.step and not (exact and (exact.step or exact.value.denominator == 1))) and (
        same_value(gold.text, answer.left, tolerance)
    )


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
    return not slope.has(name) and same(sympy.S.Zero, sympy.simplify(equation.subs(name, value)))


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
