"""From the datasets of a study to files of problems, with counts of what was kept and dropped, and digests."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pandera.pandas as pa
from transformers import PreTrainedTokenizerBase

from balanced_aggregation.config import TRAIN, ArithmeticData, PretrainedModel, SourceData, Study
from balanced_aggregation.data import PROBLEMS, STATEMENTS, read_statements
from balanced_aggregation.data.arithmetic import Chain, draw_chains
from balanced_aggregation.data.contamination import contaminated, overlaps, summarise
from balanced_aggregation.data.prompts import ask
from balanced_aggregation.data.reading import read_source
from balanced_aggregation.data.sources import SOURCES
from balanced_aggregation.errors import GoldError, UserError
from balanced_aggregation.files import digest, write_json, write_parquet, write_text
from balanced_aggregation.layout import Layout
from balanced_aggregation.provenance import arithmetic_before, public_benchmarks, removes_contamination
from balanced_aggregation.rewards import Submission, VerifierPool
from balanced_aggregation.rewards.code import read_tests
from balanced_aggregation.seeding import derive_seed


def prepare_statements(study: Study, layout: Layout, name: str) -> dict[str, Any]:
    """Write a dataset as it is: that of one benchmark, or the training set under the name `TRAIN`.

    Generated arithmetic avoids the problems of the training set and of the benchmarks before it. Of a public training
    set, what stands there twice, with conflicting golds, or with a gold that the verifier cannot match is dropped and
    counted. A benchmark is whole or refused.

    Returns:
        the manifest beside the file: origin, counts and digest.

    Raises:
        UserError: there is no such dataset, it cannot be had, or it is not what it should be.
    """
    data = _dataset(study, name)
    if isinstance(data, ArithmeticData):
        taken: set[Chain] = set()
        for earlier, its_data in arithmetic_before(study, name):
            draw_chains(its_data, _generator(study, earlier), taken)
        frame, manifest = _arithmetic(draw_chains(data, _generator(study, name), taken)), {}
    else:
        frame, manifest = read_source(data)
        frame["verifier"] = SOURCES[data.kind].verifier
        if name == TRAIN:
            frame, dropped = _unique(frame)
            manifest |= dropped
        frame = _matchable(study, frame, name, manifest)
    _write(STATEMENTS, frame, layout.statements(name), name)
    manifest = {"kind": data.kind, **manifest, "out": len(frame), "sha256": digest(layout.statements(name))}
    write_json(layout.statements_manifest(name), manifest)
    return manifest


def report_contamination(study: Study, layout: Layout) -> pd.DataFrame:
    """Write which problems of the public benchmarks are among those to train on, and a table of their numbers.

    Returns:
        the table, see `contamination.summarise`.

    Raises:
        UserError: statements are missing.
    """
    benchmarks = {name: read_statements(layout.statements(name)) for name in public_benchmarks(study)}
    settings = study.data.contamination
    found = overlaps(read_statements(layout.statements(TRAIN)), benchmarks, settings.ngram, settings.overlap)
    write_parquet(layout.contamination, found)
    sizes = {name: len(frame) for name, frame in benchmarks.items()}
    manifest = {"in": sizes, "out": len(found), "sha256": digest(layout.contamination)}
    write_json(layout.contamination_counts, manifest)
    table = summarise(found, sizes)
    title = (
        f"Problems of the benchmarks that are among the statements of {study.data.train.name}. Exact: equal but for "
        f"the writing; overlapping: at least {settings.overlap:.0%} of the benchmark problem's {settings.ngram}-grams "
        f"of words stand in one training problem. Removed from the training set: {settings.remove}.\n\n"
    )
    write_text(layout.contamination_table, title + table.to_markdown(index=False) + "\n")
    return table


def prepare_problems(study: Study, layout: Layout, tokenizer: PreTrainedTokenizerBase, name: str) -> dict[str, Any]:
    """Write the problems of one benchmark, or of the training set under `TRAIN`, as the study's model is asked.

    Returns:
        the manifest beside the file: counts of what was kept and dropped, and a digest.

    Raises:
        UserError: there is no such dataset, nothing of it is left, or a prompt of a benchmark is too long.
    """
    data = _dataset(study, name)
    frame = read_statements(layout.statements(name))
    counts = {"in": len(frame)}
    if isinstance(data, ArithmeticData):
        frame["prompt"] = frame["problem"]
    else:
        if name == TRAIN and removes_contamination(study):
            found = pd.read_parquet(layout.contamination)
            clean = frame[~frame["id"].isin(contaminated(found, study.data.contamination.remove))]
            counts["dropped_contaminated"] = len(frame) - len(clean)
            frame = clean
            if frame.empty:
                raise UserError(f"{name}: every problem is one of a benchmark; data.contamination.remove takes all out")
        if name != TRAIN:
            frame = _limited(study, data, frame, name, counts)
        frame = _fitting(study, data, tokenizer, frame, name, counts)
        if name == TRAIN:
            frame = _limited(study, data, frame, name, counts)
    path = layout.train_problems if name == TRAIN else layout.benchmark(name)
    _write(PROBLEMS, frame, path, name)
    manifest = {"kind": data.kind, **counts, "out": len(frame), "sha256": digest(path)}
    write_json(layout.manifest(name), manifest)
    return manifest


def _dataset(study: Study, name: str) -> ArithmeticData | SourceData:
    datasets = study.datasets
    if name not in datasets:
        raise UserError(f"--name {name}: not a dataset of study {study.full_name!r}; allowed: {', '.join(datasets)}")
    return datasets[name]


def _generator(study: Study, name: str) -> random.Random:
    return random.Random(derive_seed(study.data.seed, "problems", name))


def _arithmetic(chains: Sequence[Chain]) -> pd.DataFrame:
    prompts = [chain.prompt for chain in chains]
    golds = [str(chain.answer) for chain in chains]
    frame = pd.DataFrame({"id": prompts, "problem": prompts, "gold": golds})
    return frame.assign(tolerance=float("nan"), verifier="arithmetic")


def _unique(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
    """Each statement once; none that stands there with different golds."""
    golds = frame.groupby("problem")["gold"].transform("nunique")
    unambiguous = frame[golds == 1]
    unique = unambiguous.drop_duplicates("problem")
    counts = {
        "dropped_conflicting_golds": len(frame) - len(unambiguous),
        "dropped_duplicates": len(unambiguous) - len(unique),
    }
    return unique, counts


def _matchable(study: Study, frame: pd.DataFrame, name: str, manifest: dict[str, Any]) -> pd.DataFrame:
    """Without golds that even their own text does not match: no response could ever be right."""
    wrong = _unmatchable_golds(frame, study.verifiers)
    if name != TRAIN:
        if wrong.any():
            row = frame[wrong].iloc[0]
            raise UserError(f"{name}: gold {row['gold'][:200]!r} of problem {row['id']}: the verifier cannot match it")
        return frame
    manifest["dropped_unmatchable_gold"] = int(wrong.sum())
    if wrong.all():
        raise UserError(f"{name}: none of its {len(frame)} golds can be matched by the verifier")
    return frame[~wrong]


def _unmatchable_golds(statements: pd.DataFrame, workers: int) -> pd.Series:
    """Which golds no response could match: True for those that not even their own text in a box matches."""
    wrong = pd.Series(False, index=statements.index)
    rows = statements[statements["verifier"] == "math"]
    with VerifierPool(workers) as pool:
        pending = [pool.submit(Submission("math", rf"\boxed{{{gold}}}", gold)) for gold in rows["gold"]]
        for index, verdict in zip(rows.index, pending, strict=True):
            try:
                wrong[index] = not verdict.result().correct
            except GoldError:  # it cannot even be read
                wrong[index] = True
    for row in statements[statements["verifier"] == "code"].itertuples():
        try:
            read_tests(row.gold)
        except GoldError:
            wrong[row.Index] = True
    return wrong


def _fitting(
    study: Study, data: SourceData, tokenizer: PreTrainedTokenizerBase, frame: pd.DataFrame, name: str, counts: dict
) -> pd.DataFrame:
    """With prompts, none too long."""
    model, longest = study.model, study.data.max_prompt_tokens
    assert isinstance(model, PretrainedModel)  # a study of the tiny model reads arithmetic only
    prompts = [ask(row.problem, row.verifier, data, model, tokenizer) for row in frame.itertuples()]
    frame = frame.assign(prompt=pd.Series(prompts, index=frame.index, dtype=str))
    sizes = frame["prompt"].map(lambda prompt: len(tokenizer.encode(prompt, add_special_tokens=False)))
    fitting = frame[sizes <= longest]
    too_long = len(frame) - len(fitting)
    if name != TRAIN and too_long:
        raise UserError(
            f"{name}: {too_long} of {len(frame)} prompts are longer than data.max_prompt_tokens = {longest}; "
            f"the longest has {sizes.max()} tokens, and a benchmark is not cut down"
        )
    if name == TRAIN:
        counts["dropped_too_long"] = too_long
    if fitting.empty:
        raise UserError(f"{name}: no problem is left of {len(frame)}; data.max_prompt_tokens may be too small")
    return fitting


def _limited(study: Study, data: SourceData, frame: pd.DataFrame, name: str, counts: dict) -> pd.DataFrame:
    """No more problems than the study asks for, drawn by its data seed."""
    if data.limit is None:
        return frame
    counts["dropped_by_limit"] = max(len(frame) - data.limit, 0)
    seed = derive_seed(study.data.seed, "problems", name) % 2**32
    return frame.sample(n=min(data.limit, len(frame)), random_state=seed).sort_index()


def _write(schema: pa.DataFrameSchema, frame: pd.DataFrame, path: Path, name: str) -> None:
    texts = {column: str for column in schema.columns if column != "tolerance"}
    frame = frame[list(schema.columns)].astype(texts).reset_index(drop=True)
    for column in texts:
        if (frame[column] == "").any():
            raise UserError(f"{name}: problem {frame['id'][frame[column] == ''].iloc[0]!r} has an empty {column}")
    if frame["id"].duplicated().any():
        raise UserError(f"{name}: two problems have the id {frame['id'][frame['id'].duplicated()].iloc[0]!r}")
    try:
        schema.validate(frame)
    except pa.errors.SchemaError as error:
        raise UserError(f"{name}: {error}") from error
    write_parquet(path, frame)
