"""How times are said, and which line of a log is an error."""

import re

_ERROR = re.compile(
    r"\berror\b|\w(Error|Exception|Interrupt)\b|\bkilled\b|\bout of memory\b|\boom\b|\bfatal\b|command not found",
    re.IGNORECASE,
)


def ago(seconds: float) -> str:
    """A duration in one unit, roughly."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def looks_like_error(line: str) -> bool:
    """Whether a log that ends with the line ends with an error."""
    return bool(_ERROR.search(line))
