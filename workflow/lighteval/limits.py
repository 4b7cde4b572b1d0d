"""Time limits of lighteval's mathematics: its own, which it takes for "not equal", and one that it lacks."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator

from lighteval.metrics.utils import extractive_match_utils, math_comparison


class OutOfTime(BaseException):
    """Not an Exception: lighteval catches those."""


@contextlib.contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime after so much CPU time; does not get in the way of lighteval's limits, which use SIGALRM."""

    def expire(number: int, frame: object) -> None:
        raise OutOfTime

    previous = signal.signal(signal.SIGPROF, expire)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1)  # and again, should something on the way have caught it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


class _ParseLimits:
    """Counts how often lighteval's time limit on parsing and comparing ran out; it makes a "not equal" of that."""

    expired = 0

    def watch(self, timeout: Callable) -> Callable:
        def watched_timeout(timeout_seconds: int) -> Callable:
            def decorate(function: Callable) -> Callable:
                limited = timeout(timeout_seconds)(function)

                def run(*arguments: object, **options: object) -> object:
                    start = time.monotonic()
                    try:
                        return limited(*arguments, **options)
                    finally:
                        self.expired += time.monotonic() - start >= timeout_seconds

                return run

            return decorate

        return watched_timeout


parse_limits = _ParseLimits()
math_comparison.timeout = parse_limits.watch(math_comparison.timeout)
extractive_match_utils.timeout = parse_limits.watch(extractive_match_utils.timeout)
