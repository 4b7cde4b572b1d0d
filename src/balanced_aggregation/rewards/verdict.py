"""What a verifier says of a response."""

import enum
from dataclasses import dataclass


class Outcome(enum.StrEnum):
    """How a verdict came about. Failure of the infrastructure is no outcome: it raises.

    ``timeout``: what the response contains used up its time. ``crash``: it brought down the process that looked at it,
    or, being a program, itself. ``unreadable``: the library gave up on it, which is not the same as "not equal".
    """

    EQUAL = "equal"
    NOT_EQUAL = "not_equal"
    NO_ANSWER = "no_answer"
    TIMEOUT = "timeout"
    CRASH = "crash"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Verdict:
    """Outcome, and the answer that was read from the response."""

    outcome: Outcome
    extracted: str | None

    @property
    def correct(self) -> bool:
        """Whether the answer equals the gold."""
        return self.outcome is Outcome.EQUAL

    @property
    def reward(self) -> float:
        """1 for a correct response, 0 for any other."""
        return float(self.correct)
