"""A whole log in compact arrays: some 25 bytes a response, whatever its text."""

import hashlib
import heapq
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from balanced_aggregation.diagnose.columns import Columns, find_columns
from balanced_aggregation.diagnose.options import Options
from balanced_aggregation.diagnose.reading import Piece, column_kinds, read_pieces
from balanced_aggregation.diagnose.values import counts, lengths_of, numbers_of, plain, refuse, scopes, text_of, total
from balanced_aggregation.errors import UserError

_CUT_OFF = ("length", "max_length", "max_tokens", "truncated")
"""Reasons for a response's end that mean that it was cut off."""

_SPARE_ROWS = 1 << 18

_CANONICAL = json.JSONEncoder(sort_keys=True, default=repr)

_SEED = 0
"""Of the drawing of responses whose reward is checked."""


@dataclass(frozen=True)
class Recorded:
    """A response of which text, right answer and reward are on record."""

    place: str
    """File and line."""
    response: str
    gold: Any
    reward: float


@dataclass(frozen=True)
class Log:
    """All responses. Arrays have one entry a response, in the order of the files."""

    columns: Columns
    group: np.ndarray
    """uint64: digest of step or file and of the group's columns, so groups may be scattered. (That any two of a million
    groups share one has a probability below 10^-7.)"""
    step: np.ndarray
    """int32: number of the step in the order of appearance; 0 everywhere without a step column."""
    length: np.ndarray
    """int32."""
    reward: np.ndarray | None
    """float32; None without rewards."""
    advantage: np.ndarray | None
    """float32; None if they are to be computed from rewards."""
    truncated: int | None
    """Responses that were cut off; None if the log does not say it."""
    empty: int
    """Responses without tokens, or with nothing but white space in their text."""
    recorded: list[Recorded]
    """Responses drawn at random from those with text, answer and reward, in the order of the files."""
    notes: list[str] = field(default_factory=list)
    """What a reader must know about how the log was read."""

    def __len__(self) -> int:
        return len(self.length)


def read_log(files: Sequence[Path], options: Options) -> Log:
    """Read files, one after the other, into one log.

    Columns are found in the first file; the others must have them too.

    Raises:
        UserError: a file cannot be read, a column is missing, or a value is not what its column should hold.
    """
    columns = find_columns(files[0], column_kinds(files[0]), options)
    gather = _Gather(columns, options)
    for number, path in enumerate(files):
        column_kinds(path)  # the file is there and has rows
        for piece in read_pieces(path, columns.all()):
            if len(piece):
                gather.add(number, piece)
    return gather.log()


class _Column:
    """An array that grows in place: where it is large, the system moves its pages and copies nothing."""

    def __init__(self, dtype: type):
        self._array, self._count = np.empty(0, dtype), 0

    def extend(self, values: np.ndarray) -> None:
        count = self._count + len(values)
        if count > len(self._array):
            self._array.resize(count + _SPARE_ROWS, refcheck=False)
        self._array[self._count : count] = values
        self._count = count

    def array(self) -> np.ndarray:
        self._array.resize(self._count, refcheck=False)
        return self._array


class _Gather:
    """Turns pieces into arrays."""

    def __init__(self, columns: Columns, options: Options):
        self.columns, self.options = columns, options
        self.notes: list[str] = []
        self.measure = self._measure()
        self.group, self.step, self.length = _Column(np.uint64), _Column(np.int32), _Column(np.int32)
        self.reward, self.advantage = _Column(np.float32), _Column(np.float32)
        self.steps: dict[Any, int] = {}
        self.truncated = self.empty = 0
        self.draw = np.random.default_rng(_SEED)
        self.drawn: list[tuple[float, int, Recorded]] = []
        self.count = 0
        self.checkable = bool(columns.response and columns.gold and columns.reward and options.verify)

    def add(self, file: int, piece: Piece) -> None:
        columns = self.columns
        scope: list[Any] = [None if self.options.files_share_groups else file] * len(piece)
        if columns.step:
            scope = scopes(piece, columns.step)
            for value in scope:
                self.steps.setdefault(value, len(self.steps))
            self.step.extend(np.array([self.steps[value] for value in scope]))
        keys = zip(scope, *(plain(piece.columns[name]) for name in columns.group), strict=True)
        self.group.extend(_digests(keys))
        texts = [text_of(value) for value in piece.columns[columns.response]] if columns.response else None
        lengths = self.measure(piece, texts)
        self.length.extend(lengths)
        blank = lengths == 0
        if texts is not None:
            blank = blank | np.array([not text or text.isspace() for text in texts])
        self.empty += int(blank.sum())
        rewards = None
        if columns.reward:
            rewards = total([numbers_of(piece, name, missing=len(columns.reward) > 1) for name in columns.reward])
            refuse(np.isnan(rewards), piece, columns.reward[0], "a number")
            self.reward.extend(rewards)
        if columns.advantage:
            self.advantage.extend(numbers_of(piece, columns.advantage))
        self._count_truncated(piece, lengths)
        if self.checkable:
            self._draw(piece, texts, rewards)
        self.count += len(piece)

    def log(self) -> Log:
        if not self.count:
            raise UserError("no file holds any response")
        says = bool(self.columns.truncated or self.options.max_length)
        return Log(
            columns=self.columns,
            group=self.group.array(),
            step=self.step.array() if self.columns.step else np.zeros(self.count, np.int32),
            length=self.length.array(),
            reward=self.reward.array() if self.columns.reward else None,
            advantage=self.advantage.array() if self.columns.advantage else None,
            truncated=self.truncated if says else None,
            empty=self.empty,
            recorded=[recorded for _, _, recorded in sorted(self.drawn, key=lambda drawn: -drawn[1])],
            notes=self.notes,
        )

    def _measure(self) -> Callable[[Piece, list[str] | None], np.ndarray]:
        """How lengths are told, which is noted where they are no tokens."""
        columns, options = self.columns, self.options
        if len(columns.length) == 2:
            whole, prompt = columns.length
            return lambda piece, texts: counts(piece, whole, numbers_of(piece, whole) - numbers_of(piece, prompt))
        if columns.length:
            return lambda piece, texts: lengths_of(piece, columns.length[0])
        if options.tokenizer:
            from transformers import AutoTokenizer  # takes seconds to load

            try:
                tokenizer = AutoTokenizer.from_pretrained(options.tokenizer, local_files_only=True)
            except (OSError, ValueError) as error:
                raise UserError(
                    f"--tokenizer {options.tokenizer}: cannot be loaded: {str(error).splitlines()[0]}"
                ) from error
            self.notes.append(f"Lengths are tokens of the responses' text by the tokenizer in {options.tokenizer}.")
            return lambda piece, texts: np.array(
                [len(t) for t in tokenizer(texts, add_special_tokens=False)["input_ids"]]
            )
        self.notes.append(
            f"Lengths are {options.unit}, which stand in for tokens: the log has none. Shares and shifts are right as "
            "far as tokens are equally long in all responses; --length COLUMN or --tokenizer FOLDER tells them exactly."
        )
        if options.unit == "words":
            return lambda piece, texts: np.array([len(text.split()) for text in texts])
        return lambda piece, texts: np.array([len(text) for text in texts])

    def _count_truncated(self, piece: Piece, lengths: np.ndarray) -> None:
        if name := self.columns.truncated:
            values = piece.columns[name]
            self.truncated += sum(v.lower() in _CUT_OFF if isinstance(v, str) else bool(v) and v == v for v in values)
        elif self.options.max_length:
            self.truncated += int((lengths >= self.options.max_length).sum())

    def _draw(self, piece: Piece, texts: list[str], rewards: np.ndarray) -> None:
        """Keep those with the smallest random numbers: a sample of the log, in one pass."""
        numbers = self.draw.random(len(piece))
        golds = piece.columns[self.columns.gold]
        limit = -self.drawn[0][0] if len(self.drawn) == self.options.verify else np.inf
        for index in np.flatnonzero(numbers < limit):
            row = Recorded(piece.place(index), texts[index], golds[index], float(rewards[index]))
            entry = (-float(numbers[index]), -(self.count + int(index)), row)
            if len(self.drawn) < self.options.verify:
                heapq.heappush(self.drawn, entry)
            else:
                heapq.heappushpop(self.drawn, entry)


def _digests(keys: Any) -> np.ndarray:
    """64 bits of each key; keys that follow each other are mostly the same."""
    digests, last, digest = [], None, 0
    for key in keys:
        if key != last:
            text = _CANONICAL.encode(key).encode()
            last, digest = key, int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        digests.append(digest)
    return np.array(digests, np.uint64)
