"""`@tool`: what the model is told of a function, what is checked before it runs, and what becomes of its result."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from pydantic_core import to_json

from holdfast.core.base.bounds import ERROR_CHARS_MAX, NAME_CHARS_MAX, PAYLOAD_BYTES_MAX, TOOL_RESULT_CHARS_MAX
from holdfast.core.base.errors import InvalidArguments, InvalidInput
from holdfast.core.base.frozen import canonical
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_results import StopRun, reply_of
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.tools.tools import AnyTool, tool

CONTEXT = ToolContext(execution_id="e", idempotency_key="k", attempt=1)


class Place(BaseModel):
    """A place on a map."""

    latitude: float = Field(ge=-90, le=90)
    name: str = ""


class Colour(enum.Enum):
    """A colour."""

    RED = "red"


@dataclasses.dataclass
class Point:
    """A point."""

    x: int


@tool
def search(
    query: str, limit: Annotated[int, Field(ge=1, le=50)] = 10, kind: Literal["text", "name"] = "text"
) -> list[str]:
    """Search the folder.

    It looks at names, too.

    Args:
        query: what to look for;
            a regular expression.
        limit (int): the most hits.

    Returns:
        The hits: one per line.
    """
    return [query, kind] * limit


@tool
async def visit(place: Place, context: ToolContext, tags: list[str] | None = None) -> str:
    """Go there."""
    return f"{place.name}{tags}{context.attempt}"


def properties(made: AnyTool) -> dict[str, Any]:
    found: Any = made.schema.parameters["properties"]
    return dict(found)


def test_name_and_description_come_from_the_function() -> None:
    assert search.name == search.schema.name == search.traits.name == "search"
    assert search.schema.description == "Search the folder.\n\nIt looks at names, too."


def test_parameters_are_described_by_annotations_and_docstring() -> None:
    assert search.schema.parameters["type"] == "object"
    assert search.schema.parameters["required"] == ["query"]
    assert search.schema.parameters["additionalProperties"] is False
    described = properties(search)
    assert described["query"] == {
        "description": "what to look for; a regular expression.",
        "title": "Query",
        "type": "string",
    }
    assert (described["limit"]["minimum"], described["limit"]["maximum"], described["limit"]["default"]) == (1, 50, 10)
    assert described["limit"]["description"] == "the most hits."
    assert described["kind"]["enum"] == ["text", "name"]
    assert "description" not in described["kind"]


def test_a_tool_can_still_be_called_as_the_function_it_is() -> None:
    assert search("a", limit=1) == ["a", "text"]


def test_the_context_is_hidden_from_the_model_and_filled_in_by_us() -> None:
    assert set(properties(visit)) == {"place", "tags"}
    assert "ToolContext" not in str(visit.schema.parameters)
    bound = visit.bind({"place": {"latitude": 1}}, CONTEXT)
    assert bound == {"place": Place(latitude=1), "tags": None, "context": CONTEXT}


def test_the_model_cannot_supply_the_context() -> None:
    forged = {"place": {"latitude": 1}, "context": {"execution_id": "x", "idempotency_key": "y", "attempt": 9}}
    with pytest.raises(InvalidArguments, match="context: Extra inputs"):
        visit.bind(forged, CONTEXT)


def test_an_optional_context_is_hidden_or_refused_but_never_offered_to_the_model() -> None:
    def effect(context: ToolContext | None = None) -> str:
        return str(context)

    try:
        made = tool(effect)
    except InvalidInput:
        return
    assert "context" not in properties(made)


def test_arguments_are_converted_to_the_types_of_the_function() -> None:
    assert search.bind({"query": "a", "limit": "7"}, CONTEXT) == {"query": "a", "limit": 7, "kind": "text"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, ["query: Field required"]),
        ({"query": 5}, ["query: Input should be a valid string"]),
        ({"query": "a", "limit": 0}, ["limit: Input should be greater than or equal to 1"]),
        ({"query": "a", "limit": "x", "kind": "z"}, ["limit: ", "kind: Input should be 'text' or 'name'"]),
        ({"query": "a", "page": 2}, ["page: Extra inputs are not permitted"]),
        ({"query": "a", "limit": float("nan")}, ["limit: "]),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_every_field_named(
    arguments: dict[str, Any], told: list[str]
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        search.bind(arguments, CONTEXT)
    for each in told:
        assert each in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bad_field_inside_a_value_is_named_by_its_path() -> None:
    with pytest.raises(InvalidArguments, match=r"place\.latitude: Input should be less than or equal to 90"):
        visit.bind({"place": {"latitude": 91}}, CONTEXT)


def test_a_refusal_is_bounded_and_does_not_repeat_the_arguments() -> None:
    with pytest.raises(InvalidArguments) as caught:
        search.bind({"query": "a"} | {f"field_{n}": "secret" for n in range(1_000)}, CONTEXT)
    assert len(str(caught.value)) <= ERROR_CHARS_MAX
    assert "secret" not in str(caught.value)


def test_traits_are_bounded_and_have_defaults() -> None:
    told = len(canonical(search.schema))
    assert search.traits == ToolTraits(
        name="search",
        timeout_seconds=60,
        attempts_max=3,
        at_most_once=False,
        described_bytes=told,
        required=("query",),
    )
    made = tool(name="pay", timeout_seconds=5, at_most_once=True)(lambda: None)
    told = len(canonical(made.schema))
    assert made.traits == ToolTraits(
        name="pay", timeout_seconds=5, attempts_max=1, at_most_once=True, described_bytes=told
    )


@pytest.mark.parametrize("traits", [{"timeout_seconds": 0}, {"timeout_seconds": 1e9}, {"attempts_max": 0}])
def test_traits_out_of_bounds_are_refused_with_one_line_that_names_the_tool(traits: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="pay") as caught:
        tool(name="pay", **traits)(lambda: None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["inference", "resolve_tools"])
def test_names_of_our_own_activities_are_reserved(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"'{name}' is a name of our own"):
        tool(name=name)(lambda: None)


@pytest.mark.parametrize("name", ["a b", "größe", "a.b", "x" * (NAME_CHARS_MAX + 1), "a\n"])
def test_names_that_no_provider_takes_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot name a tool"):
        tool(name=name)(lambda: None)


def test_a_function_without_a_usable_name_needs_one() -> None:
    with pytest.raises(InvalidInput, match="<lambda>"):
        tool(lambda: None)


def variadic(*names: str) -> str:
    return "".join(names)


def keywords(**names: str) -> str:
    return "".join(names)


def positional(name: str, /) -> str:
    return name


@pytest.mark.parametrize(("function", "name"), [(variadic, "names"), (keywords, "names"), (positional, "name")])
def test_only_ordinary_named_parameters_can_be_offered(function: Callable[..., str], name: str) -> None:
    with pytest.raises(InvalidInput, match=f"'{function.__name__}': parameter '{name}' must be an ordinary"):
        tool(function)


def test_a_parameter_without_a_type_is_refused() -> None:
    namespace: dict[str, Any] = {}
    exec("def untyped(query): return query", namespace)  # noqa: S102  # the type checkers would refuse it here
    with pytest.raises(InvalidInput, match="'untyped': parameter 'query' needs a type annotation"):
        tool(namespace["untyped"])


@pytest.mark.parametrize("name", ["schema", "json", "copy", "validate", "model_fields", "model_config", "_private"])
def test_any_parameter_name_works_without_a_warning_or_is_refused_by_name(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def query({name}: str) -> str: return {name}", namespace)  # noqa: S102  # the name is the case
    try:
        made: AnyTool = tool(namespace["query"])
    except InvalidInput as refused:
        assert name in str(refused)  # noqa: PT017  # refusing is the other good end
        return
    assert made.bind({name: "a"}, CONTEXT) == {name: "a"}
    assert name in properties(made)


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    made = tool(name="ping")(lambda: "pong")
    assert made.schema.parameters == {"additionalProperties": False, "properties": {}, "type": "object"}
    assert made.bind({}, CONTEXT) == {}


def test_a_default_is_used_and_not_shared() -> None:
    def collect(into: list[str] = []) -> list[str]:  # noqa: B006  # the trap this test is about
        return into

    made = tool(collect)
    made.bind({}, CONTEXT)["into"].append("x")
    assert made.bind({}, CONTEXT) == {"into": []}


def generate() -> Iterator[int]:
    yield from range(3)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text as it is", "text as it is"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (7, "7"),
        (1.5, "1.5"),
        ([1, "a", None], '[1,"a",null]'),
        ({"ä": {"b": ()}}, '{"ä":{"b":[]}}'),
        ({1: 2, None: 3}, '{"1":2,"None":3}'),
        ({1}, "[1]"),
        (generate(), "[0,1,2]"),
        (float("nan"), '"NaN"'),
        ([float("-inf")], '["-Infinity"]'),
        (dt.datetime(2025, 1, 1, tzinfo=dt.UTC), '"2025-01-01T00:00:00Z"'),
        (dt.timedelta(seconds=90), '"PT1M30S"'),
        (Path("/a/b"), '"/a/b"'),
        (Colour.RED, '"red"'),
        (Point(3), '{"x":3}'),
        (Place(latitude=1, name="x"), '{"latitude":1.0,"name":"x"}'),
        (b"bytes", '"bytes"'),
        (b"\xff", "b'\\xff'"),
        (Ellipsis, "Ellipsis"),
        (ValueError("x"), "ValueError('x')"),
        (["\ud800"], "['\\ud800']"),
        ("\ud800", "?"),
    ],
)
def test_a_result_becomes_text(value: object, text: str) -> None:
    assert reply_of(value).text == text


def test_a_result_that_contains_itself_becomes_text() -> None:
    circle: list[object] = []
    circle.append(circle)
    assert reply_of(circle).text == "[[...]]"


def nest(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


class Unspeakable:
    """A value whose text raises."""

    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "value", [nest(100_000), Unspeakable(), [Unspeakable()], 10**6_000], ids=lambda v: type(v).__name__
)
def test_a_result_that_has_no_text_still_becomes_one(value: object) -> None:
    assert reply_of(value).text  # the effect has happened: an error would tell the model that it had not


@given(st.integers(0, 3), st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=5))
def test_a_result_is_cut_to_the_limit_and_says_so(beyond: int, text: str) -> None:
    whole = (text + "x") * (TOOL_RESULT_CHARS_MAX // (len(text) + 1) + beyond)
    told = reply_of(whole).text
    assert len(told) <= TOOL_RESULT_CHARS_MAX
    if len(whole) > TOOL_RESULT_CHARS_MAX:
        assert told.endswith(f"[cut: the beginning of {len(whole):,} characters]")
        assert told.endswith(f" {len(whole):,} characters]")
    else:
        assert told == whole


def test_a_cut_result_is_not_cut_again() -> None:
    once = reply_of("x" * 10**6).text
    assert reply_of(once).text == once


def test_a_result_of_control_characters_is_cut_and_the_cut_names_what_there_was() -> None:
    told = reply_of("\x1b" * 10**6).text
    assert "[cut: " in told[-80:]
    assert "1,000,000 characters]" in told[-80:]


@pytest.mark.parametrize("filling", ["x", "\U0001f600", "ä", '"', "\x1b", "\x00", "\\"])
def test_the_longest_result_fits_a_payload_whatever_its_characters(filling: str) -> None:
    assert len(to_json(reply_of(filling * 10**6).text)) <= PAYLOAD_BYTES_MAX


@pytest.mark.parametrize(
    "value", [{"a": [1, None]}, [], 3, 2.5, True, None, Place(latitude=1), dt.datetime(2025, 1, 1, tzinfo=dt.UTC)]
)
def test_a_result_that_is_no_text_is_marked_as_json_which_says_the_same(value: object) -> None:
    reply = reply_of(value)
    assert (reply.text, reply.result_type) == (to_json(value).decode(), "json")
    assert reply_of(StopRun(value, "enough")).result_type == "json"


@pytest.mark.parametrize("value", ["", "words", '{"a": 1}', "null"])
def test_a_result_that_is_a_text_is_a_text_also_where_it_could_be_json(value: str) -> None:
    assert reply_of(value).result_type == "text"
    assert reply_of(StopRun(value, "enough")).result_type == "text"


@pytest.mark.parametrize(
    "value",
    [["x" * TOOL_RESULT_CHARS_MAX], b"\xff", Ellipsis, 10**6_000, nest(80)],
    ids=lambda value: type(value).__name__,
)
def test_a_result_whose_text_is_cut_or_no_json_is_a_text(value: object) -> None:
    assert reply_of(value).result_type == "text"
