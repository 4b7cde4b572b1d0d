"""``balagg diagnose``: what each rule would make of a log of rollouts."""

import sys
from collections.abc import Sequence
from pathlib import Path

from balanced_aggregation.diagnose.degenerate import EXIT_CODE
from balanced_aggregation.diagnose.diagnosis import diagnose as run
from balanced_aggregation.diagnose.options import Options
from balanced_aggregation.diagnose.report import print_diagnosis, to_json
from balanced_aggregation.errors import UserError
from balanced_aggregation.files import write_json


def diagnose(files: Sequence[Path], options: Options, json: Path | None, figure: Path | None) -> None:
    """Print a diagnosis, write and draw it as asked; the process ends with `EXIT_CODE` if the log is degenerate.

    Raises:
        UserError: a file or a flag is wrong.
    """
    if not files:
        raise UserError("no file to read; give one or more: balagg diagnose FILE...")
    if figure and figure.suffix.lower() not in (".png", ".pdf"):
        raise UserError(f"--figure {figure}: must end in .png or .pdf")
    diagnosis = run(files, options)
    print_diagnosis(diagnosis)
    if json:
        write_json(json, to_json(diagnosis))
    if figure and not diagnosis.findings:
        from balanced_aggregation.diagnose.figure import write_figure  # takes a second to load

        write_figure(figure, diagnosis.analysis)
    if diagnosis.findings:
        sys.exit(EXIT_CODE)
