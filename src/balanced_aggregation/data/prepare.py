"""From the study's datasets to files of problems, with counts of what was kept and dropped."""

import random
from pathlib import Path
from typing import Any

import pandas as pd
from transformers import PreTrainedTokenizerBase

from balanced_aggregation.config import ArithmeticData, PretrainedModel, SourceData, Study
from balanced_aggregation.data import PROBLEMS
from balanced_aggregation.data.arithmetic import Chain, draw_chains
from balanced_aggregation.data.sources import read_source
from balanced_aggregation.errors import UserError
from balanced_aggregation.files import atomic_path, digest, write_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.seeding import derive_seed


def prepare_data(study: Study, layout: Layout, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Write the problems of the training set and of every benchmark, and a manifest with counts and digests.

    Benchmarks of generated arithmetic are drawn first and the training set avoids their problems.

    Returns:
        the manifest.

    Raises:
        UserError: a dataset cannot be had, or nothing of it is left.
    """
    taken: set[Chain] = set()
    chat = isinstance(study.model, PretrainedModel) and study.model.chat
    if chat and tokenizer.chat_template is None:
        raise UserError(f"model.chat = True: the tokenizer of {study.model.path!r} has no chat template")
    manifest = {}
    for data in study.data.benchmarks:
        manifest[data.name] = _prepare(study, data, layout.benchmark(data.name), tokenizer, chat, taken)
    manifest["train"] = _prepare(study, study.data.train, layout.train_problems, tokenizer, chat, taken)
    write_json(layout.data_manifest, manifest)
    return manifest


def _prepare(
    study: Study,
    data: ArithmeticData | SourceData,
    path: Path,
    tokenizer: PreTrainedTokenizerBase,
    chat: bool,
    taken: set[Chain],
) -> dict[str, Any]:
    seed = derive_seed(study.data.seed, "problems", path.stem)
    if isinstance(data, ArithmeticData):
        frame, counts = _arithmetic(data, seed, taken), {}
    else:
        frame, counts = read_source(data)
        frame["prompt"] = [_ask(data.prompt.format(problem=p), tokenizer, chat) for p in frame["problem"]]
        frame["verifier"] = "math"
    sizes = frame["prompt"].map(lambda prompt: len(tokenizer.encode(prompt, add_special_tokens=False)))
    fitting = frame[sizes <= study.data.max_prompt_tokens]
    counts["dropped_too_long"] = len(frame) - len(fitting)
    limit = getattr(data, "limit", None)
    if limit is not None:
        counts["dropped_by_limit"] = max(len(fitting) - limit, 0)
        fitting = fitting.sample(n=min(limit, len(fitting)), random_state=seed % 2**32).sort_index()
    if fitting.empty:
        raise UserError(f"{data.name}: no problem is left of {len(frame)}; data.max_prompt_tokens may be too small")
    fitting = PROBLEMS.validate(fitting[list(PROBLEMS.columns)].astype(str).reset_index(drop=True))
    with atomic_path(path) as temporary:
        fitting.to_parquet(temporary, index=False)
    return {"kind": data.kind, **counts, "problems": len(fitting), "sha256": digest(path)}


def _arithmetic(data: ArithmeticData, seed: int, taken: set[Chain]) -> pd.DataFrame:
    chains = draw_chains(data, random.Random(seed), taken)
    return pd.DataFrame(
        {
            "id": [chain.prompt for chain in chains],
            "prompt": [chain.prompt for chain in chains],
            "gold": [str(chain.answer) for chain in chains],
            "verifier": "arithmetic",
        }
    )


def _ask(question: str, tokenizer: PreTrainedTokenizerBase, chat: bool) -> str:
    if not chat:
        return question
    messages = [{"role": "user", "content": question}]
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
