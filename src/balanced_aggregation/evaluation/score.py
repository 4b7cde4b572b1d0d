"""Verdicts on the stored responses of one checkpoint to one benchmark."""

from pathlib import Path
from typing import Any

import pandas as pd

from balanced_aggregation.data import golds
from balanced_aggregation.evaluation.parts import cut, write_in_parts
from balanced_aggregation.evaluation.schemas import EVALUATIONS
from balanced_aggregation.rewards import Submission, VerifierPool

_PART = 256  # responses


def score_responses(
    pool: VerifierPool, responses: pd.DataFrame, problems: pd.DataFrame, path: Path, fingerprint: dict[str, Any]
) -> pd.DataFrame:
    """Write the responses with their verdicts; goes on where it was cut off.

    Args:
        pool: judges.
        responses: rows as `schemas.RESPONSES` has them.
        problems: rows as `data.PROBLEMS` has them, with the golds.
        path: the Parquet file to write, rows as `EVALUATIONS` has them.
        fingerprint: what the verdicts follow from.

    Raises:
        InfrastructureError: the machinery of verification failed; nothing is written.
        GoldError: a gold cannot be read.
    """
    by_problem = dict(zip(problems["id"], golds(problems), strict=True))

    def judge(part: pd.DataFrame) -> pd.DataFrame:
        submissions = []
        for problem, response in zip(part["problem"], part["response"], strict=True):
            verifier, gold, tolerance = by_problem[problem]
            submissions.append(Submission(verifier, response, gold, tolerance))
        verdicts = pool.verify(submissions)
        return part.assign(
            extracted=pd.array([verdict.extracted for verdict in verdicts], dtype="str"),
            outcome=[str(verdict.outcome) for verdict in verdicts],
            correct=[verdict.correct for verdict in verdicts],
        )

    return write_in_parts(path, fingerprint, cut(responses, _PART), judge, EVALUATIONS)
