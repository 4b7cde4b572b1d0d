"""Responses of one checkpoint to one benchmark: generated once, scored as often as one likes."""

from pathlib import Path
from typing import Any

import pandas as pd
from transformers import PreTrainedTokenizerBase

from balanced_aggregation.config import DecodingOf
from balanced_aggregation.evaluation.parts import cut, write_in_parts
from balanced_aggregation.evaluation.schemas import RESPONSES
from balanced_aggregation.rewards.responses import response_text
from balanced_aggregation.rollout import RolloutEngine, Sampling
from balanced_aggregation.seeding import derive_seed


def generate_responses(
    engine: RolloutEngine,
    tokenizer: PreTrainedTokenizerBase,
    problems: pd.DataFrame,
    decoding: DecodingOf,
    seed: int,
    at_once: int,
    path: Path,
    fingerprint: dict[str, Any],
) -> pd.DataFrame:
    """Write one greedy (if asked for) and ``decoding.samples`` sampled responses to each problem.

    Goes on where it was cut off. The seed of a response follows from ``seed``, its problem's id and its number, so
    neither the order of problems nor the cut into parts changes what is drawn.

    Args:
        engine: samples from the checkpoint.
        tokenizer: of the checkpoint.
        problems: rows as `data.PROBLEMS` has them.
        decoding: how responses are drawn.
        seed: of this benchmark's samples.
        at_once: responses of a part, about.
        path: the Parquet file to write, rows as `RESPONSES` has them.
        fingerprint: what the responses follow from.
    """
    limits = {"max_new_tokens": decoding.max_new_tokens}
    ways = [("sampled", decoding.samples, Sampling(decoding.temperature, top_p=decoding.top_p, **limits))]
    if decoding.greedy:
        ways.insert(0, ("greedy", 1, Sampling(temperature=0.0, **limits)))

    def respond(part: pd.DataFrame) -> pd.DataFrame:
        prompts = [tokenizer.encode(prompt, add_special_tokens=False) for prompt in part["prompt"]]
        frames = []
        for name, samples, sampling in ways:
            seeds = [[derive_seed(seed, name, problem, k) for k in range(samples)] for problem in part["id"]]
            responses = engine.generate(prompts, seeds, sampling)
            columns = {
                "problem": part["id"].repeat(samples).to_numpy(),
                "prompt": part["prompt"].repeat(samples).to_numpy(),
                "decoding": name,
                "sample": list(range(samples)) * len(part),
                "response": [response_text(tokenizer, response) for response in responses],
                "length": [len(response.token_ids) for response in responses],
                "truncated": [response.truncated for response in responses],
            }
            frames.append(pd.DataFrame(columns))
        return pd.concat(frames, ignore_index=True)

    size = max(at_once // decoding.samples, 1)
    return write_in_parts(path, fingerprint, cut(problems, size), respond, RESPONSES)
