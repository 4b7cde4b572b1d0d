"""Public datasets: where they are, what is known of them, and how their rows become problems with gold answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from balanced_aggregation.data import forms


@dataclass(frozen=True)
class Form:
    """One way in which copies of a dataset are written."""

    columns: frozenset[str]
    """Must be there; they tell the forms of a dataset apart."""
    rows: frozenset[int]
    """How many rows a whole copy has."""
    problems: Callable[[pd.DataFrame], pd.DataFrame]
    """From its rows to ``id``, ``problem``, ``gold`` and, where the benchmark defines one, ``tolerance``."""
    note: str | None = None
    """What a reader of results must know of such a copy."""


@dataclass(frozen=True)
class Source:
    """A public dataset."""

    repository: str
    """Dataset on the hub."""
    revision: str
    """Commit on the hub."""
    files: dict[str, str | None]
    """Files on the hub, in order, with the SHA-256 of each where it is known."""
    forms: tuple[Form, ...]
    """The first is the hub's."""
    licence: str
    """As the dataset or its authors state it."""
    citation: str
    verifier: Literal["math", "code"] = "math"


_AIME = "Mathematical Association of America, American Invitational Mathematics Examination"

SOURCES = {
    "dapo-math-17k": Source(
        repository="BytedTsinghua-SIA/DAPO-Math-17k",
        revision="65877096c24ffa7abc4e4fa5edb95cf3413a5674",
        files={"data/dapo-math-17k.parquet": "534375d6bb8630d22ab46a56e11f2ffec1d288d8f7d04099bc82d68948705941"},
        # The hub's file holds about 100 copies of each row; others keep one of each.
        forms=(Form(frozenset({"prompt", "reward_model", "extra_info"}), frozenset({1_791_700, 17_917}), forms.dapo),),
        licence="Apache-2.0",
        citation="Yu et al., DAPO: An Open-Source LLM Reinforcement Learning System at Scale, arXiv 2503.14476, 2025",
    ),
    "polaris-53k": Source(
        repository="POLARIS-Project/Polaris-Dataset-53K",
        revision="296f8e34132e63f4a1d70e0dcc8bddebb43f03e4",
        files={"polaris-data-53K.jsonl": None},
        forms=(Form(frozenset({"problem", "answer", "difficulty"}), frozenset({53_291}), forms.polaris),),
        licence="Apache-2.0",
        citation=(
            "An et al., POLARIS: A Post-Training Recipe for Scaling Reinforcement Learning on Advanced Reasoning "
            "Models, https://hkunlp.github.io/blog/2025/Polaris, 2025"
        ),
    ),
    "math-500": Source(
        repository="HuggingFaceH4/MATH-500",
        revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
        files={"test.jsonl": "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132"},
        forms=(Form(frozenset({"problem", "answer", "unique_id"}), frozenset({500}), forms.math_500),),
        licence="MIT",
        citation=(
            "Hendrycks et al., Measuring Mathematical Problem Solving With the MATH Dataset, arXiv 2103.03874, 2021; "
            "the 500 of Lightman et al., Let's Verify Step by Step, arXiv 2305.20050, 2023"
        ),
    ),
    "aime-2024": Source(
        repository="HuggingFaceH4/aime_2024",
        revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
        files={"data/train-00000-of-00001.parquet": "26139847601a5037c237d5928b195e7260ca8074cf4f264b794af42847f79ccf"},
        forms=(Form(frozenset({"id", "problem", "answer"}), frozenset({30}), forms.aime),),
        licence="none stated",
        citation=f"{_AIME} I and II, 2024",
    ),
    "aime-2025": Source(
        repository="math-ai/aime25",
        revision="563bb8404243c5f09de6ec262f2db674fe5bce9b",
        files={"test.jsonl": "b4e273c02d3e7fe1b74b59eae768fc8230bfb0f79539890cb56f4361caac0331"},
        forms=(
            Form(frozenset({"id", "problem", "answer"}), frozenset({30}), forms.aime),
            Form(frozenset({"ID", "Problem", "Answer"}), frozenset({30}), forms.aime_capitalised),
        ),
        licence="Apache-2.0",
        citation=f"{_AIME} I and II, 2025",
    ),
    "olympiadbench": Source(
        repository="Hothan/OlympiadBench",
        revision="91184b52131e7fc9455fef848035173aea8cc01a",
        files={"OlympiadBench/OE_TO_maths_en_COMP/OE_TO_maths_en_COMP.parquet": None},
        # 674 on the hub; the 675 of the authors' repository have one more.
        forms=(
            Form(
                frozenset({"id", "question", "final_answer", "is_multiple_answer", "unit", "error"}),
                frozenset({674, 675}),
                forms.olympiadbench,
            ),
        ),
        licence="Apache-2.0 (hub), MIT (the authors' repository)",
        citation=(
            "He et al., OlympiadBench: A Challenging Benchmark for Promoting AGI with Olympiad-Level Bilingual "
            "Multimodal Scientific Problems, ACL 2024, arXiv 2402.14008"
        ),
    ),
    "minerva-math": Source(
        repository="math-ai/minervamath",
        revision="ee46ddc498933b1977577953250ca5c66be64f96",
        files={"test.jsonl": None},
        forms=(
            Form(frozenset({"question", "answer"}), frozenset({272}), forms.minerva),
            Form(frozenset({"problem", "solution", "idx"}), frozenset({272}), forms.minerva_solutions),
        ),
        licence="none stated",
        citation=(
            "Lewkowycz et al., Solving Quantitative Reasoning Problems with Language Models, arXiv 2206.14858, 2022"
        ),
    ),
    "livecodebench": Source(
        repository="livecodebench/code_generation_lite",
        revision="0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
        # Release v6 is all of them.
        files={
            "test.jsonl": "2bd02b38beb48e8c46b5b9987095d999ff38cd8efc255ea5d58974317c48f63f",
            "test2.jsonl": "095df7c5daf15f882c51a9deb84085cff1e073495a5dbcf95015a564d485f3a3",
            "test3.jsonl": "28ed26cc83363ce3f1fe2d5fad9f8393077beb1907b167a31bd3b32f80801b79",
            "test4.jsonl": "d711138ddaebfcf5f8ec6a4283ee677298c0f5c5d374a235af92aaf0584510da",
            "test5.jsonl": "7f77571c2a6df0c2a72a3277650309f67e01e0008e18117e624633df53f81214",
            "test6.jsonl": "bb4c364f71921c4495a6ad15abe1a927350b720009f4933e2e71f8af0f6fd1f5",
        },
        forms=(
            Form(
                frozenset(
                    {
                        "question_id",
                        "question_content",
                        "starter_code",
                        "public_test_cases",
                        "private_test_cases",
                        "metadata",
                    }
                ),
                frozenset({1055}),
                forms.livecodebench,
            ),
            Form(
                frozenset({"question_id", "question_content", "starter_code", "public_tests"}),
                frozenset({1055}),
                forms.livecodebench_public,
                note="public tests only: easier than the benchmark",
            ),
        ),
        licence="CC, variant not stated",
        citation=(
            "Jain et al., LiveCodeBench: Holistic and Contamination Free Evaluation of Large Language Models for Code, "
            "arXiv 2403.07974, 2024"
        ),
        verifier="code",
    ),
}
"""By the kind that a study names."""
