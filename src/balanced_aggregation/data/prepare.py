"""From a dataset of the study to a file of problems, with counts of what was kept and dropped."""

import random
from collections.abc import Sequence
from typing import Any

import pandas as pd
from transformers import PreTrainedTokenizerBase

from balanced_aggregation.config import TRAIN, ArithmeticData, PretrainedModel, SourceData, Study
from balanced_aggregation.data import PROBLEMS
from balanced_aggregation.data.arithmetic import Chain, draw_chains
from balanced_aggregation.data.sources import read_source
from balanced_aggregation.errors import UserError
from balanced_aggregation.files import atomic_path, digest, write_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.provenance import arithmetic_before
from balanced_aggregation.seeding import derive_seed


def prepare_data(study: Study, layout: Layout, tokenizer: PreTrainedTokenizerBase, name: str) -> dict[str, Any]:
    """Write the problems of one benchmark, or of the training set under the name `TRAIN`, and a manifest beside them.

    Generated arithmetic avoids the problems of the benchmarks before it; the training set comes after all of them.

    Returns:
        the manifest: counts of what was kept and dropped, and a digest.

    Raises:
        UserError: there is no such dataset, it cannot be had, or nothing of it is left.
    """
    datasets = {TRAIN: study.data.train} | {benchmark.name: benchmark for benchmark in study.data.benchmarks}
    if name not in datasets:
        raise UserError(f"--name {name}: not a dataset of study {study.study!r}; allowed: {', '.join(datasets)}")
    data = datasets[name]
    if isinstance(data, ArithmeticData):
        taken: set[Chain] = set()
        for earlier in arithmetic_before(study, name):
            draw_chains(earlier, _generator(study, earlier.name), taken)
        frame, counts = _arithmetic(draw_chains(data, _generator(study, name), taken)), {}
    else:
        frame, counts = _from_source(study, data, tokenizer, name)
    frame = PROBLEMS.validate(frame[list(PROBLEMS.columns)].astype(str).reset_index(drop=True))
    path = layout.train_problems if name == TRAIN else layout.benchmark(name)
    with atomic_path(path) as temporary:
        frame.to_parquet(temporary, index=False)
    manifest = {"kind": data.kind, **counts, "problems": len(frame), "sha256": digest(path)}
    write_json(layout.manifest(name), manifest)
    return manifest


def _generator(study: Study, name: str) -> random.Random:
    return random.Random(derive_seed(study.data.seed, "problems", name))


def _from_source(
    study: Study, data: SourceData, tokenizer: PreTrainedTokenizerBase, name: str
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Problems of a public dataset as the model reads them, and counts of what was dropped."""
    chat = isinstance(study.model, PretrainedModel) and study.model.chat
    if chat and tokenizer.chat_template is None:
        raise UserError(f"model.chat = True: the tokenizer of {study.model.path!r} has no chat template")
    frame, counts = read_source(data)
    frame["prompt"] = [_ask(data.prompt.format(problem=p), tokenizer, chat) for p in frame["problem"]]
    frame["verifier"] = "math"
    sizes = frame["prompt"].map(lambda prompt: len(tokenizer.encode(prompt, add_special_tokens=False)))
    fitting = frame[sizes <= study.data.max_prompt_tokens]
    counts["dropped_too_long"] = len(frame) - len(fitting)
    if fitting.empty:
        raise UserError(f"{name}: no problem is left of {len(frame)}; data.max_prompt_tokens may be too small")
    if data.limit is not None:
        counts["dropped_by_limit"] = max(len(fitting) - data.limit, 0)
        seed = derive_seed(study.data.seed, "problems", name) % 2**32
        fitting = fitting.sample(n=min(data.limit, len(fitting)), random_state=seed).sort_index()
    return fitting, counts


def _arithmetic(chains: Sequence[Chain]) -> pd.DataFrame:
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
