"""What a person may say about a log. Each is a flag of `balagg diagnose`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from balanced_aggregation.errors import UserError

Several = tyro.conf.UseAppendAction[tuple[str, ...]]
"""A flag that may be given several times."""


@dataclass(frozen=True)
class Options:
    """Names of columns, where they are not found by themselves, and how to read them."""

    group: Several = ()
    """Column of the group: an id, or the prompt. Given several times: the columns that name it together."""
    step: str | None = None
    """Column of the training step: each step has groups of its own, and is one batch. Without it each file has groups
of its own, and the log is one batch."""
    reward: Several = ()
    """Column of the reward; given several times: the sum of these columns."""
    advantage: str | None = None
    """Column of the advantage, one number a response; without it, from rewards: (r - mean) / standard deviation."""
    length: str | None = None
    """Column of the response's length in tokens, or of its token ids."""
    response: str | None = None
    """Column of the response's text."""
    gold: str | None = None
    """Column of the right answer."""
    truncated: str | None = None
    """Column that says whether a response was cut off: a flag, or a reason for its end ("length")."""
    max_length: int | None = None
    """The longest response that sampling allowed, in tokens. The rule constant divides by it (else by the longest of
the log), and responses as long count as truncated where no column says it."""
    tokenizer: Path | None = None
    """Folder with the tokenizer that counts tokens, where the log has no lengths."""
    unit: Literal["characters", "words"] = "characters"
    """What stands in for tokens where there is neither a column nor a tokenizer."""
    files_share_groups: tyro.conf.FlagCreatePairsOff[bool] = False
    """A group may be spread over several files, although there is no step column."""
    rule: Several = ()
    """A further rule, besides the registered ones: module:function, or path/to/file.py:function."""
    verify: int = 500
    """Responses whose reward is held against the recorded answer, drawn at random with a fixed seed; 0 for none."""

    def check(self) -> None:
        """Refuse values that mean nothing.

        Raises:
            UserError: naming the flag and the value.
        """
        if self.max_length is not None and self.max_length < 1:
            raise UserError(f"--max-length {self.max_length}: must be at least 1")
        if self.verify < 0:
            raise UserError(f"--verify {self.verify}: must be at least 0")
        if self.length and self.tokenizer:
            raise UserError("--length and --tokenizer: give one of them")
