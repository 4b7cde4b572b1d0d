"""What a result was made from: settings, data, model, code and packages."""

import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

from balanced_aggregation.config import TRAIN, ArithmeticData, Study
from balanced_aggregation.errors import UserError
from balanced_aggregation.files import digest, json_digest, read_json
from balanced_aggregation.layout import Layout
from balanced_aggregation.rule_loading import rule_file

PACKAGE = Path(__file__).parent

_NOT_TRAINING = ("cli.py", "evaluation", "reporting", "tracking.py", "workflow.py")


def model_settings(study: Study) -> dict[str, Any]:
    """The part of the study that the source model follows from."""
    return study.model.model_dump(mode="json")


def data_settings(study: Study, name: str) -> dict[str, Any]:
    """The part that one set of problems follows from: a benchmark's, or the training set's under `TRAIN`.

    Where a local copy lies is no part of it: what is in it counts, and its digest is kept with the problems.
    """
    own = study.data.train if name == TRAIN else next(b for b in study.data.benchmarks if b.name == name)
    settings = {"seed": study.data.seed, "own": own.model_dump(mode="json", exclude={"path"})}
    if own.kind == "arithmetic":  # distinct from the problems of the benchmarks before it
        return settings | {"before": [b.model_dump(mode="json") for b in arithmetic_before(study, name)]}
    return settings | {"model": model_settings(study), "max_prompt_tokens": study.data.max_prompt_tokens}


def arithmetic_before(study: Study, name: str) -> list[ArithmeticData]:
    """Arithmetic benchmarks that are drawn before the named set of problems; the training set comes last."""
    names = [benchmark.name for benchmark in study.data.benchmarks] + [TRAIN]
    return [b for b in study.data.benchmarks[: names.index(name)] if b.kind == "arithmetic"]


def initial_model_settings(study: Study) -> dict[str, Any]:
    """The part that the initial model follows from."""
    settings = {"model": model_settings(study), "threads": study.threads}
    if study.warm_start:
        settings |= {"warm_start": study.warm_start.model_dump(mode="json"), "data": data_settings(study, TRAIN)}
    return settings


def training_settings(study: Study, rule: str) -> dict[str, Any]:
    """The part that a training under ``rule`` follows from, besides its seed; no other rule or seed is in it."""
    return {
        "initial_model": initial_model_settings(study),
        "data": data_settings(study, TRAIN),
        "rule": study.rule(rule).model_dump(mode="json"),
        "training": study.training.model_dump(mode="json", exclude={"checkpoint_every"}),
        "evaluated_steps": study.evaluated_steps,
    }


def evaluation_settings(study: Study) -> dict[str, Any]:
    """The part that the responses of an evaluation follow from, besides its checkpoint."""
    return {"threads": study.threads, **study.evaluation.model_dump(mode="json", exclude={"every", "pass_at"})}


def training_fingerprint(study: Study, layout: Layout, rule: str, seed: int) -> dict[str, Any]:
    """What must be the same for a training to go on from a checkpoint: settings, seed, inputs, code and packages."""
    file = rule_file(study.rule(rule).rule)
    return {
        "settings": json_digest(training_settings(study, rule)),
        "seed": seed,
        "rule_file": digest(file) if file else None,
        "problems": read_json(layout.manifest(TRAIN))["sha256"],
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
    """Digest of the code that training may run, so that results of different code can be told apart."""
    files = [path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py"))]
    return json_digest({str(f): digest(PACKAGE / f) for f in files if f.parts[0] not in _NOT_TRAINING})


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
