"""Group-normalised advantages."""

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor


def group_advantages(
    rewards: Float[Tensor, " n"], group_ids: Int[Tensor, " n"], *, normalize_std: bool = True, eps: float = 1e-6
) -> Float64[Tensor, " n"]:
    """Advantage of each response within its group: ``(r - mean) / (std + eps)``, or ``r - mean``.

    GRPO, DeepSeekMath (arXiv 2402.03300), section 4.1; without the standard deviation Dr. GRPO (arXiv 2503.20783).
    The standard deviation is the sample's (divisor ``G - 1``), as in the trainers in wide use.

    Signs are exact: a group whose rewards are all equal has advantages of exactly 0, and so has a response whose
    reward differs from its group's mean by no more than the rounding of that mean. The sign decides the class of a
    response in `aggregation.balanced`, so float residue must not.

    Args:
        rewards: shape ``[n]``, any order, groups of any sizes.
        group_ids: shape ``[n]``, integers.
        normalize_std: divide by the standard deviation of the group.
        eps: added to the standard deviation, in units of reward.

    Raises:
        ValueError: shapes differ, or a reward is NaN or infinite.
    """
    if rewards.ndim != 1 or rewards.shape != group_ids.shape:
        raise ValueError(f"rewards {tuple(rewards.shape)} and group_ids {tuple(group_ids.shape)} must both be [n]")
    if not torch.isfinite(rewards).all():
        first = int((~torch.isfinite(rewards)).nonzero()[0])
        raise ValueError(f"rewards must be finite; at index {first}: {rewards[first].item()}")
    if rewards.numel() == 0:
        return rewards.to(torch.float64)
    precision = torch.finfo(rewards.dtype).eps if rewards.is_floating_point() else 0.0
    r = rewards.to(torch.float64)
    _, index, counts = torch.unique(group_ids, return_inverse=True, return_counts=True)

    def of_group(values: Tensor, reduce: str) -> Tensor:
        empty = torch.zeros(len(counts), dtype=torch.float64, device=values.device)
        return empty.scatter_reduce(0, index, values, reduce, include_self=False)

    high, low = of_group(r, "amax"), of_group(r, "amin")
    centred = r - of_group(r, "mean")[index]
    # What rounding of rewards and mean may leave, and in any case less than one reward that differs makes out.
    rounding = 4 * max(precision, torch.finfo(torch.float64).eps) * torch.maximum(high.abs(), low.abs())
    rounding = torch.minimum(rounding, (high - low) / (4 * counts))
    is_zero = (high == low)[index] | (centred.abs() <= rounding[index])
    centred = torch.where(is_zero, 0.0, centred)
    if not normalize_std:
        return centred
    std = (of_group(centred**2, "sum") / (counts - 1).clamp(min=1)).sqrt()
    return torch.where(is_zero, 0.0, centred / (std[index] + eps))  # eps may be 0
