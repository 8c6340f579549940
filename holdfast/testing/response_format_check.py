"""Checks of a request's `response_format` and functions, as strict as OpenAI's; it must not hold answers or I/O.

The rules are those of https://platform.openai.com/docs/guides/structured-outputs that a schema of ours could break.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SchemaSpec(_Strict):
    """A named schema; with `strict` it must keep the strict rules."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str = ""
    body: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None

    @model_validator(mode="after")
    def _keeps_the_strict_rules(self) -> Self:
        if self.strict:
            check_strict_schema(self.body)
        return self


class RequestedText(_Strict):
    """An answer in words."""

    type: Literal["text"]


class RequestedObject(_Strict):
    """Some JSON object."""

    type: Literal["json_object"]


class RequestedSchema(_Strict):
    """JSON as a schema says."""

    type: Literal["json_schema"]
    json_schema: SchemaSpec


class FunctionSpec(_Strict):
    """A function that the model may call."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: Annotated[str, Field(max_length=1024)] = ""
    parameters: dict[str, Any]
    strict: bool | None = None

    @model_validator(mode="after")
    def _takes_an_object(self) -> Self:
        if self.parameters.get("type") != "object":
            raise ValueError("'parameters' must be a JSON Schema of type 'object'")
        if self.strict:
            check_strict_schema(self.parameters)
        return self


AskedFormat = Annotated[RequestedText | RequestedObject | RequestedSchema, Field(discriminator="type")]


def check_strict_schema(body: dict[str, Any]) -> None:
    """Raise ValueError for a schema that strict mode refuses."""
    if body.get("type") != "object":
        raise ValueError("schema must be a JSON Schema of 'type: \"object\"'")
    for schema in _within(body):
        _check_strict(schema)


def _within(schema: object) -> Iterator[dict[str, Any]]:
    """Yield the schema and those inside it."""
    if not isinstance(schema, dict):
        return
    fields = cast("dict[str, Any]", schema)
    yield fields
    inner: list[object] = [fields.get("items"), *fields.get("anyOf", ())]
    inner += [*fields.get("properties", {}).values(), *fields.get("$defs", {}).values()]
    for each in inner:
        yield from _within(each)


def _check_strict(schema: dict[str, Any]) -> None:
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            raise ValueError("'additionalProperties' is required to be supplied and to be false")
        if set(schema.get("required", ())) != set(schema.get("properties", ())):
            raise ValueError("'required' is required to include every key in properties")
    if "$ref" in schema and len(schema) > 1:
        raise ValueError("$ref cannot have keywords beside it")
    if refused := sorted({"oneOf", "allOf", "not", "default", "prefixItems"} & schema.keys()):
        raise ValueError(f"'{refused[0]}' is not permitted")
