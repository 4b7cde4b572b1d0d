"""Aggregation rules: how the token losses of a GRPO batch become one number.

Every rule is a weight per response. For a batch of ``P`` groups, with ``L_i`` loss-bearing tokens and per-token losses
``l_it`` of response ``i``, the loss is

    loss = sum_i w_i * sum_t l_it,          w = rule(lengths, advantages, group_ids)

The weights are computed once, on the whole optimisation batch. From then on the loss is linear in the tokens, so no
micro-batching, sorting, padding, packing or sharding can change it.

To add a rule, write its formula as a function of three one-dimensional tensors and decorate it with `register_rule`;
it may stand in any file that the study names as ``module:function`` or ``path/to/file.py:function``.
"""

import functools
from collections.abc import Callable

import torch
from jaxtyping import Float64, Int64, Shaped
from torch import Tensor

Rule = Callable[..., Tensor]

RULES: dict[str, Rule] = {}
"""The registered rules by name."""


def register_rule(name: str) -> Callable[[Rule], Rule]:
    """Register a formula as the rule ``name``.

    The formula sees inputs that `checked_rule` has validated and brought into one form, so it can be the bare formula.

    Raises:
        ValueError: another function has this name already.
    """

    def decorate(formula: Rule) -> Rule:
        known = RULES.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (formula.__module__, formula.__qualname__):
            raise ValueError(f"aggregation rule {name!r} is already registered by {known.__module__}")
        RULES[name] = checked_rule(formula)
        return RULES[name]

    return decorate


def checked_rule(formula: Rule) -> Rule:
    """Wrap a formula so that it meets the contract of every rule.

    The wrapped rule takes ``(lengths, advantages, group_ids, **parameters)``, three tensors of shape ``[n]`` in any
    order: loss-bearing tokens (whole numbers, 0 for a response that is masked out), advantages, and integer group ids
    (any values). It returns float64 weights of shape ``[n]``, on the same device. A response of length 0 has weight 0.

    The formula gets the same tensors as float64, float64 and int64, the ids renumbered ``0 .. P-1``. What it returns
    for responses of length 0 is ignored, so it needs no special case for them.

    Raises (the wrapped rule):
        ValueError: shapes differ, a value is NaN or infinite, a length is negative or not whole, ids are not integers,
            or the formula returned something other than ``n`` finite weights >= 0.
    """
    if hasattr(formula, "formula"):  # a registered rule, handed over again by its name `module:function`
        return formula

    name = getattr(formula, "__name__", type(formula).__name__)

    @functools.wraps(formula)
    def rule(
        lengths: Shaped[Tensor, " n"],
        advantages: Shaped[Tensor, " n"],
        group_ids: Shaped[Tensor, " n"],
        **parameters: float | int,
    ) -> Float64[Tensor, " n"]:
        lengths, advantages, group_ids = _validated(lengths, advantages, group_ids)
        if lengths.numel() == 0:
            return lengths
        live = lengths > 0
        weights = formula(lengths, advantages, group_ids, **parameters)
        if not isinstance(weights, Tensor) or weights.shape != lengths.shape:
            got = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
            raise ValueError(f"rule {name!r} must return weights of shape {tuple(lengths.shape)}, got {got}")
        weights = torch.where(live, weights.to(torch.float64), 0.0)
        _refuse(~torch.isfinite(weights) | (weights < 0), weights, f"weights of rule {name!r}", "finite, >= 0")
        return weights

    rule.formula = formula
    return rule


def sign_classes(advantages: Tensor) -> Int64[Tensor, " n"]:
    """Sign class of each response: -1, 0 or 1.

    A group of equal rewards has advantages of exactly zero (see `advantages.group_advantages`) and so is class 0.
    """
    return torch.sign(advantages).to(torch.int64)


def num_groups(group_ids: Int64[Tensor, " n"]) -> int:
    """``P``, the number of groups, given ids ``0 .. P-1``; groups whose responses are all masked count."""
    return int(group_ids.max()) + 1


def group_sum(values: Tensor, group_ids: Int64[Tensor, " n"]) -> Float64[Tensor, " n"]:
    """For each response, the sum of ``values`` over the responses that share its id."""
    return torch.bincount(group_ids, weights=values.to(torch.float64))[group_ids]


@register_rule("sequence")
def sequence(lengths, advantages, group_ids):
    """Mean over the tokens of a response, then over responses, then over groups: ``1/P * 1/(G L_i)``.

    GRPO, DeepSeekMath (arXiv 2402.03300), eq. 3. A token of a long response weighs less.
    """
    responses = group_sum(lengths > 0, group_ids)
    return 1 / (num_groups(group_ids) * _positive(responses * lengths))


@register_rule("token")
def token(lengths, advantages, group_ids):
    """Mean over the tokens of a group, then over groups: ``1/P * 1/T``.

    Token aggregation as Balanced Aggregation (arXiv 2605.04077) defines it. A long response has a larger share of the
    group, so the side, positive or negative, that is longer outweighs the other.
    """
    return 1 / (num_groups(group_ids) * _positive(group_sum(lengths, group_ids)))


@register_rule("balanced")
def balanced(lengths, advantages, group_ids):
    """Mean over the tokens of each sign class of a group, combined by counts: ``1/P * (n_s / G) / T_s``.

    Balanced Aggregation (arXiv 2605.04077). ``n_s`` and ``T_s`` are responses and tokens of the response's sign class
    in its group. The classes have the mass that `sequence` gives them; within a class all tokens weigh the same.
    """
    groups = num_groups(group_ids)
    classes = 3 * group_ids + sign_classes(advantages) + 1
    tokens = torch.bincount(classes, weights=lengths, minlength=3 * groups)
    responses = torch.bincount(classes, weights=(lengths > 0).to(torch.float64), minlength=3 * groups)
    size = responses.view(groups, 3).sum(1).repeat_interleave(3)
    return (responses / (groups * _positive(size) * _positive(tokens)))[classes]


@register_rule("token_batch")
def token_batch(lengths, advantages, group_ids):
    """Mean over all tokens of the batch: ``1 / tokens``.

    DAPO (arXiv 2503.14476), eq. 8, as trainers implement it: verl's ``token-mean``, TRL's ``dapo``. A group's share
    grows with its length.
    """
    return torch.full_like(lengths, 1) / _positive(lengths.sum())


@register_rule("constant")
def constant(lengths, advantages, group_ids, *, max_length: float | None = None):
    """Sum over tokens, divided by a constant: ``1/(P G L_max)``.

    Dr. GRPO (arXiv 2503.20783). ``max_length`` is the longest response that sampling allows, in tokens; training
    passes its own limit. Without it the longest response of the batch stands in, which is no longer a constant.
    """
    if max_length is None:
        max_length = float(lengths.max())
    elif not max_length >= 1:
        raise ValueError(f"max_length = {max_length}: must be at least 1")
    return 1 / (num_groups(group_ids) * _positive(group_sum(lengths > 0, group_ids)) * max(max_length, 1.0))


@register_rule("length_power")
def length_power(lengths, advantages, group_ids, *, exponent: float = 0.5):
    """Token weights proportional to ``L_i ** -exponent`` within the group: ``1/P * L_i^-e / sum_j L_j^(1-e)``.

    A family between rules: ``exponent=0`` is `token`, ``exponent=1`` is `sequence`.
    """
    if not abs(exponent) <= 10:
        raise ValueError(f"exponent = {exponent}: must be from -10 to 10")
    live = lengths > 0
    size = _positive(lengths)
    total = group_sum(torch.where(live, size ** (1 - exponent), 0), group_ids)
    return size**-exponent / (num_groups(group_ids) * torch.where(total > 0, total, 1))


def _positive(counts: Tensor) -> Tensor:
    """Counts with 0 replaced by 1: only masked responses have such a divisor, and their weight is set to 0."""
    return counts.clamp(min=1)


def _validated(lengths: Tensor, advantages: Tensor, group_ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    named = {"lengths": lengths, "advantages": advantages, "group_ids": group_ids}
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor) or tensor.ndim != 1:
            got = f"shape {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ValueError(f"{name} must be a one-dimensional tensor, got {got}")
    if len({tensor.shape for tensor in named.values()}) > 1:
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in named.items())
        raise ValueError(f"lengths, advantages and group_ids must have the same shape, got {shapes}")
    if group_ids.is_floating_point() or group_ids.dtype == torch.bool:
        raise ValueError(f"group_ids must be integers, got {group_ids.dtype}")
    whole = not lengths.is_floating_point()
    # Copies, so that a formula may work in place.
    lengths = lengths.to(torch.float64, copy=True)
    advantages = advantages.to(torch.float64, copy=True)
    wrong = lengths < 0 if whole else ~torch.isfinite(lengths) | (lengths < 0) | (lengths != lengths.floor())
    _refuse(wrong, lengths, "lengths", "whole numbers of tokens, >= 0")
    _refuse(~torch.isfinite(advantages), advantages, "advantages", "finite")
    return lengths, advantages, _renumbered(group_ids)


def _refuse(wrong: Tensor, values: Tensor, what: str, allowed: str) -> None:
    if wrong.any():
        first = int(wrong.nonzero()[0])
        raise ValueError(f"{what} must be {allowed}; at index {first}: {values[first].item()}")


def _renumbered(group_ids: Tensor) -> Int64[Tensor, " n"]:
    """The ids as ``0 .. P-1``, in linear time where their range allows a table (a sort of 10 million takes longer)."""
    ids = group_ids.to(torch.int64)
    if ids.numel() == 0:
        return ids
    low, high = int(ids.min()), int(ids.max())
    if high - low >= 4 * ids.numel() + 1024:
        return torch.unique(ids, return_inverse=True)[1]
    ids = ids - low
    present = torch.zeros(high - low + 1, dtype=torch.bool, device=ids.device)
    present[ids] = True
    if bool(present.all()):
        return ids
    return (torch.cumsum(present, 0) - 1)[ids]
