"""What a result was made from: settings, data, model, code and packages."""

import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

from balanced_aggregation.config import Study
from balanced_aggregation.errors import UserError
from balanced_aggregation.files import digest, json_digest, read_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.rule_loading import rule_file

PACKAGE = Path(__file__).parent

_TRAINING_CODE = (
    "advantages.py",
    "aggregation.py",
    "data/arithmetic.py",
    "diagnostics.py",
    "models.py",
    "rewards",
    "rollout",
    "seeding.py",
    "surrogate.py",
    "training",
)


def model_settings(study: Study) -> dict[str, Any]:
    """The part of the study that the source model follows from."""
    return study.model.model_dump(mode="json")


def data_settings(study: Study) -> dict[str, Any]:
    """The part that the problems follow from."""
    return {"model": model_settings(study), "data": study.data.model_dump(mode="json")}


def initial_model_settings(study: Study) -> dict[str, Any]:
    """The part that the initial model follows from."""
    warm_start = study.warm_start.model_dump(mode="json") if study.warm_start else None
    return {"warm_start": warm_start, "threads": study.threads, **data_settings(study)}


def training_settings(study: Study, rule: str) -> dict[str, Any]:
    """The part that a training under ``rule`` follows from, besides its seed; no other rule or seed is in it."""
    return {
        **initial_model_settings(study),
        "rule": study.rule(rule).model_dump(mode="json"),
        "training": study.training.model_dump(mode="json"),
        "evaluated_steps": study.evaluated_steps,
    }


def evaluation_settings(study: Study) -> dict[str, Any]:
    """The part that an evaluation follows from, besides its checkpoint; not when checkpoints are evaluated."""
    return {"threads": study.threads, **study.evaluation.model_dump(mode="json", exclude={"every"})}


def training_fingerprint(study: Study, layout: Layout, rule: str, seed: int) -> dict[str, Any]:
    """What must be the same for a training to go on from a checkpoint: settings, seed, inputs, code and packages."""
    file = rule_file(study.rule(rule).rule)
    return {
        "settings": json_digest(training_settings(study, rule)),
        "seed": seed,
        "rule_file": digest(file) if file else None,
        "problems": read_json(layout.data_manifest)["train"]["sha256"],
        "initial_model": weights_digest(layout.initial_model),
        "source": source_digest(),
        "versions": versions(),
    }


def weights_digest(model: Path) -> str:
    """Digest of the weights in a model's folder.

    Raises:
        UserError: there are none.
    """
    files = sorted(model.glob("*.safetensors"))
    if not files:
        raise UserError(f"no weights in folder {model}")
    return json_digest({file.name: digest(file) for file in files})


def source_digest() -> str:
    """Digest of the code that training runs, so that results of different code can be told apart."""
    return json_digest({name: _code_digest(PACKAGE / name) for name in _TRAINING_CODE})


def _code_digest(path: Path) -> Any:
    if path.is_dir():
        return {file.name: digest(file) for file in sorted(path.glob("*.py"))}
    return digest(path)


def versions() -> dict[str, str]:
    """Versions of what computes the results."""
    packages = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "tokenizers", "numpy")}
    return {"python": platform.python_version(), **packages}


def git_commit() -> str | None:
    """Commit of the package's working tree, with ``-dirty`` if it has changes; None outside a repository."""
    command = ["git", "-C", str(PACKAGE), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return result.stdout.strip() or None
