"""How much a study draws, trains on and evaluates."""

from dataclasses import dataclass

from balanced_aggregation.checkpoints import checkpoints
from balanced_aggregation.config import TRAIN, SourceData, Study
from balanced_aggregation.data.sources import SOURCES
from balanced_aggregation.planning.assumptions import Assumptions
from balanced_aggregation.planning.cost import Drawn
from balanced_aggregation.planning.limits import longest_prompt


@dataclass(frozen=True)
class Tokens:
    """Prompts, responses and their tokens; a prompt's tokens count for each of its responses."""

    prompts: int
    responses: int
    expected: float
    """Tokens of prompts and responses under the assumed mean lengths."""
    worst: float
    """The same with every prompt and response at its limit."""

    def times(self, factor: int) -> "Tokens":
        """So many times as much."""
        return Tokens(*(getattr(self, name) * factor for name in ("prompts", "responses", "expected", "worst")))


@dataclass(frozen=True)
class Benchmark:
    """What one checkpoint's responses to a benchmark are."""

    name: str
    problems: int
    part: int
    """Problems that are answered together."""
    ways: dict[str, int]
    """Responses to each problem, by the way they are drawn."""
    limit: int


def problem_count(study: Study, dataset: str) -> int:
    """Most problems that a dataset can have: those asked for, else those known of the public one."""
    data = study.datasets[dataset]
    if not isinstance(data, SourceData):
        return data.problems
    whole = data.rows or min(SOURCES[data.kind].forms[0].rows)
    return min(data.limit or whole, whole)


def drawn(study: Study, dataset: str, responses: int, limit: int, assumptions: Assumptions | None) -> Drawn:
    """Responses to a dataset's problems: of the assumed mean lengths, or without assumptions all at their limits."""
    prompt, mean = float(longest_prompt(study, dataset)), float(limit)
    if assumptions:
        mean *= assumptions.mean_length
        if study.model.kind != "tiny":  # its problems are about as long as they can be
            prompt *= assumptions.mean_prompt
    return Drawn(responses, max(prompt, 1.0), max(mean, 1.0), limit)


def sampled_tokens(study: Study, assumptions: Assumptions) -> Tokens:
    """Of one training."""
    training = study.training
    prompts = training.steps * training.prompts_per_step
    return _tokens(study, TRAIN, prompts, prompts * training.group_size, training.max_new_tokens, assumptions)


def evaluated_benchmarks(study: Study) -> list[Benchmark]:
    """What each checkpoint answers; the parts are those of `evaluation.generate`."""
    found = []
    for data in study.data.benchmarks:
        decoding = study.decoding(data.name)
        part = max(study.evaluation.batch_size // decoding.samples, 1)
        ways = {"greedy": 1} if decoding.greedy else {}
        ways["sampled"] = decoding.samples
        found.append(Benchmark(data.name, problem_count(study, data.name), part, ways, decoding.max_new_tokens))
    return found


def evaluated_tokens(study: Study, assumptions: Assumptions) -> Tokens:
    """Of one checkpoint on all benchmarks."""
    each = [
        _tokens(study, b.name, b.problems, b.problems * sum(b.ways.values()), b.limit, assumptions)
        for b in evaluated_benchmarks(study)
    ]
    return Tokens(*(sum(getattr(t, name) for t in each) for name in ("prompts", "responses", "expected", "worst")))


def checkpoint_count(study: Study) -> int:
    """Evaluated checkpoints of all trainings, and the initial model."""
    return len(checkpoints(study))


def _tokens(study: Study, dataset: str, prompts: int, responses: int, limit: int, assumptions: Assumptions) -> Tokens:
    expected, worst = (drawn(study, dataset, responses, limit, a).sequence for a in (assumptions, None))
    return Tokens(prompts, responses, responses * expected, responses * worst)
