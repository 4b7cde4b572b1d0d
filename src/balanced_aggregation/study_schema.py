"""The JSON schema of study files, for editors and for other tools; it is generated from the models of `config`."""

import json
from typing import Any

from pydantic import TypeAdapter

from balanced_aggregation.config import Study, VariantName
from balanced_aggregation.study_file import VARIANTS

_PARTIAL = "Partial"


def json_schema() -> str:
    """The schema of a study file, as JSON.

    A file with variants is checked part by part: whether a variant is complete shows only once it has been merged.
    """
    definitions = Study.model_json_schema(ref_template="#/$defs/{model}")
    study = {key: value for key, value in definitions.items() if key != "$defs"}
    full = definitions["$defs"] | {"Study": study}
    rule = full["RuleChoice"] | {"required": ["rule"]}
    full["RuleChoice"] = {"anyOf": [{"type": "string", "description": "Stands for {rule: name}."}, rule]}
    # A part that is given in the common settings and in a variant may be incomplete in both.
    partial = {f"{_PARTIAL}{name}": _partial(definition) for name, definition in full.items()}
    changes = partial[f"{_PARTIAL}Study"]
    changes["properties"] = {k: v for k, v in changes["properties"].items() if k not in ("study", "variant")}
    variants = {
        "type": "object",
        "description": "Several settings of one study: what each changes of the rest of the file, by name. "
        "Mappings are merged, lists replaced. Results are written to results/<study>/<variant>/.",
        "minProperties": 1,
        "propertyNames": TypeAdapter(VariantName).json_schema(),
        "additionalProperties": {"$ref": f"#/$defs/{_PARTIAL}Study"},
    }
    with_variants = changes | {
        "title": "Study with variants",
        "properties": {"study": study["properties"]["study"], **changes["properties"], VARIANTS: variants},
        "required": ["study", VARIANTS],
    }
    schema = {
        "title": "Study file",
        "if": {"required": [VARIANTS]},
        "then": {"$ref": "#/$defs/StudyWithVariants"},
        "else": {"$ref": "#/$defs/Study"},
        "$defs": full | partial | {"StudyWithVariants": with_variants},
    }
    return json.dumps(schema, indent=2) + "\n"


def _partial(schema: Any) -> Any:
    """The same schema with every key optional, down to lists: these are replaced as a whole, so their items are not."""
    if isinstance(schema, list):
        return [_partial(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {}
    for key, value in schema.items():
        if key == "$ref":
            made[key] = value.replace("#/$defs/", f"#/$defs/{_PARTIAL}")
        elif key == "oneOf":  # without its tag a part may fit several
            made["anyOf"] = _partial(value)
        elif key in ("items", "prefixItems", "properties"):
            made[key] = value if key != "properties" else {k: _partial(v) for k, v in value.items()}
        elif key not in ("required", "discriminator"):
            made[key] = _partial(value)
    return made
