"""Logs in pieces, so that a file may be larger than memory: JSONL by lines, Parquet by batches of rows."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from balanced_aggregation.errors import UserError

ROWS = 2048
"""Of a piece. Responses may have some 100 kB each."""

_BUFFER = 1 << 20
"""Bytes that are read ahead of a Parquet column, which may be gigabytes long."""


@dataclass(frozen=True)
class Piece:
    """Some rows of a file."""

    path: Path
    first: int
    """Number of its first row, from 1."""
    unit: str
    """What a row is called: ``line`` or ``row``."""
    columns: dict[str, Sequence[Any] | np.ndarray]
    """By name; numbers of Parquet as an array, all else as a list."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def place(self, index: int) -> str:
        """Where the row with this index within the piece stands, for a person."""
        return f"{self.path}, {self.unit} {self.first + index}"


def column_kinds(path: Path) -> dict[str, str]:
    """The columns of a file in their order: each ``number``, ``text``, ``list`` or ``other``; JSONL by its first line.

    Raises:
        UserError: the file is empty, not there, or neither JSONL nor Parquet.
    """
    if not Path(path).is_file():
        raise UserError(f"{path}: no such file")
    if _is_parquet(path):
        with _open_parquet(path) as file:
            return {field.name: _parquet_kind(field.type) for field in file.schema_arrow}
    for _, row in _json_rows(path):
        return {name: _json_kind(value) for name, value in row.items()}
    raise UserError(f"{path}: is empty")


def read_pieces(path: Path, names: Sequence[str]) -> Iterator[Piece]:
    """The columns ``names`` of a file, piece by piece.

    Raises:
        UserError: a line is no JSON object or lacks a column; the file has no such column or is not whole.
    """
    return _parquet_pieces(path, names) if _is_parquet(path) else _json_pieces(path, names)


def _is_parquet(path: Path) -> bool:
    with Path(path).open("rb") as file:
        return file.read(4) == b"PAR1"


def _open_parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
    except pa.ArrowException as error:
        raise UserError(f"{path}: not a Parquet file that can be read: {str(error).splitlines()[0]}") from error


def _parquet_pieces(path: Path, names: Sequence[str]) -> Iterator[Piece]:
    with _open_parquet(path) as file:
        has = file.schema_arrow.names
        for name in names:
            if name not in has:
                raise UserError(f"{path}: has no column {name!r}, as the first file has; it has: {', '.join(has)}")
        first = 1
        try:
            for batch in file.iter_batches(ROWS, columns=list(names), use_threads=False):
                columns = {name: _values(batch.column(name)) for name in names}
                yield Piece(path, first, "row", columns)
                first += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{path}: cannot be read after row {first - 1}: {str(error).splitlines()[0]}") from error


def _values(array: pa.Array) -> np.ndarray | list[Any]:
    return array.to_numpy(zero_copy_only=False) if _parquet_kind(array.type) == "number" else array.to_pylist()


def _parquet_kind(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return "text"
    return "list" if pa.types.is_list(kind) or pa.types.is_large_list(kind) else "other"


def _json_kind(value: Any) -> str:
    kinds = {int: "number", float: "number", bool: "number", str: "text", list: "list"}
    return kinds.get(type(value), "other")


def _json_pieces(path: Path, names: Sequence[str]) -> Iterator[Piece]:
    columns: dict[str, list[Any]] = {name: [] for name in names}
    first, number = 1, 0
    for number, row in _json_rows(path):
        try:
            for name, values in columns.items():
                values.append(row[name])
        except KeyError as error:
            raise UserError(
                f"{path}, line {number}: has no {error.args[0]!r}, as other lines have; it has: {', '.join(row)}"
            ) from error
        if number - first + 1 == ROWS:
            yield Piece(path, first, "line", columns)
            columns, first = {name: [] for name in names}, number + 1
    if number >= first:
        yield Piece(path, first, "line", columns)


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line's number, from 1, and its object."""
    empty = 0
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                empty = empty or number
                continue
            if empty:
                raise UserError(f"{path}, line {empty}: is empty, and others follow")
            try:
                row = json.loads(line)
            except ValueError as error:
                shown = line[:60].decode(errors="replace").strip()
                raise UserError(f"{path}, line {number}: not JSON ({error}): {shown!r}") from error
            if not isinstance(row, dict):
                raise UserError(f"{path}, line {number}: not an object with columns, but: {str(row)[:60]}")
            yield number, row
