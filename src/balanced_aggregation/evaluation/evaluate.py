"""Responses of one checkpoint to the problems of every benchmark, each with its verdict."""

import pandas as pd
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from balanced_aggregation.config import Evaluation
from balanced_aggregation.models import end_token_ids
from balanced_aggregation.rewards import verify_texts
from balanced_aggregation.rollout import Sampling
from balanced_aggregation.rollout.transformers_engine import TransformersEngine
from balanced_aggregation.seeding import derive_seed
from balanced_aggregation.training.loop import response_texts


def evaluate_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    benchmarks: dict[str, pd.DataFrame],
    settings: Evaluation,
) -> pd.DataFrame:
    """One greedy and ``settings.samples`` sampled responses to each problem.

    Args:
        model: in evaluation mode.
        tokenizer: of the model.
        benchmarks: problems by name of the benchmark.
        settings: number of samples, sampling and its seed, the same for every checkpoint.

    Returns:
        one row a response: benchmark, problem (its id), decoding (``greedy`` or ``sampled``), sample (its number),
        response, extracted, outcome, correct, length in tokens, truncated.
    """
    engine = TransformersEngine(model, end_token_ids(model, tokenizer), tokenizer.pad_token_id, settings.batch_size)
    frames = []
    for name, problems in benchmarks.items():
        prompts = [tokenizer.encode(prompt, add_special_tokens=False) for prompt in problems["prompt"]]
        seed = derive_seed(settings.seed, "evaluation", name)
        limits = {"max_new_tokens": settings.max_new_tokens, "seed": seed}
        for decoding, samples, sampling in (
            ("greedy", 1, Sampling(temperature=0.0, **limits)),
            ("sampled", settings.samples, Sampling(settings.temperature, top_p=settings.top_p, **limits)),
        ):
            responses = engine.generate(prompts, samples, sampling)
            texts = response_texts(tokenizer, responses)
            verdicts = verify_texts(texts, problems, samples)
            frames.append(
                pd.DataFrame(
                    {
                        "benchmark": name,
                        "problem": problems["id"].repeat(samples).to_numpy(),
                        "decoding": decoding,
                        "sample": list(range(samples)) * len(problems),
                        "response": texts,
                        "extracted": pd.array([v.extracted for v in verdicts], dtype="string"),
                        "outcome": [str(v.outcome) for v in verdicts],
                        "correct": [v.correct for v in verdicts],
                        "length": [len(r.token_ids) for r in responses],
                        "truncated": [r.truncated for r in responses],
                    }
                )
            )
    return pd.concat(frames, ignore_index=True)
