"""Arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import tyro

StudyFile = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STUDY", help="The study's YAML file.")]
