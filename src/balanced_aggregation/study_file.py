"""Reading a study file, and saying what is wrong with it in one line for each mistake."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from balanced_aggregation.config import (
    RULES_UNCALLED,
    ArithmeticData,
    PretrainedModel,
    Section,
    SourceData,
    Study,
    TinyModel,
    TransformersRollout,
    VariantName,
    VllmRollout,
)
from balanced_aggregation.errors import UserError

VARIANTS = "variants"
"""Key of a study file that holds several settings: ``{name: what differs from the rest of the file}``."""

_NOT_OF_A_VARIANT = ("study", "variant", VARIANTS)
_DISCRIMINATORS = ("kind", "engine")


def parse_study(values: dict[str, Any], origin: str, call_rules: bool = True) -> Study:
    """Validate one study, without variants, that has been read from ``origin``.

    Args:
        values: what the file holds.
        origin: what messages call it.
        call_rules: see `load_studies`.

    Raises:
        UserError: one line for each wrong value, naming its key, the value and what is allowed.
    """
    study, mistakes = _validate(values, call_rules)
    if study is None:
        raise UserError("\n".join(f"{origin}: {mistake}" for mistake in mistakes))
    return study


def parse_studies(values: dict[str, Any], origin: str, call_rules: bool = True) -> list[Study]:
    """Validate the variants of a study that has been read from ``origin``; one study if it has no variants.

    Each variant is merged over the rest of the file: mappings key by key, anything else, lists too, as a whole. A
    mapping of another ``kind`` or ``engine`` replaces the one it would be merged with.

    Args:
        values: what the file holds.
        origin: what messages call it.
        call_rules: see `load_studies`.

    Raises:
        UserError: one line for each wrong value, naming the variant, the key, the value and what is allowed.
    """
    if VARIANTS not in values:
        return [parse_study(values, origin, call_rules)]
    common = {key: value for key, value in values.items() if key != VARIANTS}
    variants = values[VARIANTS]
    _check_variants(variants, common, origin)
    studies, mistakes = [], {}
    for name, changes in variants.items():
        study, mistakes[name] = _validate(_merge(common, changes) | {"variant": name}, call_rules)
        studies += [study] if study else []
    lines = [f"{origin}: {mistake}" for mistake in _of_all(list(mistakes.values()))]
    lines += [
        f"{origin}: variant {name}: {mistake}"
        for name, own in mistakes.items()
        for mistake in own
        if f"{origin}: {mistake}" not in lines
    ]
    if lines:
        raise UserError("\n".join(lines))
    lighteval = {study.variant: study.evaluation.lighteval for study in studies}
    if len(set(lighteval.values())) > 1:
        found = ", ".join(f"{value} in {name}" for name, value in lighteval.items())
        raise UserError(f"{origin}: evaluation.lighteval: must be the same in all variants; it is {found}")
    return studies


def load_study(path: Path) -> Study:
    """Read and validate the file of one study.

    Raises:
        UserError: the file is missing, is not YAML, holds a wrong value, or has variants.
    """
    values = _read(path)
    if VARIANTS in values:
        folders = ", ".join(str(study.folder / "study.yaml") for study in parse_studies(values, str(path)))
        raise UserError(f"study file {path}: has variants; give the file of one, which `snakemake` writes: {folders}")
    return parse_study(values, str(path))


def load_studies(path: Path, call_rules: bool = True) -> list[Study]:
    """Read and validate a study file: its variants in their order, or the one study that it holds.

    Args:
        path: the file.
        call_rules: try each rule on a small batch; without, neither torch nor the user's own files are loaded.

    Raises:
        UserError: the file is missing, is not YAML, or holds a wrong value.
    """
    return parse_studies(_read(path), str(path), call_rules)


def _read(path: Path) -> dict[str, Any]:
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
    return values


def _check_variants(variants: Any, common: dict[str, Any], origin: str) -> None:
    """Refuse what is no mapping of names to parts of a study."""
    if not isinstance(variants, dict) or not variants:
        raise UserError(
            f"{origin}: {VARIANTS} = {_short(variants)}: must be a mapping of at least one name to settings"
        )
    if "variant" in common:
        raise UserError(f"{origin}: variant = {_short(common['variant'])}: a file with {VARIANTS} does not give it")
    for name, changes in variants.items():
        try:
            TypeAdapter(VariantName).validate_python(name, strict=True)
        except ValidationError as error:
            what = error.errors()[0]["msg"]
            raise UserError(f"{origin}: {VARIANTS}: name {_short(name)}: {what[0].lower() + what[1:]}") from error
        if not isinstance(changes, dict):
            raise UserError(f"{origin}: variant {name} = {_short(changes)}: must be a mapping of settings")
        for key in _NOT_OF_A_VARIANT:
            if key in changes:
                raise UserError(f"{origin}: variant {name}: {key} = {_short(changes[key])}: no variant has this key")


def _merge(common: Any, changes: Any) -> Any:
    """``changes`` over ``common``; neither of them is changed."""
    if not isinstance(common, dict) or not isinstance(changes, dict):
        return changes
    if any(key in common and key in changes and common[key] != changes[key] for key in _DISCRIMINATORS):
        return changes
    return {**common, **{key: _merge(common.get(key), value) for key, value in changes.items()}}


def _of_all(mistakes: list[list[str]]) -> list[str]:
    """Mistakes that several variants have because the common part has them."""
    return [mistake for mistake in mistakes[0] if len(mistakes) > 1 and all(mistake in own for own in mistakes)]


def _validate(values: dict[str, Any], call_rules: bool) -> tuple[Study | None, list[str]]:
    """The study, or None and its mistakes."""
    try:
        return Study.model_validate(values, context={RULES_UNCALLED: not call_rules}), []
    except ValidationError as error:
        return None, [_explain(detail, values) for detail in error.errors()]


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
    keys = list(section.model_fields)
    return [VARIANTS if key == "variant" else key for key in keys] if section is Study else keys


def _flatten(annotation: Any) -> list[Any]:
    """The types and literals inside a union, list, Literal or Annotated type."""
    parts = getattr(annotation, "__args__", None)
    return [leaf for part in parts for leaf in _flatten(part)] if parts else [annotation]


def _tags(section: type[Section], key: str) -> list[Any]:
    """Values of a section's key that tell it from the others of its union."""
    return _flatten(section.model_fields[key].annotation) if key in section.model_fields else []


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
