"""What an answer may be made of."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Leaf:
    """A single value, in the notation of `notation.tidy`."""

    text: str


@dataclass(frozen=True)
class Several:
    r"""Values in any order, as in ``1, 2`` or ``\{1, 2\}``."""

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
    r"""A value with the name that it was given: ``x = 5``, ``f(n) = 2n``, ``x \in [0, 1]``, ``0 < x < 1``."""

    name: str
    value: "Node"
    relation: str = "="


@dataclass(frozen=True)
class Relation:
    """An equation or inequality between two expressions, the first of them no name."""

    left: str
    sign: str
    right: str


@dataclass(frozen=True)
class Chain:
    r"""Three or more sides, or two after a name, with equality signs between: ``6 = \sqrt{36} = 2 \cdot 3``."""

    sides: tuple[str, ...]


@dataclass(frozen=True)
class Rounded:
    r"""What stands before ``\approx``, its right side, and what follows: ``x = \frac13 \approx 0.333``."""

    value: "Node"
    exact: str
    rounded: tuple[str, ...]


Node = Leaf | Several | Group | Union | Matrix | Named | Relation | Chain | Rounded
