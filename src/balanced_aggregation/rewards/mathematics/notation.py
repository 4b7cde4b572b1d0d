r"""One spelling for each thing that LaTeX can spell in many ways.

The parser of math-verify has a normalisation of its own, which is not used: it drops what it takes for units
(``5c`` becomes ``5``), quotes (``x'`` becomes ``x``) and dots (``1 \ldots 9``), and each of these makes a wrong answer
equal to a right one.
"""

import re

_CHARACTERS = {
    "−": "-", "–": "-", "—": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "±": r"\pm ",
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∞": r"\infty ", "π": r"\pi ", "∪": r"\cup ",
    "∩": r"\cap ", "∈": r"\in ", "°": r"^\circ ", "√": r"\sqrt ", "′": "'", "’": "'", "″": "''", "（": "(", "）": ")",
    "，": ",", "：": ":", "；": ";", "＞": ">", "＜": "<", "％": "%", "\u00a0": " ", "ℝ": r"\mathbb{R}",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "θ": r"\theta ", "λ": r"\lambda ", "μ": r"\mu ", "ω": r"\omega ",
}  # fmt: skip

# Applied in this order. What a rule leaves is what the next one sees.
_UNIT_TEXT = re.compile(r"\\(?:cdot|mu|Omega)(?![a-zA-Z])\s*|\^\s*\{\s*(-?\d)\s*\}")
_UNIT_COMMANDS = {r"\cdot": " ", r"\mu": "μ", r"\Omega": "ohm"}


def _unit_text(found: re.Match) -> str:
    r"""``\text{kg \cdot m s^{-1}}`` without commands and braces inside."""
    inside = _UNIT_TEXT.sub(lambda m: f"^{m[1]}" if m[1] else _UNIT_COMMANDS[m[0].strip()], found[1])
    return rf"\text{{{inside}}}"


_RULES = [
    (r"\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm)\s*\]", r"\\\\ "),
    (r"\\(?:text)?color\s*\{\s*[a-zA-Z]+\s*\}\s*", ""),
    (r"\\(?:tiny|small|normalsize|large|Large|LARGE|huge|Huge)(?![a-zA-Z])\s*", ""),
    (r"\\(?:mathbf|boldsymbol|bm)\s*\{([^{}]*=[^{}]*)\}", r"\1"),
    (r"^[\s$]*(?:\\therefore(?![a-zA-Z])\s*)?(?:(?:\\approx(?![a-zA-Z])|≈|=(?![=<>]))\s*)?", ""),
    (r"\s+", " "),
    (r"^(?!.*\\begin)(.*)$", lambda m: re.sub(r"\\\\(?=[a-zA-Z])", r"\\", m[0])),  # commands escaped twice
    (r"(?<!\\)\\[\[\]()]", ""),
    (r"\\f?boxed(?![a-zA-Z])\s*", ""),
    (r"(?<=\d)\s*(?:,\s*\\!|\{,\}(?:\\!)?|\\,)\s*(?=\d{3}(?!\d))", ""),  # thousands
    (r"\\(?:left|right|middle)(?![a-zA-Z])\s*\.?", ""),
    (r"\\(?:[bB]igg?[lrm]?|displaystyle|textstyle|limits|mathstrut|rule|null)(?![a-zA-Z])", ""),
    (r"(?<!\\)\\!", ""),
    (r"(?<!\\)\\[,;:> ]|~|\\q?quad|(?<!\\)\\\n", " "),
    (r"\\(?:hspace|vspace|phantom)\*?\{[^{}]*\}", " "),
    (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
    (r"\\[dt]binom(?![a-zA-Z])", r"\\binom"),
    (r"(?:\\leqslant|\\leqq?|<=|=<)(?![a-zA-Z])", r"\\le "),
    (r"(?:\\geqslant|\\geqq?|>=)(?![a-zA-Z])", r"\\ge "),
    (r"\\neq?(?![a-zA-Z])|\\not\s*=|!=", r"\\ne "),
    (r"\\(?:lt|gt)(?![a-zA-Z])", lambda m: "<" if m[0] == r"\lt" else ">"),
    (r"\\(?:simeq|approxeq|sim|doteq)(?![a-zA-Z])", r"\\approx "),
    (r"\\equiv(?![a-zA-Z])|:=", "="),
    (r"\\(?:times|ast|cdotp)(?![a-zA-Z])|\*", r"\\cdot "),
    (r"\\div(?![a-zA-Z])", "/"),
    (r"\\(?:lbrace|lbrack|langle|lparen)(?![a-zA-Z])", lambda m: {"brace": r"\{", "brack": "["}.get(m[0][2:], "(")),
    (r"\\(?:rbrace|rbrack|rangle|rparen)(?![a-zA-Z])", lambda m: {"brace": r"\}", "brack": "]"}.get(m[0][2:], ")")),
    (r"\\(?:mid|vert|lvert|rvert)(?![a-zA-Z])", "|"),
    (r"\\colon(?![a-zA-Z])", ":"),
    (r"\\(?:varnothing|O)(?![a-zA-Z])", r"\\emptyset "),
    (r"\\(?:operatorname\*?|mathrm)\s*\{(arc(?:sin|cos|tan)|sin|cos|tan|cot|sec|csc|ln|log|max|min)\}", r"\\\1 "),
    (r"(?<![a-zA-Z])(?:np|math)\.(?=arc|sin|cos|tan|sqrt|exp|log)", r"\\"),
    (r"\\mathrm\s*\{([eid])\}", r"\1"),
    (r"(?<=[\d)}])(\s*(?:\\mu\s*)?)\\mathrm\s*\{\s*([a-zA-Z])\s*\}", r"\1\\text{\2}"),
    (r"\\(?:mathrm|mathit|mathbf|boldsymbol|bm)\s*\{\s*([a-zA-Z])\s*\}", r"\1"),
    (r"\\(?:mbox|textrm|textbf|textit|textnormal|textsf|mathrm|mathbf|mathit|mathsf|operatorname|hbox)(?![a-zA-Z])\*?",
     r"\\text"),
    (r"\{\s*\\(?:rm|bf|it)\s+([^{}]*)\}", r"\\text{\1}"),
    (r"\\text\s*\{\s*([\d.,/\s+-]*)\s*\}", r"\1"),
    (r"_\s*\\text\s*\{([^{}]*)\}", r"_{\1}"),
    (r"_\s*\\text\s*\{([^{}]*)\}", r"_{\1}"),
    (r"\\text\s*\{\s*(-?\d[\d.,]*)\s+([a-zA-Z][a-zA-Z ]*)\}", r"\1\\text{\2}"),
    (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\(?:degree|textdegree)(?![a-zA-Z])", r"\\text{degree}"),
    (r"\\AA(?![a-zA-Z])", r"\\text{angstrom}"),
    (r"\\?%", r"\\text{percent}"),
    (r"(?:€|\\euro(?![a-zA-Z]))\s*(\d[\d.,]*)", r"\1\\text{euro}"),
    (r"pounds? sterling(?![a-zA-Z])", "sterling"),
    (r"£\s*(\d[\d.,]*)", r"\1\\text{sterling}"),
    (r"(?:\\\$|\\text\s*\{\s*\\?\$\s*\}|\\dollar)", r"\\usd "),
    (r"\$", ""),
    (r"[,;]?\s*\\text\s*\{\s*[,;]?\s*(?:and|or)\s*\}", ","),
    (r"\\text\s*\{([^{}]*[a-zA-Z)])\s*,?\s+(?:and|or)\s*\}", r"\\text{\1},"),
    (r"(?<=[\d)}\]$])\s*[,;]?\s*(?:and|or)\s*(?=[\d(\\$-])", ","),
    (r"(?<![a-zA-Z]{2})(?<![\\{])\s*[,;]?\s(?:and|or)\s(?![a-zA-Z]*\})", ","),
    (r"\\(?:lg|log)\s*_\s*(?:\{10\}|10(?!\d))|\\lg(?![a-zA-Z])", r"\\log "),
    (r"\\(?:ctg|cotan)(?![a-zA-Z])", r"\\cot "),
    (r"\\(?:tg)(?![a-zA-Z])", r"\\tan "),
    (r"\\infin(?![a-zA-Z])", r"\\infty "),
    (r"\\ln\s*e(?![a-zA-Z])", "1"),
    (r"(?<=\d)\.(?=\s*(?:/|\\cdot|$))", ""),  # 1./3
    (r"\^\s*\((-?\w+)\)", r"^{\1}"),
    (r"(?<!\\)([_^])\s*(\d+|[a-zA-Z])", r"\1{\2}"),
    (r"\\text\s*\{((?:[^{}]|\^\s*\{\s*-?\d\s*\})*)\}", _unit_text),
    (r"(?<![\d.])\.(?=\d)", "0."),
    (r"\s+", " "),
]  # fmt: skip
_COMPILED = [(re.compile(pattern), replacement) for pattern, replacement in _RULES]
_ROOT = re.compile(r"\\sqrt\s*(\[[^\[\]]*\])?\s*([a-zA-Z\d])")
_EDGES = " \n\t.,;:"


def tidy(text: str) -> str:
    """The text in one spelling, without sizes, spacing, dollar signs and punctuation at its end."""
    for character, command in _CHARACTERS.items():
        if character in text:
            text = text.replace(character, command)
    for pattern, replacement in _COMPILED:
        text = pattern.sub(replacement, text)
    text = _ROOT.sub(lambda m: rf"\sqrt{m[1] or ''}{{{m[2]}}}", _brace_fractions(text))
    text = text.strip(_EDGES).removesuffix("\\\\").strip(_EDGES)
    return text[:-1].rstrip() if text.endswith("\\") and not text.endswith("\\\\") else text


def key(text: str) -> str:
    """The text without spaces, except between digits: the same for what is written the same."""
    return re.sub(r"(?<!\d) +| +(?!\d)", "", text)


def balanced(text: str) -> bool:
    """Whether every brace is closed."""
    depth = 0
    for token in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth < 0:
            return False
    return depth == 0


def _brace_fractions(text: str) -> str:
    r"""``\frac12``, ``\frac9{19}`` and ``\frac{1}2`` with all their braces."""
    pieces = text.split(r"\frac")
    for i, piece in enumerate(pieces[1:], 1):
        piece = piece.lstrip()
        first, rest = _argument(piece)
        second, rest = _argument(rest.lstrip())
        pieces[i] = f"{{{first}}}{{{second}}}{rest}" if first and second else piece
    return r"\frac".join(pieces)


def _argument(text: str) -> tuple[str, str]:
    """The argument of a command, without its braces, and what follows it; empty if there is none."""
    if not text:
        return "", ""
    if text[0] != "{":
        return (text[0], text[1:]) if text[0].isalnum() else ("", text)
    depth = 0
    for place, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return text[1:place], text[place + 1 :]
    return "", text
