"""How much memory and time `balagg diagnose` needs for 10 million responses.

    python benchmarks/diagnose.py [--responses N] [--format parquet|jsonl] [--order contiguous|scattered] [--steps N]

Writes a log of made-up responses to a temporary folder, diagnoses it in a process of its own, and prints that process's
seconds and peak memory (resident set, with Python and torch).
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 100_000


def pieces(arguments):
    generator = np.random.default_rng(0)
    groups = np.arange(arguments.responses, dtype=np.int32) // arguments.group_size
    if arguments.order == "scattered":
        generator.shuffle(groups)
    for start in range(0, arguments.responses, ROWS):
        own = groups[start : start + ROWS]
        correct = generator.random(len(own)) < (own % 7 + 0.5) / 8
        lengths = np.minimum(generator.lognormal(np.where(correct, 6.0, 6.3), 0.5), 4096).astype(np.int32)
        yield {
            "prompt": [f"What is problem {group}? " + "x" * 100 for group in own],
            "step": own * arguments.steps // (groups.max() + 1) if arguments.steps < len(groups) else own,
            "response": [f"The answer is {group}. " + "y" * 100 for group in own],
            "response_length": lengths,
            "reward": correct.astype(np.float64),
        }


def write(path, arguments):
    if arguments.format == "jsonl":
        with path.open("w", encoding="utf-8") as file:
            for piece in pieces(arguments):
                columns = {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in piece.items()}
                for row in zip(*columns.values(), strict=True):
                    file.write(json.dumps(dict(zip(columns, row, strict=True))) + "\n")
        return
    writer = None
    for piece in pieces(arguments):
        table = pa.table(piece)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=10_000_000)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--format", choices=["parquet", "jsonl"], default="parquet")
    parser.add_argument("--order", choices=["contiguous", "scattered"], default="contiguous")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"log.{arguments.format}"
        write(path, arguments)

        code = "from balanced_aggregation.cli import main; main()"
        command = [sys.executable, "-c", code, "diagnose", str(path), "--json", str(Path(folder) / "diagnosis.json")]
        started = time.perf_counter()
        done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
        seconds = time.perf_counter() - started
        if done.returncode:
            sys.exit(f"diagnose ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(
            f"{arguments.responses:,} responses, {arguments.format} of {path.stat().st_size / 1e9:.2f} GB, "
            f"{arguments.order} groups of {arguments.group_size}, {arguments.steps:,} steps: "
            f"{seconds:.0f} s, peak {peak / 1e6:,.0f} MB"
        )


if __name__ == "__main__":
    main()
