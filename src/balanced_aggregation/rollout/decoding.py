"""What makes sampling with transformers fast: a KV cache that is written in place, and attention of single tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_ATTENTION = "sdpa_single_token"


class InPlaceLayer(DynamicLayer):
    """Keys and values of one layer with room for further tokens: a token adds its own and copies nothing else."""

    def __init__(self, longest: int):
        """Args: the most tokens that a row will have; room for them is made by doubling, as they come."""
        super().__init__()
        self.longest = longest
        self.store: list[Tensor] = []

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Add tokens to every row; return the keys and values of all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        stop = start + key_states.shape[-2]
        added = (key_states, value_states)
        if not self.store or stop > self.store[0].shape[-2]:
            room = max(stop, min(self.longest, 2 * start))
            self.store = [new.new_empty(*new.shape[:2], room, new.shape[3]) for new in added]
            for store, old in zip(self.store, (self.keys, self.values), strict=True):
                if start:
                    store[:, :, :start] = old
        for store, new in zip(self.store, added, strict=True):
            store[: len(new), :, start:stop] = new
        self._show(len(key_states), stop)
        return self.keys, self.values

    def batch_select_indices(self, indices: Int[Tensor, " rows"]) -> None:
        """Put row ``indices[i]`` at place ``i``: rows that are there already are not copied."""
        if not self.get_seq_length():
            return
        if len(indices) > len(self.keys):
            self.store = [self.keys[indices], self.values[indices]]
        else:
            moved = (indices != torch.arange(len(indices), device=indices.device)).nonzero().squeeze(1)
            for tensor in (self.keys, self.values):
                tensor[moved] = tensor[indices[moved]]
        self._show(len(indices), self.keys.shape[-2])

    def _show(self, rows: int, length: int) -> None:
        self.keys, self.values = (store[:rows, :, :length] for store in self.store)


def in_place_cache(model: PreTrainedModel, longest: int) -> DynamicCache:
    """An empty KV cache for rows of at most ``longest`` tokens; layers of special kinds stay as they are."""
    cache = DynamicCache(config=model.config)
    cache.layers = [InPlaceLayer(longest) if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def keep_rows(keep: Tensor) -> Int[Tensor, " kept"]:
    """An order of the rows to keep in which as many as possible stay in place: gaps are filled from the end."""
    kept = keep.nonzero().squeeze(1)
    order = torch.arange(len(kept), device=keep.device)
    order[~keep[: len(kept)]] = kept[kept >= len(kept)]
    return order


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Grouped-query attention of one token a row: query heads that share a key take the place of positions.

    So keys and values need not be repeated for each query head, which costs more than the attention itself.
    """
    rows, heads, tokens, width = query.shape
    groups = heads // key.shape[1]
    if tokens > 1 or groups == 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    grouped = query.view(rows, -1, groups, width)
    attended = scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
    return attended.reshape(rows, 1, heads, -1), None


AttentionInterface.register(_ATTENTION, _attention)
AttentionMaskInterface.register(_ATTENTION, sdpa_mask)


@contextmanager
def single_token_attention(model: PreTrainedModel) -> Iterator[None]:
    """While it lasts, a model that attends by PyTorch's kernel does so without repeating keys and values."""
    before = model.config._attn_implementation
    if before != "sdpa":
        yield
        return
    model.set_attn_implementation(_ATTENTION)
    try:
        yield
    finally:
        model.set_attn_implementation(before)
