"""Small files in the forms of the public datasets, with problems made up for tests."""

import base64
import json
import pickle
import zlib

import pandas as pd

DAPO_PREFIX = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
DAPO_SUFFIX = '\n\nRemember to put your answer on its own line after "Answer:".'


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def dapo(path, rows):
    """Args: the file, and (id, problem, gold) of each row."""
    frame = pd.DataFrame(
        [
            {
                "prompt": [{"content": DAPO_PREFIX + problem + DAPO_SUFFIX, "role": "user"}],
                "reward_model": {"ground_truth": gold, "style": "rule"},
                "extra_info": {"index": index},
            }
            for index, problem, gold in rows
        ]
    )
    frame.to_parquet(path)
    return path


def polaris(path, rows):
    """Args: the file, and (problem, answer) of each row."""
    return write_lines(path, [{"problem": p, "answer": a, "difficulty": "4/8"} for p, a in rows])


def math_500(path, n=3):
    rows = [{"problem": f"What is ${i}+1$?", "answer": str(i + 1), "unique_id": f"test/{i}.json"} for i in range(n)]
    return write_lines(path, rows)


def aime_2024(path):
    golds = ["025", "204", "7"]
    rows = [{"id": 60 + i, "problem": f"Find $n_{i}$.", "answer": gold} for i, gold in enumerate(golds)]
    pd.DataFrame(rows).to_parquet(path)
    return path


def aime_2025(path):
    rows = [{"ID": f"2025-{i}", "Problem": f"Find $m_{i}$.", "Answer": 70 + i} for i in range(3)]
    return write_lines(path, rows)


def olympiadbench(path):
    answers = [(["$2$"], None), (["$1,3$"], None), (["$x^2$", "$-x$"], None), (["4.2"], "1e-1")]
    rows = [
        {
            "id": 1606 + i, "context": None, "question": f"Determine all $f_{i}$.", "final_answer": answer,
            "is_multiple_answer": len(answer) > 1, "unit": None, "error": error,
        }
        for i, (answer, error) in enumerate(answers)
    ]  # fmt: skip
    return write_lines(path, rows)


def minerva(path):
    golds = ["4.5e33", r"\frac{1}{2} m v^2", "-7"]
    rows = [
        {"problem": f"Compute the luminosity $L_{i}$.", "solution": f"It is $\\boxed{{{g}}}$ W.", "type": "t", "idx": i}
        for i, g in enumerate(golds)
    ]
    return write_lines(path, rows)


CODE_TESTS = {"input": "1 2\n", "output": "3\n", "testtype": "stdin"}
FUNCTIONAL_TEST = {"input": "1\n2", "output": "3", "testtype": "functional"}


def livecodebench(path, private="pickled"):
    """In the form of the hub: one program on standard input, one function."""
    tests = [{"input": "5 6\n", "output": "11\n", "testtype": "stdin"}]
    encoded = {
        "pickled": base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode(),
        "plain": json.dumps(tests),
        "evil": base64.b64encode(zlib.compress(pickle.dumps(print))).decode(),
    }[private]
    rows = [
        {
            "question_id": "abc1", "question_content": "Add two numbers.", "starter_code": "", "metadata": "{}",
            "public_test_cases": json.dumps([CODE_TESTS]), "private_test_cases": encoded,
        },
        {
            "question_id": "1234", "question_content": "Add them in a function.",
            "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:\n        ",
            "metadata": json.dumps({"func_name": "add"}), "public_test_cases": json.dumps([FUNCTIONAL_TEST]),
            "private_test_cases": json.dumps([FUNCTIONAL_TEST]),
        },
    ]  # fmt: skip
    return write_lines(path, rows)


def livecodebench_public(path):
    """In the form of copies with public tests alone."""
    row = {"question_id": "x", "question_content": "Add.", "starter_code": "", "public_tests": [CODE_TESTS]}
    return write_lines(path, [row])


def write_benchmarks(folder):
    """All six, as a study lists them."""
    files = {
        "math-500": (math_500(folder / "math500.jsonl"), 3),
        "aime-2024": (aime_2024(folder / "aime24.parquet"), 3),
        "aime-2025": (aime_2025(folder / "aime25.jsonl"), 3),
        "olympiadbench": (olympiadbench(folder / "olympiadbench.jsonl"), 4),
        "minerva-math": (minerva(folder / "minerva.jsonl"), 3),
        "livecodebench": (livecodebench(folder / "lcb.jsonl"), 2),
    }
    return [{"kind": kind, "path": str(path), "rows": rows} for kind, (path, rows) in files.items()]
