"""Sampling responses: one protocol, and the engines behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn."""

    temperature: float
    """0 is greedy decoding."""
    max_new_tokens: int
    seed: int
    """Fixes the samples, whatever the engine's batch size."""
    top_p: float = 1.0


@dataclass(frozen=True)
class Response:
    """A sampled response."""

    token_ids: list[int]
    """With the token that ended it, if one did."""
    log_probs: list[float]
    """Of each token under the distribution that it was drawn from (temperature included, top-p not), in nats."""
    truncated: bool
    """Stopped by the length limit."""


class RolloutEngine(Protocol):
    """Draws responses from the current policy."""

    def generate(self, prompts: Sequence[Sequence[int]], samples: int, sampling: Sampling) -> list[Response]:
        """Draw ``samples`` responses to each prompt (token ids); all of the first prompt's come first."""
        ...
