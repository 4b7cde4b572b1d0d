r"""Where in a response the answer stands: the last ``\boxed{}`` or ``\fbox{}``, outside of the reasoning.

One pass over the text: a response may be a megabyte of backslashes or braces.
"""

import re

_REASONING_END = "</think>"
_TOKEN = re.compile(r"\\.|[{}]", re.DOTALL)
_BOX = re.compile(r"\\(?:boxed|fbox)(?![^\W\d_])\s*")
_BARE = re.compile(r"[^\s$]+")
_MATHS_END = re.compile(r"\\[)\]]")


def answer_part(response: str) -> str:
    """What counts as the answer: all that follows the last ``</think>``, or the whole text if there is none.

    An opened ``<think>`` that is never closed hides nothing: a model that isn't trained to reason between tags may
    still emit one, and a truncated response has no final box anyway.
    """
    return response.rpartition(_REASONING_END)[2]


def final_boxed(text: str) -> str | None:
    r"""Content of the last box of the text; None if there is none, or its brace is never closed.

    Earlier boxes don't count, not even if the last one is broken. Of boxes in a box the outermost counts, unless it
    has nothing but a box in it. ``\\boxed 5`` is read up to the next space, ``$``, or end of maths.
    """
    boxes = [found.end() for found in _BOX.finditer(text)]
    if not boxes:
        return None
    closed = _closing_places(text)
    last = boxes[-1]
    if text.startswith("{", last) and last not in closed:
        return None
    opening = next((box for box in boxes if box in closed and closed[box] > last), last)
    if not text.startswith("{", opening):
        bare = _BARE.match(text, opening)
        return _MATHS_END.split(bare[0])[0].rstrip(".,;:") or None if bare else None
    while True:
        inner = _BOX.match(text, opening + 1)
        if not inner or closed.get(inner.end()) != closed[opening] - 1:
            return text[opening + 1 : closed[opening]]
        opening = inner.end()


def _closing_places(text: str) -> dict[int, int]:
    """Where each brace that opens is closed, if it is."""
    opened, closed = [], {}
    for token in _TOKEN.finditer(text):
        if token[0] == "{":
            opened.append(token.start())
        elif token[0] == "}" and opened:
            closed[opened.pop()] = token.start()
    return closed
