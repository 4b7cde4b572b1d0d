"""The process that verifies mathematics: it reads one request a line from standard input and answers with one line."""

import json
import os
import resource
import signal
import sys

CPU_SECONDS = 5.0
"""Time that one answer may take. Processor time, so that verdicts do not depend on how busy the machine is."""

MEMORY_BYTES = 4 * 2**30


def main() -> None:
    """Answer requests until standard input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what a library prints must not be taken for a reply
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The kernel kills: a handler in Python would wait for the end of a computation in C.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)

    from balanced_aggregation.rewards.mathematics import judge_math

    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        try:
            verdict = judge_math(request["response"], request["gold"], request["tolerance"])
            reply = {"outcome": verdict.outcome, "extracted": verdict.extracted}
        except ValueError as error:
            reply = {"gold_error": str(error)}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
