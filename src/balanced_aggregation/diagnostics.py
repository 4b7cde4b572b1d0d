"""What an aggregation rule does to a batch: sign mass, length variation, positive-negative length gap.

All of it follows from lengths, advantages and groups, so for any batch it is known for every rule, whichever of them
trains.
"""

import math

import torch
from jaxtyping import Float64, Int, Shaped
from torch import Tensor

from balanced_aggregation.aggregation import sign_classes


def sign_mass(
    weights: Float64[Tensor, " n"], lengths: Shaped[Tensor, " n"], advantages: Shaped[Tensor, " n"]
) -> dict[str, float]:
    """Mass of the positive and of the negative responses: ``sum of w_i L_i`` over each sign class.

    Under `sequence` and `balanced` these are the shares of responses (``k/G`` and ``(G-k)/G`` for binary rewards);
    under `token` they are the shares of tokens, so sign and length are coupled.

    Returns:
        ``positive``, ``negative`` and ``positive_share`` = positive / (positive + negative), NaN without either.
    """
    mass = weights * lengths
    classes = sign_classes(advantages)
    positive, negative = float(mass[classes > 0].sum()), float(mass[classes < 0].sum())
    total = positive + negative
    return {"positive": positive, "negative": negative, "positive_share": positive / total if total else math.nan}


def length_statistics(
    lengths: Shaped[Tensor, " n"], advantages: Shaped[Tensor, " n"], group_ids: Int[Tensor, " n"]
) -> dict[str, float]:
    """The two quantities that the Balanced Aggregation paper makes responsible for the bias of a rule, and their parts.

    Responses of length 0 (masked out) are left out. NaN where a quantity does not exist in the batch.

    Returns:
        ``variation``: standard deviation over mean of the response lengths within a group, averaged over groups.
        ``gap``: mean length of the positive minus that of the negative responses of a group, over the group's mean
        length, averaged over the groups that have both. Above 0: correct responses are longer.
        ``positive``, ``negative``: mean length in tokens of the responses of each sign.
    """
    live = lengths > 0
    lengths, advantages = lengths[live].to(torch.float64), advantages[live]
    if lengths.numel() == 0:
        return dict.fromkeys(("variation", "gap", "positive", "negative"), math.nan)
    classes = sign_classes(advantages)
    _, group = torch.unique(group_ids[live], return_inverse=True)
    groups = int(group.max()) + 1

    def mean_by_group(mask: Tensor) -> Tensor:
        counts = torch.bincount(group[mask], minlength=groups)
        return (
            torch.bincount(group[mask], weights=lengths[mask], minlength=groups) / counts
        )  # 0/0 = NaN: no such response

    every = torch.ones_like(lengths, dtype=torch.bool)
    mean = mean_by_group(every)
    variance = torch.bincount(group, weights=(lengths - mean[group]) ** 2, minlength=groups) / torch.bincount(group)
    gap = (mean_by_group(classes > 0) - mean_by_group(classes < 0)) / mean
    return {
        "variation": float((variance.sqrt() / mean).mean()),
        "gap": float(gap.nanmean()),
        "positive": float(lengths[classes > 0].mean()),
        "negative": float(lengths[classes < 0].mean()),
    }
