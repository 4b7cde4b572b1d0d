"""Memory of one process: its GPU's, or its share of RAM where there is none. All in bytes.

``P`` stands for the model's parameters, ``N`` for the processes of one training, ``c`` for the bytes of an element in
what forward and backward compute in (``compute.dtype``), ``t`` for the padded tokens of a micro-batch.
"""

from dataclasses import dataclass

from balanced_aggregation.config import Compute
from balanced_aggregation.planning.architecture import Architecture
from balanced_aggregation.training.log_probs import CHUNK_ELEMENTS

ELEMENT = {"float32": 4, "bfloat16": 2}
"""Bytes."""

KV_BLOCK = 32
"""Tokens of a block of the KV cache, at most: vLLM's are 16 on GPUs and 32 on CPUs."""


@dataclass(frozen=True)
class Moment:
    """What lies in memory at one point of a step."""

    phase: str
    name: str
    items: dict[str, float]
    """Bytes, by what they hold."""

    @property
    def total(self) -> float:
        """Bytes."""
        return sum(self.items.values())


def trainer_state(model: Architecture, compute: Compute, with_reference: bool) -> dict[str, float]:
    """What a process holds from step to step, everything in float32.

    Weights ``4P``, gradients ``4P`` (they are zeroed, never freed), Adam's two moments ``8P``, the reference model
    ``4P``; FSDP gives each process one ``N``-th (Rajbhandari et al., ZeRO, arXiv 1910.02054, stage 3).
    """
    own = model.parameters / (compute.processes if compute.strategy == "fsdp" else 1)
    state = {"weights (float32)": 4 * own, "gradients (float32)": 4 * own, "Adam's moments (float32)": 8 * own}
    return state | ({"reference model (float32)": 4 * own} if with_reference else {})


def layer_activations(model: Architecture, element: int) -> int:
    """Bytes that one decoder layer saves for its backward pass, for each token.

    With hidden size ``h``, ``q = heads * head_size``, ``k = kv_heads * head_size``, MLP width ``i``:

    * two norms: input in float32 ``4h``, inverse root ``4``, normalised ``ch``, output ``ch``, which is what follows'
      input
    * norms of queries and keys (Qwen3): ``(4 + c)(q + k)``, inverse roots ``4 (heads + kv_heads)``
    * attention without a matrix of scores: rotated queries and keys, values, output ``c (2q + 2k)``; log-sum-exp of
      each row ``4 heads`` (Dao, FlashAttention-2, arXiv 2307.08691)
    * MLP: gate, its activation, up, their product ``4ci``

    The residual sums are the norms' inputs. It is checked against what autograd saves (tests/test_planning.py).
    """
    h, c = model.hidden, element
    queries, keys = model.heads * model.head_size, model.kv_heads * model.head_size
    norms = 2 * (4 * h + 4 + 2 * c * h)
    head_norms = (4 + c) * (queries + keys) + 4 * (model.heads + model.kv_heads) if model.qk_norm else 0
    attention = c * (2 * queries + 2 * keys) + 4 * model.heads
    return norms + head_norms + attention + 4 * c * model.intermediate


def saved_activations(model: Architecture, element: int, checkpointing: bool) -> int:
    """Bytes that the layers keep between forward and backward, for each token.

    All of `layer_activations`; with checkpointing only each layer's input, ``ch``.
    """
    return model.layers * (element * model.hidden if checkpointing else layer_activations(model, element))


def head_activations(model: Architecture, element: int) -> int:
    """Bytes for each token around the output layer: the last norm, the positions taken from it, and their gradient."""
    return 4 * model.hidden + 4 + 4 * element * model.hidden


def update_moments(model: Architecture, compute: Compute, tokens: int) -> list[Moment]:
    """What an update adds to the resident memory, at the moments when there may be most of it.

    FSDP2 gathers in ``c``: the root (embedding, output layer, last norm) stays whole from forward to the end of
    backward; of the layers there is the current one, the next one being fetched, and the buffer it is gathered in.
    Gradients of the current unit are whole in ``c``, and in float32 where they are reduced (the layer before may still
    be under way). In backward about ``c (2h + 3i)`` a token are gradients of a layer's activations.

    Of the logits a chunk is held at a time, in float32 (`training.log_probs`); backward has a second one beside it if
    there are several. Half precision needs a copy of one in ``c``, and the output layer's gradient, summed in float32,
    another in ``c`` in the end.

    Args:
        model: shapes.
        compute: strategy, processes and dtype.
        tokens: padded tokens of the largest micro-batch.
    """
    c, sharded = ELEMENT[compute.dtype], compute.strategy == "fsdp"
    layer, root, head = model.layer_parameters, model.root_parameters, model.head_parameters
    saved = saved_activations(model, c, compute.activation_checkpointing) * tokens
    around_head = head_activations(model, c) * tokens
    again = layer_activations(model, c) * tokens if compute.activation_checkpointing else 0
    flowing = c * (2 * model.hidden + 3 * model.intermediate) * tokens
    gathered, chunk = "gathered weights", "logits chunk"
    activations, gradients = "activations", "whole gradients"
    before_layers = {gathered: c * (root + 2 * layer) * sharded, activations: saved + around_head}
    largest_chunk = CHUNK_ELEMENTS["cuda" if compute.gpus_per_node else "cpu"]
    logits, half = min(largest_chunk, tokens * model.vocabulary), c * (c < 4)
    chunks = 2 if tokens * model.vocabulary > largest_chunk else 1
    at_logits = before_layers | {chunk: (4 + half) * logits}
    at_head = before_layers | {chunk: (4 * chunks + half) * logits, gradients: (4 + half) * head}
    at_layer = {
        gathered: c * (root + 3 * layer) * sharded,
        activations: saved + again + flowing + c * model.hidden * tokens,
        gradients: c * head + (c + 8) * layer if sharded else c * model.largest_parameter,
    }
    at_root = {
        gathered: c * root * sharded,
        activations: c * model.hidden * tokens,
        gradients: (c + 4 + 4 / compute.processes) * root + 4 * layer if sharded else c * model.largest_parameter,
    }
    # Adam over lists of tensors holds one temporary of the size of all weights; on CPUs of the largest.
    all_weights = model.parameters if compute.gpus_per_node else model.largest_parameter
    at_step = {"optimiser's temporaries": 4 * all_weights / (compute.processes if sharded else 1)}
    named = {
        "logits": at_logits,
        "output layer": at_head,
        "backward of a layer": at_layer,
        "end of backward": at_root,
        "optimiser step": at_step,
    }
    return [Moment("update", name, items) for name, items in named.items()]


@dataclass(frozen=True)
class Engine:
    """An engine's memory on one GPU (or in one process)."""

    name: str
    items: dict[str, float]
    """Bytes, by what they hold, while it samples."""
    cache: float
    """Bytes for the KV cache; negative if not even the weights have room. Of transformers: what its rows need."""
    token: int
    """Bytes of KV cache for a token."""

    def full_length(self, sequence: int) -> int:
        """How many sequences of that many tokens the cache holds."""
        block = KV_BLOCK if self.name == "vllm" else 1
        return max(int(self.cache // (self.token * -(-sequence // block) * block)), 0)


def vllm_engine(
    model: Architecture, dtype: str, tensor_parallel: int, share: float, working: float, cache: float | None = None
) -> Engine:
    """VLLM's memory on each of its GPUs: it takes a share, and what weights and working memory leave is KV cache.

    Args:
        model: shapes.
        dtype: of weights and cache.
        tensor_parallel: GPUs of the engine.
        share: bytes it may take.
        working: bytes for activations, sampler and CUDA graphs.
        cache: bytes of the KV cache, if they are given instead of ``share``.
    """
    element = ELEMENT[dtype]
    weights = element * model.parameters / tensor_parallel
    left = share - weights - working if cache is None else cache
    items = {"engine: weights": weights, "engine: working memory": working, "engine: KV cache": max(left, 0)}
    return Engine("vllm", items, left, model.kv_bytes(element, tensor_parallel))


def transformers_engine(model: Architecture, replica: bool, rows: int, sequence: int) -> Engine:
    """Sampling by transformers in float32: whole weights of its own unless the trainer's are whole, and the cache.

    The cache grows by concatenation, one layer at a time: ``(layers + 1) / layers`` of it at the peak. Choosing tokens
    takes logits and log-softmax in float32, probabilities and their sums in float64: 24 bytes an element.

    Args:
        model: shapes.
        replica: whether it needs weights of its own.
        rows: responses sampled side by side.
        sequence: tokens of the longest prompt and response.
    """
    token = model.kv_bytes(4)
    cache = token * sequence * rows
    weights = {"engine: weights": 4 * model.parameters} if replica else {}
    others = {
        "engine: working memory": 24 * rows * model.vocabulary + cache / model.layers,
        "engine: KV cache": cache,
    }
    return Engine("transformers", weights | others, cache, token)
