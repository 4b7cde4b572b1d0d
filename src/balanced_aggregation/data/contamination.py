"""Which problems of benchmarks are among those to train on: equal but for their writing, or largely the same words."""

import re
import unicodedata
from collections import Counter, defaultdict
from typing import Literal

import pandas as pd
import pandera.pandas as pa

OVERLAPS = pa.DataFrameSchema(
    {
        "benchmark": pa.Column(str),
        "benchmark_id": pa.Column(str),
        "train_id": pa.Column(str),
        "exact": pa.Column(bool, description="Equal but for case, spaces, punctuation and cosmetic LaTeX."),
        "overlap": pa.Column("float64", pa.Check.in_range(0, 1), description="See `overlaps`."),
    },
    unique=["benchmark", "benchmark_id", "train_id"],
    strict=True,
)
"""One row a pair of a benchmark's problem and a training problem that overlap."""

_FIGURES = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL)
_COSMETIC = re.compile(r"\\(?:left|right|displaystyle|textstyle|text|mathrm|quad|qquad|dots|ldots|cdots)(?![a-z])")
_FRACTIONS = re.compile(r"\\[dt]frac")


def normalise(problem: str) -> str:
    """Letters, digits and signs of operations, in lower case, without figures and LaTeX that changes only looks."""
    return re.sub(r"[^\w+\-*/=<>!]|_", "", _plain(problem))


def words(problem: str) -> list[str]:
    """Runs of letters and numbers of a statement, in lower case."""
    return re.findall(r"[^\W\d_]+|\d+", _plain(problem))


def _plain(problem: str) -> str:
    text = unicodedata.normalize("NFKC", problem).lower()
    return _FRACTIONS.sub(r"\\frac", _COSMETIC.sub(" ", _FIGURES.sub(" ", text)))


def overlaps(train: pd.DataFrame, benchmarks: dict[str, pd.DataFrame], n: int, threshold: float) -> pd.DataFrame:
    """Pairs of a benchmark's and a training problem that are equal after `normalise` or share most n-grams.

    The overlap of a pair is the share of the benchmark problem's different n-grams of words that the one training
    problem holds. A statement with fewer than n words has none; for it only equality counts.

    Args:
        train: statements with ``id`` and ``problem``.
        benchmarks: the same by name of the benchmark.
        n: words of an n-gram.
        threshold: pairs with a smaller overlap are left out, unless equal.

    Returns:
        rows as `OVERLAPS` describes them, in the order of benchmarks, their problems and training problems.
    """
    theirs = {
        (name, row.id): (place, row.problem)
        for name, frame in benchmarks.items()
        for place, row in enumerate(frame.itertuples())
    }
    equal, holders, sizes = defaultdict(list), defaultdict(list), {}
    for key, (_, problem) in theirs.items():
        equal[normalise(problem)].append(key)
        grams = _ngrams(words(problem), n)
        sizes[key] = len(grams)
        for gram in grams:
            holders[gram].append(key)
    rows = []
    order = {name: place for place, name in enumerate(benchmarks)}
    for place, row in enumerate(train.itertuples()):
        shared = Counter(key for gram in _ngrams(words(row.problem), n) for key in holders.get(gram, ()))
        same = set(equal.get(normalise(row.problem), ()))
        for key in same | {key for key, count in shared.items() if count >= threshold * sizes[key]}:
            overlap = shared[key] / sizes[key] if sizes[key] else float(key in same)
            rows.append(((order[key[0]], theirs[key][0], place), (*key, row.id, key in same, overlap)))
    found = pd.DataFrame([values for _, values in sorted(rows)], columns=list(OVERLAPS.columns))
    types = {"benchmark": str, "benchmark_id": str, "train_id": str, "exact": bool, "overlap": float}
    return OVERLAPS.validate(found.astype(types))


def _ngrams(sequence: list[str], n: int) -> set[tuple[str, ...]]:
    return {tuple(sequence[i : i + n]) for i in range(len(sequence) - n + 1)}


def summarise(found: pd.DataFrame, sizes: dict[str, int]) -> pd.DataFrame:
    """Numbers of problems by benchmark: how many are found, exactly or by overlap, and how many train problems."""
    rows = []
    for name, problems in sizes.items():
        own = found[found["benchmark"] == name]
        exact = own[own["exact"]]
        rows.append(
            {
                "benchmark": name,
                "problems": problems,
                "exact": exact["benchmark_id"].nunique(),
                "overlapping": own["benchmark_id"].nunique(),
                "train, exact": exact["train_id"].nunique(),
                "train, overlapping": own["train_id"].nunique(),
            }
        )
    return pd.DataFrame(rows)


def contaminated(found: pd.DataFrame, remove: Literal["exact", "overlapping"]) -> set[str]:
    """Ids of the training problems that the study takes out (`config.Contamination.remove`)."""
    return set((found[found["exact"]] if remove == "exact" else found)["train_id"])
