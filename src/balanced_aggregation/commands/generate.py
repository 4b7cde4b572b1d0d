"""The stage that samples responses of a checkpoint to a benchmark."""

import sys

from balanced_aggregation.checkpoints import Checkpoint
from balanced_aggregation.config import Study, TransformersRollout, VllmRollout
from balanced_aggregation.data import read_problems
from balanced_aggregation.errors import UserError
from balanced_aggregation.evaluation.generate import generate_responses
from balanced_aggregation.files import read_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.models import load_tokenizer
from balanced_aggregation.provenance import response_settings, response_source_digest, versions
from balanced_aggregation.rollout.engines import create_engine, longest_request
from balanced_aggregation.seeding import derive_seed, make_deterministic


def generate(study: Study, layout: Layout, checkpoint: Checkpoint, benchmark: str) -> None:
    """Write the responses of a checkpoint to one benchmark; goes on where it was cut off.

    Raises:
        UserError: the model or the benchmark is missing, or the model's probabilities are not numbers.
    """
    decoding, path = study.decoding(benchmark), layout.responses(checkpoint.name, benchmark)
    problems = read_problems(layout.benchmark(benchmark))
    make_deterministic(study.threads)
    folder, weights = checkpoint.model(layout)
    fingerprint = {
        "model": weights,
        "problems": read_json(layout.manifest(benchmark))["sha256"],
        "settings": response_settings(study, benchmark),
        "source": response_source_digest(),
        "versions": versions(study),
    }
    tokenizer = load_tokenizer(folder)
    at_once = study.evaluation.batch_size
    engine = create_engine(
        _alone(study.rollout),
        folder,
        tokenizer,
        max_sequences=at_once,
        max_length=longest_request(tokenizer, problems["prompt"], decoding.max_new_tokens),
    )
    seed = derive_seed(study.evaluation.seed, "evaluation", benchmark)
    try:
        responses = generate_responses(engine, tokenizer, problems, decoding, seed, at_once, path, fingerprint)
    except FloatingPointError as error:
        raise UserError(f"{folder}: cannot be evaluated: {error}") from error
    print(f"{checkpoint.name}, {benchmark}: {len(responses)} responses to {len(problems)} problems", file=sys.stderr)


def _alone(settings: TransformersRollout | VllmRollout) -> TransformersRollout | VllmRollout:
    """The study's engine for one process, which has nobody to share it with and no trainer to make room for."""
    if isinstance(settings, VllmRollout):
        return settings.model_copy(update={"tensor_parallel": 1, "sleep": False})
    return settings
