"""What is stored of an evaluation."""

import pandera.pandas as pa

from balanced_aggregation.rewards import Outcome

RESPONSES = pa.DataFrameSchema(
    {
        "problem": pa.Column(str, description="Its id."),
        "prompt": pa.Column(str),
        "decoding": pa.Column(str, pa.Check.isin(["greedy", "sampled"])),
        "sample": pa.Column("int64", pa.Check.ge(0)),
        "response": pa.Column(str),
        "length": pa.Column("int64", pa.Check.gt(0), description="Tokens, with the one that ended it."),
        "truncated": pa.Column(bool),
    },
    unique=["problem", "decoding", "sample"],
    strict=True,
)
"""One row a response."""

EVALUATIONS = RESPONSES.add_columns(
    {
        "extracted": pa.Column(str, nullable=True, description="The answer that was read from the response."),
        "outcome": pa.Column(str, pa.Check.isin([str(outcome) for outcome in Outcome])),
        "correct": pa.Column(bool),
    }
)
"""One row a response with its verdict."""

LIGHTEVAL = pa.DataFrameSchema(
    {
        "problem": pa.Column(str),
        "decoding": pa.Column(str),
        "sample": pa.Column("int64"),
        "lighteval": pa.Column("float64", pa.Check.in_range(0, 1)),
    },
    unique=["problem", "decoding", "sample"],
    strict=True,
)
"""One row a response with lighteval's score."""
