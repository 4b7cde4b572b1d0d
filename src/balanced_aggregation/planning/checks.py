"""What cannot work, and what works but is likely not meant."""

import math

from balanced_aggregation.config import TRAIN, SourceData, Study
from balanced_aggregation.planning.architecture import Architecture
from balanced_aggregation.planning.limits import longest_sequence, position_problems
from balanced_aggregation.planning.memory import ELEMENT, Engine, Moment
from balanced_aggregation.planning.workload import problem_count

CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""That vLLM's attention on CPUs has (its CPUAttentionBackend, 0.32)."""


def find_problems(study: Study, model: Architecture, engines: dict[str, Engine], moments: list[Moment]) -> list[str]:
    """One line for each thing that cannot work, naming the key, its value and what is allowed.

    Args:
        study: the study.
        model: shapes of its model.
        engines: memory of the rollout's and the evaluation's engine.
        moments: all that may not be larger than a GPU's memory.
    """
    problems = position_problems(study, model.positions)
    if study.rollout.engine == "vllm":
        problems += _vllm_problems(study, model, engines)
    available, needed = problem_count(study, TRAIN), study.training.prompts_per_step
    if isinstance(study.data.train, SourceData) and available < needed:
        problems.append(f"training.prompts_per_step = {needed}: at most the {available} problems of data.train")
    if study.compute.gpus_per_node:
        for phase, largest in largest_moments(moments).items():
            if largest.total > study.compute.gpu_memory_gb * 1e9:
                problems.append(
                    f"compute.gpu_memory_gb = {study.compute.gpu_memory_gb:g}: does not fit: {phase} "
                    f"({largest.name}) needs {largest.total / 1e9:.1f} GB of each GPU"
                )
    return problems


def _vllm_problems(study: Study, model: Architecture, engines: dict[str, Engine]) -> list[str]:
    problems, parallel = [], study.rollout.tensor_parallel
    key = f"rollout.tensor_parallel = {parallel}"
    if model.heads % parallel:
        problems.append(f"{key}: must divide the model's {model.heads} attention heads")
    if model.kv_heads % parallel and parallel % model.kv_heads:
        problems.append(f"{key}: must divide the model's {model.kv_heads} KV heads, or be a multiple of them")
    if model.intermediate % parallel:
        problems.append(f"{key}: must divide the model's intermediate size {model.intermediate}")
    size = model.head_size
    if not study.compute.gpus_per_node and size not in CPU_HEAD_SIZES:
        allowed = ", ".join(map(str, CPU_HEAD_SIZES))
        problems.append(f"rollout.engine = 'vllm': on CPUs it has no head size {size}; allowed: {allowed}")
    elif study.compute.gpus_per_node and size % 8 and size < 32:
        problems.append(f"rollout.engine = 'vllm': has no head size {size}; allowed: multiples of 8, or at least 32")
    for phase, engine in engines.items():
        datasets = [TRAIN] if phase == "rollout" else [b.name for b in study.data.benchmarks]
        longest = max(longest_sequence(study, name) for name in datasets)
        if engine.full_length(longest) < 1:
            problems.append(
                f"{_cache_key(study)}: the KV cache has {max(engine.cache, 0) / 1e9:.2f} GB in {phase} and cannot hold "
                f"one sequence of {longest} tokens, which takes {engine.token * longest / 1e9:.2f} GB beside weights "
                f"of {engine.items['engine: weights'] / 1e9:.1f} GB"
            )
    return problems


def _cache_key(study: Study) -> str:
    if study.compute.gpus_per_node:
        return f"rollout.memory_share = {study.rollout.memory_share:g}"
    return f"rollout.cpu_cache_gib = {study.rollout.cpu_cache_gib:g}"


def largest_moments(moments: list[Moment]) -> dict[str, Moment]:
    """Of each phase, the moment that needs most memory."""
    found: dict[str, Moment] = {}
    for moment in moments:
        if moment.phase not in found or moment.total > found[moment.phase].total:
            found[moment.phase] = moment
    return found


def find_warnings(
    study: Study, model: Architecture, engines: dict[str, Engine], micro_batch: int, slow_network: bool
) -> list[str]:
    """One line for each thing that works, but waste or surprise.

    Args:
        study: the study.
        model: shapes of its model.
        engines: memory of the rollout's and the evaluation's engine.
        micro_batch: padded tokens of the largest micro-batch.
        slow_network: whether updates wait for communication.
    """
    training, ranks, warnings = study.training, study.compute.processes, []
    if micro_batch > training.micro_batch_tokens:
        warnings.append(
            f"training.micro_batch_tokens = {training.micro_batch_tokens}: the longest response, {micro_batch} tokens "
            "with its prompt, is a micro-batch of its own; memory is planned for it"
        )
    responses = training.prompts_per_step // training.mini_batches * training.group_size
    if responses < ranks:
        warnings.append(
            f"training.mini_batches = {training.mini_batches}: {responses} responses of a mini-batch leave "
            f"{ranks - responses} of {ranks} processes without work"
        )
    parallel = getattr(study.rollout, "tensor_parallel", 1)
    if training.prompts_per_step * training.group_size < ranks // parallel:
        warnings.append(
            f"training.prompts_per_step = {training.prompts_per_step}: there are fewer responses than engines "
            f"({ranks // parallel})"
        )
    engine = engines["rollout"]
    if engine.name == "vllm":
        share = math.ceil(training.prompts_per_step * training.group_size / (ranks // parallel))
        wanted = min(training.rollout_batch_size, share)
        holds = engine.full_length(longest_sequence(study, TRAIN))
        if 1 <= holds < wanted:
            warnings.append(
                f"training.rollout_batch_size = {training.rollout_batch_size}: the KV cache holds {holds} responses of "
                f"full length of the {wanted} drawn side by side; vLLM lets the others wait, or draws them anew"
            )
    if study.compute.strategy == "ddp" and ranks > 1 and 16 * model.parameters > 16e9:
        warnings.append("compute.strategy = 'ddp': every process holds all weights, gradients and moments; see 'fsdp'")
    if study.compute.gpus_per_node and study.compute.dtype == "float32":
        warnings.append("compute.dtype = 'float32': a GPU is many times as fast in bfloat16")
    if study.rollout.engine == "vllm" and study.rollout.dtype == "float32" and study.compute.gpus_per_node:
        warnings.append(f"rollout.dtype = 'float32': weights and KV cache of {ELEMENT['float32']} bytes an element")
    if slow_network:
        warnings.append(
            f"training.micro_batch_tokens = {training.micro_batch_tokens}: updates wait for weights and gradients "
            "between processes; larger micro-batches move them less often"
        )
    return warnings
