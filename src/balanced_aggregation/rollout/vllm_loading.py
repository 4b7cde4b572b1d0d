"""vLLM brought into the process that trains, and what it does to the process undone."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from transformers import AutoConfig

from balanced_aggregation.config import VllmRollout
from balanced_aggregation.errors import UserError
from balanced_aggregation.provenance import vllm_version
from balanced_aggregation.seeding import generators_kept

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # no process of its own: weights are handed over by reference
    "VLLM_NO_USAGE_STATS": "1",  # it would report to its makers
    "VLLM_LOGGING_LEVEL": "ERROR",  # the log of a stage is read by people
}
_ENVIRONMENT_CPU = {"TORCHDYNAMO_DISABLE": "1"}  # compiling a small helper of the sampler takes longer than a rollout
_CPU_BLOCK = 32  # tokens of a block of the KV cache: whole blocks of a prompt are shared by its samples
_LOADED: list[Any] = []  # one that is garbage-collected takes the process group down with it, also where that is ours


def load_vllm(folder: Path, settings: VllmRollout, *, max_sequences: int, max_length: int) -> Any:
    """The model in ``folder`` as a `vllm.LLM` in this process; it is held until the process ends.

    Args:
        folder: the model, as `models.save_model` writes it.
        settings: how the engine computes.
        max_sequences: responses sampled side by side.
        max_length: most tokens of a prompt and its response together.

    Raises:
        UserError: vLLM is not installed, or cannot run this model.
    """
    vllm_version()
    on_cpu = not torch.cuda.is_available()
    arguments = _parallel(settings.tensor_parallel)
    if on_cpu:
        arguments |= {
            "enforce_eager": True,
            "block_size": _CPU_BLOCK,
            "kv_cache_memory_bytes": int(settings.cpu_cache_gib * 2**30),
        }
    else:
        arguments |= {"gpu_memory_utilization": settings.memory_share, "enable_sleep_mode": settings.sleep}
    with vllm_at_work(), _process_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        os.environ |= _ENVIRONMENT | (_ENVIRONMENT_CPU if on_cpu else {})
        from vllm import LLM

        if on_cpu:
            _check_head_size(folder)
        try:
            llm = LLM(
                str(folder),
                dtype=settings.dtype,
                skip_tokenizer_init=True,
                use_tqdm_on_load=False,
                generation_config="vllm",  # not the model's own: it may penalise or cut off
                logprobs_mode="processed_logprobs",  # at the temperature
                max_num_seqs=max_sequences,
                max_model_len=max_length,
                worker_extension_cls="balanced_aggregation.rollout.vllm_worker.WeightUpdate",
                **arguments,
            )
        except ValueError as error:
            message = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            reason = " ".join(message.split())
            raise UserError(f"{folder}: vLLM cannot run this model with rollout = {settings}: {reason}") from error
    _LOADED.append(llm)
    return llm


@contextmanager
def vllm_at_work() -> Iterator[None]:
    """Where vLLM computes. It seeds the global generators; on a GPU it has kernels without a deterministic variant."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if torch.cuda.is_available():
        torch.use_deterministic_algorithms(False)
    try:
        with generators_kept():
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _parallel(tensor_parallel: int) -> dict[str, Any]:
    """How vLLM finds the ranks that share an engine: in the caller's process group, if that has several."""
    distributed = torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
    ranks = torch.distributed.get_world_size() if distributed else 1
    if ranks % tensor_parallel:
        raise UserError(f"rollout.tensor_parallel = {tensor_parallel}: must divide the number of processes, {ranks}")
    if not distributed:
        return {}
    return {"tensor_parallel_size": tensor_parallel, "distributed_executor_backend": "external_launcher"}


def _check_head_size(folder: Path) -> None:
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    sizes = CPUAttentionBackend.get_supported_head_sizes()
    if size not in sizes:
        allowed = ", ".join(map(str, sizes))
        raise UserError(f"{folder}: attention heads of size {size}; vLLM on a CPU has {allowed}")


@contextmanager
def _process_kept() -> Iterator[None]:
    """Undo what vLLM does to the process: on a CPU it disables `torch.set_num_threads` and sets variables for others.

    One of them preloads libraries into every program that is started later, the sandbox of verifiers among them;
    another, LOCAL_WORLD_SIZE, is torchrun's.
    """
    variables, set_num_threads, threads = dict(os.environ), torch.set_num_threads, torch.get_num_threads()
    try:
        yield
    finally:
        own = {name: value for name, value in os.environ.items() if name.startswith("VLLM_")}
        os.environ.clear()
        os.environ |= variables | own
        torch.set_num_threads = set_num_threads
        torch.set_num_threads(threads)
