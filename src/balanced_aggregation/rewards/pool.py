"""Verification beside generation: a pool of workers that turns responses into verdicts."""

import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from balanced_aggregation.errors import UserError
from balanced_aggregation.rewards.arithmetic import check_arithmetic
from balanced_aggregation.rewards.code import judge_code
from balanced_aggregation.rewards.mathematics.process import MathProcess
from balanced_aggregation.rewards.verdict import Verdict

INLINE: dict[str, Callable[[str, str], Verdict]] = {"arithmetic": check_arithmetic}
"""Verifiers so cheap and safe that they judge at once, in the caller's thread: (response, gold) -> verdict."""

ISOLATED = ("math", "code")
"""Verifiers whose work is done in processes that can be killed."""


@dataclass(frozen=True)
class Submission:
    """A response to be judged."""

    verifier: str
    """A key of `INLINE`, or one of `ISOLATED`."""
    response: str
    gold: str
    """In the form that the verifier reads."""
    tolerance: float | None = None
    """Absolute, where the benchmark defines one for a number."""


class VerifierPool:
    """Judges submissions in ``workers`` threads, each with a process that can be killed. Close it, or use ``with``.

    Processes start when they are first needed: arithmetic needs none.
    """

    def __init__(self, workers: int = 1):
        """Args: number of submissions that are judged side by side."""
        self._threads = ThreadPoolExecutor(workers, "verifier", _shield_processes)
        self._own = threading.local()
        self._closed = threading.Event()
        self._processes: list[MathProcess] = []

    def submit(self, submission: Submission) -> Future[Verdict]:
        """Begin to judge.

        Returns:
            the verdict to come; its ``result()`` raises InfrastructureError if the machinery failed, and GoldError if
            the gold cannot be read.

        Raises:
            UserError: there is no such verifier.
        """
        if submission.verifier in INLINE:
            done: Future[Verdict] = Future()
            done.set_result(INLINE[submission.verifier](submission.response, submission.gold))
            return done
        if submission.verifier not in ISOLATED:
            raise UserError(f"verifier {submission.verifier!r}: unknown; allowed: {', '.join([*INLINE, *ISOLATED])}")
        return self._threads.submit(self._judge, submission)

    def verify(self, submissions: Iterable[Submission]) -> list[Verdict]:
        """Judge all of them; verdicts in their order. Raises what `submit`'s results raise."""
        pending = [self.submit(submission) for submission in submissions]
        try:
            return [verdict.result() for verdict in pending]
        except BaseException:
            for verdict in pending:
                verdict.cancel()
            raise

    def close(self) -> None:
        """End the workers; what has not been judged is cancelled."""
        self._closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.retire()
        self._threads.shutdown()
        for process in self._processes:
            process.close()

    def __enter__(self) -> "VerifierPool":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _judge(self, submission: Submission) -> Verdict:
        if submission.verifier == "code":
            return judge_code(submission.response, submission.gold, cancelled=self._closed)
        if not hasattr(self._own, "process"):
            self._own.process = MathProcess()
            self._processes.append(self._own.process)
        return self._own.process.judge(submission.response, submission.gold, submission.tolerance)


def _shield_processes() -> None:
    """Keep signals that ask this program to end from the processes that a thread starts: they inherit its mask.

    Slurm sends them to every process of a job, and a program that dies of one would be taken for a wrong answer.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGUSR1))
