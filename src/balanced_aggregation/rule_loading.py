"""From a rule's name in the study to the function: registered rules, and functions in files of the user's own."""

import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from balanced_aggregation.aggregation import RULES, Rule, checked_rule


def load_rule(reference: str) -> Rule:
    """The rule that ``reference`` names: registered, ``module:function``, or ``path/to/file.py:function``.

    Modules are looked up from the working directory first.

    Raises:
        ValueError: there is no such rule, module, file or function.
    """
    if ":" not in reference:
        if reference not in RULES:
            raise ValueError(
                f"unknown rule; allowed: {', '.join(sorted(RULES))}, module:function, or path/to/file.py:function"
            )
        return RULES[reference]
    module_name, _, function_name = reference.rpartition(":")
    module = _import(module_name)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ValueError(f"{module_name} has no function {function_name!r}")
    return checked_rule(function)


def rule_file(reference: str) -> Path | None:
    """The file of a rule of the user's own, so that a change of it can be noticed; None for a registered rule."""
    if ":" not in reference:
        return None
    path = Path(_import(reference.rpartition(":")[0]).__file__).resolve()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def bind_rule(reference: str, parameters: Mapping[str, float], **defaults: float) -> Rule:
    """The rule with its parameters fixed; a default applies where the rule has such a parameter and none was given."""
    rule = load_rule(reference)
    accepted = inspect.signature(rule).parameters
    fixed = {name: value for name, value in defaults.items() if name in accepted} | dict(parameters)
    return functools.partial(rule, **fixed)


def check_rule(reference: str, parameters: Mapping[str, float]) -> None:
    """Call the rule on a small batch, so that a mistake shows before anything is trained.

    Raises:
        ValueError: the rule cannot be found, does not take the parameters, or breaks its contract.
    """
    accepted = list(inspect.signature(load_rule(reference)).parameters.values())
    if not any(p.kind is p.VAR_KEYWORD for p in accepted):
        names = [p.name for p in accepted[3:]]
        unknown = [name for name in parameters if name not in names]
        if unknown:
            allowed = ", ".join(names) or "none"
            raise ValueError(f"parameter {unknown[0]!r}: not one of the rule's; allowed: {allowed}")
    example = torch.tensor([3, 5, 0, 2, 4]), torch.tensor([1.0, -0.5, -0.5, 0.0, 0.0]), torch.tensor([7, 7, 7, 2, 2])
    try:
        bind_rule(reference, parameters, max_length=8)(*example)
    except ValueError:
        raise
    except Exception as error:  # a user's function may fail in any way; all of them mean that it cannot be used
        raise ValueError(f"fails on a small batch: {type(error).__name__}: {error}") from error


def _import(name: str):
    if name.endswith(".py"):
        path = Path(name).resolve()
        if not path.is_file():
            raise ValueError(f"no file {name}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        load = functools.partial(_load_file, spec)
    else:
        load = functools.partial(importlib.import_module, name)
    sys.path.insert(0, str(Path.cwd()))
    try:
        return load()
    except ModuleNotFoundError as error:
        raise ValueError(f"no module {error.name!r} (looked up from {Path.cwd()} first)") from error
    except Exception as error:  # importing runs the user's code
        raise ValueError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(Path.cwd()))


def _load_file(spec):
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
