"""The gradient of a batch under given weights, and the optimiser update."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.distributed.tensor import DTensor

from balanced_aggregation.config import Training
from balanced_aggregation.surrogate import clipped_surrogate, importance_weight, is_clipped, kl_penalty
from balanced_aggregation.training.batch import Batch, sequence_lengths, share_out
from balanced_aggregation.training.policy import Policy


@dataclass(frozen=True)
class Gradients:
    """What a pass over a batch found, besides the gradients that it left in the model. Sums are over all processes."""

    loss: float
    tokens: int
    """Tokens that bear gradient: responses that are masked or have advantage 0 are skipped, which changes nothing."""
    clipped_tokens: int
    capped_tokens: int
    """Tokens whose importance weight was cut to the cap."""
    kl: float
    """Sum over those tokens of the KL estimate; 0 without a reference."""
    log_probs: list[Float[Tensor, " response"] | None]
    """Of each response's tokens, detached; None for a response that was skipped, or is another process's."""


def own_micro_batches(policy: Policy, batch: Batch, settings: Training) -> list[list[int]]:
    """The responses that bear gradient and that this process is to compute, in micro-batches; some may be empty.

    The same for every pass over the batch, so that a process finds its own log-probabilities again.
    """
    bears_gradient = (batch.lengths > 0) & ((batch.advantages != 0) | (settings.kl_coefficient > 0))
    sizes, world = sequence_lengths(batch.prompts, batch.responses), policy.world
    indices = bears_gradient.nonzero().flatten().tolist()
    share = share_out(sizes, indices, settings.micro_batch_tokens, world.size)[world.rank]
    return share if policy.is_sharded else [part for part in share if part]


@torch.no_grad()
def log_probs_by_response(policy: Policy, batch: Batch, settings: Training) -> list[Float[Tensor, " response"] | None]:
    """Log-probabilities of the tokens of each response that this process is to compute, without gradient."""
    found: list[Tensor | None] = [None] * len(batch)
    for part in own_micro_batches(policy, batch, settings):
        log_probs = _forward(policy, batch, part, settings)
        if part:
            for index, values in zip(part, log_probs.split([len(batch.responses[i]) for i in part]), strict=True):
                found[index] = values
    policy.release()
    return found


def accumulate_gradients(
    policy: Policy,
    batch: Batch,
    weights: Float64[Tensor, " n"],
    settings: Training,
    old_log_probs: Sequence[Float[Tensor, " response"] | None] | None = None,
    reference_log_probs: Sequence[Float[Tensor, " response"] | None] | None = None,
    sampled_log_probs: Sequence[Float[Tensor, " response"]] | None = None,
) -> Gradients:
    """Add the gradient of ``sum_i w_i sum_t (c_it l_it + kl_coefficient * kl_it)`` to the policy's parameters.

    The weights come from the whole batch, so the micro-batches into which it is cut here, their order, and the
    processes that they are spread over do not change the sum. ``c_it`` is 1, or the truncated importance weight.

    Args:
        policy: its ``.grad`` are added to.
        batch: ``n`` responses.
        weights: of each response's tokens.
        settings: clip, temperature, KL coefficient, importance cap and the token budget of a micro-batch.
        old_log_probs: of the policy that sampled; None if that is the policy as it is, which makes every ratio 1
            without a second forward pass.
        reference_log_probs: of the reference model; needed if the KL coefficient is not 0.
        sampled_log_probs: of the engine that sampled; needed if there is an importance cap.
    """
    with_kl = settings.kl_coefficient > 0
    clip = {"clip_low": settings.clip_low, "clip_high": settings.clip_high}
    sums = torch.zeros(5, dtype=torch.float64)
    found: list[Tensor | None] = [None] * len(batch)
    for part in own_micro_batches(policy, batch, settings):
        log_probs = _forward(policy, batch, part, settings)
        if not part:
            (0.0 * log_probs.sum()).backward()  # this process's part in gathering weights and spreading gradients
            continue
        repeats = torch.tensor([len(batch.responses[i]) for i in part])

        def per_token(of_responses: Tensor, like: Tensor = log_probs, repeats: Tensor = repeats) -> Tensor:
            return of_responses.to(like.dtype).repeat_interleave(repeats).to(like.device)

        def joined(of_tokens: Sequence[Tensor], part: list[int] = part, like: Tensor = log_probs) -> Tensor:
            return torch.cat([of_tokens[i] for i in part]).to(like)

        old = log_probs.detach() if old_log_probs is None else joined(old_log_probs)
        advantages = per_token(batch.advantages[part])
        losses = clipped_surrogate(log_probs, old, advantages, **clip)
        clipped = is_clipped(log_probs, old, advantages, **clip).sum()
        capped = torch.tensor(0)
        if settings.importance_cap is not None:
            correction = importance_weight(old, joined(sampled_log_probs), settings.importance_cap)
            losses = correction * losses
            capped = (correction == settings.importance_cap).sum()
        kl = torch.tensor(0.0)
        if with_kl:
            penalty = kl_penalty(log_probs, joined(reference_log_probs))
            losses = losses + settings.kl_coefficient * penalty
            kl = penalty.detach().double().sum()
        loss = (per_token(weights[part]) * losses).sum()
        loss.backward()
        counts = (loss.detach(), repeats.sum(), clipped, capped, kl)
        sums += torch.stack([value.double().cpu() for value in counts])
        for index, values in zip(part, log_probs.detach().split(repeats.tolist()), strict=True):
            found[index] = values
    policy.sum_gradients()
    loss, tokens, clipped, capped, kl = policy.world.sum(sums).tolist()
    return Gradients(loss, int(tokens), int(clipped), int(capped), kl, found)


def _forward(policy: Policy, batch: Batch, part: Sequence[int], settings: Training) -> Float[Tensor, " tokens"]:
    """Log-probabilities of the responses' tokens; for an empty part that of some token, for the others' sake."""
    token = [torch.zeros(1, dtype=torch.int64)]
    prompts, responses = ([side[i] for i in part] or token for side in (batch.prompts, batch.responses))
    return policy(prompts, responses, settings.temperature)


def zero_gradients(policy: Policy) -> None:
    """Set every gradient to zero, so that a batch without any gradient is an update like all others."""
    for parameter in policy.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        else:
            parameter.grad.zero_()


def create_optimizer(policy: Policy, settings: Training) -> torch.optim.AdamW:
    """AdamW over all parameters; the learning rate is set before each update."""
    return torch.optim.AdamW(
        policy.parameters(),
        lr=settings.learning_rate,
        betas=settings.adam_betas,
        eps=settings.adam_eps,
        weight_decay=settings.weight_decay,
        fused=True,  # one pass over the memory instead of one for each operation
    )


def learning_rate(settings: Training, updates: int) -> float:
    """Learning rate of the update that follows ``updates`` earlier ones: linear warm-up, then constant."""
    return settings.learning_rate * min(1.0, (updates + 1) / max(settings.warmup_steps, 1))


def apply_update(policy: Policy, optimizer: torch.optim.Optimizer, settings: Training, updates: int) -> float:
    """Clip the gradients, update the parameters, and return the gradient norm before clipping.

    Raises:
        FloatingPointError: the norm is not finite; the parameters are left as they were.
    """
    total = torch.nn.utils.clip_grad_norm_(policy.parameters(), settings.max_grad_norm)
    norm = float(total.full_tensor() if isinstance(total, DTensor) else total)
    if not math.isfinite(norm):
        raise FloatingPointError(f"gradient norm is {norm} at optimiser update {updates + 1}")
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(settings, updates)
    optimizer.step()
    return norm
