"""The layout of the paper's Table 1: model x training set x rule, over all variants of a study."""

from collections.abc import Sequence

from balanced_aggregation.config import Study
from balanced_aggregation.errors import UserError
from balanced_aggregation.layout import Layout, Paths
from balanced_aggregation.reporting.published import SOURCE, model_name, published_value
from balanced_aggregation.reporting.scores import Scores
from balanced_aggregation.reporting.statistics import estimate
from balanced_aggregation.reporting.tables import BOTH, read_scores, seed_notes
from balanced_aggregation.reporting.writing import Row, Table, write_table

NAME = "paper"


def write_paper_table(studies: Sequence[Study]) -> None:
    """Write the table under ``tables/`` of the study that the variants belong to.

    Raises:
        UserError: they belong to different ones.
    """
    names = list(dict.fromkeys(study.study for study in studies))
    if len(names) > 1:
        raise UserError(f"studies {', '.join(names)}: one table is of the variants of one study")
    scores = [read_scores(study, Layout(study)) for study in studies]
    write_table(Paths(studies[0].shared_folder).tables / NAME, paper_table(scores))


def paper_table(variants: Sequence[Scores]) -> Table:
    """Per model, training set and rule: accuracy over the benchmarks at the last step, as published, and peak."""
    rows = []
    for scores in variants:
        study = scores.study
        for place, rule in enumerate(scores.rules):
            published = published_value(study, rule)
            keys = {"model": model_name(study), "training set": study.data.train.name, "rule": rule}
            cells = {
                "last": estimate(scores.last[place], scores.benchmark),
                "last, published": "–" if published is None else f"{published:.4f}",
                "peak": estimate(scores.peak[place], scores.benchmark),
            }
            rows.append(Row(keys, cells))
    notes = ["Accuracy averaged over benchmarks, at the last step and at each run's best.", f"Published: {SOURCE}."]
    fewest = min((scores.study for scores in variants), key=lambda study: len(study.seeds))
    return Table(rows, [*notes, *seed_notes(fewest, BOTH)])
