"""Per-token policy losses, independent of how they are aggregated."""

import torch
from jaxtyping import Float
from torch import Tensor


def clipped_surrogate(
    log_probs: Float[Tensor, " tokens"],
    old_log_probs: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    *,
    clip_low: float,
    clip_high: float,
) -> Float[Tensor, " tokens"]:
    """Clipped importance-weighted policy loss of each token: ``-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)``.

    PPO (arXiv 1707.06347), eq. 7; separate bounds as in DAPO (arXiv 2503.14476), eq. 10. Positively homogeneous in
    ``A``: a weight per response may as well be folded into the advantages.

    Args:
        log_probs: of the sampled tokens under the policy, at the sampling temperature, in nats.
        old_log_probs: the same under the policy that is taken as the sampling one; no gradient flows into it.
        advantages: of each token's response.
        clip_low: distance of the lower bound from 1.
        clip_high: distance of the upper bound from 1.
    """
    ratio = torch.exp(log_probs - old_log_probs.detach())
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(ratio * advantages, clipped * advantages)


def is_clipped(
    log_probs: Float[Tensor, " tokens"],
    old_log_probs: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    *,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """Whether the clip stops the token's gradient (bool, ``[tokens]``)."""
    ratio = torch.exp(log_probs.detach() - old_log_probs.detach())
    return ((advantages > 0) & (ratio > 1 + clip_high)) | ((advantages < 0) & (ratio < 1 - clip_low))


def kl_penalty(
    log_probs: Float[Tensor, " tokens"], reference_log_probs: Float[Tensor, " tokens"]
) -> Float[Tensor, " tokens"]:
    """Estimate of ``KL(policy || reference)`` from each sampled token: ``exp(d) - d - 1``, ``d = reference - policy``.

    GRPO, DeepSeekMath (arXiv 2402.03300), eq. 4 (the estimator known as k3). Never negative, in nats.
    """
    difference = reference_log_probs.detach() - log_probs
    return torch.exp(difference) - difference - 1


def importance_weight(
    log_probs: Float[Tensor, " tokens"], sampled_log_probs: Float[Tensor, " tokens"], cap: float
) -> Float[Tensor, " tokens"]:
    """Truncated importance weight of each token, ``min(pi / mu, cap)``: the trainer's policy over what sampled.

    Corrects an engine that computes other probabilities than the trainer from the same weights (Espeholt et al.,
    IMPALA, arXiv 1802.01561, section 4.1, with one factor for each token). The product over a response would depend
    on its length, which is what the study is about, so it is not offered.

    Args:
        log_probs: of the sampled tokens in the trainer, by the weights that sampled; no gradient flows into it.
        sampled_log_probs: of the same tokens as the engine gave them.
        cap: the largest weight.
    """
    return torch.exp(log_probs.detach() - sampled_log_probs).clamp(max=cap)
