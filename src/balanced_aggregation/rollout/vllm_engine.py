"""The rollout engine on vLLM, in the process that trains, with weights of its own that are updated in place.

On a GPU it sleeps while the trainer works: its memory is given back, the weights wait in the host's. That part follows
vLLM's documentation and source and has not been run: there was no GPU.
"""

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import AutoConfig

from balanced_aggregation.config import VllmRollout
from balanced_aggregation.errors import UserError
from balanced_aggregation.provenance import vllm_version
from balanced_aggregation.rollout import Finished, Response, Sampling
from balanced_aggregation.seeding import generators_kept

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # no process of its own: weights are handed over by reference
    "VLLM_NO_USAGE_STATS": "1",  # it would report to its makers
    "VLLM_LOGGING_LEVEL": "ERROR",  # the log of a stage is read by people
}
_ENVIRONMENT_CPU = {"TORCHDYNAMO_DISABLE": "1"}  # compiling a small helper of the sampler takes longer than a rollout
_LOADED: list[Any] = []  # one that is garbage-collected takes the process group down with it, also where that is ours
_CPU_BLOCK = 32  # tokens of a block of the KV cache: whole blocks of a prompt are shared by its samples


class VllmEngine:
    """Samples with vLLM from weights that `update_weights` replaces.

    Where several processes train, each makes an engine at the same time. ``tensor_parallel`` neighbouring ranks share
    one: they must be asked for the same responses, and get the same.
    """

    def __init__(
        self,
        folder: Path,
        settings: VllmRollout,
        *,
        end_token_ids: Sequence[int],
        max_sequences: int,
        max_length: int,
    ):
        """Load the model; its memory is held until the process ends.

        The caller's process group must have been initialised before; where there is none, vLLM makes one of its own.

        Args:
            folder: the initial model, as `models.save_model` writes it.
            settings: how the engine computes.
            end_token_ids: the tokens that end a response.
            max_sequences: responses sampled side by side.
            max_length: most tokens of a prompt and its response together.

        Raises:
            UserError: vLLM is not installed, or cannot run this model.
        """
        self._weight_names = _stored_weights(folder)
        self._end_token_ids = list(end_token_ids)
        self._max_length = max_length
        with generators_kept(), _process_kept():
            self._llm = _load(folder, settings, max_sequences, max_length)
        _LOADED.append(self._llm)
        self._sleeps = settings.sleep and torch.cuda.is_available()
        self._asleep: set[str] = set()
        self._sleep()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        finished: Finished | None = None,
    ) -> list[Response]:
        """See `RolloutEngine.generate`.

        With ``sampling.top_p`` below 1, where vLLM's log-probabilities are those within the nucleus, responses have
        none.

        Raises:
            FloatingPointError: a probability of the model is not a number.
        """
        longest = max(map(len, prompts), default=0) + sampling.max_new_tokens
        if longest > self._max_length:
            raise ValueError(f"prompt and response of up to {longest} tokens, in an engine for {self._max_length}")
        rows = [(prompt, seed) for prompt, own in zip(prompts, seeds, strict=True) for seed in own]
        self._wake("weights", "kv_cache")
        try:
            with generators_kept():
                return self._sample(rows, sampling, finished)
        finally:
            self._sleep()

    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See `RolloutEngine.update_weights`.

        Raises:
            ValueError: the tensors are not those of the model, by name.
        """
        taken: set[str] = set()

        def recorded() -> Iterator[tuple[str, Tensor]]:
            for name, tensor in weights:
                taken.add(name)
                yield name, tensor.detach()

        self._wake("weights")
        stream = recorded()
        with generators_kept():
            self._llm.collective_rpc("replace_weights", args=(stream,))
        for _ in stream:  # what vLLM did not ask for: the other processes are waiting to make it
            pass
        self._llm.reset_prefix_cache()  # it holds keys and values of the old weights
        tied = {"lm_head.weight"} if self._llm.model_config.hf_config.tie_word_embeddings else set()
        if wrong := (taken ^ self._weight_names) - tied:
            raise ValueError(f"missing or unknown weights: {', '.join(sorted(wrong))}")

    def _sample(
        self, rows: Sequence[tuple[Sequence[int], int]], sampling: Sampling, finished: Finished | None
    ) -> list[Response]:
        engine = self._llm.llm_engine
        responses: list[Response | None] = [None] * len(rows)
        running: dict[str, str] = {}  # by their place, what vLLM calls them
        try:
            for place, (prompt, seed) in enumerate(rows):
                request = {"prompt_token_ids": list(prompt)}
                running[str(place)] = engine.add_request(str(place), request, self._parameters(sampling, seed))
            while engine.has_unfinished_requests():
                for output in engine.step():  # only finished ones are put out
                    del running[output.request_id]
                    place = int(output.request_id)
                    responses[place] = _response(output.outputs[0], sampling)
                    if finished:
                        finished(place, responses[place])
        finally:
            engine.abort_request(list(running.values()), internal=True)
        return responses

    def _parameters(self, sampling: Sampling, seed: int) -> Any:
        from vllm.sampling_params import RequestOutputKind

        from vllm import SamplingParams

        if sampling.temperature and not 0.01 <= sampling.temperature <= 2:
            raise UserError(f"temperature = {sampling.temperature}: vLLM samples at 0.01 to 2")  # it would clamp it
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=seed,
            max_tokens=sampling.max_new_tokens,
            ignore_eos=True,  # what ends a response is said by us
            stop_token_ids=self._end_token_ids,
            logprobs=0,  # of the sampled token alone
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _wake(self, *parts: str) -> None:
        for part in parts:
            if part in self._asleep:
                torch.cuda.empty_cache()  # what the trainer's allocator holds but does not use
                self._llm.wake_up(tags=[part])
                self._asleep.remove(part)

    def _sleep(self) -> None:
        if self._sleeps:
            self._llm.sleep(level=1)
            self._asleep = {"weights", "kv_cache"}


def _load(folder: Path, settings: VllmRollout, max_sequences: int, max_length: int) -> Any:
    on_cpu = not torch.cuda.is_available()
    os.environ |= _ENVIRONMENT | (_ENVIRONMENT_CPU if on_cpu else {})
    vllm_version()
    from vllm import LLM

    arguments: dict[str, Any] = _parallel(settings.tensor_parallel)
    if on_cpu:
        _check_head_size(folder)
        arguments |= {
            "enforce_eager": True,
            "block_size": _CPU_BLOCK,
            "kv_cache_memory_bytes": int(settings.cpu_cache_gib * 2**30),
        }
    else:
        arguments |= {"gpu_memory_utilization": settings.memory_share, "enable_sleep_mode": settings.sleep}
    try:
        return LLM(
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
        reason = " ".join(str(error).split())
        raise UserError(f"{folder}: vLLM cannot run this model: {reason}") from error


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


def _response(completion: Any, sampling: Sampling) -> Response:
    log_probs = list(completion.logprobs.logprobs)
    if not all(map(math.isfinite, log_probs)):
        raise FloatingPointError("the model's probabilities are not numbers")
    token_ids = list(completion.token_ids)
    if len(log_probs) != len(token_ids):
        raise RuntimeError(f"vLLM gave {len(log_probs)} log-probabilities of {len(token_ids)} tokens")
    if sampling.top_p < 1:
        log_probs = []
    return Response(token_ids, log_probs, truncated=completion.finish_reason == "length")


def _stored_weights(folder: Path) -> set[str]:
    names: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            names |= set(file.keys())
    return names


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
