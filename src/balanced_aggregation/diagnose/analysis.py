"""The numbers of a log: its groups, its lengths, and what each rule would make of it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from balanced_aggregation.advantages import group_advantages
from balanced_aggregation.aggregation import Rule
from balanced_aggregation.diagnose.log import Log
from balanced_aggregation.diagnostics import (
    effective_responses,
    effective_tokens,
    group_length_statistics,
    rule_shifts,
    sign_mass,
    total_variation,
    update_mass,
)

BATCH_RESPONSES = 1 << 18
"""A batch with more responses is weighed in parts of whole groups, so that memory stays bounded. A mean over so large
parts is the number of the whole batch but for what differs between the parts by chance."""

RESIDUE = 1e-3
"""Recorded advantages of a group, without rewards, that are all at most so large count as 0: trainers that compare
floats leave such residue of equal rewards."""

BINS = 40


@dataclass(frozen=True)
class Distribution:
    """Of one number over groups. NaN without any."""

    count: int
    mean: float
    smallest: float
    lower: float
    """Quartile."""
    median: float
    upper: float
    """Quartile."""
    largest: float

    @classmethod
    def of(cls, values: np.ndarray) -> "Distribution":
        """Args: values; NaN are left out."""
        values = values[~np.isnan(values)]
        if not len(values):
            return cls(0, *[math.nan] * 6)
        return cls(
            len(values), float(values.mean(dtype=np.float64)), *map(float, np.quantile(values, [0, 0.25, 0.5, 0.75, 1]))
        )


@dataclass(frozen=True)
class RuleNumbers:
    """What one rule makes of the log, in the mean over updates. See `diagnostics` for the definitions."""

    positive_share: float
    """Share of the positive responses in the mass of an update."""
    positive_weight: float
    """Their share of the weight ``w_i L_i``, without advantages, as training logs it."""
    effective_responses: float
    """Share of the responses with an advantage."""
    effective_tokens: float
    """Share of their tokens."""
    sign_bias: float
    """Mean over groups of what the positive side gains."""
    sign_error: float
    """Standard error of that mean over groups."""
    sign_shift: float
    """Mean over groups of the absolute value."""
    length_bias: float
    """Mean over groups of what short responses gain from long ones of the same sign."""
    group_shift: float
    """Share of the mass that stands with other groups than it should."""
    favoured_groups: str
    """What it moves to: groups with ``longer``, ``shorter``, ``more`` or ``fewer`` responses, whichever tells most."""


@dataclass(frozen=True)
class Histogram:
    """Counts, and one edge more than counts."""

    edges: list[float]
    counts: dict[str, list[int]]


@dataclass(frozen=True)
class Analysis:
    """All numbers of a log that is worth analysing, and of one that is not as far as they exist."""

    responses: int
    groups: int
    steps: int | None
    """None without a step column."""
    updates: int
    """Batches with any advantage."""
    group_size: Distribution
    responses_alone: int
    """Responses whose group has no other."""
    zero_variance: float
    """Share of groups whose advantages are all 0."""
    reward: float | None
    """Mean."""
    positive: int
    negative: int
    length: Distribution
    """Over responses."""
    at_longest: int
    """Responses that have exactly the longest length."""
    positive_length: float
    negative_length: float
    variation: Distribution
    """Over all groups."""
    variation_with_advantages: Distribution
    """Over those that are not all 0."""
    gap: Distribution
    positive_longer: float
    """Share of the groups with both signs whose positive responses are the longer ones."""
    max_length: int
    """What `constant` divides by."""
    rules: dict[str, RuleNumbers]
    distances: dict[tuple[str, str], float]
    """Total variation between two rules' updates, mean over updates."""
    lengths_by_sign: Histogram
    gaps: Histogram


def analyse(log: Log, rules: Mapping[str, Rule], max_length: int | None) -> Analysis:
    """Weigh the log by every rule.

    A step is a batch, as is the whole log where there is no step column. Rules are compared within a batch, and means
    over batches are weighted by what the batch has to say: by its number of groups where advantages are alike.

    Args:
        log: the responses.
        rules: by name; those with a parameter ``max_length`` have it bound already.
        max_length: what it was.
    """
    sums = _Sums(rules, log)
    order, starts = _sorted_groups(log)
    for first, last in _batches(log.step[order], starts):
        own = order[starts[first] : starts[last]]
        sizes = np.diff(starts[first : last + 1])
        sums.add(own, sizes)
    return sums.analysis(np.diff(starts), max_length)


def _sorted_groups(log: Log) -> tuple[np.ndarray, np.ndarray]:
    """An order of the responses that keeps steps and groups together, and where groups start in it, with its end."""
    several = log.step.any()
    order = np.lexsort((log.group, log.step)) if several else np.argsort(log.group, kind="stable")
    keys = log.group[order]
    new = keys[1:] != keys[:-1]
    return order, np.concatenate([[0], np.flatnonzero(new) + 1, [len(keys)]])


def _batches(steps: np.ndarray, starts: np.ndarray) -> Iterator[tuple[int, int]]:
    """Numbers of the first group of each batch, and of the one after its last."""
    of_group = steps[starts[:-1]]
    ends = np.concatenate([np.flatnonzero(of_group[1:] != of_group[:-1]) + 1, [len(of_group)]])
    first = 0
    for end in ends:
        while first < end:
            fits = int(np.searchsorted(starts, starts[first] + BATCH_RESPONSES, side="right")) - 1
            last = min(int(end), max(fits, first + 1))
            yield first, last
            first = last


@dataclass
class _RuleSums:
    """Sums over batches, weighted by say; shifts over groups."""

    means: dict[str, float] = field(default_factory=dict)
    squares: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Of the standard error: sums of e^2, e^2 d and e^2 d^2 over groups, e the say and d the shift of signs."""
    to_longer: float = 0.0
    to_larger: float = 0.0
    """Covariances of the shift of groups with their standardised mean length and size."""

    def add(self, **values: float) -> None:
        for name, value in values.items():
            self.means[name] = self.means.get(name, 0.0) + value


class _Sums:
    """What is kept of the batches."""

    def __init__(self, rules: Mapping[str, Rule], log: Log):
        self.rules, self.log = rules, log
        self.of_rule = {name: _RuleSums() for name in rules}
        self.distances = {(one, other): 0.0 for place, one in enumerate(rules) for other in list(rules)[place + 1 :]}
        self.say, self.updates = 0.0, 0
        self.speaks: list[np.ndarray] = []
        self.by_sign = {sign: [0, 0.0] for sign in (1, -1)}  # responses, tokens
        self.variation: list[np.ndarray] = []
        self.gap: list[np.ndarray] = []
        self.edges = np.linspace(0, max(int(log.length.max()), 1), BINS + 1)
        self.histogram = {"positive": np.zeros(BINS, np.int64), "negative": np.zeros(BINS, np.int64)}

    def add(self, own: np.ndarray, sizes: np.ndarray) -> None:
        """One batch: which responses, and how many each of its groups has."""
        groups = torch.repeat_interleave(torch.from_numpy(sizes))
        lengths = torch.from_numpy(self.log.length[own]).to(torch.int64)
        advantages = self._advantages(own, groups, len(sizes))
        speaks = torch.bincount(groups, (advantages != 0).double(), len(sizes)) > 0
        self.speaks.append(speaks.numpy())
        statistics = group_length_statistics(lengths, advantages, groups)
        self.variation.append(statistics["variation"].to(torch.float32).numpy())
        self.gap.append(statistics["gap"].to(torch.float32).numpy())
        for sign, name in ((1, "positive"), (-1, "negative")):
            some = lengths[torch.sign(advantages) == sign].numpy()
            self.by_sign[sign][0] += len(some)
            self.by_sign[sign][1] += float(some.sum())
            self.histogram[name] += np.histogram(some, self.edges)[0]
        if (update_mass(torch.ones_like(advantages), lengths, advantages) > 0).any():
            self._add_update(lengths, advantages, groups)

    def _advantages(self, own: np.ndarray, groups: Tensor, count: int) -> Tensor:
        """Recorded ones, but exactly 0 in groups of equal rewards; or those of the rewards."""
        rewards = None if self.log.reward is None else torch.from_numpy(self.log.reward[own])
        if self.log.advantage is None:
            return group_advantages(rewards, groups)
        recorded = torch.from_numpy(self.log.advantage[own]).to(torch.float64)
        if rewards is None:
            largest = torch.zeros(count, dtype=torch.float64).scatter_reduce(0, groups, recorded.abs(), "amax")
            flat = largest <= RESIDUE
        else:
            flat = _spread(rewards, groups, count) == 0
        return torch.where(flat[groups], 0.0, recorded)

    def _add_update(self, lengths: Tensor, advantages: Tensor, groups: Tensor) -> None:
        some = (advantages != 0) & (lengths > 0)
        responses, tokens = int(some.sum()), float(lengths[some].sum())
        sizes = torch.bincount(groups).double()
        speaks = torch.bincount(groups, some.double()) > 0
        lengthy = _standardised((torch.bincount(groups, lengths.double()) / sizes)[speaks])
        large = _standardised(sizes[speaks])
        masses = {}
        for name, rule in self.rules.items():
            weights = rule(lengths, advantages, groups)
            masses[name] = mass = update_mass(weights, lengths, advantages)
            shifts = rule_shifts(weights, lengths, advantages, groups)
            say, sign = shifts["say"], shifts["sign"]
            total = float(say.sum())
            own = self.of_rule[name]
            own.add(
                positive_share=total * float(mass[advantages > 0].sum() / mass.sum()),
                positive_weight=total * sign_mass(weights, lengths, advantages)["positive_share"],
                effective_responses=total * effective_responses(mass) / responses,
                effective_tokens=total * effective_tokens(mass, lengths) / tokens,
                sign_bias=float((say * sign).sum()),
                sign_shift=float((say * sign.abs()).sum()),
                length_bias=float((say * shifts["length"]).sum()),
                group_shift=total * float(shifts["group"].abs().sum()) / 2,
            )
            own.to_longer += total * float((shifts["group"][speaks] * lengthy).sum())
            own.to_larger += total * float((shifts["group"][speaks] * large).sum())
            for power in range(3):
                own.squares[power] += float((say**2 * sign**power).sum())
        for one, other in self.distances:
            self.distances[one, other] += total * total_variation(masses[one], masses[other])
        self.say += total
        self.updates += 1

    def analysis(self, sizes: np.ndarray, max_length: int | None) -> Analysis:
        log, say = self.log, self.say
        variation, gap, speaks = (np.concatenate(parts) for parts in (self.variation, self.gap, self.speaks))
        both = gap[~np.isnan(gap)]
        longest = int(log.length.max())
        (positive, positive_tokens), (negative, negative_tokens) = self.by_sign[1], self.by_sign[-1]
        return Analysis(
            responses=len(log),
            groups=len(sizes),
            steps=int(log.step.max()) + 1 if log.columns.step else None,
            updates=self.updates,
            group_size=Distribution.of(sizes.astype(np.float32)),
            responses_alone=int((sizes == 1).sum()),
            zero_variance=float(1 - speaks.mean()),
            reward=None if log.reward is None else float(log.reward.mean(dtype=np.float64)),
            positive=positive,
            negative=negative,
            length=Distribution.of(log.length),
            at_longest=int((log.length == longest).sum()),
            positive_length=positive_tokens / positive if positive else math.nan,
            negative_length=negative_tokens / negative if negative else math.nan,
            variation=Distribution.of(variation),
            variation_with_advantages=Distribution.of(variation[speaks]),
            gap=Distribution.of(gap),
            positive_longer=float((both > 0).mean()) if len(both) else math.nan,
            max_length=max_length or longest,
            rules={name: self._rule(sums) for name, sums in self.of_rule.items()} if say else {},
            distances={pair: value / say for pair, value in self.distances.items()} if say else {},
            lengths_by_sign=Histogram(self.edges.tolist(), {k: v.tolist() for k, v in self.histogram.items()}),
            gaps=_gap_histogram(both),
        )

    def _rule(self, sums: _RuleSums) -> RuleNumbers:
        means = {name: value / self.say for name, value in sums.means.items()}
        bias = means["sign_bias"]
        weights, linear, square = sums.squares
        variance = max(square - 2 * bias * linear + bias**2 * weights, 0.0)
        if abs(sums.to_larger) > abs(sums.to_longer):
            favoured = "more" if sums.to_larger > 0 else "fewer"
        else:
            favoured = "longer" if sums.to_longer > 0 else "shorter"
        return RuleNumbers(**means, sign_error=variance**0.5 / self.say, favoured_groups=favoured)


def _standardised(values: Tensor) -> Tensor:
    centred = values - values.mean()
    return centred / centred.square().mean().sqrt().clamp(min=1e-12)


def _spread(values: Tensor, groups: Tensor, count: int) -> Tensor:
    """Largest minus smallest value of each group."""
    empty = torch.zeros(count, dtype=values.dtype)
    high, low = (empty.scatter_reduce(0, groups, values, how, include_self=False) for how in ("amax", "amin"))
    return high - low


def _gap_histogram(gaps: np.ndarray) -> Histogram:
    """Between -1.5 and 1.5; what lies beyond is counted in the outermost bins."""
    edges = np.linspace(-1.5, 1.5, BINS + 1)
    counts = np.histogram(np.clip(gaps, -1.5, 1.5), edges)[0]
    return Histogram(edges.tolist(), {"groups": counts.tolist()})
