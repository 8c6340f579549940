"""Which tools can be `strict`: those whose schemas keep the rules of OpenAI's structured outputs. Changes no schema.

The rules are those of https://platform.openai.com/docs/guides/structured-outputs: every property is required, objects
are closed, and only some keywords are there. A schema with an optional argument breaks them, and stays as it is: its
tool is offered without `strict`, since a model that must give an argument has to invent it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

LEVELS_MAX: Final = 10
"""The deepest nesting that OpenAI takes in a strict schema."""

KEYWORDS: Final = frozenset(
    {
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "multipleOf",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
    }
)
"""What may stand in a strict schema."""


def can_be_strict(parameters: Mapping[str, object]) -> bool:
    """Return whether a provider can hold calls to the JSON Schema `parameters`."""
    return parameters.get("type") == "object" and _keeps_rules(parameters, LEVELS_MAX)


def _keeps_rules(schema: object, levels: int) -> bool:
    if not isinstance(schema, Mapping) or levels < 0:
        return False
    fields = cast("Mapping[str, object]", schema)
    if not fields.keys() <= KEYWORDS or ("$ref" in fields and len(fields) > 1):
        return False
    properties = _mapping(fields.get("properties"))
    if fields.get("type") == "object" or properties:
        required = fields.get("required")
        names = sorted(map(str, cast("list[object]", required))) if isinstance(required, list) else []
        if fields.get("additionalProperties") is not False or names != sorted(properties):
            return False
    choices = fields.get("anyOf")
    inner = [*properties.values(), *_mapping(fields.get("$defs")).values()]
    inner += [fields["items"]] if "items" in fields else []
    inner += cast("list[object]", choices) if isinstance(choices, list) else []
    return all(_keeps_rules(each, levels - 1) for each in inner)


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}
