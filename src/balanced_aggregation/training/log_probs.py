"""Log-probabilities of chosen tokens, without ever holding a matrix of tokens times vocabulary."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

CHUNK_ELEMENTS = {"cpu": 2**24, "cuda": 2**27}
"""Scores held at once, by kind of device: enough rows that the matrix products run at full speed."""


def selected_log_probs(
    hidden: Float[Tensor, "n d"],
    weight: Float[Tensor, "v d"],
    bias: Float[Tensor, " v"] | None,
    targets: Int[Tensor, " n"],
    temperature: float = 1.0,
    chunk_rows: int | None = None,
) -> Float[Tensor, " n"]:
    """``log_softmax((hidden weight^T + bias) / temperature)`` at each row's target, multiplied out in chunks of rows.

    The backward pass multiplies the chunks out again. It starts with the last one, which the forward pass keeps: at
    that moment it takes the memory that the repetition would. So what fits in one chunk is computed once.

    Args:
        hidden: what the output layer is applied to.
        weight: of the output layer.
        bias: of the output layer, if it has one.
        targets: the column that is wanted of each row.
        temperature: divides the scores.
        chunk_rows: rows multiplied out at once; by default as many as `CHUNK_ELEMENTS` allows.

    Returns:
        in float32 at least: softmax, sums and the accumulated gradients of half-precision inputs are float32, their
        matrix products have the inputs' type.
    """
    if chunk_rows is None:
        chunk_rows = max(1, CHUNK_ELEMENTS.get(hidden.device.type, CHUNK_ELEMENTS["cuda"]) // len(weight))
    keep = torch.is_grad_enabled()
    return _SelectedLogProbs.apply(hidden, weight, bias, targets, temperature, chunk_rows, keep)


class _SelectedLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        chunk_rows: int,
        keep: bool,
    ) -> Tensor:
        chunks = _chunks(len(hidden), chunk_rows)
        buffer = _buffer(chunks, hidden, weight)
        log_probs = torch.empty(len(hidden), dtype=buffer.dtype, device=hidden.device)
        log_norms = torch.empty_like(log_probs)
        scores = buffer[:0]
        for rows in chunks:
            scores = _scores(hidden[rows], weight, bias, temperature, buffer)
            largest = scores.amax(1, keepdim=True)
            scores.sub_(largest)
            chosen = scores.gather(1, targets[rows, None]).squeeze(1)
            log_sums = scores.exp_().sum(1).log_()
            log_probs[rows] = chosen - log_sums
            log_norms[rows] = log_sums + largest.squeeze(1)
            if keep and rows.stop == len(hidden):
                _subtract_targets(scores.div_(log_sums.exp_()[:, None]), targets[rows])
        ctx.save_for_backward(hidden, weight, bias, targets, log_norms, scores if keep else None)
        ctx.temperature, ctx.chunks = temperature, chunks
        return log_probs

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, log_norms, kept = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=kept.dtype) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=kept.dtype) if needs_bias else None
        grad = grad / ctx.temperature
        buffer = _buffer(ctx.chunks[:-1], hidden, weight)
        for rows in reversed(ctx.chunks):
            if rows.stop == len(hidden):
                error = kept
            else:
                error = _scores(hidden[rows], weight, bias, ctx.temperature, buffer)
                error.sub_(log_norms[rows, None]).exp_()
                _subtract_targets(error, targets[rows])
            # d log_prob / d score = -error, for each row times its own gradient: applied to the small side.
            factor, operand = grad[rows, None], error.to(hidden.dtype)
            if needs_hidden:
                grad_hidden[rows] = ((operand @ weight) * -factor).to(hidden.dtype)
            if needs_weight:
                _subtract_product(grad_weight, operand, (hidden[rows] * factor).to(hidden.dtype))
            if needs_bias:
                grad_bias.sub_(factor.squeeze(1) @ error)
        return grad_hidden, grad_weight, grad_bias, None, None, None, None


def _chunks(n: int, rows: int) -> list[slice]:
    """Consecutive slices of at most ``rows``, the last one as long as any."""
    if rows < 1:
        raise ValueError(f"chunk_rows = {rows}: must be at least 1")
    return [slice(max(stop - rows, 0), stop) for stop in range(n, 0, -rows)][::-1]


def _buffer(chunks: list[slice], hidden: Tensor, weight: Tensor) -> Tensor:
    """Space for the scores of any of the chunks, allocated once: new pages cost as much as the softmax."""
    rows = max((chunk.stop - chunk.start for chunk in chunks), default=0)
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    return torch.empty(rows, len(weight), dtype=dtype, device=hidden.device)


def _scores(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, buffer: Tensor) -> Tensor:
    scores = buffer[: len(hidden)]
    if hidden.dtype != buffer.dtype:
        scores.copy_(functional.linear(hidden, weight, bias))
    elif bias is None:
        torch.mm(hidden, weight.T, out=scores)
    else:
        torch.addmm(bias, hidden, weight.T, out=scores)
    return scores if temperature == 1 else scores.div_(temperature)


def _subtract_targets(probs: Tensor, targets: Tensor) -> None:
    """Subtract 1 from each row's probability of its target."""
    probs[torch.arange(len(probs), device=probs.device), targets] -= 1


def _subtract_product(total: Float[Tensor, "v d"], left: Float[Tensor, "n v"], right: Float[Tensor, "n d"]) -> None:
    """``total -= left^T right``; products of half precision in slices, since they need space of their own."""
    if total.dtype == left.dtype:
        total.addmm_(left.T, right, alpha=-1)
        return
    step = max(1, left.numel() // max(right.shape[1], 1))
    for part, columns in zip(total.split(step), left.split(step, dim=1), strict=True):
        part.sub_(columns.T @ right)
