"""The plan of one study: its workload, memory, hours, problems."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from balanced_aggregation.config import TRAIN, Study
from balanced_aggregation.planning import memory
from balanced_aggregation.planning.architecture import Architecture
from balanced_aggregation.planning.assumptions import GB, Assumptions
from balanced_aggregation.planning.checks import find_problems, find_warnings
from balanced_aggregation.planning.hours import Hours, device_hours
from balanced_aggregation.planning.limits import longest_sequence
from balanced_aggregation.planning.memory import Engine, Moment
from balanced_aggregation.planning.workload import (
    Tokens,
    checkpoint_count,
    evaluated_benchmarks,
    evaluated_tokens,
    sampled_tokens,
)


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
        """What messages call it: the study's name, and its variant's."""
        return getattr(self.study, "full_name", self.study.study)

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
        "expected": device_hours(study, model, assumptions, engines, assumptions),
        "worst": device_hours(study, model, assumptions, engines, None),
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
        sizes = [
            (min(b.part, b.problems) * max(b.ways.values()), longest_sequence(study, b.name))
            for b in evaluated_benchmarks(study)
        ]
        rows, longest = max(sizes, key=lambda size: size[0] * size[1])
        return memory.transformers_engine(model, True, min(rows, study.evaluation.batch_size), longest)
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
