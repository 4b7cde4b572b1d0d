"""Device-hours of a study: rollouts, updates, evaluations."""

import math
from dataclasses import dataclass

from balanced_aggregation.config import TRAIN, Study
from balanced_aggregation.planning.architecture import Architecture
from balanced_aggregation.planning.assumptions import GB, Assumptions
from balanced_aggregation.planning.cost import Drawn, Update, generation_seconds, operations_per_second, update_cost
from balanced_aggregation.planning.memory import Engine
from balanced_aggregation.planning.workload import drawn, evaluated_benchmarks


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


def device_hours(
    study: Study, model: Architecture, assumptions: Assumptions, engines: dict[str, Engine], lengths: Assumptions | None
) -> Hours:
    """Device-hours of a study's stages.

    Args:
        study: the study.
        model: shapes of its model.
        assumptions: speeds.
        engines: memory of the rollout's and the evaluation's engine.
        lengths: assumptions on mean lengths; None has everything at its limit.
    """
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
    """Seconds of one engine on ``parallel`` devices, and how many responses run side by side.

    Transformers ends a batch before it begins the next.
    """
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
