"""The plan of one study: its workload, memory, hours, problems."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from balanced_aggregation.config import TRAIN, Study
from balanced_aggregation.planning import memory
from balanced_aggregation.planning.architecture import Architecture
from balanced_aggregation.planning.assumptions import GB, Assumptions
from balanced_aggregation.planning.checks import find_problems, find_warnings
from balanced_aggregation.planning.cost import Drawn, Update, generation_seconds, operations_per_second, update_cost
from balanced_aggregation.planning.limits import longest_sequence
from balanced_aggregation.planning.memory import Engine, Moment
from balanced_aggregation.planning.workload import (
    Tokens,
    checkpoint_count,
    drawn,
    evaluated_benchmarks,
    evaluated_tokens,
    sampled_tokens,
)


@dataclass(frozen=True)
class Hours:
    """Device-hours: of GPUs, or of processes on CPUs, under one assumption on lengths."""

    rollout: float
    """Of one training."""
    update: float
    """Of one training."""
    evaluation: float
    """Of one checkpoint on all benchmarks."""
    side_by_side: int
    """Responses that an engine draws together in a rollout."""
    work: Update
    """Of one step."""
    step_seconds: tuple[float, float]
    """Rollout and update, by the clock."""


@dataclass(frozen=True)
class StudyPlan:
    """All that a plan says of a study, or of one variant."""

    study: Study
    model: Architecture
    sampled: Tokens
    """Of one training."""
    evaluated: Tokens
    """Of one checkpoint."""
    checkpoints: int
    """Evaluated ones of the whole study."""
    micro_batch: int
    """Padded tokens of the largest micro-batch."""
    engines: dict[str, Engine]
    moments: list[Moment]
    hours: dict[str, Hours]
    """``expected`` and ``worst``."""
    problems: list[str]
    warnings: list[str]

    @property
    def title(self) -> str:
        """The study's name, and its variant's."""
        variant = getattr(self.study, "variant", None)
        return f"{self.study.study}: {variant}" if variant else self.study.study

    @property
    def trainings(self) -> int:
        """Rules times seeds."""
        return len(self.study.rules) * len(self.study.seeds)

    @property
    def updates(self) -> int:
        """Optimiser updates of one training."""
        training = self.study.training
        return training.steps * training.mini_batches * training.epochs

    @property
    def device(self) -> str:
        """What hours and memory are counted by."""
        return "GPU" if self.study.compute.gpus_per_node else "process"

    def fits(self, total: float) -> bool | None:
        """Whether so many bytes fit on a GPU; None without GPUs."""
        compute = self.study.compute
        return total <= compute.gpu_memory_gb * GB if compute.gpus_per_node else None

    def caches(self) -> Iterator[tuple[str, Engine, int, int]]:
        """By phase: the engine, tokens of its longest sequence, and how many of those its cache holds."""
        benchmarks = [benchmark.name for benchmark in self.study.data.benchmarks]
        for phase, names in {"rollout": [TRAIN], "evaluation": benchmarks}.items():
            longest = max(longest_sequence(self.study, name) for name in names)
            yield phase, self.engines[phase], longest, self.engines[phase].full_length(longest)

    @property
    def checkpoint_bytes(self) -> int:
        """On disk for one training: the evaluated models in float32, and weights and moments to resume from."""
        return (len(self.study.evaluated_steps) + 3) * 4 * self.model.parameters

    @property
    def sleeping_bytes(self) -> float:
        """Of a node's RAM for the weights of engines that sleep."""
        if not (self.study.compute.gpus_per_node and getattr(self.study.rollout, "sleep", False)):
            return 0.0
        return self.engines["rollout"].items["engine: weights"] * self.study.compute.gpus_per_node

    def study_hours(self, case: str) -> dict[str, float]:
        """Device-hours of the whole study by stage."""
        hours = self.hours[case]
        return {
            "rollout": hours.rollout * self.trainings,
            "update": hours.update * self.trainings,
            "evaluation": hours.evaluation * self.checkpoints,
        }


def make_plan(study: Study, model: Architecture, assumptions: Assumptions) -> StudyPlan:
    """Work out what a study needs.

    Args:
        study: the study.
        model: shapes of its model.
        assumptions: see there.
    """
    micro_batch = largest_micro_batch(study)
    engines = {"rollout": _engine(study, model, assumptions), "evaluation": _engine(study, model, assumptions, True)}
    moments = _moments(study, model, assumptions, engines, micro_batch)
    hours = {
        "expected": _hours(study, model, assumptions, engines, assumptions),
        "worst": _hours(study, model, assumptions, engines, None),
    }
    slow_network = hours["expected"].work.communicating > hours["expected"].work.computing
    return StudyPlan(
        study,
        model,
        sampled_tokens(study, assumptions),
        evaluated_tokens(study, assumptions),
        checkpoint_count(study),
        micro_batch,
        engines,
        moments,
        hours,
        find_problems(study, model, engines, moments),
        find_warnings(study, model, engines, micro_batch, slow_network),
    )


def largest_micro_batch(study: Study) -> int:
    """Padded tokens: the budget, or all that a process has, or one sequence that is longer than the budget."""
    training, longest = study.training, longest_sequence(study, TRAIN)
    responses = training.prompts_per_step // training.mini_batches * training.group_size
    each = math.ceil(responses / study.compute.processes)
    return max(longest, min(training.micro_batch_tokens, each * longest))


def _engine(study: Study, model: Architecture, assumptions: Assumptions, evaluating: bool = False) -> Engine:
    """Memory of the engine that draws rollouts, or of the one that answers benchmarks, alone in one process."""
    rollout, compute, training = study.rollout, study.compute, study.training
    if rollout.engine == "vllm":
        share, working = compute.gpu_memory_gb * GB * rollout.memory_share, assumptions.engine_working_gb * GB
        cache = None if compute.gpus_per_node else rollout.cpu_cache_gib * 2**30
        parallel = 1 if evaluating else rollout.tensor_parallel
        return memory.vllm_engine(model, rollout.dtype, parallel, share, working, cache)
    if evaluating:
        rows = study.evaluation.batch_size
        longest = max(longest_sequence(study, benchmark.name) for benchmark in study.data.benchmarks)
        return memory.transformers_engine(model, True, rows, longest)
    each = math.ceil(training.prompts_per_step * training.group_size / compute.processes)
    rows = min(training.rollout_batch_size, each)
    return memory.transformers_engine(model, compute.strategy == "fsdp", rows, longest_sequence(study, TRAIN))


def _moments(
    study: Study, model: Architecture, assumptions: Assumptions, engines: dict[str, Engine], micro_batch: int
) -> list[Moment]:
    """Every moment that may be the fullest, with all that lies in memory then."""
    compute, rollout = study.compute, study.rollout
    on_gpus = compute.gpus_per_node > 0
    reserve = {"contexts, NCCL, fragmentation": assumptions.reserve_gb * GB} if on_gpus else {}
    state = memory.trainer_state(model, compute, study.training.kl_coefficient > 0)
    engine = engines["rollout"].items
    if rollout.engine == "transformers":
        staying = {k: v for k, v in engine.items() if k == "engine: weights"}
    elif on_gpus and rollout.sleep:
        staying = {"engine: asleep": assumptions.engine_asleep_gb * GB}
    else:
        staying = engine
    # The engine's new weights come one whole tensor after the other: as gathered, and as the engine wants it.
    gathered = 4 * (compute.strategy == "fsdp")
    converted = memory.ELEMENT[rollout.dtype] if rollout.engine == "vllm" else 0
    handed = {"weights handed over": float((gathered + converted) * model.largest_parameter)}
    update = [
        Moment(moment.phase, moment.name, state | staying | moment.items | reserve)
        for moment in memory.update_moments(model, compute, micro_batch)
    ]
    # While they come, an engine that sleeps has only woken its weights.
    awake = {k: v for k, v in engine.items() if k != "engine: KV cache"} if staying is not engine else engine
    return [
        Moment("rollout", "sampling", state | engine | reserve),
        Moment("rollout", "handing over weights", state | awake | handed | reserve),
        *update,
        Moment("evaluation", "engine alone", engines["evaluation"].items | reserve),
    ]


def _hours(
    study: Study, model: Architecture, assumptions: Assumptions, engines: dict[str, Engine], lengths: Assumptions | None
) -> Hours:
    """Args: ``lengths`` are the assumptions on mean lengths; None has everything at its limit."""
    training, compute, rollout = study.training, study.compute, study.rollout
    parallel = getattr(rollout, "tensor_parallel", 1)
    responses = training.prompts_per_step * training.group_size
    step = drawn(study, TRAIN, responses, training.max_new_tokens, lengths)
    rate = operations_per_second(compute, assumptions, compute.dtype, study.threads)
    update = update_cost(model, training, compute, step, rate, assumptions)
    each = math.ceil(responses / (compute.processes // parallel))
    rollout_seconds, side_by_side = _draw(
        study, model, assumptions, engines["rollout"], training.rollout_batch_size,
        drawn(study, TRAIN, each, training.max_new_tokens, lengths), parallel,
    )  # fmt: skip
    evaluation_seconds = 0.0
    for benchmark in evaluated_benchmarks(study):
        for part in _cut(benchmark.problems, math.ceil(benchmark.problems / benchmark.part)):
            for per_problem in benchmark.ways.values():
                answers = drawn(study, benchmark.name, part * per_problem, benchmark.limit, lengths)
                at_once = study.evaluation.batch_size
                evaluation_seconds += _draw(study, model, assumptions, engines["evaluation"], at_once, answers)[0]
    device_hours = training.steps * compute.processes / 3600
    return Hours(
        rollout_seconds * device_hours,
        update.seconds * device_hours,
        evaluation_seconds / 3600,
        side_by_side,
        update,
        (rollout_seconds, update.seconds),
    )


def _draw(
    study: Study,
    model: Architecture,
    assumptions: Assumptions,
    engine: Engine,
    at_once: int,
    responses: Drawn,
    parallel: int = 1,
) -> tuple[float, int]:
    """Seconds of one engine on ``parallel`` devices, and how many responses run side by side. Transformers ends a batch before the next."""
    on_gpus = study.compute.gpus_per_node > 0
    dtype = getattr(study.rollout, "dtype", "float32")
    rate = operations_per_second(study.compute, assumptions, dtype, study.threads)
    bandwidth = (
        assumptions.bandwidth_gbs * GB * assumptions.bandwidth_share if on_gpus else assumptions.cpu_bandwidth_gbs * GB
    )
    overhead = assumptions.overhead_seconds(engine.name, model.layers)
    batches = 1 if engine.name == "vllm" else math.ceil(responses.responses / at_once)
    seconds, side_by_side = 0.0, 0
    for size in _cut(responses.responses, batches):
        batch = Drawn(size, responses.prompt, responses.mean, responses.limit)
        taken, together = generation_seconds(model, engine, batch, at_once, parallel, rate, bandwidth, overhead)
        seconds, side_by_side = seconds + taken, max(side_by_side, together)
    return seconds, side_by_side


def _cut(total: int, parts: int) -> list[int]:
    """Parts as equal as whole numbers allow."""
    return [total // parts + (k < total % parts) for k in range(parts)]
