"""Whether an answer fits what was promised: every fault is told in a line a model can act on, and costs little."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from holdfast.core.agent.policies import JsonObjectFormat, JsonSchemaFormat, ResponseFormat, TextFormat
from holdfast.core.base.bounds import (
    ARGUMENTS_DEPTH_MAX,
    FORMAT_PROBLEM_CHARS_MAX,
    FORMAT_PROBLEMS_MAX,
    RESPONSE_BYTES_MAX,
)
from holdfast.core.base.safe_text import clamped_json
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.runtime.answer_check import checked, format_problem, schema_problem
from tests.core.strategies import json_values

OBJECT = JsonObjectFormat()
PROMPTLY_SECONDS = 40  # generous: each takes below one second alone on the machine


def fitting(**schema: JsonValue) -> JsonSchemaFormat:
    return JsonSchemaFormat(json_schema=schema)


PERSON = fitting(
    type="object",
    properties={"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "minimum": 0}},
    required=["name"],
    additionalProperties=False,
)
NODE: JsonValue = {"type": "object", "properties": {"x": {"$ref": "#/$defs/any"}, "op": {"enum": [1]}}}
TANGLED = JsonSchemaFormat(
    json_schema={
        "$ref": "#/$defs/any",
        "$defs": {"any": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}, "a": NODE, "b": NODE},
    }
)
"""Two members that look alike: a wrong leaf is looked at 2^depth times."""


def problem(text: str, wanted: ResponseFormat = OBJECT) -> str:
    """Return the problem, which there is, and which is one bounded line that can travel."""
    told = format_problem(text, wanted)
    assert told is not None
    assert len(told) <= FORMAT_PROBLEM_CHARS_MAX
    assert "\n" not in told
    told.encode()
    return told


@pytest.mark.parametrize("text", ["", "words", "{", "\ud800", "```json\n{}\n```"])
def test_words_are_always_fine(text: str) -> None:
    assert format_problem(text, TextFormat()) is None


@pytest.mark.parametrize(
    "text", ["{}", ' {"a": [1, 2.5, null]}\n', '{"a": 1, "a": 2}', '{"fence": "```"}', '{"": "\\u0000"}']
)
def test_a_json_object_is_fine(text: str) -> None:
    assert format_problem(text, OBJECT) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the answer is empty"),
        (" \n", "the answer is empty"),
        ("[1]", "not an object"),
        ("5", "not an object"),
        ("null", "not an object"),
        ('{"a": 1', "not usable JSON: Expecting ',' delimiter"),
        ("Here you are: {}", "not usable JSON"),
        ("{} I hope this helps!", "not usable JSON: Extra data"),
        ('```json\n{"a": 1}\n```', "code fence"),
        ("Here you are:\n  ```\n{}\n```\nEnjoy!", "code fence"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": -Infinity}', "-Infinity is not a JSON number"),
        ('{"a": 1e999}', "finite"),
        ('{"a": ' + "1" * 5_000 + "}", "a number has 5,000 digits; at most 4,300 are read"),
        ('{"a": "\\ud800"}', "surrogates"),
        ('{"a": "\ud800"}', "surrogates"),
        ("\ud800", "not usable JSON"),
        ('{"a": ' * (ARGUMENTS_DEPTH_MAX + 1) + "1" + "}" * (ARGUMENTS_DEPTH_MAX + 1), "levels deep"),
        ("[" * 50_000 + "]" * 50_000, "levels deep"),
        ("[" * 100_000, "levels deep"),
        ('{"a":' * 20_000, "levels deep"),
    ],
)
def test_what_is_no_json_object_is_told(text: str, said: str) -> None:
    assert said in problem(text)
    assert "answer with" in problem(text) or "levels deep" in problem(text)


def test_an_answer_that_was_cut_to_what_is_kept_is_a_problem() -> None:
    whole = json.dumps({"a": ["word"] * 50_000})
    assert format_problem(whole, OBJECT) is None
    assert "not usable JSON" in problem(clamped_json(whole, RESPONSE_BYTES_MAX))


@pytest.mark.parametrize("text", ['{"name": "Ada"}', '{"name": "Ada", "age": 36}', '{"name": 1, "name": "Ada"}'])
def test_what_fits_the_schema_is_fine(text: str) -> None:
    assert format_problem(text, PERSON) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "$: 'name' is a required property"),
        ('{"name": "Ada", "age": -1}', "$.age: -1 is less than the minimum of 0"),
        ('{"name": "Ada", "age": true}', "$.age: True is not of type 'integer'"),
        ('{"name": "Ada", "years": 1}', "('years' was unexpected)"),
        ('{"age": "x"}', "$.age: 'x' is not of type 'integer'; $: 'name' is a required property"),
        ("[]", "$: [] is not of type 'object'"),
        ("Ada", "not usable JSON"),
        ('```\n{"name": "Ada"}\n```', "code fence"),
        ('{"name": "' + "x" * 100_000 + '"}', "$.name: breaks the schema's maxLength: 10"),
        ('{"name": "Ada", "' + "y" * 100_000 + '": 1}', "$: breaks the schema's additionalProperties: false"),
    ],
)
def test_what_does_not_fit_the_schema_is_told_with_its_place(text: str, said: str) -> None:
    assert said in problem(text, PERSON)


def test_many_problems_are_told_by_the_first_few() -> None:
    numbers = fitting(type="array", items={"type": "integer"})
    told = problem(json.dumps(["x"] * 10_000), numbers)
    assert told.count("is not of type") == FORMAT_PROBLEMS_MAX
    assert "$[0]: 'x' is not of type 'integer'; $[1]: " in told


def test_a_long_place_is_cut() -> None:
    long = fitting(additionalProperties={"type": "string"})
    problem(json.dumps({"\n" + "k" * 50_000: 1, "\u202e": 2, "ü": 3}), long)


@pytest.mark.parametrize(
    "items", [[1, 1.0], [{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}], ["x", 1, "x"], [None, None], [[True], [True]]]
)
def test_repeated_items_are_found(items: list[JsonValue]) -> None:
    assert "items that repeat" in problem(json.dumps(items), fitting(uniqueItems=True))


@pytest.mark.parametrize(
    "items", [[1, True], [0, False, None, ""], [{"a": 1}, {"a": 2}], ["1", 1], [[1], [[1]]], {"a": 1}]
)
def test_items_that_differ_are_no_repetition(items: JsonValue) -> None:
    assert format_problem(json.dumps(items), fitting(uniqueItems=True)) is None


def test_thousands_of_items_are_compared_at_once() -> None:
    items = json.dumps([{"a": number} for number in range(8_000)])
    began = time.monotonic()
    assert format_problem(items, fitting(uniqueItems=True)) is None
    assert time.monotonic() - began < PROMPTLY_SECONDS


@pytest.mark.slow
def test_a_union_that_multiplies_at_every_level_is_given_up() -> None:
    deep: JsonValue = {"op": 2}
    for _ in range(ARGUMENTS_DEPTH_MAX - 2):
        deep = {"x": deep}
    assert format_problem('{"x": {"x": {"op": 1}}}', TANGLED) is None
    began = time.monotonic()
    told = problem(json.dumps(deep), TANGLED)
    assert time.monotonic() - began < PROMPTLY_SECONDS
    assert "steps to check" in told


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "strin"}, "$.type"),
        ({"properties": {"a": {"minimum": "x"}}}, "$.properties.a.minimum"),
        ({"pattern": "("}, "is not a 'regex'"),
        ({"patternProperties": {"(": {}}}, "is not a 'regex'"),
        ({"$ref": 5}, "$ref"),
        ({"$ref": "#/$defs/none"}, "'/$defs/none'"),
        ({"items": {"$ref": "none.json"}}, "'none.json'"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:9/a.json"}}}, "'http://127.0.0.1:9/a.json'"),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, "nothing within the schema"),
        ({"$ref": "#"}, "itself"),
        ({"$schema": "http://127.0.0.1:9/own"}, "$schema"),
        ({"$schema": 5}, "$schema"),
        ({"$id": ["x"]}, "$id"),
        ({"required": "name"}, "$.required"),
        ({"properties": {"x" * 60_000: 5}}, "is not of type"),
    ],
)
def test_a_broken_schema_is_told_and_any_answer_survives_it(schema: dict[str, Any], said: str) -> None:
    wanted = JsonSchemaFormat(json_schema=schema)
    told = schema_problem(wanted)
    assert told is not None
    assert said in told
    assert len(told) <= FORMAT_PROBLEM_CHARS_MAX
    for text in ("{}", "[]", "null", '{"a": {"a": "x"}}', "[1]", '"x"'):
        format_problem(text, wanted)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        PERSON.json_schema,
        TANGLED.json_schema,
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {}}, "$ref": "#/definitions/a"},
        {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        {"$id": "https://example.org/a", "$defs": {"b": {"$id": "b", "type": "object"}}, "$ref": "b"},
        {"const": {"$ref": "no reference, but data"}},
        {"properties": {"$ref": {"type": "string"}}},
        {"properties": {"unevaluatedItems": {"type": "string"}}},
        {"const": {"unevaluatedProperties": "no rule, but data"}},
    ],
)
def test_a_sound_schema_has_no_problem(schema: dict[str, JsonValue]) -> None:
    assert schema_problem(JsonSchemaFormat(json_schema=schema)) is None
    assert schema_problem(TextFormat()) is None


@pytest.mark.parametrize("keyword", ["unevaluatedProperties", "unevaluatedItems"])
@pytest.mark.parametrize(
    "schema",
    [
        "RULE",
        '{"properties": {"a": {"items": RULE}}}',
        '{"anyOf": [{"type": "string"}, {"not": RULE}]}',
        '{"$defs": {"a": RULE}}',
        '{"$schema": "https://json-schema.org/draft/2019-09/schema", "allOf": [RULE]}',
    ],
)
def test_rules_about_what_no_other_rule_looked_at_are_refused(keyword: str, schema: str) -> None:
    whole = json.loads(schema.replace("RULE", json.dumps({keyword: False})))
    told = schema_problem(JsonSchemaFormat(json_schema=whole))
    assert told is not None
    assert f"{keyword!r} takes unbounded time; use additionalProperties or items" in told


@pytest.mark.parametrize("keyword", ["unevaluatedProperties", "unevaluatedItems"])
def test_such_a_rule_costs_an_answer_no_more_than_any_other(keyword: str) -> None:
    rule: dict[str, JsonValue] = {keyword: False}
    for _ in range(9):  # each twice in the next
        rule = {"allOf": [rule, {keyword: False}], keyword: {"anyOf": [rule]}}
    begun = time.monotonic()
    for text in ('{"a": {"b": [1, 2]}}', "[1, [2, [3]]]"):
        format_problem(text, JsonSchemaFormat(json_schema=rule))
        hidden = JsonSchemaFormat(json_schema={"$ref": "#/elsewhere", "elsewhere": rule})
        format_problem(text, hidden)
    assert time.monotonic() - begun < PROMPTLY_SECONDS
    assert "steps to check" in problem('{"a": 1}', fitting(unevaluatedProperties=False))


def test_no_reference_is_ever_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)  # noqa: FBT003  # positional only
        away = f"http://127.0.0.1:{listening.getsockname()[1]}/schema.json"
        wanted = fitting(properties={"a": {"$ref": away}})
        assert schema_problem(wanted) is not None
        assert "cannot be checked" in problem('{"a": 1}', wanted)
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_an_answer_carries_its_problem() -> None:
    said = InferenceResponse(text="words", finish_reason="stop")
    assert checked(said, TextFormat()) == said
    assert checked(said, OBJECT).format_problem == problem("words")
    assert checked(checked(said, OBJECT), TextFormat()) == said, "it is set as it stands"


def test_an_answer_that_asks_for_tools_has_no_problem() -> None:
    asking = InferenceResponse(text="let me see", tool_calls=(ToolCall(id="a", name="add"),), finish_reason="length")
    assert checked(asking, OBJECT) == asking


def test_an_answer_that_was_cut_by_the_provider_is_told_so() -> None:
    cut = checked(InferenceResponse(text='{"a": "wor', finish_reason="length"), OBJECT)
    assert cut.format_problem is not None
    assert "cut at the output limit" in cut.format_problem
    whole = checked(InferenceResponse(text="{}", finish_reason="length"), OBJECT)
    assert whole.format_problem is None, "it was complete by then"


@given(json_values)
def test_any_json_fits_a_schema_that_says_nothing(value: JsonValue) -> None:
    text = json.dumps(value)
    assert format_problem(text, fitting()) is None
    assert (format_problem(text, OBJECT) is None) == isinstance(value, dict)
    assert (format_problem(text, fitting(type="object")) is None) == isinstance(value, dict)


@given(json_values, json_values)
def test_a_constant_is_met_by_itself_alone(one: JsonValue, other: JsonValue) -> None:
    assert format_problem(json.dumps(one), fitting(const=one)) is None
    if json.dumps(one) != json.dumps(other) and not (isinstance(one, int | float) and one == other):
        told = format_problem(json.dumps(other), fitting(const=one))
        assert told is None or len(told) <= FORMAT_PROBLEM_CHARS_MAX


@given(
    st.text(st.characters()) | json_values.map(json.dumps),
    st.dictionaries(
        st.sampled_from(
            [
                "type",
                "items",
                "$ref",
                "pattern",
                "$schema",
                "$id",
                "anyOf",
                "multipleOf",
                "properties",
                "$dynamicRef",
                "uniqueItems",
                "maxLength",
            ]
        ),
        json_values,
        max_size=3,
    ),
)
def test_no_answer_and_no_schema_raises(text: str, schema: dict[str, JsonValue]) -> None:
    wanted = JsonSchemaFormat(json_schema=schema)
    for told in (format_problem(text, wanted), schema_problem(wanted)):
        if told is not None:
            told.encode()
            assert len(told) <= FORMAT_PROBLEM_CHARS_MAX
