"""How long each aggregation rule takes on 10 million responses, on one core.

    python benchmarks/rules.py [--responses N]

Prints seconds, and each rule as a ratio to one pass that copies the three inputs, measured in the same run.
"""

import argparse
import time

import torch

from balanced_aggregation.aggregation import RULES


def best_of(function, repeats=3):
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=10_000_000)
    parser.add_argument("--group-size", type=int, default=8)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    n = arguments.responses
    lengths = torch.randint(0, 8192, (n,), generator=generator)
    advantages = torch.randint(-1, 2, (n,), generator=generator).double()
    group_ids = (torch.arange(n) // arguments.group_size)[torch.randperm(n, generator=generator)]
    copy = best_of(lambda: (lengths.clone(), advantages.clone(), group_ids.clone()))
    print(f"{n:,} responses in groups of {arguments.group_size}, shuffled; copying the inputs takes {copy:.3f} s")
    for name, rule in RULES.items():
        seconds = best_of(lambda rule=rule: rule(lengths, advantages, group_ids))
        print(f"{name:<14} {seconds:6.2f} s  {seconds / copy:7.1f} x copy")


if __name__ == "__main__":
    main()
