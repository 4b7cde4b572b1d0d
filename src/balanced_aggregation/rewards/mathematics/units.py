r"""Units at the end of an answer: ``5 \text{ cm}``, ``15\mbox{ cm}^2``, ``90^\circ``, ``12\%``, ``\$5``, ``240 yuan``.

A bare number equals one with a unit: the question usually says in what. Two different units of the table are
converted; those of different dimensions are never equal; words that are in no table (``apples``) say nothing.
``million`` and the like multiply the number.
"""

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

PERCENT = "percent"
_USD = "\\usd"

_METRIC = {"": 0, "k": 3, "d": -1, "c": -2, "m": -3, "u": -6, "μ": -6, "n": -9, "p": -12, "M": 6, "G": 9}


def _metric(names: str, dimension: str, prefixes: str) -> dict[str, tuple[str, Fraction]]:
    units = {}
    for prefix in ["", *prefixes]:
        for name in names.split():
            long = {"k": "kilo", "d": "deci", "c": "centi", "m": "milli", "u": "micro", "μ": "micro", "n": "nano",
                    "p": "pico", "M": "mega", "G": "giga", "": ""}[prefix]  # fmt: skip
            units[(long if len(name) > 2 else prefix) + name] = (dimension, Fraction(10) ** _METRIC[prefix])
    return units


def _several(dimension: str, **factors: str) -> dict[str, tuple[str, Fraction]]:
    return {name: (dimension, Fraction(value)) for name, value in factors.items()}


_TABLE: dict[str, tuple[str, Fraction]] = {
    **_metric("m meter meters metre metres", "length", "kdcmuμnp"),
    **_several("length", **{"in": "0.0254"}),
    **_several("length", inch="0.0254", inches="0.0254", ft="0.3048", feet="0.3048", foot="0.3048", mile="1609.344",
               miles="1609.344", mi="1609.344", yard="0.9144", yards="0.9144", yd="0.9144", angstrom="1e-10",
               angstroms="1e-10", Angstrom="1e-10", Angstroms="1e-10"),
    **_metric("s second seconds", "time", "mμun"),
    **_several("time", sec="1", secs="1", min="60", mins="60", minute="60", minutes="60", h="3600", hr="3600",
               hrs="3600", hour="3600", hours="3600", day="86400", days="86400", week="604800", weeks="604800"),
    **_several("years", year="1", years="1", yr="1", yrs="1", month="1/12", months="1/12", Gyr="1e9", Myr="1e6"),
    **_metric("g gram grams", "mass", "kmμu"),
    **_several("mass", lb="453.59237", lbs="453.59237", pound="453.59237", pounds="453.59237", amu="1.66054e-24"),
    **_metric("L l liter liters litre litres", "volume", "kdcmμu"),
    **_metric("J", "energy", "kmMG"), **_several("energy", joule="1", joules="1", eV="1.602176634e-19",
                                                  erg="1e-7", ergs="1e-7", kcal="4184", cal="4.184"),
    **_metric("N", "force", "km"), **_metric("W watt watts", "power", "kmMG"),
    **_metric("V volt volts", "voltage", "kmM"),
    **_metric("Hz", "frequency", "kMG"), **_metric("Pa", "pressure", "kMG"), **_metric("F", "capacitance", "mμunp"),
    **_metric("mol", "amount", "kmμu"), **_several("amount", mole="1", moles="1"),
    **_several("angle", degree="1", degrees="1", deg="1"),
    **_several("resistance", ohm="1", ohms="1", kohm="1e3", Mohm="1e6"),
    **_several("radians", rad="1", radian="1", radians="1"),
    **_several("eur", euro="1", euros="1", EUR="1"), **_several("gbp", sterling="1", GBP="1", pence="1/100"),
    **_several("yuan", yuan="1", CNY="1", RMB="1"), **_several("yen", yen="1", JPY="1"),
    **_several("rupees", rupee="1", rupees="1", Rs="1"), **_several("rubles", ruble="1", rubles="1", roubles="1"),
    **_several("pesos", peso="1", pesos="1"), **_several("francs", franc="1", francs="1"),
    **_several("share", percent="1/100", pct="1/100"),
    **_several("usd", usd="1", dollar="1", dollars="1", cent="1/100", cents="1/100"),
    **_several("temperature", K="1", kelvin="1", Kelvin="1"),
}  # fmt: skip
_COMPOSED = {  # of several units of the table
    "mph": (("mile", 1), ("hour", -1)), "kph": (("km", 1), ("hour", -1)), "kmph": (("km", 1), ("hour", -1)),
    "kmh": (("km", 1), ("hour", -1)), "fps": (("foot", 1), ("second", -1)), "mps": (("m", 1), ("second", -1)),
}  # fmt: skip
_AREA_WORDS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}

# What makes more of the words after a number than a unit: "5 or", "5 is wrong", "at least".
_SAYS_MORE = (
    "and or not no none non nor is isn are aren was were be if when where while than then least most more less fewer "
    "greater larger smaller between to except excluding without but for all both either neither any every unless "
    "otherwise else alt alternatively instead rather versus vs false wrong incorrect invalid never maybe perhaps "
    "possibly probably approximately about ou oder oder und et y o e aut aber mais pero nicht kein pas no ne ou sino "
    "squared cubed factorial factorials root roots choose times multiplied divided plus minus negative positive over "
    "under point dot base modulo mod remainder power powers exponent log ln sin cos tan exp sqrt pi tau infinity "
    "infinite half halves quarter quarters third thirds double triple twice thrice inverse reciprocal opposite even "
    "odd zero one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty sixty seventy "
    "eighty ninety nil null only up down above below after before until from with plusminus equals equal it its this "
    "that the answer true correct right nth gross score scores ppm ppb bps basis mio mrd"
)
_NOT_A_UNIT = frozenset(_SAYS_MORE.split())
_NUMBER_WORD = re.compile(
    r"(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|hundred|thousand|\w*teen|\w*tie|\w*illion)th?s?|\w+(?:teen|illion)s?"
)
_SCALES = {
    "lakh": 10**5, "crore": 10**7, "dozen": 12, "dozens": 12, "hundred": 100, "thousand": 10**3, "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12, "hundreds": 100, "thousands": 10**3, "millions": 10**6, "billions": 10**9, "trillions": 10**12,
}  # fmt: skip
_MOST_UNKNOWN_WORDS = 3
_UNNAMED = ("unit", "units")
_PIECE = re.compile(
    r"\\text\s*\{(?P<text>[^{}]*)\}|(?P<over>/)|\\cdot|\^\s*\{?\s*(?P<power>[+-]?\d)\s*\}?|(?P<bare>[A-Za-zμ]+)|[\s()\[\]]+"
    r"|\\(?P<greek>mu)(?![a-zA-Z])"
)
_NUMERIC_END = r"[\d)\]}]"
_BARE_UNIT = re.compile(
    rf"(?<={_NUMERIC_END})(?:(?P<gap>\s+)|(?<=\d))(?P<unit>[A-Za-z][A-Za-z\s/-]*(?:\^\{{?\d\}}?)?)$"
)


@dataclass(frozen=True)
class Unit:
    """What stood after a number.

    Attributes:
        words: its words as written, in lower case.
        dimension: powers of the base dimensions, such as ``(("length", 2),)``; None if it is no unit that we know.
        factor: how many of the base unit it is.
        scale: what the number is multiplied with: a million in ``5 million dollars``.
    """

    words: str
    dimension: tuple[tuple[str, int], ...] | None
    factor: Fraction
    scale: Fraction = Fraction(1)

    @property
    def percent(self) -> bool:
        """Whether it is the percent sign."""
        return self.dimension == (("share", 1),)


def split_unit(text: str) -> tuple[str, Unit | None]:
    """The text without the unit at its end (or the dollar before it), and the unit; None if there is none.

    Words that stand alone, or that do more than name a unit, are left where they are.
    """
    if text.lstrip("-( ").startswith(_USD):
        return text.replace(_USD, "", 1).strip(), _read("usd")
    place = text.find(r"\text")
    if place > 0:
        core = text[:place].rstrip()
        while core.endswith(("/", "\\cdot", "\\mu", "(")):
            core = core.removesuffix("/").removesuffix("\\cdot").removesuffix("\\mu").removesuffix("(").rstrip()
        unit = _read(text[len(core) :].strip())
        return (core, unit) if unit and core and core[-1] not in "+-=^_{" else (text, None)
    bare = _BARE_UNIT.search(text)
    if bare and not re.search(r"[A-Za-z]", re.sub(r"\\[a-zA-Z]+", "", text[: bare.start()])):
        words = bare["unit"].split()
        known = _read(bare["unit"])
        if known and (
            (known.dimension is not None and len(words[0].split("^")[0]) > 1)
            or (bare["gap"] and all(len(word) > 2 for word in words))
        ):
            return text[: bare.start()].strip(), known
    return text, None


def _read(text: str) -> Unit | None:
    """The unit that the text names; None if it says something else."""
    place, sign, power, names, greek, scale = 0, 1, 1, [], "", Fraction(1)
    while place < len(text):
        piece = _PIECE.match(text, place)
        if piece is None or piece.end() == place:
            return None
        place = piece.end()
        if piece["over"]:
            sign = -1
        elif piece["greek"]:
            greek = "μ"
        elif piece["power"]:
            if not names or piece["power"].startswith("+") or not (names[-1][0] in _TABLE or names[-1][0] in _UNNAMED):
                return None
            names[-1] = (names[-1][0], names[-1][1] * int(piece["power"]))
        elif piece["text"] is not None or piece["bare"]:
            written = piece["text"] if piece["text"] is not None else piece["bare"]
            if not re.fullmatch(r"[A-Za-zμ\s./~'^\d-]*", written):
                return None
            for part in re.findall(r"[A-Za-zμ]+|/|\^?-?\d", written):
                if part == "/" or part in ("per", "a", "each"):
                    sign = -1
                elif part[-1].isdigit():
                    if not names or not (names[-1][0] in _TABLE or names[-1][0] in _UNNAMED):
                        return None
                    names[-1] = (names[-1][0], names[-1][1] * int(part.lstrip("^")))
                elif part in _AREA_WORDS:
                    power = _AREA_WORDS[part]
                elif part.lower() in _SCALES and not names:
                    scale *= _SCALES[part.lower()]
                elif part in _COMPOSED:
                    names += [(name, sign * exponent) for name, exponent in _COMPOSED[part]]
                else:
                    names.append((greek + part, sign * power))
                    power, greek = 1, ""
    words = " ".join(name.lower() for name, _ in names)
    unknown = [name for name, _ in names if name not in _TABLE]
    if not names:
        return None if scale == 1 else Unit(words, None, Fraction(1), scale)
    if len(names) > 6 or len(unknown) > _MOST_UNKNOWN_WORDS or any(len(name) == 1 for name in unknown):
        return None
    if any(name.lower() in _NOT_A_UNIT or _NUMBER_WORD.fullmatch(name.lower()) for name in unknown):
        return None
    if unknown:
        return Unit(words, None, Fraction(1), scale)
    powers, factor = Counter(), Fraction(1)
    for name, exponent in names:
        dimension, size = _TABLE[name]
        powers[dimension] += exponent
        factor *= size**exponent
    return Unit(words, tuple(sorted((d, p) for d, p in powers.items() if p)), factor, scale)


def conversion(gold: Unit | None, answer: Unit | None) -> Fraction | None:
    """What a number in the answer's unit is multiplied with to be one in the gold's; None if they don't go together."""
    scale = (answer.scale if answer else Fraction(1)) / (gold.scale if gold else Fraction(1))
    if gold is None or answer is None or gold.dimension is None or answer.dimension is None:
        return scale
    return scale * answer.factor / gold.factor if gold.dimension == answer.dimension else None
