"""Forms that servers ask people to fill in: the protocol's flat schemas, what people type, and what fits."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from holdfast.core.conversation.input_forms import FORM_FIELDS_MAX, OPTIONS_MAX, content_problem, form_fields

FORM: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2, "maxLength": 5},
        "mail": {"type": "string", "format": "email"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "page": {"type": "string", "format": "uri"},
        "seats": {"type": "integer", "minimum": 1, "maximum": 9},
        "price": {"type": "number", "maximum": 99.5},
        "sure": {"type": "boolean", "default": False},
        "row": {"type": "string", "enum": ["f", "b"], "enumNames": ["Front", "Back"]},
        "hall": {"type": "string", "oneOf": [{"const": "a", "title": "Hall A"}, {"const": "b"}]},
        "extras": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["x", "y", "z"]}},
        "more": {"type": "array", "items": {"anyOf": [{"const": "p", "title": "P"}, {"const": "q", "title": "Q"}]}},
    },
    "required": ["name"],
}
FIELDS = {each.name: each for each in form_fields(FORM)}


def test_every_kind_of_field_of_the_protocol_is_known() -> None:
    assert {name: each.kind for name, each in FIELDS.items()} == {
        **dict.fromkeys(("name", "mail", "day", "at", "page"), "text"),
        "seats": "integer",
        "price": "number",
        "sure": "boolean",
        "row": "choice",
        "hall": "choice",
        **dict.fromkeys(("extras", "more"), "choices"),
    }
    assert FIELDS["row"].options == (("f", "Front"), ("b", "Back"))
    assert FIELDS["hall"].options == (("a", "Hall A"), ("b", "b"))
    assert (FIELDS["name"].required, FIELDS["mail"].required) == (True, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("name", "Ann"), ("mail", "a@b.c"), ("day", "2026-07-28"), ("at", "2026-07-28T12:00:00Z")),
        *(("page", "https://x.org/a"), ("seats", 9), ("seats", 3.0), ("price", 99.5), ("price", 1), ("sure", True)),
        *(("row", "f"), ("hall", "b"), ("extras", ["x", "z"]), ("more", []), ("mail", None)),
    ],
)
def test_what_fits_is_taken(name: str, value: JsonValue) -> None:
    assert content_problem(tuple(FIELDS.values()), {"name": "Bob", name: value}) is None


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("name", "A", "name: it has 1 characters, which is less than 2"),
        ("name", "Annabel", "name: it has 7 characters, which is more than 5"),
        ("name", 5, "name: 5 does not fit (text)"),
        ("name", None, "name: it is required (text)"),
        ("mail", "nobody", "mail: 'nobody' is no email address"),
        ("day", "tomorrow", "day: 'tomorrow' is no date, such as 2026-07-28"),
        ("at", "noon", "at: 'noon' is no date-time"),
        ("page", "here", "page: 'here' is no URI"),
        ("seats", 0, "seats: 0 is less than 1"),
        ("seats", 1.5, "seats: 1.5 does not fit (integer)"),
        ("seats", True, "seats: True does not fit (integer)"),
        ("price", 100, "price: 100 is more than 99.5"),
        ("sure", "yes", "sure: 'yes' does not fit (yes or no)"),
        ("row", "Front", "row: 'Front' is no option"),
        ("extras", [], "extras: it has 0 choices, which is less than 1"),
        ("extras", ["x", "y", "z"], "extras: it has 3 choices, which is more than 2"),
        ("extras", ["w"], "extras: 'w' is no option"),
        ("extras", [1], "extras: 1 is no option"),
        ("extras", "x", "extras: 'x' does not fit (some of x, y, z"),
        ("seat", 1, "the form has no field 'seat'; did you mean 'seats'?"),
    ],
)
def test_what_does_not_fit_is_refused_by_field_and_value(name: str, value: JsonValue, problem: str) -> None:
    found = content_problem(tuple(FIELDS.values()), {"name": "Bob", name: value})
    assert found is not None
    assert found.startswith(problem)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        *(("name", "Ann", "Ann"), ("seats", "3", 3), ("price", "1.5", 1.5), ("sure", "YES", True)),
        *(("sure", "no", False), ("row", "f", "f"), ("extras", "x, z", ["x", "z"])),
    ],
)
def test_a_value_is_read_as_people_type_it(name: str, text: str, value: JsonValue) -> None:
    assert FIELDS[name].read(text) == value


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [("seats", "two", "is no integer"), ("price", "dear", "is no number"), ("sure", "perhaps", "neither yes nor no")],
)
def test_what_cannot_be_read_is_said(name: str, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        FIELDS[name].read(text)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "string"}, "a JSON Schema of an object"),
        ({"type": "object"}, "a JSON Schema of an object"),
        ({"type": "object", "properties": {"a": 1}}, "'a' has no schema"),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, "forms are flat"),
        ({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}}, "without options"),
        (
            {"type": "object", "properties": {str(n): {"type": "string"} for n in range(FORM_FIELDS_MAX + 1)}},
            "at most 50 are shown",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string", "enum": list(map(str, range(OPTIONS_MAX + 1)))}}},
            "at most 200 are shown",
        ),
    ],
)
def test_a_form_that_nobody_can_fill_in_is_refused(schema: dict[str, JsonValue], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        form_fields(schema)
