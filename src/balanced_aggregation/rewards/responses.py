"""From responses as token ids to verdicts, while others are still being sampled."""

from concurrent.futures import Future

import pandas as pd
from transformers import PreTrainedTokenizerBase

from balanced_aggregation.data import golds
from balanced_aggregation.rewards.pool import Submission, VerifierPool
from balanced_aggregation.rewards.verdict import Verdict
from balanced_aggregation.rollout import Response


def response_text(tokenizer: PreTrainedTokenizerBase, response: Response) -> str:
    """A response as text, without the token that ends it; special tokens inside stay, so that they are seen."""
    return tokenizer.decode(response.token_ids if response.truncated else response.token_ids[:-1])


class ResponseVerifier:
    """Verdicts of one rollout: begun as responses end, collected when all have."""

    def __init__(self, pool: VerifierPool, tokenizer: PreTrainedTokenizerBase, problems: pd.DataFrame, samples: int):
        """Args: the pool, the tokenizer, the problems, and how many responses each has, one after the other."""
        self._pool, self._tokenizer = pool, tokenizer
        self._problems = [own for own in golds(problems) for _ in range(samples)]
        self._pending: list[Future[Verdict] | None] = [None] * len(self._problems)

    def begin(self, place: int, response: Response) -> None:
        """Begin to judge the response at ``place`` of the rollout."""
        verifier, gold, tolerance = self._problems[place]
        text = response_text(self._tokenizer, response)
        self._pending[place] = self._pool.submit(Submission(verifier, text, gold, tolerance))

    def verdicts(self) -> list[Verdict]:
        """All verdicts, in the order of the rollout.

        Raises:
            InfrastructureError: the machinery of verification failed.
            GoldError: a gold cannot be read.
        """
        return [pending.result() for pending in self._pending]
