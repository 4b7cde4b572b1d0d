"""From files to a diagnosis."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from balanced_aggregation.aggregation import RULES, Rule
from balanced_aggregation.diagnose.analysis import Analysis, analyse
from balanced_aggregation.diagnose.degenerate import findings
from balanced_aggregation.diagnose.log import Log, read_log
from balanced_aggregation.diagnose.options import Options
from balanced_aggregation.diagnose.verdict import verdict
from balanced_aggregation.diagnose.verification import Verification, verify
from balanced_aggregation.errors import UserError
from balanced_aggregation.rule_loading import bind_rule, check_rule


@dataclass(frozen=True)
class Diagnosis:
    """All that is known of a log."""

    files: list[Path]
    log: Log
    analysis: Analysis
    """Of a degenerate log only what needs no rule means anything."""
    verification: Verification | str
    """Or why there is none."""
    findings: dict[str, str]
    """What makes it degenerate, by a short name."""
    verdict: str | None
    """None for a degenerate log."""


def diagnose(files: Sequence[Path], options: Options) -> Diagnosis:
    """Read a log, check it, and weigh it by every rule.

    Raises:
        UserError: a file or a flag is wrong.
    """
    options.check()
    for reference in options.rule:
        try:
            check_rule(reference, {})
        except ValueError as error:
            raise UserError(f"--rule {reference}: {error}") from error
    log = read_log(files, options)
    analysis = analyse(log, _rules(options, int(log.length.max())), options.max_length)
    verification = _unchecked(log, options) or verify(log.recorded, (float(log.reward.min()), float(log.reward.max())))
    found = findings(log, analysis, verification)
    return Diagnosis(list(files), log, analysis, verification, found, None if found else verdict(analysis))


def _unchecked(log: Log, options: Options) -> str | None:
    """Why rewards cannot be held against answers, if so."""
    if not options.verify:
        return "not checked: --verify 0"
    for role, words in {"gold": "right answers", "response": "responses", "reward": "rewards"}.items():
        if not getattr(log.columns, role):
            return f"not held against the right answers: no column of {words} is known (--{role})"
    return None


def _rules(options: Options, longest: int) -> dict[str, Rule]:
    names = [*RULES, *options.rule]
    return {
        name.rpartition(":")[2]: bind_rule(name, {}, max_length=options.max_length or max(longest, 1)) for name in names
    }
