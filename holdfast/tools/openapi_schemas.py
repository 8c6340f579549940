"""Schemas of an OpenAPI document as one JSON Schema that refers to nothing outside itself. Checks no values."""

from __future__ import annotations

import re
from typing import Final

from pydantic import JsonValue
from pydantic_core import to_json

from holdfast.core.base.errors import InvalidInput
from holdfast.core.conversation.messages import ILLEGAL_IN_NAME
from holdfast.tools.openapi_document import Object, OpenAPIDocument, items, mapping

SCHEMA_BYTES_MAX: Final = 64 * 1024
"""The largest schema of one operation, in bytes of JSON: every request to the model holds it."""

SCHEMA_DEPTH_MAX: Final = 48
"""The deepest nesting of a schema between two references."""

NAMED_SCHEMAS: Final = ("properties", "dependentSchemas")
LISTED_SCHEMAS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
ONE_SCHEMA: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
"""Where a schema holds others."""

LEFT_OUT: Final = frozenset(
    {
        *("$schema", "$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$defs", "definitions", "$comment"),
        *("discriminator", "xml", "externalDocs", "example", "examples", "nullable"),
        *("unevaluatedProperties", "unevaluatedItems", "patternProperties", "pattern"),
    }
)
"""What says nothing to a model, or what a check would take unbounded time for: the server checks it itself."""


class SchemaBundle:
    """Collects the schemas of one operation; what they refer to stands once, under `$defs`, so cycles stay finite."""

    def __init__(self, document: OpenAPIDocument) -> None:
        self._document = document
        self._names: dict[str, str] = {}
        self._definitions: dict[str, JsonValue] = {}
        self._size = 0

    def added(self, schema: JsonValue) -> JsonValue:
        """Return `schema` as it stands in the bundle. Raises InvalidInput for what cannot be had."""
        result = self._schema(schema, 0)
        while missing := [ref for ref, name in self._names.items() if name not in self._definitions]:
            for ref in missing:
                self._definitions[self._names[ref]] = definition = self._schema(self._document.pointed(ref), 0)
                self._count(definition)
        self._count(result)
        return result

    @property
    def definitions(self) -> Object:
        """What the added schemas refer to, by name."""
        return self._definitions

    def _count(self, schema: JsonValue) -> None:
        self._size += len(to_json(schema))
        if self._size > SCHEMA_BYTES_MAX:
            raise InvalidInput(f"its parameters and body take more than {SCHEMA_BYTES_MAX:,} bytes of JSON Schema")

    def _schema(self, value: JsonValue, depth: int) -> JsonValue:
        if not isinstance(value, dict):
            return value if isinstance(value, bool) else True
        if depth > SCHEMA_DEPTH_MAX:
            raise InvalidInput(f"a schema of it is nested more than {SCHEMA_DEPTH_MAX} levels deep")
        if self._document.nullable and "$ref" in value:
            return {"$ref": self._reference(value["$ref"])}  # in 3.0 nothing counts beside it
        result: dict[str, JsonValue] = {}
        for key, each in value.items():
            if key == "$ref":
                result[key] = self._reference(each)
            elif key in NAMED_SCHEMAS:
                result[key] = {name: self._schema(inner, depth + 1) for name, inner in mapping(each).items()}
            elif key in LISTED_SCHEMAS:
                result[key] = [self._schema(inner, depth + 1) for inner in items(each)]
            elif key in ONE_SCHEMA:
                result[key] = self._schema(each, depth + 1)
            elif key not in LEFT_OUT:
                result[key] = each
        return self._in_full(value, result)

    def _in_full(self, value: Object, result: dict[str, JsonValue]) -> JsonValue:
        """Return `result` with what `value` says in a way of its own."""
        if "patternProperties" in value:
            result.pop("additionalProperties", None)  # it would refuse the names that those patterns allow
        if isinstance(pattern := value.get("pattern"), str):
            # only shown: one that backtracks without end would block the worker
            result["description"] = " ".join(filter(None, (str(result.get("description", "")), f"Pattern: {pattern}")))
        if not self._document.nullable:
            return result
        for limit in ("Minimum", "Maximum"):
            if isinstance(exclusive := result.get(f"exclusive{limit}"), bool):
                del result[f"exclusive{limit}"]
                if exclusive and limit.lower() in result:
                    result[f"exclusive{limit}"] = result.pop(limit.lower())
        return _or_null(result) if value.get("nullable") is True else result

    def _reference(self, ref: JsonValue) -> str:
        if not isinstance(ref, str):
            raise InvalidInput(f"the reference {str(ref)[:200]!r} is no text")
        if ref not in self._names:
            name = ILLEGAL_IN_NAME.sub("_", ref.rsplit("/", 1)[-1])[:64] or "schema"
            self._names[ref] = unique(name, set(self._names.values()))
        return f"#/$defs/{self._names[ref]}"


def unique(name: str, taken: set[str], chars_max: int = 64) -> str:
    """Return `name`, with a number behind it where it is taken; in all at most `chars_max` characters."""
    result, number = name[:chars_max], 1
    while result in taken:
        number += 1
        result = f"{name[: chars_max - len(str(number)) - 1]}_{number}"
    return result


def plain_text(*texts: object) -> str:
    """Return the texts that are there, one below the other, with blanks joined and HTML's tags left out."""
    words = (re.sub(r"<[^<>]{1,200}>", "", text) for text in texts if isinstance(text, str))
    return "\n\n".join(dict.fromkeys(filter(None, (re.sub(r"[ \t]+", " ", text).strip() for text in words))))


def _or_null(schema: dict[str, JsonValue]) -> JsonValue:
    kind = schema.get("type")
    if isinstance(kind, str):
        values = schema.get("enum")
        more: dict[str, JsonValue] = {"enum": [*values, None]} if isinstance(values, list) else {}
        return {**schema, "type": [kind, "null"], **more}
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema
