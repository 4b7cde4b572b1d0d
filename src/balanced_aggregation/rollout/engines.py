"""The rollout engine that a study asks for."""

from collections.abc import Iterable
from pathlib import Path

from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from balanced_aggregation.config import TransformersRollout, VllmRollout
from balanced_aggregation.errors import UserError
from balanced_aggregation.models import end_token_ids, load_model
from balanced_aggregation.rollout import RolloutEngine
from balanced_aggregation.rollout.transformers_engine import TransformersEngine


def create_engine(
    settings: TransformersRollout | VllmRollout,
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_sequences: int,
    max_length: int,
    model: PreTrainedModel | None = None,
) -> RolloutEngine:
    """An engine that samples from the model in ``folder``.

    Args:
        settings: the study's ``rollout``.
        folder: the model, as `models.save_model` writes it.
        tokenizer: of the model.
        max_sequences: responses sampled side by side.
        max_length: most tokens of a prompt and its response together; see `longest_request`.
        model: the same model, loaded, for an engine that samples from the trainer's own; if missing, it is loaded.

    Raises:
        UserError: the model is missing or has too few positions, or the engine is missing or cannot run this model.
    """
    positions = AutoConfig.from_pretrained(folder, local_files_only=True).max_position_embeddings
    if max_length > positions:
        raise UserError(
            f"max_new_tokens: prompts and responses can have {max_length} tokens together; "
            f"the model in {folder} has {positions} positions"
        )
    if isinstance(settings, VllmRollout):
        from balanced_aggregation.rollout.vllm_engine import VllmEngine

        ends = end_token_ids(folder, tokenizer)
        return VllmEngine(folder, settings, end_token_ids=ends, max_sequences=max_sequences, max_length=max_length)
    if model is None:
        model, _ = load_model(folder)
    return TransformersEngine(model, end_token_ids(model, tokenizer), tokenizer.pad_token_id, max_sequences)


def longest_request(tokenizer: PreTrainedTokenizerBase, prompts: Iterable[str], max_new_tokens: int) -> int:
    """Most tokens that a prompt and its response can have together."""
    return max(len(tokenizer.encode(prompt, add_special_tokens=False)) for prompt in prompts) + max_new_tokens
