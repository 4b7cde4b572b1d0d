"""What the Balanced Aggregation paper (arXiv 2605.04077) is said to report in its Table 1."""

from pathlib import Path

from balanced_aggregation.config import Study

SOURCE = "as a secondary report gives them, not read in the paper itself"

LAST_STEP: dict[tuple[str, str], dict[str, float]] = {
    ("Qwen2.5-Math-7B", "dapo-math-17k"): {"sequence": 0.3446, "token": 0.3364, "balanced": 0.3424},
    ("Qwen2.5-Math-7B", "polaris-53k"): {"sequence": 0.3172, "token": 0.3292, "balanced": 0.3319},
    ("Qwen3-1.7B", "dapo-math-17k"): {"sequence": 0.4481, "token": 0.4360, "balanced": 0.4695},
    ("Qwen3-1.7B", "polaris-53k"): {"sequence": 0.4614, "token": 0.4349, "balanced": 0.4640},
}
"""Accuracy at the last step, averaged over the six benchmarks, by model and training set, and rule; no seeds given."""


def model_name(study: Study) -> str:
    """What the paper's table would call the study's model: the last part of its path or id."""
    return Path(study.model.path).name if study.model.kind == "pretrained" else f"{study.model.kind} model"


def published_value(study: Study, rule: str) -> float | None:
    """The published value of a row, or None if the paper has no such row."""
    return LAST_STEP.get((model_name(study), study.data.train.name), {}).get(rule)
