"""Tokens per second and model FLOP utilisation of the update on the GPUs of a node, and its memory beside the plan's.

    balagg-torchrun --standalone --nproc-per-node 8 --no-python python benchmarks/utilization.py --gpus 8

The model has random weights in the shapes of a known one: speed depends on shapes alone. Utilisation counts what
`planning.cost.forward_operations` says of forward and backward over prompts and responses, without padding and without
what activation checkpointing computes again, as a share of the GPU's peak. With --gpus 0 it runs on the CPU.
"""

import os
import statistics
import time
from dataclasses import dataclass

import torch
import tyro
from transformers import AutoConfig, AutoModelForCausalLM

from balanced_aggregation.aggregation import RULES
from balanced_aggregation.config import Compute, Training
from balanced_aggregation.planning.architecture import KNOWN, describe
from balanced_aggregation.planning.assumptions import Assumptions
from balanced_aggregation.planning.cost import forward_operations
from balanced_aggregation.planning.memory import trainer_state, update_moments
from balanced_aggregation.training.batch import Batch
from balanced_aggregation.training.policy import Policy
from balanced_aggregation.training.update import accumulate_gradients, apply_update, create_optimizer, zero_gradients
from balanced_aggregation.training.world import end_world, start_world


@dataclass(frozen=True)
class Arguments:
    """The update of one optimisation batch, timed."""

    model: str = "Qwen/Qwen3-1.7B"
    """Whose shapes: a name that `balagg plan` knows."""
    layers: int | None = None
    """Use so many layers only."""
    gpus: int = 1
    """GPUs of the node, one process each; 0 for the CPU."""
    prompt: int = 256
    """Tokens of a prompt."""
    response: int = 3840
    """Tokens of a response."""
    responses: int = 8
    """Responses for each process."""
    micro_batch_tokens: int = 16384
    activation_checkpointing: bool = True
    steps: int = 3
    """Timed updates, after one that warms up."""
    peak_tflops: float = Assumptions.peak_tflops
    """Of a GPU in bfloat16, without sparsity; by default that of an H100 or H200, as `balagg plan` has it."""


def main(arguments: Arguments) -> None:
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    compute = Compute(
        gpus_per_node=arguments.gpus,
        cpu_processes=1 if arguments.gpus else processes,
        strategy="fsdp",
        dtype="bfloat16" if arguments.gpus else "float32",
        activation_checkpointing=arguments.activation_checkpointing,
    )
    world = start_world(compute)
    shapes = KNOWN[arguments.model] | ({"num_hidden_layers": arguments.layers} if arguments.layers else {})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**shapes), dtype=torch.float32).eval()
    architecture = describe(model)
    policy = Policy(model, compute, world)
    settings = Training(steps=1, micro_batch_tokens=arguments.micro_batch_tokens, learning_rate=1e-6)
    optimizer = create_optimizer(policy, settings)
    number = arguments.responses * world.size
    batch = Batch(
        [torch.randint(architecture.vocabulary, (arguments.prompt,)) for _ in range(number)],
        [torch.randint(architecture.vocabulary, (arguments.response,)) for _ in range(number)],
        torch.full((number,), arguments.response),
        torch.tensor([1.0, -1.0] * number, dtype=torch.float64)[:number],
        torch.zeros(number, dtype=torch.int64),
    )
    seconds = []
    for _ in range(arguments.steps + 1):
        world.barrier()
        started = time.perf_counter()
        zero_gradients(policy)
        weights = RULES["balanced"](batch.lengths, batch.advantages, batch.group_ids)
        accumulate_gradients(policy, batch, weights, settings)
        apply_update(policy, optimizer, settings, 0)
        seconds.append(time.perf_counter() - started)  # its norm is on the CPU: the GPU has nothing left to do but Adam
    second = statistics.median(seconds[1:])
    useful = 3 * number * forward_operations(architecture, arguments.prompt, arguments.response) / world.size / second
    if world.is_main:
        tokens = number * (arguments.prompt + arguments.response) / second
        print(f"{architecture.parameters:,} parameters, {world.size} processes, {number} responses: {second:.2f} s")
        print(f"{tokens:,.0f} tokens/s, {tokens / world.size:,.0f} for each process")
        share = f", {useful / arguments.peak_tflops / 1e12:.1%} of {arguments.peak_tflops:g}" if arguments.gpus else ""
        print(f"{useful / 1e12:.3f} useful TFLOP/s for each process{share}")
        longest = max(settings.micro_batch_tokens, arguments.prompt + arguments.response)
        planned = sum(trainer_state(architecture, compute, with_reference=False).values())
        planned += max(moment.total for moment in update_moments(architecture, compute, longest))
        measured = f", measured {torch.cuda.max_memory_allocated() / 1e9:.2f}" if arguments.gpus else ""
        print(f"memory of a process in GB: planned {planned / 1e9:.2f}{measured}")
    end_world(world)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
