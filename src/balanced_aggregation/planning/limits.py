"""Lengths that a model has no positions for."""

from balanced_aggregation.config import TRAIN, Study


def longest_prompt(study: Study, dataset: str) -> int:
    """Most tokens that a prompt of a dataset can have.

    That is ``data.max_prompt_tokens``, but for a tiny model, whose tokenizer has one token a character: there the
    arithmetic says how long a problem can be, ``largest``, then a sign and a digit for each further number, then "=".
    """
    data, most = study.datasets[dataset], study.data.max_prompt_tokens
    if study.model.kind != "tiny":
        return most
    return min(most, len(str(data.largest)) + 2 * (data.terms[1] - 1) + 1)


def longest_sequence(study: Study, dataset: str) -> int:
    """Most tokens of a prompt of a dataset (`TRAIN`, or a benchmark) with its response."""
    new = study.training.max_new_tokens if dataset == TRAIN else study.decoding(dataset).max_new_tokens
    return longest_prompt(study, dataset) + new


def position_problems(study: Study, positions: int) -> list[str]:
    """One line for each limit on responses that, with the longest prompt, exceeds the model's positions.

    Args:
        study: the study.
        positions: ``max_position_embeddings`` of the model's configuration, as it is trained.
    """
    problems = []
    for name, data in study.datasets.items():
        total, prompt = longest_sequence(study, name), longest_prompt(study, name)
        if total > positions:
            if getattr(data, "max_new_tokens", None):
                key = f"max_new_tokens of benchmark {name}"
            else:
                section = "evaluation" if name != TRAIN and study.evaluation.max_new_tokens else "training"
                key = f"{section}.max_new_tokens"
            allowed = f"at most {positions - prompt}" if prompt < positions else "no length is possible"
            problems.append(
                f"{key} = {total - prompt}: {allowed} with prompts of up to {prompt} tokens, "
                f"since the model has {positions} positions"
            )
    return list(dict.fromkeys(problems))
