"""One optimisation batch, its micro-batches, and the log-probabilities of its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor
from transformers import PreTrainedModel

from balanced_aggregation.training.log_probs import selected_log_probs


@dataclass(frozen=True)
class Batch:
    """Responses of whole groups, which one optimiser update uses together."""

    prompts: list[Int[Tensor, " prompt"]]
    """Token ids, for each response."""
    responses: list[Int[Tensor, " response"]]
    """Token ids, for each response, with the token that ends it."""
    lengths: Int[Tensor, " n"]
    """Loss-bearing tokens: the length of the response, or 0 if it is masked out."""
    advantages: Float64[Tensor, " n"]
    group_ids: Int[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.responses)

    def select(self, indices: Int[Tensor, " m"]) -> "Batch":
        """The batch of some of the responses."""
        places = indices.tolist()
        return Batch(
            [self.prompts[i] for i in places],
            [self.responses[i] for i in places],
            self.lengths[indices],
            self.advantages[indices],
            self.group_ids[indices],
        )


def sequence_lengths(prompts: Sequence[Tensor], responses: Sequence[Tensor]) -> list[int]:
    """Tokens of each prompt and its response together."""
    return [len(p) + len(r) for p, r in zip(prompts, responses, strict=True)]


def micro_batches(sizes: Sequence[int], indices: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Cut ``indices`` into parts whose padded size, rows times longest, is at most ``max_tokens``.

    Responses are sorted by size first, so that little of a part is padding. One that is larger than the budget by
    itself is a part of its own.

    Args:
        sizes: tokens of each response of the batch, prompt included.
        indices: which responses to use.
        max_tokens: budget of a part.
    """
    parts: list[list[int]] = []
    for index in sorted(indices, key=lambda i: (-sizes[i], i)):
        if parts and sizes[parts[-1][0]] * (len(parts[-1]) + 1) <= max_tokens:
            parts[-1].append(index)
        else:
            parts.append([index])
    return parts


def share_out(sizes: Sequence[int], indices: Sequence[int], max_tokens: int, processes: int) -> list[list[list[int]]]:
    """Micro-batches for each of several processes, about equally many tokens each.

    Responses need not stay with their group: their weights have been computed before. All processes get equally many
    micro-batches, since sharded weights are gathered by all together; those that are left over are empty.

    Args:
        sizes: tokens of each response of the batch, prompt included.
        indices: which responses to use.
        max_tokens: budget of a micro-batch, padding included.
        processes: number of processes.
    """
    own: list[list[int]] = [[] for _ in range(processes)]
    loads = [0] * processes
    for index in sorted(indices, key=lambda i: (-sizes[i], i)):  # the longest first, to whoever has least
        least = loads.index(min(loads))
        own[least].append(index)
        loads[least] += sizes[index]
    shares = [micro_batches(sizes, some, max_tokens) for some in own]
    most = max(map(len, shares))
    return [share + [[]] * (most - len(share)) for share in shares]


def token_log_probs(
    model: PreTrainedModel,
    prompts: Sequence[Int[Tensor, " prompt"]],
    responses: Sequence[Int[Tensor, " response"]],
    temperature: float,
) -> Float[Tensor, " tokens"]:
    """Log-probability of every token of the responses, one response after the other, at the sampling temperature.

    Sequences are padded on the right: attention is causal, so what stands behind a token cannot change it, and which
    positions count follows from lengths alone, whatever the padding token is. The vocabulary is only multiplied out
    at positions that predict a token of a response, and in chunks.
    """
    sequences = [torch.cat(pair) for pair in zip(prompts, responses, strict=True)]
    input_ids = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    hidden = model.base_model(input_ids=input_ids, use_cache=False).last_hidden_state
    rows = torch.cat([torch.full((len(r),), i) for i, r in enumerate(responses)])
    columns = torch.cat([torch.arange(len(r)) + len(p) - 1 for p, r in zip(prompts, responses, strict=True)])
    head = model.get_output_embeddings()
    targets = torch.cat(list(responses))
    return selected_log_probs(hidden[rows, columns], head.weight, head.bias, targets, temperature)
