"""A model that has answered already."""

from errors import InputError
from lighteval.models.abstract_model import LightevalModel, ModelConfig
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.requests import Doc
from stored import Stored


class _NoCache:
    """lighteval keys its cache of responses on the model's configuration: it would return another checkpoint's."""

    def _init_registry(self, registry: object) -> None:
        pass


class StoredResponses(LightevalModel):
    """Gives each doc the responses stored for its problem, looked up by decoding and id, and each of them once."""

    def __init__(self, stored: Stored):
        self.config = ModelConfig(model_name="stored-responses")
        self._cache = _NoCache()
        self._left = dict(stored.texts)

    def greedy_until(self, docs: list[Doc]) -> list[ModelResponse]:
        """Return all responses to each doc, sampled ones too (the name is lighteval's).

        Raises:
            InputError: there are none, not as many as the task wants, or they have been given out already.
        """
        return [ModelResponse(input=doc.query, text=self._take(doc)) for doc in docs]

    def check_all_used(self) -> None:
        """Raise InputError if responses are left that no task asked for."""
        if self._left:
            decoding, problem = next(iter(self._left))
            raise InputError(f"{decoding} responses to {problem!r} belong to no problem of the task")

    def _take(self, doc: Doc) -> list[str]:
        key = (doc.specific["decoding"], doc.specific["problem"])
        texts = self._left.pop(key, [])
        if len(texts) != doc.num_samples:
            raise InputError(f"problem {key[1]!r} has {len(texts)} {key[0]} responses, {doc.num_samples} wanted")
        return texts

    def loglikelihood(self, docs: list[Doc]) -> list[ModelResponse]:
        """Not available: there is text only."""
        raise NotImplementedError

    def loglikelihood_rolling(self, docs: list[Doc]) -> list[ModelResponse]:
        """Not available: there is text only."""
        raise NotImplementedError

    @property
    def tokenizer(self) -> None:
        """There is none."""
        return None

    @property
    def add_special_tokens(self) -> bool:
        """No tokens at all."""
        return False

    @property
    def max_length(self) -> int:
        """Nothing is generated."""
        return 0
