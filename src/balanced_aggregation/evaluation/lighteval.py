"""The stored responses as lighteval scores them, in an environment of its own, beside our verifier's figure."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from balanced_aggregation.errors import InfrastructureError, UserError
from balanced_aggregation.evaluation.parts import write_described
from balanced_aggregation.evaluation.schemas import LIGHTEVAL
from balanced_aggregation.files import read_json
from balanced_aggregation.provenance import LIGHTEVAL_PYTHON, LIGHTEVAL_SCRIPT
from balanced_aggregation.rewards.sandboxing.confine import Confines, check_confinement, run_confined

_START_SECONDS, _RESPONSE_SECONDS, _TEST_SECONDS = 900, 15, 7


def score_by_lighteval(kind: str, problems: Path, responses: Path, path: Path, fingerprint: dict[str, Any]) -> None:
    """Write lighteval's score of each stored response.

    Args:
        kind: of the benchmark.
        problems: file of the benchmark's problems.
        responses: file of a checkpoint's responses to them.
        path: the Parquet file to write, rows as `LIGHTEVAL` has them.
        fingerprint: what the responses follow from.

    Raises:
        UserError: lighteval's environment is not there.
        InfrastructureError: the replay failed, or this machine cannot confine programs.
    """
    if not LIGHTEVAL_PYTHON.exists():
        raise UserError(
            f"no environment of lighteval at {LIGHTEVAL_PYTHON.parent.parent}; `make lighteval` installs it"
        )
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "scores.parquet"
        options = {"benchmark": kind, "problems": problems, "responses": responses, "output": output}
        command = [str(LIGHTEVAL_PYTHON), str(LIGHTEVAL_SCRIPT)]
        command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
        environment = {**os.environ, "TMPDIR": folder}
        if kind == "livecodebench":
            result = _run_with_programs(command, Path(folder), environment, _grading_seconds(problems, responses))
        else:
            result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if result.returncode != 0:
            lines = (result.stderr or result.stdout).strip().splitlines()
            raise InfrastructureError(f"lighteval failed on {responses}: {lines[-1] if lines else result.returncode}")
        scores = pd.read_parquet(output).rename(columns={"score": "lighteval"})
        description = read_json(output.with_suffix(".json"))
    write_described(path, LIGHTEVAL.validate(scores), {**fingerprint, "lighteval": description})


def _run_with_programs(
    command: list[str], folder: Path, environment: dict[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run what itself runs programs that a model wrote, so that they can only do harm in the folder."""
    try:
        check_confinement()
    except InfrastructureError as error:
        raise InfrastructureError(
            f"programs cannot be replayed through lighteval here: {error}; set evaluation.lighteval: false"
        ) from error
    return run_confined(command, [folder], environment, Confines(wall_seconds=seconds))


def _grading_seconds(problems: Path, responses: Path) -> float:
    """More than lighteval takes should every program use up its time: what takes longer was made to hang."""
    golds = pd.read_parquet(problems, columns=["id", "gold"]).set_index("id")["gold"]
    tests = golds.map(lambda gold: len(json.loads(gold)["tests"]))
    counts = pd.read_parquet(responses, columns=["problem"])["problem"].map(tests)
    return float(_START_SECONDS + (_RESPONSE_SECONDS + _TEST_SECONDS * counts).sum())
