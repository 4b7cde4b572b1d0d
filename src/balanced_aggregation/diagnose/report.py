"""A diagnosis on the screen."""

import io
import math
import sys
from dataclasses import asdict
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from balanced_aggregation.diagnose.analysis import Analysis, Distribution
from balanced_aggregation.diagnose.columns import Columns
from balanced_aggregation.diagnose.degenerate import THRESHOLDS
from balanced_aggregation.diagnose.diagnosis import Diagnosis
from balanced_aggregation.diagnose.verdict import CLEAR, SMALL, STRONG, legend
from balanced_aggregation.diagnose.verification import Verification
from balanced_aggregation.terminal import number_table

WIDTH = 110
"""Characters of a line where there is no terminal, and at most in one."""

_SUSPICIOUS = 0.01
"""Share of responses with exactly the longest length that is mentioned: they look cut off."""


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """Print it: in colour in a terminal, as plain text elsewhere."""
    if sys.stdout.isatty():
        console = Console(highlight=False, markup=False, emoji=False)
        console.width = min(console.width, WIDTH)
        console.print(render(diagnosis))
    else:
        print(plain(diagnosis))


def plain(diagnosis: Diagnosis) -> str:
    """The report without colours."""
    console = Console(file=io.StringIO(), width=WIDTH, highlight=False, markup=False, emoji=False)
    console.print(render(diagnosis))
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def render(diagnosis: Diagnosis) -> RenderableType:
    """The report, for a console."""
    parts: list[RenderableType] = [*_source(diagnosis), Text(), _facts(diagnosis)]
    if diagnosis.findings:
        parts += [Text(), Text("This log is degenerate; what rules make of it is not analysed.", "bold red")]
        parts += [Padding(Text(f"- {text}"), (0, 0, 0, 2)) for text in diagnosis.findings.values()]
        parts += _examples(diagnosis.verification)
        return Group(*parts)
    analysis = diagnosis.analysis
    parts += [Text(), _distributions(analysis), Text(), _rules(analysis), *_rule_notes(analysis)]
    parts += [Text(), _distances(analysis), Text(), Text("What to expect", "bold"), Text(diagnosis.verdict)]
    parts += [Text(), Text(legend(), "dim")]
    return Group(*parts)


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """All of it as JSON values; what does not exist is null."""
    verification = diagnosis.verification
    analysis = asdict(diagnosis.analysis)
    rules, distances = analysis.pop("rules"), diagnosis.analysis.distances
    analysis.pop("distances")
    sound = not diagnosis.findings
    return _without_nan(
        {
            "files": [str(path) for path in diagnosis.files],
            "columns": asdict(diagnosis.log.columns),
            "notes": diagnosis.log.notes,
            "degenerate": diagnosis.findings,
            "log": analysis | {"truncated": _truncated_share(diagnosis), "empty": diagnosis.log.empty},
            "verification": verification if isinstance(verification, str) else asdict(verification),
            "rules": rules if sound else None,
            "distances": [{"rules": list(pair), "total_variation": d} for pair, d in distances.items()]
            if sound
            else None,
            "verdict": diagnosis.verdict,
            "thresholds": {"degenerate": THRESHOLDS, "bias": {"small": SMALL, "clear": CLEAR, "strong": STRONG}},
        }
    )


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _source(diagnosis: Diagnosis) -> list[RenderableType]:
    files = diagnosis.files
    name = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1:,} more"
    lines = [Text.assemble((name, "bold"), f": {diagnosis.log.columns.format}"), Text(_columns(diagnosis.log.columns))]
    return lines + [Text(f"Note: {note}", "yellow") for note in diagnosis.log.notes]


def _columns(columns: Columns) -> str:
    roles = {
        "group": " + ".join(columns.group),
        "step": columns.step,
        "reward": " + ".join(columns.reward),
        "advantage": columns.advantage or "(from rewards)",
        "length": " - ".join(columns.length) or "(measured)",
        "response": columns.response,
        "gold": columns.gold,
        "truncated": columns.truncated,
    }
    return "columns: " + ", ".join(f"{role} = {name}" for role, name in roles.items() if name)


def _facts(diagnosis: Diagnosis) -> Table:
    log, analysis = diagnosis.log, diagnosis.analysis
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    steps = "" if analysis.steps is None else f", {analysis.steps:,} steps"
    table.add_row("responses", f"{analysis.responses:,} in {analysis.groups:,} groups{steps}")
    smallest, largest = int(analysis.group_size.smallest), int(analysis.group_size.largest)
    sizes = f"{smallest}" if smallest == largest else f"{smallest} to {largest}, median {analysis.group_size.median:g}"
    table.add_row("group size", sizes)
    if analysis.reward is not None:
        table.add_row("mean reward", f"{analysis.reward:.3f}")
    table.add_row("zero variance", f"{analysis.zero_variance:.1%} of groups: all advantages are 0")
    table.add_row("advantages", f"{analysis.positive:,} positive, {analysis.negative:,} negative")
    share = _truncated_share(diagnosis)
    told = "unknown: no column says it; --max-length or --truncated would" if share is None else f"{share:.1%}"
    at_longest = analysis.at_longest
    if share is None and at_longest >= max(_SUSPICIOUS * len(log), 2):
        told += f" ({at_longest:,} have exactly the longest length, {analysis.length.largest:,.0f})"
    table.add_row("truncated", told)
    table.add_row("empty", f"{log.empty / len(log):.1%}")
    table.add_row("rewards", _verification(diagnosis.verification))
    return table


def _truncated_share(diagnosis: Diagnosis) -> float | None:
    log = diagnosis.log
    return None if log.truncated is None else log.truncated / len(log)


def _verification(verification: Verification | str) -> str:
    if isinstance(verification, str):
        return verification
    wrong = verification.wrongly_failed + verification.wrongly_passed
    return (
        f"{wrong:,} of {verification.compared:,} differ from our verdict on the recorded answers "
        f"({verification.sampled:,} drawn, the rest had no answer to compare)"
    )


def _examples(verification: Verification | str) -> list[RenderableType]:
    if isinstance(verification, str) or not verification.examples:
        return []
    lines: list[RenderableType] = [Text(), Text("Rewards that the answers contradict", "bold")]
    for example in verification.examples:
        word = "equals" if example.correct else "is not"
        lines.append(
            Padding(
                Text(f"{example.place}: answer {example.answer!r} {word} {example.gold!r}, reward {example.reward:g}"),
                (0, 0, 0, 2),
            )
        )
    return lines


def _distributions(analysis: Analysis) -> Table:
    table = number_table("over groups", "mean", "least", "lower quartile", "median", "upper quartile", "most", "groups")

    def row(name: str, values: Distribution, form: str) -> None:
        numbers = (values.mean, values.smallest, values.lower, values.median, values.upper, values.largest)
        table.add_row(
            name, *(format(number, form) if math.isfinite(number) else "–" for number in numbers), f"{values.count:,}"
        )

    row("length variation", analysis.variation, ".1%")
    row("... of groups with advantages", analysis.variation_with_advantages, ".1%")
    row("length gap, positive - negative", analysis.gap, "+.1%")
    row("length of a response", analysis.length, ",.0f")
    return table


def _rules(analysis: Analysis) -> Table:
    table = number_table(
        "rule",
        "positive",
        "sign shift",
        "sign bias",
        "length bias",
        "prompt shift",
        "eff. responses",
        "eff. tokens",
    )
    for name, numbers in analysis.rules.items():
        table.add_row(
            name,
            f"{numbers.positive_share:.1%}",
            f"{numbers.sign_shift:.1%}",
            f"{_positive_zero(numbers.sign_bias):+.1%} ± {numbers.sign_error:.1%}",
            f"{_positive_zero(numbers.length_bias):+.1%}",
            f"{numbers.group_shift:.1%}",
            f"{numbers.effective_responses * _signals(analysis):,.0f}",
            f"{numbers.effective_tokens:.1%}",
        )
    return table


def _rule_notes(analysis: Analysis) -> list[Text]:
    signals = _signals(analysis)
    return [
        Text(
            f"Mean over {analysis.updates:,} update{'s' if analysis.updates > 1 else ''}. Positive: its share of the "
            "update's mass, the sum of w L |A|. Sign shift, sign bias: what changes sides within a group, absolutely "
            "and net for the positive side (± standard error over groups). Length bias: mass moved to short responses "
            "of a sign. Prompt shift: mass moved between groups. Effective responses and tokens: Kish's number, of the "
            f"{signals:,.0f} responses with an advantage in an update, and as a share of their tokens. constant "
            f"divides by {analysis.max_length:,}.",
            "dim",
        )
    ]


def _signals(analysis: Analysis) -> float:
    """Responses with an advantage in an update, on average."""
    return (analysis.positive + analysis.negative) / analysis.updates


def _positive_zero(value: float) -> float:
    return 0.0 if abs(value) < 5e-4 else value


def _distances(analysis: Analysis) -> Table:
    names = list(analysis.rules)
    table = number_table("updates differ in", *names[1:])
    for place, one in enumerate(names[:-1]):
        cells = [
            f"{analysis.distances[one, other]:.1%}" if number >= place else "" for number, other in enumerate(names[1:])
        ]
        table.add_row(one, *cells)
    return table
