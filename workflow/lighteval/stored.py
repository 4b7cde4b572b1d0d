"""Problems and responses as the pipeline stores them, checked before anything is scored."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from errors import InputError

DECODINGS = ("greedy", "sampled")
_PROBLEM_COLUMNS = {"id": str, "prompt": str, "gold": str}
_RESPONSE_COLUMNS = {"problem": str, "decoding": str, "sample": int, "response": str}


@dataclass(frozen=True)
class Stored:
    """What is scored.

    Attributes:
        problems: One dict a problem: ``id``, ``prompt``, ``gold``.
        rows: (problem, decoding, sample) of each response, in the order of the file.
        texts: Responses by (decoding, problem), in the order of their sample numbers.
        samples: Responses per problem, for each decoding that occurs.
    """

    problems: list[dict[str, str]]
    rows: list[tuple[str, str, int]]
    texts: dict[tuple[str, str], list[str]]
    samples: dict[str, int]


def read_stored(problems_file: Path, responses_file: Path) -> Stored:
    """Read both files.

    Every problem must have the same samples of each decoding that occurs, numbered from 0, each once.

    Raises:
        InputError: a column is missing or holds something else, or a response is missing, surplus, there twice or to a
            problem that does not exist.
    """
    problems = _read(problems_file, _PROBLEM_COLUMNS)
    responses = _read(responses_file, _RESPONSE_COLUMNS)
    known = {problem["id"] for problem in problems}
    if len(known) < len(problems):
        repeated = next(id for id in known if sum(problem["id"] == id for problem in problems) > 1)
        raise InputError(f"{problems_file}: problem {repeated!r} is there more than once")
    by_place: dict[tuple[str, str, int], str] = {}
    for row in responses:
        place = (row["problem"], row["decoding"], row["sample"])
        where = f"{responses_file}: {_name(*place)}"
        if row["problem"] not in known:
            raise InputError(f"{where} answers a problem that is not in {problems_file}")
        if row["decoding"] not in DECODINGS:
            raise InputError(f"{where}: the decoding must be one of {', '.join(DECODINGS)}")
        if row["sample"] < 0:
            raise InputError(f"{where}: samples are numbered from 0")
        if place in by_place:
            raise InputError(f"{where} is there more than once")
        by_place[place] = row["response"]
    samples = {d: 1 + max(s for _, other, s in by_place if other == d) for d in DECODINGS if _occurs(d, by_place)}
    texts = {}
    for decoding, count in samples.items():
        for problem in (problem["id"] for problem in problems):
            wanted = [(problem, decoding, sample) for sample in range(count)]
            missing = [place for place in wanted if place not in by_place]
            if missing:
                raise InputError(f"{responses_file}: {_name(*missing[0])} is missing; other problems have {count}")
            texts[decoding, problem] = [by_place[place] for place in wanted]
    return Stored(problems, list(by_place), texts, samples)


def _read(path: Path, columns: dict[str, type]) -> list[dict[str, Any]]:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    lacking = [name for name in columns if name not in table.column_names]
    if lacking:
        raise InputError(f"{path} has no column {', '.join(lacking)}")
    rows = table.select(list(columns)).to_pylist()
    if not rows:
        raise InputError(f"{path} is empty")
    for number, row in enumerate(rows):
        for name, kind in columns.items():
            if type(row[name]) is not kind:
                raise InputError(f"{path}, row {number}: {name} must be {kind.__name__}, not {row[name]!r}")
    return rows


def _occurs(decoding: str, places: dict[tuple[str, str, int], str]) -> bool:
    return any(other == decoding for _, other, _ in places)


def _name(problem: str, decoding: str, sample: int) -> str:
    return f"response to {problem!r} ({decoding}, sample {sample})"
