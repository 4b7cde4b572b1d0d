"""The process that verifies mathematics: it reads one request a line from standard input and answers with one line."""

import json
import os
import resource
import signal
import sys


def main(cpu_seconds: float, memory_bytes: int) -> None:
    """Answer requests until standard input ends; processor time is that of one answer."""
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what a library prints must not be taken for a reply
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The kernel kills: a handler in Python would wait for the end of a computation in C.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)

    from balanced_aggregation.rewards.mathematics.judge import judge_math

    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
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
    main(float(sys.argv[1]), int(sys.argv[2]))
