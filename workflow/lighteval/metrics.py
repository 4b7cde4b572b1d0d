r"""Scores of single responses with lighteval's graders, and avg@n and pass@k over them.

lighteval's own ``AvgAtN`` cannot be used as it is: it scores the text from before the removal of ``<think>`` blocks,
and keeps no score of a single response.
"""

import json
from collections.abc import Callable, Sequence

import numpy as np
import processes
from errors import GraderError
from lighteval.metrics.dynamic_metrics import MultilingualExtractiveMatchMetric
from lighteval.metrics.metrics_sample import PassAtK, SampleLevelComputation, SamplingMetric
from lighteval.metrics.utils.extractive_match_utils import (
    ExprExtractionConfig,
    LatexExtractionConfig,
    extract_target_from_pred,
    get_extraction_regexes,
)
from lighteval.metrics.utils.metric_utils import SampleLevelMetricGrouping
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.requests import Doc, SamplingMethod
from lighteval.tasks.tasks.lcb import codegen_metrics as lcb
from lighteval.utils.language import Language
from limits import OutOfTime, cpu_limit, parse_limits
from sympy import Expr, Number

TEST_SECONDS = 6  # for each test of a program: the default of LiveCodeBench's grader
PARSE_SECONDS = 5  # for each expression that is parsed or compared: lighteval's default
RESPONSE_SECONDS = 30  # of CPU, for a whole response: lighteval has no limit, and some of repeated text take minutes
PRECISION = 6  # decimal places, lighteval's for MATH-500 and AIME

COMPARED_AS_TEXT = "compared_as_text"
ROUNDED_TO_ZERO = "rounded_to_zero"
WEAKNESSES = (COMPARED_AS_TEXT, ROUNDED_TO_ZERO)

_GOLD = [LatexExtractionConfig(), ExprExtractionConfig()]

NO_RESULT = -1  # the process that ran the program was killed after all its time, or died
TIME_LIMIT = -3
GRADER_FAILED = -5  # ours; the grader itself says "wrong" when it cannot even start a process


class _ScoredSamples(SamplingMetric, SampleLevelComputation):
    """Scores all n responses to a problem; single scores and notes on them go to ``doc.specific``."""

    def __init__(self, n: int):
        super().__init__()
        self.n = n
        self.passes = {f"pass@k:k={k}&n={n}": PassAtK(k=k, n=n) for k in _powers_of_two(n)}

    def num_samples(self) -> int:
        return self.n

    def compute(self, doc: Doc, model_response: ModelResponse, **_: object) -> dict[str, float]:
        scores, notes = self.score(doc, model_response.final_text)
        doc.specific.update(scores=scores, notes=notes)
        passes = {name: float(estimator.pass_at_k(scores)) for name, estimator in self.passes.items()}
        return {f"avg@n:n={self.n}": float(np.mean(scores)), **passes}

    def score(self, doc: Doc, texts: list[str]) -> tuple[list[float], list[str | None]]:
        """Score (0 or 1) of each text, and what, if anything, kept the grader from a verdict."""
        raise NotImplementedError

    def as_metric(self) -> SampleLevelMetricGrouping:
        names = [f"avg@n:n={self.n}", *self.passes]
        return SampleLevelMetricGrouping(
            metric_name=names,
            sample_level_fn=self,
            category=SamplingMethod.GENERATIVE,
            corpus_level_fn=dict.fromkeys(names, np.mean),
            higher_is_better=dict.fromkeys(names, True),
        )


class MathScores(_ScoredSamples):
    """lighteval's extractive match, which looks for a boxed answer first, as the prompts ask for one."""

    match = MultilingualExtractiveMatchMetric(
        language=Language.ENGLISH,
        gold_extraction_target=_GOLD,
        pred_extraction_target=[LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()],
        precision=PRECISION,
        timeout_seconds=PARSE_SECONDS,
    )

    def score(self, doc: Doc, texts: list[str]) -> tuple[list[float], list[str | None]]:
        """Score each text; a note says which time limit may have turned a 1 into the 0."""
        verdicts = [self._score(doc, text) for text in texts]
        return [score for score, _ in verdicts], [note for _, note in verdicts]

    def _score(self, doc: Doc, text: str) -> tuple[float, str | None]:
        alone = Doc(query=doc.query, choices=doc.choices, gold_index=doc.gold_index)
        expired = parse_limits.expired
        try:
            with cpu_limit(RESPONSE_SECONDS):
                score = float(self.match.compute(doc=alone, model_response=ModelResponse(text=[text])))
        except OutOfTime:
            return 0.0, "response_time_limit"
        return score, "parse_time_limit" if parse_limits.expired > expired and score == 0 else None


class CodeScores(_ScoredSamples):
    """LiveCodeBench's grader as lighteval ships it, one process at a time."""

    def score(self, doc: Doc, texts: list[str]) -> tuple[list[float], list[str | None]]:
        """Run each program; a note says what stopped it, or that nothing is known of it."""
        tests = {key: doc.specific[key] for key in ("inputs", "outputs", "fn_name")}
        results = _run_programs(tests, [lcb.extract_code(text) for text in texts])
        names = {NO_RESULT: "no_result", TIME_LIMIT: "test_time_limit", GRADER_FAILED: "grader_failed"}
        notes = [next((names[code] for code in result if code in names), None) for _, result in results]
        return [score for score, _ in results], notes


def gold_weakness(gold: str) -> str | None:
    """What makes lighteval's verdicts on a gold answer worth less.

    ``compared_as_text``: it cannot be parsed, so that only the same characters are right. ``rounded_to_zero``: a number
    so small that lighteval, which rounds to decimal places, takes other small ones for equal.
    """
    patterns = get_extraction_regexes(Doc(query="", choices=[], gold_index=0), _GOLD, Language.ENGLISH)
    parsed = extract_target_from_pred(gold, patterns, "no_fallback", "any_match", PARSE_SECONDS)
    if not parsed:
        return COMPARED_AS_TEXT
    value = parsed[0].evalf() if isinstance(parsed[0], Expr) else None  # no set, tuple or matrix
    return ROUNDED_TO_ZERO if isinstance(value, Number) and 0 < abs(value) < 10**-PRECISION / 2 else None


def check_code_grader() -> None:
    """Grade a right and a wrong program.

    Raises:
        GraderError: one of them got the other's score; so might responses, since the grader takes any failure of its
            own, such as a process that cannot be started, for a failed test.
    """
    tests = {"inputs": ["3 4\n"], "outputs": ["7\n"], "fn_name": None}
    programs = ["a, b = map(int, input().split())\nprint(a + b)", "print(8)"]
    scores = [score for score, _ in _run_programs(tests, programs)]
    if scores != [1, 0]:
        raise GraderError(
            f"LiveCodeBench's grader gives a right and a wrong program {scores}; it needs to fork, and Landlock 6"
        )


def _run_programs(tests: dict, programs: Sequence[str]) -> list[tuple[float, list[int]]]:
    """Score of each program, and the grader's codes for its tests, the last of which may be of a failed one.

    This is lighteval's ``codegen_metrics`` without its pool of processes, which needs semaphores (/dev/shm, where a
    confined process may not write) and takes longer to start than a program to run.
    """
    sample = {"input_output": json.dumps(tests)}
    results = {
        number: lcb.evaluate_generations_by_problem([[program], sample, TEST_SECONDS])
        for number, program in enumerate(programs)
    }
    for number, (codes,) in results.items():
        if not all(isinstance(code, int) for code in codes):  # a program's own ``==`` may return anything
            results[number] = [[GRADER_FAILED]]
    passed = lcb.compute_metrics_from_results(results, k_list=[1])["detail"]["pass@1"]
    return [(float(passed[number]), results[number][0]) for number in range(len(programs))]


def _tell_grader_failures(check_correctness: Callable) -> Callable:
    def check(sample: dict, generation: str, timeout: int) -> list[int]:
        try:
            return check_correctness(sample, generation, timeout)
        except Exception:  # whatever it is, lighteval would take it for a wrong answer
            return [GRADER_FAILED]

    return check


def _powers_of_two(n: int) -> list[int]:
    return [2**power for power in range(1, n.bit_length()) if 2**power <= n]


lcb.multiprocessing = processes  # its Manager needs named sockets, which no program may have
lcb.check_correctness = _tell_grader_failures(lcb.check_correctness)
