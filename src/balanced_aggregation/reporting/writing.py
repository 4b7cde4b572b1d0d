"""A table as CSV (full precision), Markdown and LaTeX (booktabs)."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from balanced_aggregation.files import write_text
from balanced_aggregation.reporting.statistics import Estimate

SUFFIXES = ("csv", "md", "tex")

_MOST_DIGITS = 6


@dataclass(frozen=True)
class Row:
    """One row of a table: what it is about, and what stands in its columns (None where there is nothing to say)."""

    keys: dict[str, str]
    cells: dict[str, Estimate | str | None]


@dataclass(frozen=True)
class Table:
    """Rows, and the sentences that a reader needs to read them."""

    rows: list[Row]
    notes: list[str] = field(default_factory=list)


def format_estimate(estimate: Estimate | None, signed: bool = False) -> str:
    """An estimate with its interval, both to the second significant digit of half the interval's width."""
    if estimate is None or math.isnan(estimate.mean):
        return "–"
    half = (estimate.high - estimate.low) / 2
    digits = 3
    if half > 0:
        exponent = int(f"{half:.1e}".partition("e")[2])  # of the rounded number: 0.0998 counts as 0.10
        digits = min(max(1 - exponent, 0), _MOST_DIGITS)
    sign = "+" if signed else ""
    # No negative zeros.
    mean, low, high = (
        f"{round(value, digits) + 0.0:{sign}.{digits}f}" for value in (estimate.mean, estimate.low, estimate.high)
    )
    return mean if math.isnan(half) else f"{mean} [{low}, {high}]"


def write_table(path: Path, table: Table) -> None:
    """Write one table.

    Args:
        path: of the files, without their suffixes.
        table: the table. Estimates that hold after correction are bold, differences have a sign.
    """
    numbers, markdown, latex = [], [], []
    for row in table.rows:
        number, texts = dict[str, object](row.keys), dict(row.keys)
        bold = set()
        for label, cell in row.cells.items():
            if isinstance(cell, str):
                number[label] = texts[label] = cell
                continue
            texts[label] = format_estimate(cell, signed=is_difference(label))
            for part in ("mean", "low", "high"):
                number[f"{label}, {part}"] = math.nan if cell is None else getattr(cell, part)
            if is_difference(label):
                for part, name in (("p", "p"), ("p_corrected", "p (Holm)")):
                    number[f"{label}, {name}"] = math.nan if cell is None else getattr(cell, part)
            if cell is not None and cell.supported:
                bold.add(label)
        seeds = max(cell.seeds for cell in row.cells.values() if isinstance(cell, Estimate))
        number["seeds"], texts["seeds"] = seeds, str(seeds) if seeds != 1 else "1 seed"
        numbers.append(number)
        markdown.append({label: f"**{text}**" if label in bold else text for label, text in texts.items()})
        latex.append(
            {
                escape(label): rf"\textbf{{{escape(text)}}}" if label in bold else escape(text)
                for label, text in texts.items()
            }
        )
    _write(path, pd.DataFrame(numbers), pd.DataFrame(markdown), pd.DataFrame(latex), table.notes)


def write_frame(path: Path, frame: pd.DataFrame, notes: Sequence[str] = ()) -> None:
    """Write a table that holds no estimates.

    Args:
        path: of the files, without their suffixes.
        frame: the table.
        notes: sentences to read it by.
    """
    shown = frame.map(lambda value: f"{value:.4f}" if isinstance(value, float) else str(value))
    _write(path, frame, shown, shown.rename(columns=escape).map(escape), notes)


def is_difference(label: str) -> bool:
    """Whether a column is about the difference of two things."""
    return " - " in label


def escape(text: str) -> str:
    """Text for LaTeX."""
    replacements = {"\\": r"\textbackslash{}", "–": "--", "×": r"$\times$", "~": r"\textasciitilde{}"}
    replacements |= {"^": r"\textasciicircum{}"} | {sign: f"\\{sign}" for sign in "&%$#_{}"}
    escaped = "".join(replacements.get(sign, sign) for sign in text)
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped)


def _write(path: Path, numbers: pd.DataFrame, shown: pd.DataFrame, latex: pd.DataFrame, notes: Sequence[str]) -> None:
    write_text(path.with_suffix(".csv"), numbers.to_csv(index=False, lineterminator="\n"))
    paragraph = "\n" + " ".join(notes) + "\n" if notes else ""
    write_text(path.with_suffix(".md"), shown.to_markdown(index=False, disable_numparse=True) + "\n" + paragraph)
    caption = escape(" ".join(notes)) or None
    text = latex.to_latex(index=False, escape=False, caption=caption, label=f"tab:{path.name}", position="htbp")
    # Wide tables shrink to the width of the text.
    text = text.replace(r"\begin{tabular}", "\\centering\n\\resizebox{\\linewidth}{!}{%\n\\begin{tabular}")
    text = text.replace(r"\end{tabular}", "\\end{tabular}}")
    write_text(path.with_suffix(".tex"), "% needs \\usepackage{booktabs,graphicx}\n" + text)
