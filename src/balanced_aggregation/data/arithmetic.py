"""Chained integer arithmetic: problems such as ``7+2-4=``, and solutions in several styles for the warm start."""

import random
from dataclasses import dataclass

from balanced_aggregation.config import ArithmeticData, Styles
from balanced_aggregation.errors import UserError

SYMBOLS = "0123456789+-=;>"
"""Every character of a problem or a solution."""

ANSWER = ">"
"""Stands before the answer."""


@dataclass(frozen=True)
class Chain:
    """A start and signed numbers that are added to it one after the other; no partial sum is negative."""

    start: int
    changes: tuple[int, ...]

    @property
    def prompt(self) -> str:
        """The problem as text, such as ``7+2-4=``."""
        return f"{self.start}{''.join(f'{change:+d}' for change in self.changes)}="

    @property
    def answer(self) -> int:
        """The sum."""
        return self.start + sum(self.changes)

    @classmethod
    def parse(cls, prompt: str) -> "Chain":
        """The chain that a prompt states."""
        numbers = prompt.rstrip("=").replace("-", "+-").split("+")
        return cls(int(numbers[0]), tuple(int(n) for n in numbers[1:]))


def draw_chains(data: ArithmeticData, generator: random.Random, taken: set[Chain]) -> list[Chain]:
    """Draw distinct chains that are not in ``taken``, and add them to it.

    Raises:
        UserError: there are not so many different ones.
    """
    chains: list[Chain] = []
    misses = 0
    while len(chains) < data.problems:
        chain = _draw_chain(generator.randint(*data.terms), data.largest, generator)
        misses = misses + 1 if chain in taken else 0
        if misses == 10_000:
            raise UserError(
                f"dataset {data.name!r}: problems = {data.problems}: only {len(chains)} were found that are new; "
                f"allow more by terms = {list(data.terms)} or largest = {data.largest}"
            )
        if not misses:
            taken.add(chain)
            chains.append(chain)
    return chains


def _draw_chain(terms: int, largest: int, generator: random.Random) -> Chain:
    start = total = generator.randint(0, largest)
    changes = []
    for _ in range(terms - 1):
        change = generator.choice([c for c in range(-9, 10) if c and 0 <= total + c <= largest])
        total += change
        changes.append(change)
    return Chain(start, tuple(changes))


def write_solution(chain: Chain, styles: Styles, generator: random.Random) -> str:
    """Write a solution in a style drawn from the mixture, with the mistakes of that style.

    Terse: the bare answer. Worked: one step after the other. Long-winded: all steps twice, the second pass counts.
    """
    style = generator.choices(("terse", "worked", "long_winded"), [s.share for s in _in_order(styles)])[0]
    error_rate = getattr(styles, style).error_rate
    if style == "terse":
        return f"{ANSWER}{_computed(chain.answer, error_rate, generator)}"
    passes = [_steps(chain, error_rate, generator) for _ in range(2 if style == "long_winded" else 1)]
    return ";".join(text for text, _ in passes) + f"{ANSWER}{passes[-1][1]}"


def _in_order(styles: Styles):
    return styles.terse, styles.worked, styles.long_winded


def _steps(chain: Chain, error_rate: float, generator: random.Random) -> tuple[str, int]:
    total, steps = chain.start, []
    for change in chain.changes:
        result = _computed(total + change, error_rate, generator)
        steps.append(f"{total}{change:+d}={result}")
        total = result
    return ";".join(steps), total


def _computed(result: int, error_rate: float, generator: random.Random) -> int:
    """The result, or with probability ``error_rate`` a wrong one nearby."""
    if generator.random() >= error_rate:
        return result
    return generator.choice([r for r in range(max(result - 9, 0), result + 10) if r != result])
