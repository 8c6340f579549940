"""Schemas of others: their regular expressions are left to their server, everything else is checked."""

from __future__ import annotations

from typing import Any, Final

import pytest
from pydantic import JsonValue

from holdfast.runtime.json_schema import schema_problems

ENDLESS: Final = "^(a+)+$"
"""It tries 2^n ways on n letters that do not fit: this file would never end."""

SLOW: Final = "a" * 200 + "!"

BARRED: Final = {"not": {"pattern": "^/"}}
EITHER: Final = {"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}]}
EACH_OF_ITS_KIND: Final = {"additionalProperties": False, "patternProperties": {"^x-": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param({"type": "string", "pattern": ENDLESS}, SLOW, id="pattern"),
        pytest.param({"patternProperties": {ENDLESS: {"type": "string"}}}, {SLOW: 1}, id="names"),
        pytest.param({"additionalProperties": False, "patternProperties": {ENDLESS: True}}, {SLOW: 1}, id="others"),
        pytest.param({"propertyNames": {"pattern": ENDLESS}}, {SLOW: 1}, id="every name"),
        pytest.param({"$ref": "#/$defs/slow", "$defs": {"slow": {"pattern": ENDLESS}}}, SLOW, id="by reference"),
        pytest.param(BARRED, "notes.txt", id="not"),
        pytest.param({"not": BARRED}, "/notes.txt", id="not not"),
        pytest.param({"allOf": [{"not": {"anyOf": [BARRED, False]}}]}, "/notes.txt", id="not, deeper"),
        pytest.param(EITHER, "able", id="one of"),
        pytest.param({"if": {"pattern": "^a"}, "then": {"maxLength": 1}}, "baker", id="if"),
        pytest.param({"contains": {"pattern": "^a"}, "maxContains": 1}, ["able", "baker"], id="contains"),
        pytest.param({"not": EACH_OF_ITS_KIND}, {"y": 1}, id="not, by name"),
    ],
)
def test_what_hangs_on_a_foreign_pattern_is_not_refused(schema: dict[str, Any], value: JsonValue) -> None:
    assert schema_problems(value, schema, foreign=True) == []


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        pytest.param({"type": "string", "pattern": ENDLESS}, 7, "$: 7 is not of type 'string'", id="type"),
        pytest.param({"additionalProperties": False}, {"y": 1}, "'y' was unexpected", id="a name too many"),
        pytest.param({"not": {"type": "string"}}, "a", "should not be valid", id="not"),
        pytest.param({"oneOf": [{"type": "string"}, {"minLength": 1}]}, "a", "valid under each of", id="two of"),
        pytest.param({"contains": {"type": "string"}}, [1], "does not contain items", id="contains"),
        pytest.param({"if": {"type": "string"}, "then": {"maxLength": 1}}, "baker", "is too long", id="then"),
        pytest.param(
            {"properties": {"path": BARRED, "lines": {"type": "integer"}}},
            {"path": "/a", "lines": "many"},
            "$.lines: 'many' is not of type 'integer'",
            id="beside one",
        ),
    ],
)
def test_every_other_rule_of_a_foreign_schema_is_checked(schema: dict[str, Any], value: JsonValue, said: str) -> None:
    [problem] = schema_problems(value, schema, foreign=True)
    assert said in problem


@pytest.mark.parametrize(
    ("schema", "value"), [({"pattern": "^a"}, "baker"), (BARRED, "/notes.txt"), (EACH_OF_ITS_KIND, {"y": 1})]
)
def test_patterns_of_our_own_definitions_are_checked(schema: dict[str, Any], value: JsonValue) -> None:
    assert schema_problems(value, schema)


@pytest.mark.slow
def test_a_servers_schema_of_a_thousand_alternatives_for_each_item_is_given_up() -> None:
    choices: list[JsonValue] = [{"const": number} for number in range(1_000)]
    schema: dict[str, JsonValue] = {"type": "array", "items": {"anyOf": [*choices, {"const": "x"}]}}
    value: list[JsonValue] = ["x"] * 10_000
    assert schema_problems(value[:100], schema, foreign=True) == []
    [problem] = schema_problems(value, schema, foreign=True)
    assert "too many steps to check" in problem
