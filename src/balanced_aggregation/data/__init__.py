"""Problems to train on and to evaluate on, as Parquet of one form."""

from pathlib import Path

import pandas as pd
import pandera.pandas as pa

from balanced_aggregation.errors import UserError

PROBLEMS = pa.DataFrameSchema(
    {
        "id": pa.Column(str, unique=True),
        "prompt": pa.Column(str, pa.Check.str_length(min_value=1), description="As the model reads it."),
        "gold": pa.Column(str, pa.Check.str_length(min_value=1)),
        "verifier": pa.Column(str, description="A key of rewards.VERIFIERS."),
    },
    strict=True,
    checks=pa.Check(lambda frame: len(frame) > 0, error="no problems"),
)
"""Every file of problems: one row a problem."""


def read_problems(path: Path) -> pd.DataFrame:
    """Read a file of problems and check its form.

    Raises:
        UserError: the file is missing or has another form.
    """
    if not Path(path).is_file():
        raise UserError(f"no file of problems at {path}; `snakemake` prepares it")
    try:
        return PROBLEMS.validate(pd.read_parquet(path))
    except (pa.errors.SchemaError, OSError, ValueError) as error:
        raise UserError(f"{path}: not a file of problems: {error}") from error
