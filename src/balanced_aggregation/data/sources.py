"""Public datasets: where they come from, and how their rows become problems with gold answers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from huggingface_hub import hf_hub_download

from balanced_aggregation.config import SourceData
from balanced_aggregation.errors import UserError

_DAPO_PREFIX = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
_DAPO_SUFFIX = '\n\nRemember to put your answer on its own line after "Answer:".'


def _dapo(frame: pd.DataFrame) -> pd.DataFrame:
    """Problems without the instruction that upstream wraps around each of them."""
    asked = frame["prompt"].map(lambda messages: messages[0]["content"])
    return pd.DataFrame(
        {
            "id": frame["extra_info"].map(lambda info: info["index"]),
            "problem": asked.str.removeprefix(_DAPO_PREFIX).str.removesuffix(_DAPO_SUFFIX),
            "gold": frame["reward_model"].map(lambda model: model["ground_truth"]),
        }
    )


def _math_500(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.rename(columns={"unique_id": "id", "answer": "gold"})[["id", "problem", "gold"]]


@dataclass(frozen=True)
class Source:
    """A public dataset."""

    repository: str
    """Dataset on the hub."""
    revision: str
    file: str
    columns: frozenset[str]
    """Must be there."""
    problems: Callable[[pd.DataFrame], pd.DataFrame]
    """From its rows to ``id``, ``problem``, ``gold``."""


SOURCES = {
    "dapo-math-17k": Source(
        repository="BytedTsinghua-SIA/DAPO-Math-17k",
        revision="main",
        file="data/dapo-math-17k.parquet",
        columns=frozenset({"prompt", "reward_model", "extra_info"}),
        problems=_dapo,
    ),
    "math-500": Source(
        repository="HuggingFaceH4/MATH-500",
        revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
        file="test.jsonl",
        columns=frozenset({"problem", "answer", "unique_id"}),
        problems=_math_500,
    ),
}
"""By the kind that a study names."""


def read_source(data: SourceData) -> tuple[pd.DataFrame, dict[str, int]]:
    """All problems of a dataset, each once, from its local file or from the hub.

    Upstream repeats rows. Problems that appear with different gold answers are dropped.

    Returns:
        a frame with ``id``, ``problem``, ``gold``, and counts: rows read, dropped by reason.

    Raises:
        UserError: the file is missing, cannot be read or lacks a column, or the hub cannot be reached.
    """
    source = SOURCES[data.kind]
    path = _local_file(data) if data.path else _from_hub(data.kind, source)
    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_json(path, lines=True)
    except (OSError, ValueError) as error:
        raise UserError(f"{data.kind}: {path} cannot be read: {error}") from error
    missing = sorted(source.columns - set(frame.columns))
    if missing:
        raise UserError(
            f"{data.kind}: {path} has no column {missing[0]!r}; it has {', '.join(map(str, frame.columns))}"
        )
    try:
        problems = source.problems(frame).astype({"id": "string", "gold": "string"})
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise UserError(f"{data.kind}: rows of {path} do not have the form of {source.repository}: {error}") from error
    answers = problems.groupby("problem")["gold"].transform("nunique")
    unambiguous = problems[answers == 1]
    unique = unambiguous.drop_duplicates("problem")
    counts = {
        "rows": len(problems),
        "dropped_conflicting_golds": len(problems) - len(unambiguous),
        "dropped_duplicates": len(unambiguous) - len(unique),
    }
    return unique.reset_index(drop=True), counts


def _local_file(data: SourceData) -> Path:
    path = Path(data.path)
    if not path.is_file():
        raise UserError(f"{data.kind}: path = {data.path!r}: no such file (relative to {Path.cwd()})")
    return path


def _from_hub(kind: str, source: Source) -> Path:
    try:
        return Path(hf_hub_download(source.repository, source.file, repo_type="dataset", revision=source.revision))
    except Exception as error:  # the hub's client raises errors of several libraries
        raise UserError(
            f"{kind}: {source.repository} cannot be fetched from the hub ({type(error).__name__}); "
            "give a local copy as `path` of the dataset in the study"
        ) from error
