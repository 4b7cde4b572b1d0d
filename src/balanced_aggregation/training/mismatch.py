"""How far the engine's probabilities are from the trainer's, by the same weights."""

from collections.abc import Sequence

import torch
from torch import Tensor

from balanced_aggregation.training.world import World


def engine_mismatch(
    world: World, log_probs: Sequence[Tensor | None], sampled_log_probs: Sequence[Tensor]
) -> dict[str, float]:
    """Statistics of ``d = log pi - log mu`` over the tokens of all processes: trainer minus engine, in nats.

    Args:
        world: the processes of the training.
        log_probs: in the trainer, by the weights that sampled, of each response's tokens; None where not known here.
        sampled_log_probs: as the engine gave them.

    Returns:
        the mean and the maximum of ``|d|``, and ``KL(mu || pi)`` estimated as the mean of ``exp(d) - d - 1``.
    """
    pairs = [(a.cpu(), b) for a, b in zip(log_probs, sampled_log_probs, strict=True) if a is not None]
    difference = torch.cat([torch.zeros(0)] + [a - b for a, b in pairs]).double()
    sums = torch.tensor(
        [difference.numel(), difference.abs().sum(), (torch.exp(difference) - difference - 1).sum()],
        dtype=torch.float64,
    )
    count, absolute, kl = world.sum(sums).tolist()
    largest = max(world.gather(float(difference.abs().max()) if pairs else 0.0))
    return {
        "engine_mismatch": largest,
        "engine_mismatch_mean": absolute / max(count, 1),
        "engine_kl": kl / max(count, 1),
    }
