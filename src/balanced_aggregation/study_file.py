"""Reading a study file, and saying what is wrong with it in one line for each mistake."""

import json
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from balanced_aggregation.config import (
    ArithmeticData,
    PretrainedModel,
    Section,
    SourceData,
    Study,
    TinyModel,
    TransformersRollout,
    VllmRollout,
)
from balanced_aggregation.errors import UserError


def parse_study(values: dict[str, Any], origin: str) -> Study:
    """Validate a study that has been read from ``origin``.

    Raises:
        UserError: one line for each wrong value, naming its key, the value and what is allowed.
    """
    try:
        return Study.model_validate(values)
    except ValidationError as error:
        lines = [f"{origin}: {_explain(detail, values)}" for detail in error.errors()]
        raise UserError("\n".join(lines)) from error


def load_study(path: Path) -> Study:
    """Read and validate a study file.

    Raises:
        UserError: the file is missing, is not YAML, or holds a wrong value.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"study file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"study file {path} is not UTF-8 text") from error
    except yaml.YAMLError as error:
        raise UserError(f"study file {path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise UserError(f"study file {path}: must be a mapping with the key 'study', got {type(values).__name__}")
    return parse_study(values, str(path))


def json_schema() -> str:
    """The JSON schema of a study file, for editors and for other tools."""
    return json.dumps(Study.model_json_schema(), indent=2) + "\n"


def _explain(detail: Any, values: Any) -> str:
    """One validation error as ``key = value: what is allowed``."""
    location = [
        part
        for i, part in enumerate(detail["loc"])
        if not (part in _TAGS and i and not _holds(values, detail["loc"], i))
    ]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    if detail["type"] == "missing":
        return f"{key}: missing; it must be given"
    if detail["type"] == "extra_forbidden":
        allowed = ", ".join(_allowed_keys(location[:-1], values))
        return f"{key} = {_short(detail['input'])}: unknown key; allowed: {allowed}"
    message = str(detail["ctx"]["error"]) if detail["type"] == "value_error" else detail["msg"]
    if not key:
        return message
    if message.startswith(f"{location[-1]} = "):  # the rule names itself, and its value
        return f"{key}: {message}"
    return f"{key} = {_short(detail['input'])}: {message[0].lower() + message[1:]}"


def _holds(values: Any, path: tuple, index: int) -> bool:
    """Whether the part of the path at ``index`` is a key of the file, not a tag."""
    for part in path[:index]:
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            continue
    return isinstance(values, dict) and path[index] in values


def _allowed_keys(location: list[str | int], values: Any) -> list[str]:
    section: Any = Study
    for part in location:
        values = values[part]
        if not isinstance(part, int):
            annotation = section.model_fields[part].annotation
        candidates = [a for a in _flatten(annotation) if isinstance(a, type) and issubclass(a, Section)]
        given = values if isinstance(values, dict) else {}
        fitting = [c for c in candidates if any(given.get(key) in _tags(c, key) for key in _DISCRIMINATORS)]
        section = (fitting or candidates)[0]
    return list(section.model_fields)


def _flatten(annotation: Any) -> list[Any]:
    """The types and literals inside a union, list, Literal or Annotated type."""
    parts = getattr(annotation, "__args__", None)
    return [leaf for part in parts for leaf in _flatten(part)] if parts else [annotation]


def _tags(section: type[Section], key: str) -> list[Any]:
    """Values of a section's key that tell it from the others of its union."""
    return _flatten(section.model_fields[key].annotation) if key in section.model_fields else []


_DISCRIMINATORS = ("kind", "engine")

# Pydantic puts the tag of a union into the path of an error.
_TAGS = {
    tag
    for section in (TinyModel, PretrainedModel, ArithmeticData, SourceData, TransformersRollout, VllmRollout)
    for key in _DISCRIMINATORS
    for tag in _tags(section, key)
}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
