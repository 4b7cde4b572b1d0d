r"""Answers verified per second, by verifier and number of workers, with the share of right verdicts as a check.

    python benchmarks/verification.py [--answers 2000] [--workers 1 2]

Answers are made up: integers, fractions, radicals, intervals and tuples, half of them wrong, each gold with a group of
8 responses, as training has them. What other processes do on the machine shows in the numbers: compare within one run.
"""

import argparse
import json
import time

from balanced_aggregation.rewards import Submission, VerifierPool

GROUP = 8
GOLDS = ("{n}", r"\frac{{{n}}}{{{m}}}", r"{n}\sqrt{{{m}}}", r"\left({n}, \frac{{\pi}}{{{m}}}\right)", r"[{n}, \infty)")


def mathematics(answers):
    """Pairs of a submission and whether it is right."""
    pairs = []
    for number in range(answers):
        group, right = number // GROUP, number % 2 == 0
        form = GOLDS[group % len(GOLDS)]
        gold = form.format(n=group + 2, m=97)
        answer = gold if right else form.format(n=group + 3, m=97)
        text = "We compute. " * 200 + rf"So the answer is $\boxed{{{answer}}}$."
        pairs.append((Submission("math", text, gold), right))
    return pairs


def arithmetic(answers):
    """The same for chained arithmetic."""
    return [(Submission("arithmetic", f">{n % 9}", str(n % 9 + n % 2)), n % 2 == 0) for n in range(answers)]


def code(answers):
    """The same for programs with three tests each."""
    tests = [{"input": f"{n} 4\n", "output": f"{n + 4}\n", "testtype": "stdin"} for n in range(3)]
    gold = json.dumps({"tests": tests, "function": None})
    program = "```python\na, b = map(int, input().split())\nprint(a {} b)\n```"
    return [(Submission("code", program.format("+" if n % 2 == 0 else "-"), gold), n % 2 == 0) for n in range(answers)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=2000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    print(f"{'verifier':<12}{'workers':>8}{'answers':>9}{'seconds':>9}{'per second':>12}{'verdicts right':>16}")
    for make, answers in ((arithmetic, arguments.answers), (mathematics, arguments.answers), (code, 100)):
        for workers in arguments.workers:
            pairs = make(answers)
            with VerifierPool(workers) as pool:
                pool.verify([pairs[0][0]] * workers * 2)  # starts the processes
                started = time.perf_counter()
                verdicts = pool.verify([submission for submission, _ in pairs])
                seconds = time.perf_counter() - started
            right = sum(v.correct == wanted for v, (_, wanted) in zip(verdicts, pairs, strict=True)) / answers
            print(
                f"{make.__name__:<12}{workers:>8}{answers:>9}{seconds:>9.2f}{answers / seconds:>12,.0f}{right:>16.1%}"
            )


if __name__ == "__main__":
    main()
