"""The stages that judge stored responses: by our verifier, and by lighteval. They need no model."""

import sys

from balanced_aggregation.checkpoints import Checkpoint
from balanced_aggregation.config import Study
from balanced_aggregation.data import read_problems
from balanced_aggregation.errors import UserError
from balanced_aggregation.evaluation.lighteval import score_by_lighteval
from balanced_aggregation.evaluation.metrics import average_name
from balanced_aggregation.evaluation.parts import read_described
from balanced_aggregation.evaluation.schemas import RESPONSES
from balanced_aggregation.evaluation.score import score_responses
from balanced_aggregation.files import digest
from balanced_aggregation.layout import Layout
from balanced_aggregation.locks import exclusive
from balanced_aggregation.provenance import verifier_digest
from balanced_aggregation.rewards import VerifierPool


def score(study: Study, layout: Layout, checkpoint: Checkpoint, benchmark: str) -> None:
    """Write the verdicts on the responses of a checkpoint to one benchmark; goes on where it was cut off.

    Raises:
        UserError: responses or problems are missing.
        InfrastructureError: the machinery of verification failed.
    """
    responses, made_from = read_described(layout.responses(checkpoint.name, benchmark), RESPONSES)
    problems = read_problems(layout.benchmark(benchmark))
    if made_from["problems"] != digest(layout.benchmark(benchmark)):
        raise UserError(
            f"{layout.responses(checkpoint.name, benchmark)}: holds responses to other problems than "
            f"{layout.benchmark(benchmark)}; `snakemake` generates them anew"
        )
    fingerprint = {"responses": made_from, "verifier": verifier_digest()}
    path = layout.evaluation(checkpoint.name, benchmark)
    with VerifierPool(study.verifiers) as pool:
        verdicts = score_responses(pool, responses, problems, path, fingerprint)
    average = verdicts[verdicts["decoding"] == "sampled"]["correct"].mean()
    print(f"{checkpoint.name}, {benchmark}: {average_name(study.decoding(benchmark))} {average:.3f}", file=sys.stderr)


def lighteval(study: Study, layout: Layout, checkpoint: Checkpoint, benchmark: str) -> None:
    """Write lighteval's scores of the responses of a checkpoint to one benchmark.

    Raises:
        UserError: responses, problems or lighteval's environment are missing.
        InfrastructureError: lighteval failed.
    """
    responses = layout.responses(checkpoint.name, benchmark)
    _, made_from = read_described(responses, RESPONSES)
    path = layout.lighteval(checkpoint.name, benchmark)
    with exclusive(path, "writing this file"):
        score_by_lighteval(
            study.datasets[benchmark].kind, layout.benchmark(benchmark), responses, path, {"responses": made_from}
        )
