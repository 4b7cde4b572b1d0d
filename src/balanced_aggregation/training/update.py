"""The gradient of a batch under given weights, and the optimiser update."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from transformers import PreTrainedModel

from balanced_aggregation.config import Training
from balanced_aggregation.surrogate import clipped_surrogate, is_clipped, kl_penalty
from balanced_aggregation.training.batch import Batch, micro_batches, sequence_lengths, token_log_probs


@dataclass(frozen=True)
class Gradients:
    """What a pass over a batch found, besides the gradients that it left in the model."""

    loss: float
    tokens: int
    """Tokens that bear gradient: responses that are masked or have advantage 0 are skipped, which changes nothing."""
    clipped_tokens: int
    kl: float
    """Sum over those tokens of the KL estimate; 0 without a reference."""
    log_probs: list[Float[Tensor, " response"] | None]
    """Of each response's tokens, detached; None for a response that was skipped."""


def accumulate_gradients(
    model: PreTrainedModel,
    batch: Batch,
    weights: Float64[Tensor, " n"],
    settings: Training,
    old_log_probs: Sequence[Float[Tensor, " response"] | None] | None = None,
    reference_log_probs: Sequence[Float[Tensor, " response"]] | None = None,
) -> Gradients:
    """Add the gradient of ``sum_i w_i sum_t (l_it + kl_coefficient * kl_it)`` to the model's parameters.

    The weights come from the whole batch, so the micro-batches into which it is cut here, and their order, do not
    change the sum.

    Args:
        model: the policy; its ``.grad`` are added to.
        batch: ``n`` responses.
        weights: of each response's tokens.
        settings: clip, temperature, KL coefficient and the token budget of a micro-batch.
        old_log_probs: of the policy that sampled; None if that is the model as it is, which makes every ratio 1
            without a second forward pass.
        reference_log_probs: of the reference model; needed if the KL coefficient is not 0.
    """
    with_kl = settings.kl_coefficient > 0
    bears_gradient = (batch.lengths > 0) & ((batch.advantages != 0) | with_kl)
    sizes = sequence_lengths(batch.prompts, batch.responses)
    clip = {"clip_low": settings.clip_low, "clip_high": settings.clip_high}
    loss_sum, kl_sum, tokens, clipped_tokens = 0.0, 0.0, 0, 0
    found: list[Tensor | None] = [None] * len(batch)
    for part in micro_batches(sizes, bears_gradient.nonzero().flatten().tolist(), settings.micro_batch_tokens):
        responses = [batch.responses[i] for i in part]
        repeats = torch.tensor([len(r) for r in responses])
        log_probs = token_log_probs(model, [batch.prompts[i] for i in part], responses, settings.temperature)
        old = log_probs.detach() if old_log_probs is None else torch.cat([old_log_probs[i] for i in part])
        advantages = batch.advantages[part].to(log_probs.dtype).repeat_interleave(repeats)
        token_weights = weights[part].to(log_probs.dtype).repeat_interleave(repeats)
        losses = clipped_surrogate(log_probs, old, advantages, **clip)
        if with_kl:
            penalty = kl_penalty(log_probs, torch.cat([reference_log_probs[i] for i in part]))
            losses = losses + settings.kl_coefficient * penalty
            kl_sum += float(penalty.detach().double().sum())
        loss = (token_weights * losses).sum()
        loss.backward()
        loss_sum += float(loss.detach())
        tokens += int(repeats.sum())
        clipped_tokens += int(is_clipped(log_probs, old, advantages, **clip).sum())
        for index, values in zip(part, log_probs.detach().split(repeats.tolist()), strict=True):
            found[index] = values
    return Gradients(loss_sum, tokens, clipped_tokens, kl_sum, found)


def zero_gradients(model: PreTrainedModel) -> None:
    """Set every gradient to zero, so that a batch without any gradient is an update like all others."""
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        else:
            parameter.grad.zero_()


def create_optimizer(model: PreTrainedModel, settings: Training) -> torch.optim.AdamW:
    """AdamW over all parameters; the learning rate is set before each update."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        betas=settings.adam_betas,
        eps=settings.adam_eps,
        weight_decay=settings.weight_decay,
        fused=True,  # one pass over the memory instead of one for each operation
    )


def learning_rate(settings: Training, updates: int) -> float:
    """Learning rate of the update that follows ``updates`` earlier ones: linear warm-up, then constant."""
    return settings.learning_rate * min(1.0, (updates + 1) / max(settings.warmup_steps, 1))


def apply_update(model: PreTrainedModel, optimizer: torch.optim.Optimizer, settings: Training, updates: int) -> float:
    """Clip the gradients, update the parameters, and return the gradient norm before clipping.

    Raises:
        FloatingPointError: the norm is not finite; the parameters are left as they were.
    """
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm))
    if not math.isfinite(norm):
        raise FloatingPointError(f"gradient norm is {norm} at optimiser update {updates + 1}")
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(settings, updates)
    optimizer.step()
    return norm
