r"""lighteval tasks of the six benchmarks, on local files.

lighteval has some of them built in, but with prompts of its own, without a pinned revision of the data, and
OlympiadBench with a metric that gives even the gold answer 0.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
from golds import MATHEMATICS, PROGRAMMING, gold_readings, read_tests
from lighteval.tasks.lighteval_task import LightevalTaskConfig
from lighteval.tasks.registry import Registry
from lighteval.tasks.requests import Doc
from metrics import WEAKNESSES, CodeScores, MathScores, gold_weakness
from stored import Stored


def task_name(benchmark: str, decoding: str) -> str:
    """Greedy and sampled responses are two tasks: n differs."""
    return f"{benchmark}-{decoding}"


def make_tasks(benchmark: str, stored: Stored, folder: Path) -> ModuleType:
    """Write the problems to the folder and make a module of custom tasks on them, one for each decoding."""
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(stored.problems), folder / "test.parquet")  # the name is that of the split
    scores, make_doc = (CodeScores, _code_doc) if benchmark in PROGRAMMING else (MathScores, _math_doc)
    module = ModuleType("replayed_tasks")
    module.TASKS_TABLE = [
        LightevalTaskConfig(
            name=task_name(benchmark, decoding),
            prompt_function=_prompt_function(make_doc, decoding),
            hf_repo=str(folder),
            hf_subset="default",
            hf_avail_splits=["test"],
            evaluation_splits=["test"],
            metrics=[scores(n).as_metric()],
            stop_sequence=[],
        )
        for decoding, n in stored.samples.items()
    ]
    return module


def leave_out_built_in_tasks() -> None:
    """Keep the registry to custom tasks: to load the built-in ones imports hundreds of modules, and one downloads."""
    Registry._load_from_files = staticmethod(lambda files, module_prefix: {})
    Registry._load_from_subdirs = staticmethod(lambda subdirs: {})


def weak_golds(benchmark: str, stored: Stored) -> dict[str, list[str]]:
    """Ids of the problems on which lighteval's verdicts are worth less, by `metrics.gold_weakness`."""
    weak = {weakness: [] for weakness in WEAKNESSES}
    if benchmark in MATHEMATICS:
        for problem in stored.problems:
            weakness = gold_weakness(gold_readings(problem)[0])
            if weakness:
                weak[weakness].append(problem["id"])
    return weak


def _prompt_function(make_doc: Callable[[dict], Doc], decoding: str) -> Callable[[dict, str], Doc]:
    def prompt(line: dict, task_name: str) -> Doc:
        doc = make_doc(line)
        doc.specific = {**(doc.specific or {}), "problem": line["id"], "decoding": decoding}
        return doc

    return prompt


def _math_doc(problem: dict) -> Doc:
    golds = gold_readings(problem)
    return Doc(query=problem["prompt"], choices=golds, gold_index=list(range(len(golds))))


def _code_doc(problem: dict) -> Doc:
    return Doc(query=problem["prompt"], choices=[""], gold_index=0, specific=read_tests(problem))
