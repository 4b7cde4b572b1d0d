"""The rollout of one step, spread over the processes of a training."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from balanced_aggregation.rewards import Verdict
from balanced_aggregation.rewards.responses import ResponseVerifier
from balanced_aggregation.rollout import Response, RolloutEngine, Sampling
from balanced_aggregation.training.world import World

_Packed = list[tuple[np.ndarray, np.ndarray, bool, Verdict]]


class DistributedRollout:
    """Every engine samples and verifies its share of the prompts; then every process knows all responses.

    A response follows from its prompt and its seed, so who draws it makes no difference.
    """

    def __init__(self, engine: RolloutEngine, world: World, processes_per_engine: int = 1):
        """Args: this process's engine, the processes, and how many consecutive ranks share an engine."""
        self.engine, self.world = engine, world
        self._processes_per_engine = processes_per_engine
        self._verifies = world.rank % processes_per_engine == 0  # the others of an engine draw the same

    def _places(self, rank: int, prompts: int) -> range:
        """Which of the prompts the engine of a rank draws responses to."""
        engines = self.world.size // self._processes_per_engine
        return range(rank // self._processes_per_engine, prompts, engines)

    def run(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        verifier: Callable[[Sequence[int]], ResponseVerifier],
    ) -> tuple[list[Response], list[Verdict], float]:
        """Responses to all prompts, one for each of their seeds, and the verdicts on them.

        Args:
            prompts: token ids, the same on every process.
            seeds: of each prompt's responses.
            sampling: how they are drawn.
            verifier: makes the verifier for the prompts at some places.

        Returns:
            all responses in order, their verdicts, and when (`time.perf_counter`) sampling had ended here.
        """
        own = self._places(self.world.rank, len(prompts))
        verification = verifier(own) if self._verifies else None
        responses = self.engine.generate(
            [prompts[i] for i in own],
            [seeds[i] for i in own],
            sampling,
            verification.begin if verification else None,
        )
        sampled = time.perf_counter()
        verdicts = verification.verdicts() if verification else []
        if self.world.size == 1:
            return responses, verdicts, sampled
        samples = len(seeds[0])
        packed = [_pack(r, v) for r, v in zip(responses, verdicts, strict=True)] if verification else []
        everything: _Packed = [None] * (len(prompts) * samples)
        for rank, shared in enumerate(self.world.gather(packed)):
            places = self._places(rank, len(prompts))
            for number, values in enumerate(shared):
                everything[places[number // samples] * samples + number % samples] = values
        return [_unpack(values) for values in everything], [values[3] for values in everything], sampled


def _pack(response: Response, verdict: Verdict) -> tuple[np.ndarray, np.ndarray, bool, Verdict]:
    """Arrays travel in a fraction of the bytes of lists. Log-probabilities are float32 in every engine."""
    return np.array(response.token_ids, np.int32), np.array(response.log_probs, np.float32), response.truncated, verdict


def _unpack(values: tuple[np.ndarray, np.ndarray, bool, Verdict]) -> Response:
    token_ids, log_probs, truncated, _ = values
    return Response(token_ids.tolist(), log_probs.tolist(), truncated)
