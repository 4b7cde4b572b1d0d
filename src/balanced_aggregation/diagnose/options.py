"""What a person may say about a log. Each is a flag of `balagg diagnose`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from balanced_aggregation.errors import UserError


@dataclass(frozen=True)
class Options:
    """Names of columns, where they are not found by themselves, and how to read them."""

    group: tuple[str, ...] = ()
    """Columns that name the group, together: an id, or the prompt. Without a step column each file has groups of its
    own."""
    step: str | None = None
    """Column of the training step: each has groups of its own, and is one batch to the rules."""
    reward: tuple[str, ...] = ()
    """Columns of the reward; of several the sum."""
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
    """The longest response that sampling allowed, in tokens. Responses as long count as truncated where no column says
    it, and the rule `constant` divides by it; without it, by the longest of the log."""
    tokenizer: Path | None = None
    """Folder with the tokenizer that counts tokens, where the log has no lengths."""
    unit: Literal["characters", "words"] = "characters"
    """What stands in for tokens where there is neither a column nor a tokenizer."""
    files_share_groups: bool = False
    """A group may be spread over several files, although there is no step column."""
    rules: tuple[str, ...] = ()
    """Further rules, besides the registered ones: module:function, or path/to/file.py:function."""
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
