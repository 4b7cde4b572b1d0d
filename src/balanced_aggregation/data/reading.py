"""Rows of public datasets, from a local file or from the hub, through the same checks."""

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow
from huggingface_hub import hf_hub_download

from balanced_aggregation.config import SourceData
from balanced_aggregation.data.sources import SOURCES, Form, Source
from balanced_aggregation.errors import UserError
from balanced_aggregation.files import digest


def read_source(data: SourceData) -> tuple[pd.DataFrame, dict[str, object]]:
    """All rows of a dataset as ``id``, ``problem``, ``gold``, ``tolerance``.

    Returns:
        the frame, and what it was made from: repository, revision, digests of the files, licence, citation, and the
        number of rows.

    Raises:
        UserError: a file is missing, cannot be read, has another digest, form or number of rows than it should, or
            the hub cannot be reached.
    """
    source = SOURCES[data.kind]
    if data.path:
        files, expected = [_local_file(data)], [data.sha256]
    else:
        files, expected = _from_hub(data.kind, source), list(source.files.values())
    digests = [digest(file) for file in files]
    for file, found, wanted in zip(files, digests, expected, strict=True):
        if wanted and found != wanted:
            raise UserError(f"{data.kind}: {file} has the SHA-256 {found}, {wanted} is expected")
    frame = pd.concat([_read(data.kind, file) for file in files], ignore_index=True).astype(object)
    frame = frame.where(frame.notna(), None)  # a missing value is None, whatever the file's format
    where = str(files[0]) if len(files) == 1 else f"{files[0].parent} ({len(files)} files)"
    form = _form(data.kind, where, source.forms, frame)
    allowed = {data.rows} if data.rows else form.rows
    if len(frame) not in allowed:
        hint = f"; if the copy is meant to hold {len(frame)}, say `rows: {len(frame)}`" if data.path else ""
        raise UserError(
            f"{data.kind}: {where} has {len(frame)} rows, "
            f"{' or '.join(str(n) for n in sorted(allowed))} are expected{hint}"
        )
    try:
        problems = form.problems(frame)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise UserError(f"{data.kind}: rows of {where} do not have the form of {source.repository}: {error}") from error
    origin = {
        "dataset": source.repository,
        "revision": None if data.path else source.revision,
        "files_sha256": digests,
        "licence": source.licence,
        "citation": source.citation,
        "in": len(frame),
        **({"note": form.note} if form.note else {}),
    }
    return problems, origin


def _form(kind: str, where: str, forms: Sequence[Form], frame: pd.DataFrame) -> Form:
    for form in forms:
        if form.columns <= set(frame.columns):
            return form
    missing = [sorted(form.columns - set(frame.columns)) for form in forms]
    nearest = min(missing, key=len)
    raise UserError(f"{kind}: {where} has no column {nearest[0]!r}; it has {', '.join(map(str, frame.columns))}")


def _read(kind: str, path: Path) -> pd.DataFrame:
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        with path.open(encoding="utf-8") as lines:
            # Not by pandas, which turns a gold "025" into 25 and some texts into dates.
            rows = [json.loads(line) for line in lines if line.strip()]
        if not all(isinstance(row, dict) for row in rows):
            raise ValueError("a line is not a JSON object")
        return pd.DataFrame(rows, dtype=object)
    except (OSError, ValueError, RecursionError, pyarrow.ArrowException) as error:
        raise UserError(f"{kind}: {path} cannot be read: {error}") from error


def _local_file(data: SourceData) -> Path:
    path = Path(data.path)
    if not path.is_file():
        raise UserError(f"{data.kind}: path = {data.path!r}: no such file (relative to {Path.cwd()})")
    return path


def _from_hub(kind: str, source: Source) -> list[Path]:
    try:
        return [
            Path(hf_hub_download(source.repository, file, repo_type="dataset", revision=source.revision))
            for file in source.files
        ]
    except Exception as error:  # the hub's client raises errors of several libraries
        raise UserError(
            f"{kind}: {source.repository} cannot be fetched from the hub ({type(error).__name__}); "
            "give a local copy as `path` of the dataset in the study"
        ) from error
