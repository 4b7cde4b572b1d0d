"""Miniature logs of rollouts in the forms in which trainers write them."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from balanced_aggregation.advantages import group_advantages


@dataclass(frozen=True)
class Rollout:
    """One response."""

    step: int
    problem: int
    length: int
    reward: float

    @property
    def text(self) -> str:
        """As many characters as the length."""
        return "x" * self.length


def rollouts(groups=24, size=6, steps=2, positive=40, negative=60, spread=10, seed=0) -> list[Rollout]:
    """Groups with both signs whose right and wrong responses are about so long; each step asks the same problems."""
    draw = random.Random(seed)
    rows = []
    for step in range(1, steps + 1):
        for problem in range(groups // steps):
            for sample in range(size):
                reward = float(sample < 1 + problem % (size - 1))
                length = (positive if reward else negative) + draw.randint(-spread, spread)
                rows.append(Rollout(step, problem, length, reward))
    return rows


def batches(rows):
    """Lengths, advantages and group ids of each step, as a trainer has them."""
    for step in sorted({row.step for row in rows}):
        own = [row for row in rows if row.step == step]
        groups = torch.tensor([row.problem for row in own])
        lengths = torch.tensor([row.length for row in own])
        yield lengths, group_advantages(torch.tensor([row.reward for row in own]), groups), groups


def write_jsonl(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def verl(path, rows):
    """A file of verl's `rollout_data_dir`, with what its reward function adds."""
    return write_jsonl(
        path,
        [
            {
                "input": f"problem {r.problem}",
                "output": r.text,
                "gts": "18",
                "score": r.reward,
                "step": r.step,
                "acc": r.reward,
            }
            for r in rows
        ],
    )


def trl(path, rows):
    """A file of TRL's `log_completions`: messages, a column for each reward function, an extra one, the advantage."""
    advantages = torch.cat([advantages for _, advantages, _ in batches(rows)]).tolist()
    pd.DataFrame(
        {
            "step": [r.step for r in rows],
            "prompt": [[{"role": "user", "content": f"problem {r.problem}"}] for r in rows],
            "completion": [[{"role": "assistant", "content": r.text}] for r in rows],
            "accuracy_reward": [r.reward for r in rows],
            "format_reward": [0.5] * len(rows),
            "entropy": [1.0 + i for i in range(len(rows))],
            "advantage": advantages,
        }
    ).to_parquet(path)
    return path


def areal(path, rows):
    """AReaL's dumps of several runs in one file: task ids and prompts come again in every run."""
    return write_jsonl(
        path,
        [
            {
                "run": f"run{r.step}",
                "file": f"rollout/0/{r.problem}.jsonl",
                "task_id": r.problem,
                "sample_idx": i,
                "seqlen": r.length + 100 + r.problem,
                "prompt_len": 100 + r.problem,
                "head_version": -1,
                "tail_version": 0,
                "reward": r.reward,
                "prompt": "the same",
                "completion": r.text,
            }
            for i, r in enumerate(rows)
        ],
    )


def evaluation(path, rows):
    """Stored responses of an evaluation of ours."""
    pd.DataFrame(
        {
            "problem": [f"{r.step}/{r.problem}" for r in rows],
            "prompt": "the same",
            "decoding": "sampled",
            "sample": range(len(rows)),
            "response": [r.text for r in rows],
            "length": [r.length for r in rows],
            "truncated": [r.length > 65 for r in rows],
            "extracted": None,
            "outcome": "equal",
            "correct": [r.reward > 0 for r in rows],
        }
    ).to_parquet(path)
    return path
