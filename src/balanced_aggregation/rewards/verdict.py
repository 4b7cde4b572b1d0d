"""What a verifier says of a response."""

import enum
from dataclasses import dataclass


class Outcome(enum.StrEnum):
    """How a verdict came about. Failure of the infrastructure is no outcome: it raises.

    ``unreadable``: the library gave up on what the response contains, which is not the same as "not equal".
    """

    EQUAL = "equal"
    NOT_EQUAL = "not_equal"
    NO_ANSWER = "no_answer"
    TIMEOUT = "timeout"
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
