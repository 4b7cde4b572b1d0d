"""How problems are put to a model."""

from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from balanced_aggregation.config import PretrainedModel, SourceData
from balanced_aggregation.errors import UserError

_BOXED = "Please reason step by step, and put your final answer within \\boxed{{}}."
_CODE = (
    "{problem}\n\nSolve this in Python 3. End your response with the whole program in one block that begins with "
    "```python and ends with ```."
)


@dataclass(frozen=True)
class Family:
    """Way of asking that the models of a family were trained on; texts are format strings with {problem}."""

    math: str
    code: str = _CODE
    math_system: str | None = None
    """System message of mathematical problems."""


FAMILIES = {
    "generic": Family(math="{problem}\n\n" + _BOXED),
    # Yang et al., Qwen2.5-Math Technical Report (arXiv 2409.12122): the instruction is the system message.
    "qwen2.5-math": Family(math="{problem}", math_system=_BOXED.format()),
    # Yang et al., Qwen3 Technical Report (arXiv 2505.09388): the instruction follows the problem.
    "qwen3": Family(math="{problem}\n" + _BOXED),
}
"""By the name that a study's model gives."""


def ask(
    problem: str, verifier: str, data: SourceData, model: PretrainedModel, tokenizer: PreTrainedTokenizerBase
) -> str:
    """The prompt of one problem, as text with the special tokens of the chat template.

    Raises:
        UserError: the model is asked through a chat template and its tokenizer has none.
    """
    family = FAMILIES[model.family]
    system = family.math_system if verifier == "math" and data.prompt is None else None
    question = (data.prompt or getattr(family, verifier)).format(problem=problem)
    if not model.chat:
        return f"{question}\n\n{system}" if system else question
    if tokenizer.chat_template is None:
        raise UserError(f"model.chat = True: the tokenizer of {model.path!r} has no chat template")
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": question})
    thinking = {} if model.thinking is None else {"enable_thinking": model.thinking}
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **thinking)
