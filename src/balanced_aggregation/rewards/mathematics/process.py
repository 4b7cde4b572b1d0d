"""A process that verifies mathematics and can be killed: what a model writes may hang or crash its algebra."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from typing import Any

from balanced_aggregation.errors import GoldError, InfrastructureError
from balanced_aggregation.rewards.mathematics.extraction import answer_part, final_boxed
from balanced_aggregation.rewards.verdict import Outcome, Verdict

CPU_SECONDS = 5.0
"""Time that one answer may take. Processor time, so that verdicts do not depend on how busy the machine is."""

MEMORY_BYTES = 4 * 2**30

_START_SECONDS = 300.0
# A process that has not used up its processor time after so long is not computing: something else is wrong.
_STALLED_SECONDS = 40 * CPU_SECONDS

# What a computation can do to its own process. An end by anything else comes from outside, or is a mistake of ours.
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)

_PROBES = ((r"\boxed{\frac{2}{4}}", "0.5", Outcome.EQUAL), (r"\boxed{3}", "4", Outcome.NOT_EQUAL))


class MathProcess:
    """One such process, started when it is needed and again after it died. For one thread at a time."""

    def __init__(self):
        self._process: subprocess.Popen[bytes] | None = None
        self._retired = False

    def judge(self, response: str, gold: str, tolerance: float | None) -> Verdict:
        """Verdict on one response; ``timeout`` and ``crash`` are verdicts, too.

        An answer that brought its process down is tried once more in a fresh one that has just judged known answers
        rightly; only if that dies as well is the answer to blame.

        Raises:
            GoldError: the gold cannot be read.
            InfrastructureError: the process cannot be started, misjudges known answers, stalls without computing, or is
            killed from outside, twice.
        """
        for last in (False, True):
            reply = self._ask(response, gold, tolerance)
            if isinstance(reply, dict):
                if "gold_error" in reply:
                    raise GoldError(reply["gold_error"])
                return Verdict(Outcome(reply["outcome"]), reply["extracted"])
            if reply == -signal.SIGPROF:
                return Verdict(Outcome.TIMEOUT, final_boxed(answer_part(response)))
            if last and reply is not None and -reply not in _CRASHES:
                raise InfrastructureError(f"a verifier's process ended with exit code {reply}, twice")
            if reply is None and last:
                raise InfrastructureError(
                    f"a verifier's process stood still for {_STALLED_SECONDS:.0f} s, twice, without computing"
                )
        return Verdict(Outcome.CRASH, final_boxed(answer_part(response)))

    def retire(self) -> None:
        """End the process from another thread, for good: what it is judging fails."""
        self._retired = True
        process = self._process
        if process:
            process.kill()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()

    def _ask(self, response: str, gold: str, tolerance: float | None) -> dict[str, Any] | int | None:
        """Reply to a request, or how the process died: its return code; None if it was killed for standing still."""
        if self._process is None:
            self._start()
        return self._exchange({"response": response, "gold": gold, "tolerance": tolerance}, _STALLED_SECONDS)

    def _start(self) -> None:
        if self._retired:
            raise InfrastructureError("a verifier was closed while it was judging")
        limits = [str(CPU_SECONDS), str(MEMORY_BYTES)]
        command = [sys.executable, "-m", "balanced_aggregation.rewards.mathematics.worker", *limits]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
            )
        except OSError as error:
            raise InfrastructureError(f"a verifier's process cannot be started: {error}") from error
        for response, gold, outcome in _PROBES:
            reply = self._exchange({"response": response, "gold": gold, "tolerance": None}, _START_SECONDS)
            if not isinstance(reply, dict) or reply.get("outcome") != outcome:
                self.close()
                raise InfrastructureError(f"a verifier's process fails on the known answer {response!r}: {reply}")

    def _exchange(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | int | None:
        process = self._process
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            waiting = select.poll()
            waiting.register(process.stdout, select.POLLIN)
            if not waiting.poll(1000 * seconds):
                self.close()
                return None
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if line.endswith(b"\n"):
            return json.loads(line)
        returncode = process.wait()
        self.close()
        return returncode
