"""The names that LiveCodeBench's grader gives to every program, since starter code relies on some of them."""

import functools
import importlib

# In the order in which their public names are added there: the later wins.
_STAR_IMPORTS = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
    "functools", "operator", "io", "sys", "json", "typing",
)  # fmt: skip
RECURSION_LIMIT = 50_000
"""LiveCodeBench's, too."""


@functools.cache
def usual_names() -> dict[str, tuple[str, str | None]]:
    """Module and attribute of each name; no attribute if the name is the module's."""
    names: dict[str, tuple[str, str | None]] = {}
    for name in _STAR_IMPORTS:
        module = importlib.import_module(name)
        public = getattr(module, "__all__", None) or [each for each in vars(module) if not each.startswith("_")]
        names |= {each: (name, each) for each in public}
    return names | {name: (name, None) for name in _STAR_IMPORTS}
