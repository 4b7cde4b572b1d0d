"""Values of a piece's columns, checked: what is wrong is told with its file and line."""

from typing import Any

import numpy as np

from balanced_aggregation.diagnose.reading import Piece
from balanced_aggregation.errors import UserError


def text_of(value: Any) -> str:
    """The text of a response: a string, or messages as chat templates take them; null is the empty one."""
    if isinstance(value, str) or value is None:
        return value or ""
    if isinstance(value, list):
        return "".join(
            text_of(part.get("content", part.get("text")) if isinstance(part, dict) else part) for part in value
        )
    return str(value)


def plain(values: Any) -> list[Any]:
    """A column as a list of Python's own values."""
    return values.tolist() if isinstance(values, np.ndarray) else values


def numbers_of(piece: Piece, name: str, missing: bool = False) -> np.ndarray:
    """A column as float64; a value that is missing is NaN, if any may be."""
    values = piece.columns[name]
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        numbers = None
    if numbers is None or numbers.ndim != 1:
        wrong = next(i for i, value in enumerate(values) if not _is_number(value))
        raise UserError(f"{piece.place(wrong)}: {name} must be one number, got {str(values[wrong])[:60]!r}")
    refuse(np.isinf(numbers) | (np.isnan(numbers) & (not missing)), piece, name, "a number")
    return numbers


def _is_number(value: Any) -> bool:
    try:
        return np.asarray(value, np.float64).ndim == 0
    except (TypeError, ValueError):
        return False


def total(columns: list[np.ndarray]) -> np.ndarray:
    """The sum of several rewards without those that are missing; NaN where all are."""
    if len(columns) == 1:
        return columns[0]
    return np.where(np.isnan(columns).all(0), np.nan, np.nansum(columns, 0))


def lengths_of(piece: Piece, name: str) -> np.ndarray:
    """A column of lengths, or of token ids."""
    values = piece.columns[name]
    if isinstance(values[0], list):
        return np.array([len(value or ()) for value in values])
    return counts(piece, name, numbers_of(piece, name))


def counts(piece: Piece, name: str, numbers: np.ndarray) -> np.ndarray:
    """Numbers that come from the column ``name``, as whole ones."""
    refuse((numbers < 0) | (numbers != np.floor(numbers)) | (numbers >= 2**31), piece, name, "a whole number >= 0")
    return numbers.astype(np.int64)


def refuse(wrong: np.ndarray, piece: Piece, name: str, allowed: str) -> None:
    """Raise a UserError that names the first row that is wrong, its value, and what is allowed."""
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        raise UserError(f"{piece.place(index)}: {name} must be {allowed}, got {str(piece.columns[name][index])[:60]!r}")


def scopes(piece: Piece, name: str) -> list[Any]:
    """A column of steps; missing ones are None."""
    values = plain(piece.columns[name])
    for index, value in enumerate(values):
        if isinstance(value, list | dict):
            raise UserError(f"{piece.place(index)}: {name} must be one value, got {str(value)[:60]!r}")
    return [None if value != value else value for value in values]
