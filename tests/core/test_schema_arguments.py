"""Tools whose arguments a JSON Schema describes: what the model sees, and how the function takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from holdfast.core.base.errors import InvalidInput
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tools import tool

CONTEXT = ToolContext(execution_id="e", idempotency_key="k", attempt=1)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"user-id": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["user-id"],
}


def keywords(**arguments: Any) -> str:  # noqa: ANN401  # JSON
    """Look a user up."""
    return repr(arguments)


def one_dict(arguments: dict[str, Any]) -> str:
    return repr(arguments)


def one_mapping(ctx: ToolContext, arguments: Mapping[str, int]) -> str:
    return f"{arguments} for {ctx.idempotency_key}"


def test_the_model_sees_the_given_schema_name_and_description() -> None:
    made = tool(name="user", description="A user.", schema=SCHEMA)(keywords)
    assert (made.schema.name, made.schema.description, made.schema.parameters) == ("user", "A user.", SCHEMA)
    assert made.traits.required == ("user-id",)
    assert tool(schema=SCHEMA)(keywords).schema.description == "Look a user up."


def test_a_description_can_stand_in_place_of_a_docstring_without_a_schema_too() -> None:
    @tool(description="Adds.")
    def add(a: int) -> int:
        """Another text."""
        return a

    assert add.schema.description == "Adds."
    assert add.bind({"a": "1"}, CONTEXT) == {"a": 1}


@pytest.mark.parametrize("function", [keywords, one_dict, one_mapping], ids=lambda each: each.__name__)
def test_the_function_takes_keywords_or_one_dict_as_the_model_sent_them(function: Callable[..., str]) -> None:
    made = tool(schema=SCHEMA)(function)
    bound = made.bind({"user-id": 1.0, "more": None}, CONTEXT)
    said = str({"user-id": 1.0, "more": None})
    assert made.function(**bound) == (f"{said} for k" if function is one_mapping else said)
    assert made.traits.context is (function is one_mapping)


def test_a_context_beside_keywords_cannot_be_forged() -> None:
    @tool(schema={"type": "object"})
    def act(ctx: ToolContext, **arguments: int) -> str:
        return f"{ctx.idempotency_key} {arguments}"

    assert act.function(**act.bind({"ctx": "mine", "n": 1}, CONTEXT)) == "k {'n': 1}"


def two(first: dict[str, Any], second: dict[str, Any]) -> None: ...
def mixed(first: dict[str, Any], **rest: Any) -> None: ...  # noqa: ANN401  # JSON
def number(n: int) -> None: ...
def none() -> None: ...
def listed(*arguments: Any) -> None: ...  # noqa: ANN401  # JSON
def only_positional(arguments: dict[str, Any], /) -> None: ...


@pytest.mark.parametrize(
    "function", [two, mixed, number, none, listed, only_positional], ids=lambda each: each.__name__
)
def test_any_other_function_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidInput, match=rf"tool '{function.__name__}': with a `schema` the function takes"):
        tool(schema=SCHEMA)(function)


def test_a_property_with_the_name_of_the_context_is_refused() -> None:
    def act(note: ToolContext, **arguments: int) -> None: ...

    with pytest.raises(InvalidInput, match="parameter 'note' takes the ToolContext, and `schema` has a property of"):
        tool(schema=SCHEMA)(act)


@pytest.mark.parametrize(
    "schema", [{}, {"type": "array"}, {"type": "object", "x": object()}], ids=("empty", "array", "no JSON")
)
def test_what_is_no_json_schema_of_an_object_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="tool 'keywords': `schema`"):
        tool(schema=schema)(keywords)
