"""Floating-point operations, bytes moved, and the time that they take."""

import math
from dataclasses import dataclass

from balanced_aggregation.config import Compute, Training
from balanced_aggregation.planning.architecture import Architecture
from balanced_aggregation.planning.assumptions import GB, Assumptions
from balanced_aggregation.planning.memory import ELEMENT, Engine


@dataclass(frozen=True)
class Drawn:
    """Responses that are drawn, or trained on, together."""

    responses: int
    prompt: float
    """Mean tokens of a prompt."""
    mean: float
    """Mean tokens of a response."""
    limit: int
    """Most tokens of a response; one is assumed to have as many."""

    @property
    def sequence(self) -> float:
        """Mean tokens of a prompt and its response."""
        return self.prompt + self.mean


def forward_operations(model: Architecture, prompt: float, response: float, head: bool = True) -> float:
    """Floating-point operations of one forward pass over a prompt and its response.

    Two for each element of a layer's matrices and each token; ``4 * layers * heads * head_size`` for each token and
    each that it attends to, half of the square being masked; two for each element of the output layer and each token
    of the response (Kaplan et al., arXiv 2001.08361, section 2.1, with the output layer). Backward is twice as much.

    Args:
        model: shapes.
        prompt: tokens.
        response: tokens.
        head: whether the output layer is computed.
    """
    tokens = prompt + response
    matrices = 2 * model.layers * model.layer_matrix_parameters * tokens
    attention = 4 * model.layers * model.heads * model.head_size * tokens**2 / 2
    return matrices + attention + 2 * model.head_parameters * response * head


def operations_per_second(compute: Compute, assumptions: Assumptions, dtype: str, threads: int) -> float:
    """What one process reaches: ``utilization`` of its GPU's peak, or of its threads."""
    if not compute.gpus_per_node:
        return assumptions.cpu_gflops * 1e9 * threads * assumptions.utilization
    peak = assumptions.peak_tflops if dtype == "bfloat16" else assumptions.peak_float32_tflops
    return peak * 1e12 * assumptions.utilization


@dataclass(frozen=True)
class Update:
    """One step's updates."""

    useful: float
    """Operations that the learning needs: forward and backward over every response, each epoch (6 a parameter)."""
    computed: float
    """All operations: layers computed again, old log-probabilities, the reference's."""
    computing: float
    """Seconds."""
    communicating: float
    """Seconds, beside computing; the longer of the two counts."""

    @property
    def seconds(self) -> float:
        """Of one step, verification and the copy of weights to the engine left out."""
        return max(self.computing, self.communicating)


def update_cost(
    model: Architecture, training: Training, compute: Compute, drawn: Drawn, rate: float, assumptions: Assumptions
) -> Update:
    """Work of one step's updates. Every response bears gradient: in truth those of groups of equal rewards do not.

    Forward and backward are three forward passes, with checkpointing the layers' forward once more. Each mini-batch but
    the first needs its old log-probabilities (a forward pass), a KL those of the reference.

    Under FSDP every micro-batch of a process receives ``(N - 1) / N`` of the weights in ``c`` for forward, of the
    layers again for backward, and sends as much in float32 for the gradients; DDP moves ``8P`` for each update.

    Args:
        model: shapes.
        training: of the study.
        compute: of the study.
        drawn: all responses of a step.
        rate: operations a second of one process.
        assumptions: bandwidths between GPUs.
    """
    forward = forward_operations(model, drawn.prompt, drawn.mean) * drawn.responses
    layers = forward_operations(model, drawn.prompt, drawn.mean, head=False) * drawn.responses
    useful = 3 * forward * training.epochs
    again = layers * training.epochs * compute.activation_checkpointing
    later = 1 - 1 / training.mini_batches
    before = forward * (later + (training.kl_coefficient > 0))
    computed = useful + again + before

    ranks = compute.processes
    rows = max(int(training.micro_batch_tokens // drawn.sequence), 1)
    each = math.ceil(drawn.responses / training.mini_batches / ranks)
    micro_batches = math.ceil(each / rows) * training.mini_batches
    if not compute.gpus_per_node or ranks == 1:
        moved = 0.0
    elif compute.strategy == "ddp":
        moved = 8.0 * model.parameters * training.mini_batches * training.epochs
    else:
        c = ELEMENT[compute.dtype]
        reading = c * model.parameters
        learning = reading + c * model.layers * model.layer_parameters + 4 * model.parameters
        passes = later + (training.kl_coefficient > 0)
        moved = micro_batches * (learning * training.epochs + reading * passes) * (ranks - 1) / ranks
    speed = (assumptions.node_gbs if compute.nodes == 1 else assumptions.network_gbs) * GB
    return Update(useful, computed, computed / ranks / rate, moved / speed)


def generation_seconds(
    model: Architecture,
    engine: Engine,
    drawn: Drawn,
    at_once: int,
    parallel: int,
    rate: float,
    bandwidth: float,
    overhead: float,
) -> tuple[float, int]:
    """Time in which one engine draws responses, and how many run side by side.

    With ``n`` responses of mean length ``m`` and the longest ``l``, ``b`` side by side: places that fall free are taken
    by others, and at the end the longest is waited for, so there are about ``n m / b + (l - m)`` decoding steps. Each
    reads the weights once, and each token the KV cache of what stands before it; that is the time by bandwidth. The
    time by arithmetic is that of a forward pass over all responses. The longer of the two counts, and for each step an
    overhead. Reading the prompts, once for each response, comes on top.

    Args:
        model: shapes.
        engine: its memory.
        drawn: responses of this engine.
        at_once: responses that the study lets run side by side.
        parallel: GPUs that share the engine's work.
        rate: operations a second of one GPU.
        bandwidth: bytes a second of one GPU.
        overhead: seconds of a decoding step.
    """
    n, mean = drawn.responses, drawn.mean
    side_by_side = max(min(at_once, n, int(engine.cache // (engine.token * drawn.sequence))), 1)
    steps = n * mean / side_by_side + drawn.limit - mean
    weights = engine.items.get("engine: weights", 4 * model.parameters)
    cache = n * mean * (drawn.prompt + mean / 2) * engine.token
    prompts = forward_operations(model, drawn.prompt, 0) * n / (rate * parallel)
    decoding = forward_operations(model, drawn.prompt, mean) * n / (rate * parallel) - prompts
    seconds = max((steps * weights + cache) / bandwidth, decoding) + steps * overhead + prompts
    return seconds, side_by_side
