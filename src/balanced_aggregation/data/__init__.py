"""Problems to train on and to evaluate on, as Parquet of one form."""

from pathlib import Path

import pandas as pd
import pandera.pandas as pa

from balanced_aggregation.errors import UserError

_TEXT = pa.Check.str_length(min_value=1)
_ANY = pa.Check(lambda frame: len(frame) > 0, error="no problems")

STATEMENTS = pa.DataFrameSchema(
    {
        "id": pa.Column(str, unique=True),
        "problem": pa.Column(str, _TEXT, description="The bare statement."),
        "gold": pa.Column(str, _TEXT, description="In the form that the verifier reads."),
        "tolerance": pa.Column("float64", pa.Check.gt(0), nullable=True, description="Absolute, of the benchmark."),
        "verifier": pa.Column(str, description="See rewards.pool."),
    },
    strict=True,
    checks=_ANY,
)
"""A dataset as it is, whatever the model: one row a problem."""

PROBLEMS = STATEMENTS.add_columns({"prompt": pa.Column(str, _TEXT, description="As the model reads it.")})
"""What a study uses of a dataset, as its model is asked."""


def read_statements(path: Path) -> pd.DataFrame:
    """Read a file of statements and check its form.

    Raises:
        UserError: the file is missing or has another form.
    """
    return _read(path, STATEMENTS, "statements")


def read_problems(path: Path) -> pd.DataFrame:
    """Read a file of problems and check its form.

    Raises:
        UserError: the file is missing or has another form.
    """
    return _read(path, PROBLEMS, "problems")


def golds(problems: pd.DataFrame) -> list[tuple[str, str, float | None]]:
    """Verifier, gold and tolerance of each problem, as a `rewards.Submission` takes them."""
    rows = zip(problems["verifier"], problems["gold"], problems["tolerance"], strict=True)
    return [(verifier, gold, None if pd.isna(tolerance) else float(tolerance)) for verifier, gold, tolerance in rows]


def _read(path: Path, schema: pa.DataFrameSchema, what: str) -> pd.DataFrame:
    if not Path(path).is_file():
        raise UserError(f"no file of {what} at {path}; `snakemake` prepares it")
    try:
        return schema.validate(pd.read_parquet(path))
    except (pa.errors.SchemaError, OSError, ValueError) as error:
        raise UserError(f"{path}: not a file of {what}: {error}") from error
