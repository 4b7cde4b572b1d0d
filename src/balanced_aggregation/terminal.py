"""What several commands show in a terminal."""

from rich.table import Table


def clock(seconds: float) -> str:
    """A duration as hours, minutes and seconds."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"


def number_table(first: str, *others: str) -> Table:
    """A table without lines: names in its first column, numbers in the others."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    return table
