"""What an aggregation rule does to a batch: whom its update listens to, length variation, positive-negative length gap.

All of it follows from lengths, advantages and groups, so for any batch it is known for every rule, whichever of them
trains.

The **mass** of response ``i`` in an update is ``m_i = w_i L_i |A_i|``: an upper bound of the norm of its part of the
gradient, up to a constant, reached if the gradients of its tokens have one norm and one direction. Where tokens
disagree, which they do more in longer responses, the true part is smaller. The sign of a part is that of ``A_i`` under
every rule, so rules differ in how they spread mass over responses, and in nothing else. Its sum is a factor of the
learning rate, so masses are compared as shares.
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
        ``variation``, ``gap``: those of `group_length_statistics`, averaged over the groups that have them.
        ``positive``, ``negative``: mean length in tokens of the responses of each sign.
    """
    by_group = group_length_statistics(lengths, advantages, group_ids)
    classes = torch.where(lengths > 0, sign_classes(advantages), 0)
    lengths = lengths.to(torch.float64)
    return {
        "variation": float(by_group["variation"].nanmean()),
        "gap": float(by_group["gap"].nanmean()),
        "positive": float(lengths[classes > 0].mean()),
        "negative": float(lengths[classes < 0].mean()),
    }


def group_length_statistics(
    lengths: Shaped[Tensor, " n"], advantages: Shaped[Tensor, " n"], group_ids: Int[Tensor, " n"]
) -> dict[str, Float64[Tensor, " groups"]]:
    """Length variation and length gap of every group, in the order of its id.

    Responses of length 0 (masked out) are left out. NaN where a group has no such quantity.

    Returns:
        ``variation``: standard deviation (divisor ``G``) over mean of the group's response lengths.
        ``gap``: mean length of its positive minus that of its negative responses, over the mean length of all of them.
        Above 0: correct responses are longer.
    """
    live = lengths > 0
    group, groups = _renumber(group_ids)
    lengths, classes, group = lengths[live].to(torch.float64), sign_classes(advantages)[live], group[live]

    def mean_by_group(mask: Tensor) -> Tensor:
        counts = torch.bincount(group[mask], minlength=groups)
        return (
            torch.bincount(group[mask], weights=lengths[mask], minlength=groups) / counts
        )  # 0/0 = NaN: no such response

    every = torch.ones_like(lengths, dtype=torch.bool)
    mean = mean_by_group(every)
    squares = torch.bincount(group, weights=(lengths - mean[group]) ** 2, minlength=groups)
    deviation = (squares / torch.bincount(group, minlength=groups)).sqrt()
    gap = (mean_by_group(classes > 0) - mean_by_group(classes < 0)) / mean
    return {"variation": deviation / mean, "gap": gap}


def update_mass(
    weights: Float64[Tensor, " n"], lengths: Shaped[Tensor, " n"], advantages: Shaped[Tensor, " n"]
) -> Float64[Tensor, " n"]:
    """Mass of each response in an update, ``w_i L_i |A_i|``; see the module's docstring for what it bounds."""
    return weights * lengths * advantages.to(torch.float64).abs()


def effective_responses(mass: Float64[Tensor, " n"]) -> float:
    """Kish's effective number of responses, ``(sum m_i)^2 / sum m_i^2``, from 1 to the number with mass.

    If the responses' gradients are independent and equally noisy for a token, an update in which so many responses
    had equal mass would be as noisy as this one. NaN without any mass.
    """
    return _kish(mass.sum(), (mass**2).sum())


def effective_tokens(mass: Float64[Tensor, " n"], lengths: Shaped[Tensor, " n"]) -> float:
    """Kish's effective number of tokens, ``(sum m_i)^2 / sum m_i^2 / L_i``.

    Each token of response ``i`` has the mass ``m_i / L_i``. It is the tokens of the responses with mass if all of them
    weigh the same, and less where a rule silences tokens of long responses. NaN without any mass.
    """
    return _kish(mass.sum(), (mass**2 / lengths.clamp(min=1)).sum())


def total_variation(one: Float64[Tensor, " n"], other: Float64[Tensor, " n"]) -> float:
    """Distance of two updates: the share of the mass that stands with other responses, ``1/2 sum |m_i/m - m'_i/m'|``.

    0 for rules whose updates differ at most by a factor, 1 if no response has mass in both. It says nothing about
    directions in the space of weights: responses that say the same make updates alike that this calls different. NaN
    if one has no mass.
    """
    return float((one / one.sum() - other / other.sum()).abs().sum() / 2)


def rule_shifts(
    weights: Float64[Tensor, " n"],
    lengths: Shaped[Tensor, " n"],
    advantages: Shaped[Tensor, " n"],
    group_ids: Int[Tensor, " n"],
) -> dict[str, Float64[Tensor, " groups"]]:
    """Whom a rule favours, for every group: the share of mass that it moves between signs, lengths and groups.

    What is moved is told from a point of reference: groups and signs have the say ``e_i = |A_i| / G`` that each of the
    group's ``G`` responses has if it speaks once, and within a sign each token has equal mass for its advantage. For
    binary rewards that is `balanced`, so it shifts nothing by construction. A shift is a coupling of lengths to what is
    learned; whether it harms is for an experiment to say. Responses of length 0 (masked out) are left out.

    Returns:
        a tensor ``[groups]`` each, in the order of the ids; 0 for a group without advantages:
        ``say``: ``e_g``, the sum of ``e_i`` over the group.
        ``sign``: share of the positive responses in the group's mass, minus that in ``e_g``. Above 0: the positive side
        is louder than its responses are.
        ``length``: over both signs, weighted by their say: total variation between the masses of a sign's responses
        and the reference ``L_i |A_i|``, with a minus if mass moves to longer responses instead of shorter ones.
        ``group``: share of the group in the batch's mass, minus its share in all say.
    """
    group, groups = _renumber(group_ids)
    live = lengths > 0
    lengths = lengths.to(torch.float64)
    size = torch.where(live, advantages.to(torch.float64).abs(), 0.0)
    mass = update_mass(weights, lengths, advantages)
    classes = 2 * group + (advantages > 0)

    def by_class(values: Tensor) -> Tensor:
        return torch.bincount(classes, weights=values, minlength=2 * groups)

    def share(part: Tensor, whole: Tensor) -> Tensor:
        return torch.where(whole > 0, part / whole, 0.0)

    responses = torch.bincount(group, weights=live.to(torch.float64), minlength=groups)
    say = by_class(size / responses.clamp(min=1)[group])
    mass_of, tokens_of = by_class(mass), by_class(size * lengths)
    say_of_group, mass_of_group = say.view(groups, 2).sum(1), mass_of.view(groups, 2).sum(1)
    sign = share(mass_of[1::2], mass_of_group) - share(say[1::2], say_of_group)
    moved = share(mass, mass_of[classes]) - share(size * lengths, tokens_of[classes])
    length = by_class(moved.abs()) / 2 * -torch.sign(by_class(moved * lengths))
    return {
        "say": say_of_group,
        "sign": torch.where(mass_of_group > 0, sign, 0.0),
        "length": share((say * length).view(groups, 2).sum(1), say_of_group),
        "group": share(mass_of_group, mass.sum()) - share(say_of_group, say.sum()),
    }


def _renumber(group_ids: Int[Tensor, " n"]) -> tuple[Int[Tensor, " n"], int]:
    ids, group = torch.unique(group_ids, return_inverse=True)
    return group, len(ids)


def _kish(total: Tensor, squares: Tensor) -> float:
    return float(total**2 / squares)
