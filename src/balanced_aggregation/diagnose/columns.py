"""Which column of a log is what: known names of verl, TRL, AReaL and our own files, unless flags say otherwise."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from balanced_aggregation.diagnose.options import Options
from balanced_aggregation.errors import UserError

NAMES = {
    "group": ("group_id", "group", "uid", "prompt_id", "problem_id", "problem", "prompt", "input", "question"),
    "step": ("step", "global_step", "training_step"),
    "reward": ("reward", "score", "recorded_reward", "correct", "is_correct", "recorded_is_correct", "acc", "accuracy"),
    "advantage": ("advantage", "advantages"),
    "length": (
        "response_length",
        "completion_length",
        "output_length",
        "length",
        "response_tokens",
        "completion_tokens",
        "output_tokens",
        "num_tokens",
        "response_ids",
        "completion_ids",
    ),
    "response": ("response", "completion", "output", "completion_tail"),
    "gold": ("gold", "gold_answer", "gts", "ground_truth", "reference_answer"),
    "truncated": ("truncated", "is_truncated", "finish_reason", "stop_reason"),
}
"""Names of columns that are known, the most telling ones first."""

FORMATS = {
    "AReaL rollouts": {"task_id", "sample_idx", "seqlen", "prompt_len", "reward"},
    "a TRL completions log": {"step", "prompt", "completion", "advantage"},
    "a verl generations dump": {"input", "output", "score"},
    "an evaluation by balagg": {"problem", "decoding", "sample", "length", "correct"},
}
"""Logs that are known by name, and the columns that tell."""

_AREAL_GROUP = ("run", "file", "task_id")


@dataclass(frozen=True)
class Columns:
    """The column of each role."""

    format: str
    """What the log is, in words."""
    group: tuple[str, ...]
    step: str | None
    reward: tuple[str, ...]
    advantage: str | None
    length: tuple[str, ...]
    """One column; two, whose difference it is; or none: lengths are counted in the response."""
    response: str | None
    gold: str | None
    truncated: str | None

    def all(self) -> list[str]:
        """Every column that is read, once."""
        single = (self.step, self.advantage, self.response, self.gold, self.truncated)
        return list(dict.fromkeys([*self.group, *self.reward, *self.length, *(name for name in single if name)]))


def find_columns(path: Path, kinds: Mapping[str, str], options: Options) -> Columns:
    """Decide which columns to read.

    Args:
        path: the file, for messages.
        kinds: its columns in their order, each ``number``, ``text``, ``list`` or ``other``.
        options: the person's flags, which go before known names.

    Raises:
        UserError: a column that a flag names is not there, or one that is needed is not found.
    """
    known = next((name for name, needed in FORMATS.items() if needed <= kinds.keys()), "a log of no known format")

    def find(role: str) -> str | None:
        given = getattr(options, role)
        return given or next((name for name in NAMES[role] if name in kinds), None)

    for flag in ("group", "reward", "step", "advantage", "length", "response", "gold", "truncated"):
        given = getattr(options, flag) or ()
        for name in (given,) if isinstance(given, str) else given:
            if name not in kinds:
                raise UserError(f"--{flag} {name}: no such column in {path}; it has: {', '.join(kinds)}")

    advantage = find("advantage")
    columns = Columns(
        format=known,
        group=options.group or _group(known, kinds),
        step=find("step"),
        reward=options.reward or _reward(known, kinds),
        advantage=advantage,
        length=_length(known, kinds, options),
        response=find("response"),
        gold=find("gold"),
        truncated=find("truncated"),
    )
    _refuse_missing(path, kinds, columns)
    return columns


def _group(known: str, kinds: Mapping[str, str]) -> tuple[str, ...]:
    if known == "AReaL rollouts":  # task ids count from 0 in every run and file
        return tuple(name for name in _AREAL_GROUP if name in kinds)
    if known == "an evaluation by balagg":
        return ("problem", "decoding")
    return next(((name,) for name in NAMES["group"] if name in kinds), ())


def _reward(known: str, kinds: Mapping[str, str]) -> tuple[str, ...]:
    """For TRL the columns between completion and advantage: one for each reward function, by the function's name."""
    found = next(((name,) for name in NAMES["reward"] if name in kinds), ())
    if known == "a TRL completions log" and not found:
        order = list(kinds)
        between = order[order.index("completion") + 1 : order.index("advantage")]
        numbers = [name for name in between if kinds[name] == "number"]
        return tuple([name for name in numbers if "reward" in name.lower()] or numbers)
    return found


def _length(known: str, kinds: Mapping[str, str], options: Options) -> tuple[str, ...]:
    if options.length:
        return (options.length,)
    if options.tokenizer:
        return ()
    if known == "AReaL rollouts":
        return ("seqlen", "prompt_len")
    return next(((name,) for name in NAMES["length"] if name in kinds), ())


def _refuse_missing(path: Path, kinds: Mapping[str, str], columns: Columns) -> None:
    missing = []
    if not columns.group:
        missing.append(("group", "a group, which is the prompt or an id of it"))
    if not columns.reward and columns.advantage is None:
        missing.append(("reward", "a reward"))
    if not columns.length and columns.response is None:
        missing.append(("length", "a length, nor of a response to measure"))
    if missing:
        lines = [
            f"no column of {what}: give --{role} COLUMN (names known: {', '.join(NAMES[role])})"
            for role, what in missing
        ]
        raise UserError("\n  ".join([f"{path}: columns are {', '.join(kinds) or 'none'}", *lines]))
