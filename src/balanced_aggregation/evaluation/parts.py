"""Long computations of a table in parts: one that is cut off goes on where it stopped."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pandera.pandas as pa
import pyarrow
import pyarrow.parquet

from balanced_aggregation.errors import UserError
from balanced_aggregation.files import atomic_path, read_json, remove, write_json, write_parquet
from balanced_aggregation.locks import exclusive

_METADATA = b"balanced_aggregation"


def write_in_parts(
    path: Path,
    fingerprint: dict[str, Any],
    parts: Iterable[pd.DataFrame],
    compute: Callable[[pd.DataFrame], pd.DataFrame],
    schema: pa.DataFrameSchema,
) -> pd.DataFrame:
    """Write a Parquet file whose rows are those of its parts, one after the other.

    Finished parts wait in a hidden folder beside the file until all are there. They are used again only under the
    same fingerprint.

    Args:
        path: the file.
        fingerprint: everything that the rows follow from; it is kept in the file.
        parts: what ``compute`` takes, in order.
        compute: the rows of one part.
        schema: what the whole must be like.

    Returns:
        the whole.

    Raises:
        UserError: another process is writing it; in a job of Slurm's it is waited for instead.
    """
    with exclusive(path, "writing this file") as waited:
        if waited and path.is_file():
            frame, made_from = read_described(path, schema)
            if made_from == fingerprint:
                return frame
        folder = path.with_name(f".{path.stem}.parts")
        mark = folder / "fingerprint.json"
        if not mark.exists() or read_json(mark) != fingerprint:
            remove(folder)
            write_json(mark, fingerprint)
        frames = []
        for number, part in enumerate(parts):
            file = folder / f"{number:05d}.parquet"
            if not file.exists():
                write_parquet(file, compute(part))
            frames.append(pd.read_parquet(file))
        frame = schema.validate(pd.concat(frames, ignore_index=True))
        write_described(path, frame, fingerprint)
        remove(folder)
        return frame


def cut(frame: pd.DataFrame, size: int) -> Iterator[pd.DataFrame]:
    """A table in parts of ``size`` rows; the last one may have fewer."""
    for first in range(0, len(frame), size):
        yield frame.iloc[first : first + size]


def write_described(path: Path, frame: pd.DataFrame, fingerprint: dict[str, Any]) -> None:
    """Write a Parquet file that says what it was made from."""
    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    described = table.replace_schema_metadata(
        {**(table.schema.metadata or {}), _METADATA: json.dumps(fingerprint, sort_keys=True).encode()}
    )
    with atomic_path(path) as temporary:
        pyarrow.parquet.write_table(described, temporary)


def read_described(path: Path, schema: pa.DataFrameSchema) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read such a file and what it was made from.

    Raises:
        UserError: the file is missing, or is not one.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; `snakemake` makes it")
    try:
        frame = schema.validate(pd.read_parquet(path))
        return frame, json.loads(pyarrow.parquet.read_schema(path).metadata[_METADATA])
    except (pa.errors.SchemaError, OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a file of the form it should have: {error}") from error
