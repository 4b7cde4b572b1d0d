"""The rollout engine on vLLM, in the process that trains, with weights of its own that are updated in place.

On a GPU it sleeps while the trainer works: its memory is given back, the weights wait in the host's. That part follows
vLLM's documentation and source and has not been run on a GPU yet.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from balanced_aggregation.config import VllmRollout
from balanced_aggregation.errors import UserError
from balanced_aggregation.rollout import Finished, Response, Sampling
from balanced_aggregation.rollout.vllm_loading import load_vllm, vllm_at_work


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
        self._llm = load_vllm(folder, settings, max_sequences=max_sequences, max_length=max_length)
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
            with vllm_at_work():
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
        try:
            with vllm_at_work():
                self._llm.collective_rpc("replace_weights", args=(stream,))
        finally:
            for _ in stream:  # what vLLM did not ask for: the other processes are waiting to make it
                pass
        if not self._llm.reset_prefix_cache():  # it holds keys and values of the old weights
            raise RuntimeError("vLLM kept its prefix cache, made by the old weights: requests are still running")
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
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

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
                with vllm_at_work():
                    self._llm.wake_up(tags=[part])
                self._asleep.remove(part)

    def _sleep(self) -> None:
        if self._sleeps:
            with vllm_at_work():
                self._llm.sleep(level=1)
            self._asleep = {"weights", "kv_cache"}


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
