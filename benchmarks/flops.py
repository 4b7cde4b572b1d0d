"""The update against the limit of the core: useful FLOP/s as a share of what large matrix products reach.

    python benchmarks/flops.py [--cases tiny smollm2] [--steps 3]

Useful are 6 operations (2 forward, 4 backward) for each token, padding not counted, and each parameter of a matrix that
multiplies it: the layers' for all tokens, the output layer's for tokens of responses. Looking embeddings up counts
nothing (tied ones count as the output layer), nor does attention between tokens. An update is all of it: gradient,
clipping, AdamW. The product of two 2048 x 2048 float32 matrices is timed before each of them. All by processor time, on
one thread.

Then how a further update's time is shared out, by PyTorch's profiler, and what so bounds the share.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from against_trl import GROUP_SIZE, SIZES, prompts_for, response_lengths, save_models
from torch.profiler import ProfilerActivity, profile

from balanced_aggregation.aggregation import RULES
from balanced_aggregation.config import Training
from balanced_aggregation.models import load_model
from balanced_aggregation.training.batch import Batch
from balanced_aggregation.training.policy import Policy
from balanced_aggregation.training.update import accumulate_gradients, apply_update, create_optimizer, zero_gradients


def matrix_product_rate(size=2048, repeats=3):
    left, right, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    torch.mm(left, right, out=out)
    started = time.process_time()
    for _ in range(repeats):
        torch.mm(left, right, out=out)
    return 2 * size**3 * repeats / (time.process_time() - started)


def random_batch(name, tokenizer):
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.tensor(tokenizer.encode(p)) for p in prompts_for(name, SIZES[name]["prompts"])]
    lengths = response_lengths("even", len(prompts) * GROUP_SIZE, SIZES[name]["longest"])
    return Batch(
        [prompt for prompt in prompts for _ in range(GROUP_SIZE)],
        [torch.randint(len(tokenizer), (length,), generator=generator) for length in lengths],
        torch.tensor(lengths),
        torch.tensor([1.0, -1.0] * (len(lengths) // 2), dtype=torch.float64),
        torch.arange(len(prompts)).repeat_interleave(GROUP_SIZE),
    )


def useful_operations(model, batch):
    head = model.get_output_embeddings().weight.numel()
    layers = sum(p.numel() for p in model.base_model.layers.parameters() if p.dim() == 2)
    answered = sum(map(len, batch.responses))
    return 6 * (layers * (answered + sum(map(len, batch.prompts))) + head * answered)


def share_by_kind(events):
    """Of the processor time of operations: matrix products, attention, and the rest, which is element by element."""
    kinds = {"matrix products": 0.0, "attention": 0.0, "element by element, optimiser": 0.0}
    for event in events:
        if event.key in ("aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm"):
            kind = "matrix products"
        else:
            kind = "attention" if "attention" in event.key else "element by element, optimiser"
        kinds[kind] += event.self_cpu_time_total
    return {kind: value / sum(kinds.values()) for kind, value in kinds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--table", action="store_true", help="print the profiler's table, too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.cases:
        with tempfile.TemporaryDirectory() as temporary:
            save_models([name], Path(temporary))
            model, tokenizer = load_model(Path(temporary) / name)
        settings = Training(steps=1, micro_batch_tokens=SIZES[name]["micro_batch_tokens"], learning_rate=1e-6)
        policy = Policy(model)
        optimizer = create_optimizer(policy, settings)
        batch = random_batch(name, tokenizer)

        def update(policy=policy, settings=settings, optimizer=optimizer, batch=batch):
            zero_gradients(policy)
            weights = RULES["balanced"](batch.lengths, batch.advantages, batch.group_ids)
            accumulate_gradients(policy, batch, weights, settings)
            apply_update(policy, optimizer, settings, 0)

        update()
        rates, limits = [], []
        for _ in range(arguments.steps):
            limits.append(matrix_product_rate())
            started = time.process_time()
            update()
            rates.append(useful_operations(model, batch) / (time.process_time() - started))
        rate, limit = statistics.median(rates), statistics.median(limits)
        print(f"{name}: update {rate / 1e9:.1f} GFLOP/s, matrix products {limit / 1e9:.1f}: {rate / limit:.0%}")
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            update()
        shares = share_by_kind(profiler.key_averages())
        print("  " + ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items()), flush=True)
        if arguments.table:
            print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=15, max_name_column_width=40))


if __name__ == "__main__":
    main()
