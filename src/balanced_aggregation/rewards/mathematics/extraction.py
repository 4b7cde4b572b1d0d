r"""Where in a response the answer stands: the last ``\boxed{}`` or ``\fbox{}``, outside of the reasoning.

One pass over the text: a response may be a megabyte of backslashes or braces.
"""

import re

_COMMANDS = ("\\boxed", "\\fbox")
_REASONING_END = "</think>"
_TOKEN = re.compile(r"\\.|[{}]", re.DOTALL)
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

    Earlier boxes don't count, not even if the last one is broken. ``\boxed 5`` is read up to the next space, ``$``,
    or end of maths.
    """
    start = _last_command(text)
    if start is None:
        return None
    while start < len(text) and text[start].isspace():
        start += 1
    if not text.startswith("{", start):
        bare = _BARE.match(text, start)
        return _MATHS_END.split(bare[0])[0].rstrip(".,;:") or None if bare else None
    depth = 0
    for token in _TOKEN.finditer(text, start):
        if token[0] == "{":
            depth += 1
        elif token[0] == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : token.start()]
    return None


def _last_command(text: str) -> int | None:
    r"""Where the last box command ends. A longer command, such as ``\\boxedplus``, is another one."""
    ends = []
    for command in _COMMANDS:
        place = text.rfind(command)
        while place >= 0:
            end = place + len(command)
            if not text[end : end + 1].isalpha():
                ends.append(end)
                break
            place = text.rfind(command, 0, place)
    return max(ends, default=None)
