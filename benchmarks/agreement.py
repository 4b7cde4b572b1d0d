r"""How often the maths verifier agrees with labelled answers, and with itself on the golds of the benchmarks.

    python benchmarks/agreement.py --data DIR [--baseline] [--disagreements FILE]

Needs a folder with ``verifier_cases.jsonl`` and ``mathverify_pairs.jsonl`` (labelled answers), and ``math500.jsonl``,
``aime24.jsonl``, ``aime25.jsonl``, ``minerva_math.jsonl`` and ``olympiadbench_math_en.jsonl`` (golds).

What is judged:
  * a case with a ``response``: the response, as it is. Those of grade-school-math have no box, but end with "A: 32":
    the first line after the last "A:" is boxed.
  * a case with a bare ``answer``: the answer, boxed.
  * a pair marked "wrap": the last ``$...$`` of ``pred`` if there is one, else all of it, boxed.
  * any other pair, which tests how math-verify finds an answer in running text: what it finds, in ``pred`` and in
    ``gold``, as it normalises it, boxed. Where it finds nothing there is no box.

Labels "machine: ..." are another grader's opinion. The baseline is math-verify with its defaults, on our box and on
the gold in a box.
"""

import dataclasses
import json
import multiprocessing
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from threading import local

import tyro
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from tabulate import tabulate

from balanced_aggregation.rewards.mathematics.extraction import answer_part, final_boxed
from balanced_aggregation.rewards.mathematics.judge import judge_math

_EXTRACTION = {"latex": LatexExtractionConfig(), "expr": ExprExtractionConfig()}


@dataclasses.dataclass(frozen=True)
class Case:
    """One answer to judge."""

    source: str
    gold: str
    response: str
    expected: bool
    label: str = ""
    tolerance: float | None = None


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Agreement of the maths verifier with labelled answers."""

    data: Path
    """Folder with the labelled answers and the benchmarks."""
    baseline: bool = False
    """Also judge with plain math-verify."""
    disagreements: Path | None = None
    """Write every case that is judged otherwise than labelled to this file."""
    seconds: float = 20.0
    """Time limit for one case; a case that needs more counts as not equal."""
    workers: int = 2
    """Processes."""


def ours(case: Case) -> str:
    """Outcome of our verifier."""
    return judge_math(case.response, case.gold, case.tolerance).outcome.value


def plain(case: Case) -> str:
    """Outcome of math-verify."""
    content = final_boxed(answer_part(case.response))
    if content is None:
        return "no_answer"
    gold = final_boxed(case.gold)
    expected = parse(rf"\boxed{{{case.gold if gold is None else gold}}}")
    return "equal" if verify(expected, parse(rf"\boxed{{{content}}}")) else "not_equal"


def labelled(folder: Path) -> Iterator[Case]:
    """Cases with a label."""
    for row in _rows(folder / "verifier_cases.jsonl"):
        source = row["source"].split("@")[0].split(" ")[0].split(":")[0]
        if "answer" in row:
            response = _boxed(row["answer"])
        elif "grade-school-math" in source:
            response = _boxed(row["response"].rpartition("A:")[2].strip().split("\n")[0])
        else:
            response = row["response"]
        yield Case(source, row["gold"], response, row["expected_correct"], row["label_kind"])
    for row in _rows(folder / "mathverify_pairs.jsonl"):
        source = "pairs/" + row["repo"].split("@")[0]
        if row["match_types"] == ["wrap"]:
            formulas = re.findall(r"\$([^$]+)\$", row["pred"])
            boxed = final_boxed(row["pred"]) is not None
            response = row["pred"] if boxed else _boxed(formulas[-1] if formulas else row["pred"])
            gold = row["gold"]
        else:
            source += " (extraction)"
            pred = _found(row["pred"], row["match_types"])
            response = _boxed(pred) if pred is not None else row["pred"]
            gold = _found(row["gold"], row["match_types"]) or row["gold"]
        yield Case(source, gold, response, row["expected"], "unit test")


def golds(folder: Path) -> dict[str, list[tuple[str, float | None]]]:
    """Gold and tolerance of each problem, by benchmark."""
    return {
        "MATH-500": [(row["answer"], None) for row in _rows(folder / "math500.jsonl")],
        "AIME24": [(row["answer"], None) for row in _rows(folder / "aime24.jsonl")],
        "AIME25": [(str(row["Answer"]), None) for row in _rows(folder / "aime25.jsonl")],
        "Minerva": [(final_boxed(row["solution"]), None) for row in _rows(folder / "minerva_math.jsonl")],
        "OlympiadBench": [
            (",".join(row["final_answer"]), float(row["error"]) if row["error"] else None)
            for row in _rows(folder / "olympiadbench_math_en.jsonl")
        ],
    }


def formats(gold: str) -> list[str]:
    """Responses that give the gold in other ways."""
    bare = re.sub(r"(?<!\\)\$", "", gold)
    return [
        _boxed(gold),
        _boxed(f"${bare}$"),
        _boxed(gold.replace(r"\frac", r"\dfrac")),
        _boxed(f"{gold}."),
        _boxed(f"{gold}\n"),
        f"<think>Perhaps \\boxed{{no}}.</think> So $\\boxed{{ {bare} }}$.",
    ]


class Judge:
    """A process that judges, and is killed and replaced when a case takes too long."""

    def __init__(self, judge: Callable[[Case], str], seconds: float):
        self.judge, self.limit, self.process = judge, seconds, None

    def __call__(self, case: Case) -> tuple[str, float]:
        """Outcome ("timeout" and "error: ..." among them), and the seconds it took."""
        if self.process is None:
            self.pipe, far = multiprocessing.Pipe()
            self.process = multiprocessing.Process(target=_serve, args=(self.judge, far), daemon=True)
            self.process.start()
            far.close()
        self.pipe.send(case)
        try:
            if self.pipe.poll(self.limit):
                return self.pipe.recv()
            outcome = "timeout"
        except EOFError:
            outcome = "crash"
        self.process.kill()
        self.process = None
        return outcome, self.limit


def _serve(judge: Callable[[Case], str], pipe: Connection) -> None:
    while True:
        try:
            case = pipe.recv()
        except EOFError:
            return
        started = time.perf_counter()
        try:
            outcome = judge(case)
        except Exception as error:
            outcome = f"error: {error!r}"
        pipe.send((outcome, time.perf_counter() - started))


def run(judge: Callable[[Case], str], cases: list[Case], arguments: Arguments) -> list[tuple[str, float]]:
    """Outcome and seconds of each case, in order."""
    own = local()

    def one(case: Case) -> tuple[str, float]:
        if not hasattr(own, "judge"):
            own.judge = Judge(judge, arguments.seconds)
        return own.judge(case)

    with ThreadPoolExecutor(arguments.workers) as pool:
        return list(pool.map(one, cases))


def agreement(cases: list[Case], results: list[tuple[str, float]]) -> dict[str, Counter]:
    """Counts by source."""
    counts: dict[str, Counter] = defaultdict(Counter)
    for case, (outcome, _) in zip(cases, results, strict=True):
        equal = outcome == "equal"
        for source in (case.source, "all"):
            counts[source]["cases"] += 1
            counts[source]["agree"] += equal == case.expected
            counts[source]["false positives"] += equal and not case.expected
            counts[source]["false negatives"] += case.expected and not equal
            counts[source]["timeouts, crashes, errors"] += outcome.startswith(("timeout", "crash", "error"))
    return counts


def speed(results: list[tuple[str, float]]) -> str:
    """Judgements per second of one core."""
    return f"{len(results) / sum(seconds for _, seconds in results):.0f} judgements/s per core"


def main(arguments: Arguments) -> None:
    cases = list(labelled(arguments.data))
    judges = {"before": plain, "after": ours} if arguments.baseline else {"after": ours}
    tables, lines = {}, []
    for name, judge in judges.items():
        results = run(judge, cases, arguments)
        tables[name] = agreement(cases, results)
        print(f"{name}: {speed(results)}, each with a gold of its own")
        for case, (outcome, _) in zip(cases, results, strict=True):
            if (outcome == "equal") != case.expected:
                found = final_boxed(answer_part(case.response))
                lines.append({"judge": name, "outcome": outcome, "answer": found, **dataclasses.asdict(case)})
    columns = ["cases", "agree", "false positives", "false negatives", "timeouts, crashes, errors"]
    rows = [
        [source, name, *(tables[name][source][column] for column in columns)]
        for source in sorted(tables["after"], key=lambda s: (s == "all", s))
        for name in judges
    ]
    print(tabulate(rows, ["source", "", *columns]), end="\n\n")
    if arguments.disagreements:
        arguments.disagreements.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    rows, equal_neighbours = [], []
    for benchmark, answers in golds(arguments.data).items():
        own = [Case("self", gold, response, True, "", t) for gold, t in answers for response in formats(gold)]
        following = [*answers[1:], answers[0]]
        others = [
            Case("next", gold, _boxed(other), False, "", t)
            for (gold, t), (other, _) in zip(answers, following, strict=True)
        ]
        for name, judge in judges.items():
            both = run(judge, own + others, arguments)
            missed = sum(outcome != "equal" for outcome, _ in both[: len(own)])
            same = [case for case, (outcome, _) in zip(others, both[len(own) :], strict=True) if outcome == "equal"]
            rows.append([benchmark, name, len(own), missed, len(others), len(same), speed(both)])
            if name == "after":
                equal_neighbours += [f"{benchmark}: {case.gold} = {case.response}" for case in same]
                lines = [case for case, (outcome, _) in zip(own, both, strict=False) if outcome != "equal"]
                for case in lines:
                    print(f"not equal to itself, {benchmark}: {case.gold!r} as {case.response!r}", file=sys.stderr)
    print(tabulate(rows, ["golds", "", "against themselves", "missed", "against the next", "equal", "speed"]))
    print("\nEqual to the next gold:", *equal_neighbours, sep="\n  ")


def _rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def _boxed(text: str) -> str:
    return rf"\boxed{{{text}}}"


def _found(text: str, kinds: list[str]) -> str | None:
    """What math-verify takes for the answer in running text."""
    configs = [_EXTRACTION[kind] for kind in (["latex", "expr"] if kinds == ["default"] else kinds)]
    strings = [found for found in parse(text, configs) if isinstance(found, str)]
    return strings[-1] if strings else None


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
