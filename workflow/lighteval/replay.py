"""Replay stored responses through lighteval, so that each number also exists "as lighteval scores it".

Run in the environment of envs/eval.lock, where the package itself is not installed. Nothing is generated, nothing
is fetched, and nothing is written but the two output files and a folder in TMPDIR that is gone afterwards. Programs
(livecodebench) are run by lighteval in forked processes with no confinement worth the name: that is left to the caller.

Exit codes: 0, scored; 2, the input is at fault; 1, anything else, in which case no response has been scored.
"""

import argparse
import contextlib
import hashlib
import importlib.metadata
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from lighteval.pipeline import Pipeline
    from stored import Stored

sys.dont_write_bytecode = True  # of the modules beside this one, which are therefore imported later

_VERSIONS = ("lighteval", "math-verify", "latex2sympy2_extended", "sympy", "torch")


def main(arguments: list[str]) -> int:
    """Score the responses and write OUTPUT and, beside it, the JSON file of the same stem."""
    from errors import GraderError, InputError
    from golds import MATHEMATICS, PROGRAMMING, check_golds
    from stored import read_stored

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--benchmark", choices=MATHEMATICS + PROGRAMMING, required=True)
    parser.add_argument("--problems", type=Path, required=True, help="Parquet: id, prompt, gold")
    parser.add_argument("--responses", type=Path, required=True, help="Parquet: problem, decoding, sample, response")
    parser.add_argument("--output", type=Path, required=True, help="Parquet: problem, decoding, sample, score")
    options = parser.parse_args(arguments)
    if options.output.suffix != ".parquet":
        parser.error(f"argument --output: must end in .parquet, not {options.output}")
    try:
        stored = read_stored(options.problems, options.responses)
        check_golds(options.benchmark, stored.problems)
        sha256 = {name: _sha256(getattr(options, name)) for name in ("problems", "responses")}
        with tempfile.TemporaryDirectory(prefix="le-") as folder:
            _shut_in(Path(folder))
            scores, summary = _replay(options.benchmark, stored, Path(folder))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except GraderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    _write(options.output, stored.rows, scores, {**summary, "sha256": sha256})
    return 0


def _shut_in(folder: Path) -> None:
    """Keep lighteval's libraries, not yet imported, from the network and from the user's caches."""
    tempfile.tempdir = str(folder)
    os.environ.update(
        TMPDIR=str(folder),
        HF_HOME=str(folder / "huggingface"),
        HF_HUB_CACHE=str(folder / "huggingface/hub"),
        HF_DATASETS_CACHE=str(folder / "huggingface/datasets"),
        XDG_CACHE_HOME=str(folder / "cache"),
        HF_HUB_OFFLINE="1",
        HF_DATASETS_OFFLINE="1",
        TRANSFORMERS_OFFLINE="1",
        HF_HUB_DISABLE_TELEMETRY="1",
        HF_DATASETS_DISABLE_PROGRESS_BARS="1",
        TQDM_DISABLE="1",
        TOKENIZERS_PARALLELISM="false",
        GIT_PYTHON_REFRESH="quiet",  # git need not be there
    )


def _replay(benchmark: str, stored: "Stored", folder: Path) -> tuple[list[float], dict]:
    """Run the tasks; return the score of each of ``stored.rows``, and the summary."""
    from golds import PROGRAMMING
    from lighteval.logging.evaluation_tracker import EvaluationTracker
    from lighteval.pipeline import ParallelismManager, Pipeline, PipelineParameters
    from metrics import check_code_grader
    from model import StoredResponses
    from tasks import leave_out_built_in_tasks, make_tasks, task_name, weak_golds

    logging.getLogger("lighteval").setLevel(logging.ERROR)  # it warns of each response without an answer, in full
    leave_out_built_in_tasks()
    model = StoredResponses(stored)
    pipeline = Pipeline(
        tasks=",".join(f"{task_name(benchmark, decoding)}|0" for decoding in stored.samples),
        pipeline_parameters=PipelineParameters(
            launcher_type=ParallelismManager.NONE,
            custom_tasks_directory=make_tasks(benchmark, stored, folder / "problems"),
        ),
        evaluation_tracker=EvaluationTracker(output_dir=str(folder / "results"), save_details=False),
        model=model,
    )
    check_grader = check_code_grader if benchmark in PROGRAMMING else lambda: None
    check_grader()
    pipeline.evaluate()
    check_grader()
    model.check_all_used()
    scores, notes = _collect(benchmark, stored, pipeline)
    results = pipeline.evaluation_tracker.metrics_logger.metric_aggregated
    summary = {
        "benchmark": benchmark,
        "problems": len(stored.problems),
        "samples": stored.samples,
        "results": {decoding: dict(results[f"{task_name(benchmark, decoding)}|0"]) for decoding in stored.samples},
        "doubtful": notes,
        "weak_golds": weak_golds(benchmark, stored),
        "versions": {package: importlib.metadata.version(package) for package in _VERSIONS},
    }
    return scores, summary


def _collect(benchmark: str, stored: "Stored", pipeline: "Pipeline") -> tuple[list[float], dict[str, list]]:
    """Scores in the order of ``stored.rows``; places of the responses that got no proper verdict, by the reason."""
    from tasks import task_name

    scores, notes = {}, {}
    for decoding in stored.samples:
        for detail in pipeline.get_details()[f"{task_name(benchmark, decoding)}|0"]:
            found = detail.doc.specific
            texts = stored.texts[decoding, found["problem"]]
            if detail.model_response.text != texts:
                raise RuntimeError(f"lighteval scored other responses to problem {found['problem']!r} than were stored")
            for sample, (score, note) in enumerate(zip(found["scores"], found["notes"], strict=True)):
                scores[found["problem"], decoding, sample] = score
                if note:
                    notes.setdefault(note, []).append([found["problem"], decoding, sample])
    order = {place: number for number, place in enumerate(stored.rows)}
    ordered = {note: sorted(places, key=lambda place: order[tuple(place)]) for note, places in sorted(notes.items())}
    return [scores[place] for place in stored.rows], ordered


def _write(output: Path, rows: list[tuple[str, str, int]], scores: list[float], summary: dict) -> None:
    problem, decoding, sample = zip(*rows, strict=True)
    table = pa.table(
        {
            "problem": pa.array(problem, pa.string()),
            "decoding": pa.array(decoding, pa.string()),
            "sample": pa.array(sample, pa.int64()),
            "score": pa.array(scores, pa.float64()),
        }
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    with _atomic(output) as scores_file, _atomic(output.with_suffix(".json")) as summary_file:
        pq.write_table(table, scores_file)
        summary_file.write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n", encoding="utf-8")


@contextlib.contextmanager
def _atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``, renamed to it on success and removed on failure."""
    temporary = path.with_name(f".{path.name}.partial")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
