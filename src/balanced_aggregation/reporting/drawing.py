"""What all figures have in common: readable in grey and without colour vision, the same bytes from the same numbers."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib.figure import Figure

from balanced_aggregation.files import atomic_path

# Okabe and Ito's palette; what has a colour has a shape, hatch or line style of its own as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "legend.frameon": False,
    "figure.dpi": 150,
    "pdf.fonttype": 42,
}
"""Parameters of matplotlib."""


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or PDF, by the path's suffix, without the time and the version that drew it."""
    kind = path.suffix.lower().lstrip(".")
    metadata = {"CreationDate": None} if kind == "pdf" else {"Software": None}
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=kind, metadata=metadata)
