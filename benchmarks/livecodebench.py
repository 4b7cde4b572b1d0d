"""Run programs that LiveCodeBench has graded on the public tests of their problems.

    python benchmarks/livecodebench.py --data FILE [--workers N]

FILE has one problem a line: ``question_id``, ``public_tests``, ``starter_code`` and ``submissions``, each with ``code``
and ``graded``. A program that was graded correct must pass, and each one that does not is shown; one that was graded
wrong may pass, since it was graded on more tests.
"""

import collections
import concurrent.futures
import json
import os
import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from balanced_aggregation.rewards import code
from balanced_aggregation.rewards.verdict import Outcome


@dataclass
class Arguments:
    """What to run."""

    data: Path
    """Problems with graded programs, JSON lines."""
    workers: int = len(os.sched_getaffinity(0))
    """Programs that run at once."""


def read_gold(problem):
    function = re.findall(r"def (\w+)\(", problem["starter_code"])
    return json.dumps({"tests": problem["public_tests"], "function": function[-1] if function else None})


def children_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main():
    arguments = tyro.cli(Arguments, description=__doc__)
    problems = [json.loads(line) for line in arguments.data.read_text(encoding="utf-8").splitlines()]
    jobs = [(problem, submission) for problem in problems for submission in problem["submissions"]]
    runs = collections.Counter()

    def counted(*arguments):
        runs["tests"] += 1
        return run_program(*arguments)

    run_program, code.run_program = code.run_program, counted
    code.judge_code("```\n```", read_gold(problems[0]))  # the check of the sandbox is not what is measured
    runs.clear()
    started, used = time.perf_counter(), children_seconds() + time.process_time()
    with concurrent.futures.ThreadPoolExecutor(arguments.workers) as pool:
        verdicts = pool.map(lambda job: code.judge_code(f"```python\n{job[1]['code']}\n```", read_gold(job[0])), jobs)
        judged = list(zip(jobs, verdicts, strict=True))
    seconds, used = time.perf_counter() - started, children_seconds() + time.process_time() - used
    counts = collections.Counter((submission["graded"], verdict.outcome) for (_, submission), verdict in judged)
    print(f"{len(jobs)} programs, {len(problems)} problems")
    print(f"{'verdict':<12} {'graded correct':>15} {'graded wrong':>15}")
    for outcome in Outcome:
        print(f"{outcome:<12} {counts[True, outcome]:>15} {counts[False, outcome]:>15}")
    tests = runs["tests"]
    print(
        f"{tests} tests in {seconds:.1f} s with {arguments.workers} workers: "
        f"{tests / seconds / arguments.workers:.1f} per second and worker, {tests / used:.1f} per CPU second"
    )
    for (problem, submission), verdict in judged:
        if submission["graded"] and not verdict.correct:
            print(f"graded correct, but {verdict.outcome}: {problem['question_id']} ({submission['model']})")


if __name__ == "__main__":
    main()
