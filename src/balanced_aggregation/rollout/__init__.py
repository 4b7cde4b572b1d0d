"""Sampling responses: one protocol, and the engines behind it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn."""

    temperature: float
    """0 is greedy decoding."""
    max_new_tokens: int
    top_p: float = 1.0


@dataclass(frozen=True)
class Response:
    """A sampled response."""

    token_ids: list[int]
    """With the token that ended it, if one did."""
    log_probs: list[float]
    """Of each token under the distribution that it was drawn from (temperature included, top-p not), in nats.

    Empty where the engine cannot tell: vLLM with top-p below 1.
    """
    truncated: bool
    """Stopped by the length limit."""


Finished = Callable[[int, Response], None]
"""Told of each response as soon as it has ended: its place in the list, and the response."""


class RolloutEngine(Protocol):
    """Draws responses from the current policy."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        finished: Finished | None = None,
    ) -> list[Response]:
        """Draw responses to each prompt (token ids): one for each of its seeds; all of the first prompt's come first.

        A response depends on its prompt, its seed and ``sampling`` alone (up to rounding), not on its neighbours.
        """
        ...

    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Sample from these weights from now on: full tensors by their names in the Hugging Face model, each once.

        All are taken from the iterable: making them may need every process of the training. An engine that samples
        from the trainer's own model has nothing to do.
        """
        ...
