"""The rollout engine on transformers: no server, no copy of the weights, exact with respect to the trainer's model."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from balanced_aggregation.rollout import Finished, Response, Sampling
from balanced_aggregation.rollout.decoding import in_place_cache, keep_rows, single_token_attention


class TransformersEngine:
    """Samples from the trainer's own model, or from a copy of it that `update_weights` keeps up to date.

    A prompt is read once for all its samples, and finished responses leave the batch, cache included.
    """

    def __init__(self, model: PreTrainedModel, end_token_ids: Sequence[int], pad_token_id: int, batch_size: int):
        """Args: the model, the tokens that end a response, the padding, and how many responses run side by side."""
        self.model = model
        self.end_token_ids = torch.tensor(list(end_token_ids))
        self.pad_token_id = pad_token_id
        self.batch_size = batch_size

    @torch.no_grad()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        finished: Finished | None = None,
    ) -> list[Response]:
        """See `RolloutEngine.generate`."""
        rows = [(prompt, seed) for prompt, own in zip(prompts, seeds, strict=True) for seed in own]
        responses: list[Response] = []
        with single_token_attention(self.model):
            for first in range(0, len(rows), self.batch_size):
                batch = rows[first : first + self.batch_size]
                report = None if finished is None else lambda row, r, first=first: finished(first + row, r)
                responses += self._generate_batch(batch, sampling, report)
        return responses

    @torch.no_grad()
    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See `RolloutEngine.update_weights`; the trainer's own parameters are left as they are."""
        own = dict(self.model.named_parameters())
        for name, tensor in weights:
            if own[name].data_ptr() != tensor.data_ptr():
                own[name].copy_(tensor)

    def _generate_batch(
        self, rows: Sequence[tuple[Sequence[int], int]], sampling: Sampling, finished: Finished | None
    ) -> list[Response]:
        uniform = _uniform([seed for _, seed in rows], sampling)
        tokens: list[list[int]] = [[] for _ in rows]
        log_probs: list[list[float]] = [[] for _ in rows]
        responses: list[Response | None] = [None] * len(rows)
        live = torch.arange(len(rows))  # rows of the batch that go on, in the order in which the cache holds them

        prompts = list(dict.fromkeys(tuple(prompt) for prompt, _ in rows))
        places = {prompt: place for place, prompt in enumerate(prompts)}
        prompt_of = torch.tensor([places[tuple(prompt)] for prompt, _ in rows])
        input_ids, mask = self._left_padded(prompts)
        width = input_ids.shape[1]
        cache = in_place_cache(self.model, width + sampling.max_new_tokens)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        logits = self._forward(input_ids, mask, positions, cache)[prompt_of]
        cache.batch_select_indices(prompt_of)
        mask = torch.nn.functional.pad(mask, (0, sampling.max_new_tokens), value=1)[prompt_of]
        positions = positions[prompt_of, -1:]
        for step in range(sampling.max_new_tokens):
            chosen, chosen_log_probs = choose_tokens(logits, uniform[live, step], sampling)
            is_end = self._is_end(live, step, chosen)
            for row, token, log_prob, end in zip(
                live.tolist(), chosen.tolist(), chosen_log_probs.tolist(), is_end.tolist(), strict=True
            ):
                tokens[row].append(token)
                log_probs[row].append(log_prob)
                if end or step + 1 == sampling.max_new_tokens:
                    responses[row] = Response(tokens[row], log_probs[row], truncated=not end)
                    if finished:
                        finished(row, responses[row])
            if step + 1 == sampling.max_new_tokens or is_end.all():
                break
            if is_end.any():
                order = keep_rows(~is_end)
                live, chosen, mask, positions = live[order], chosen[order], mask[order], positions[order]
                cache.batch_select_indices(order)
            positions += 1
            logits = self._forward(chosen[:, None], mask[:, : width + step + 1], positions, cache)
        return responses

    def _is_end(self, rows: Int[Tensor, " b"], step: int, tokens: Int[Tensor, " b"]) -> Bool[Tensor, " b"]:
        """Which of the rows end with the tokens that they drew at this step."""
        return torch.isin(tokens, self.end_token_ids)

    def _forward(
        self,
        input_ids: Int[Tensor, "b new"],
        mask: Int[Tensor, "b all"],
        positions: Int[Tensor, "b new"],
        cache: DynamicCache,
    ) -> Float[Tensor, "b vocabulary"]:
        output = self.model(
            input_ids=input_ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()

    def _left_padded(self, prompts: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "b n"], Int[Tensor, "b n"]]:
        width = max(len(prompt) for prompt in prompts)
        input_ids = torch.full((len(prompts), width), self.pad_token_id)
        mask = torch.zeros(len(prompts), width, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            input_ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        return input_ids, mask


def _uniform(seeds: Sequence[int], sampling: Sampling) -> Float[Tensor, "b max_new_tokens"]:
    """Each response's own random numbers, so that neither its neighbours nor the cut into batches matters to it."""
    if sampling.temperature == 0:
        return torch.zeros(len(seeds), 1, dtype=torch.float64).expand(-1, sampling.max_new_tokens)
    generator = torch.Generator()
    rows = [
        torch.rand(sampling.max_new_tokens, generator=generator.manual_seed(seed), dtype=torch.float64)
        for seed in seeds
    ]
    return torch.stack(rows)


def choose_tokens(
    logits: Float[Tensor, "b vocabulary"], uniform: Float[Tensor, " b"], sampling: Sampling
) -> tuple[Int[Tensor, " b"], Float[Tensor, " b"]]:
    """Draw a token for each row by inverting its cumulative distribution at ``uniform`` (in [0, 1)).

    Returns:
        the tokens, and their log-probabilities at the temperature (of the untempered distribution if greedy).

    Raises:
        FloatingPointError: the logits hold a NaN, or overflow at this temperature.
    """
    scores = logits / sampling.temperature if sampling.temperature not in (0, 1) else logits
    scores = scores - scores.amax(-1, keepdim=True)
    probs = scores.exp()  # but for a factor
    cumulative = probs.cumsum(-1, dtype=torch.float64)
    log_norm = cumulative[:, -1:].log().to(scores.dtype)
    if torch.isnan(log_norm).any():
        raise FloatingPointError("the model's probabilities are not numbers")
    if sampling.temperature == 0:
        tokens = scores.argmax(-1, keepdim=True)
    else:
        if sampling.top_p < 1:
            probs = probs.double() / cumulative[:, -1:]
            cumulative = _nucleus(probs, sampling.top_p).cumsum(-1)
        total = cumulative[:, -1]
        point = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
        tokens = torch.searchsorted(cumulative, point[:, None], right=True)
    return tokens.squeeze(1), (scores.gather(1, tokens) - log_norm).squeeze(1)


def _nucleus(probs: Float[Tensor, "b vocabulary"], top_p: float) -> Float[Tensor, "b vocabulary"]:
    """Probabilities with 0 outside the smallest set of most probable tokens that holds ``top_p`` of the mass."""
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    outside = ordered.cumsum(-1) - ordered >= top_p
    return torch.zeros_like(probs).scatter(1, order, ordered.masked_fill(outside, 0.0))
