"""Answers as pydantic models: which schema asks for a type, and what is said when an answer does not fit it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel
from typing_extensions import TypedDict

from holdfast.core.agent.answer_types import format_of, typed
from holdfast.core.agent.policies import JsonSchemaFormat
from holdfast.core.base.bounds import ARGUMENTS_DEPTH_MAX, FORMAT_PROBLEM_CHARS_MAX, NAME_CHARS_MAX
from holdfast.core.base.errors import AnswerInvalid, InvalidInput
from holdfast.runtime.answer_check import format_problem, schema_problem
from holdfast.testing.response_format_check import RequestedSchema


class Place(BaseModel):
    city: str
    code: str | None = None


class Order(BaseModel):
    number: int = Field(gt=0)
    sent: date
    to: Place = Field(description="where it goes")
    default: str = "a property may have a keyword's name"


class Tree(BaseModel):
    label: str
    left: Tree | None = Field(default=None, description="the smaller ones")
    others: list[Tree] = []


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Pets(BaseModel):
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]]


class Notes(BaseModel):
    notes: dict[str, int]


class Pair(BaseModel):
    pair: tuple[int, str]


class Odd(BaseModel):
    task: Callable[[], int]


Orders = RootModel[list[Order]]


def wire(wanted: JsonSchemaFormat) -> dict[str, Any]:
    spec = {"name": wanted.name, "schema": dict(wanted.json_schema), "strict": wanted.strict}
    return {"type": "json_schema", "json_schema": spec}


def test_a_type_is_asked_for_by_its_schema_and_name() -> None:
    wanted = format_of(Order)
    assert wanted == JsonSchemaFormat(name="Order", json_schema=Order.model_json_schema())
    assert format_of(Order, name="the order").name == "the_order"
    assert format_of(Orders).name == "RootModel_list_Order__"
    assert len(format_of(Order, name="x" * 100).name) == NAME_CHARS_MAX


@pytest.mark.parametrize("model", [Place, Order, Tree, Pets, RootModel[Tree]])
def test_a_strict_schema_is_taken_as_the_provider_takes_it(model: type[BaseModel]) -> None:
    wanted = format_of(model, strict=True)
    RequestedSchema.model_validate(wire(wanted))
    assert schema_problem(wanted) is None


def test_a_strict_schema_still_says_what_a_field_means() -> None:
    schema = format_of(Order, strict=True).json_schema
    assert schema["required"] == ["number", "sent", "to", "default"]
    assert schema["properties"]["to"] == {"description": "where it goes", "anyOf": [{"$ref": "#/$defs/Place"}]}  # type: ignore[index,call-overload]  # JSON


def test_strictness_changes_nothing_for_the_type_itself() -> None:
    before = Order.model_json_schema()
    format_of(Order, strict=True)
    assert Order.model_json_schema() == before


@pytest.mark.parametrize(("model", "said"), [(Notes, "Notes.notes takes any name"), (Pair, "Pair.pair needs")])
def test_a_type_that_strict_outputs_forbid_is_refused_with_its_place(model: type[BaseModel], said: str) -> None:
    format_of(model)
    with pytest.raises(InvalidInput, match=said):
        format_of(model, strict=True)


@pytest.mark.parametrize(
    ("answers", "text", "value"),
    [
        (Order | Place, '{"answer": {"city": "Bonn", "code": null}}', Place(city="Bonn")),
        (list[Place], '{"answer": [{"city": "Bonn", "code": null}]}', [Place(city="Bonn")]),
        (Annotated[Cat | Dog, Field(discriminator="kind")], '{"answer": {"kind": "dog"}}', Dog(kind="dog")),
        (Place | None, '{"answer": null}', None),
        (Tree | Place, '{"answer": {"label": "a", "left": null, "others": []}}', Tree(label="a")),
        (date, '{"answer": "2026-11-20"}', date(2026, 11, 20)),
        (Orders, '{"answer": []}', Orders([])),
    ],
)
def test_what_is_no_object_is_asked_for_and_read_as_the_property_of_one(
    answers: type[Any], text: str, value: object
) -> None:
    for strict in (False, True):
        wanted = format_of(answers, strict=strict)
        RequestedSchema.model_validate(wire(wanted))
        assert schema_problem(wanted) is None
        assert (wanted.json_schema["type"], wanted.json_schema["required"]) == ("object", ["answer"])
        assert format_problem(text, wanted) is None
    assert typed(text, answers) == value


def test_an_answer_without_its_property_is_told_by_its_types_name() -> None:
    with pytest.raises(
        AnswerInvalid, match=r"not a valid Order \| Place: it is not usable JSON: it has no property 'an"
    ):
        typed('{"city": "Bonn"}', Order | Place)
    with pytest.raises(AnswerInvalid, match=r"not a valid list\[Place\]: 0\.city: Field required"):
        typed('{"answer": [{}]}', list[Place])


def test_an_object_of_another_kind_than_a_model_stands_by_itself() -> None:
    class Point(TypedDict):
        x: int

    assert format_of(Point, strict=True).json_schema["required"] == ["x"]
    assert typed('{"x": 1}', Point) == {"x": 1}
    assert typed('{"a": 1}', dict[str, int]) == {"a": 1}


def test_a_type_without_a_schema_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Odd has no JSON Schema"):
        format_of(Odd)


def test_an_answer_is_read_as_its_type() -> None:
    order = typed('{"number": 17, "sent": "2026-11-20", "to": {"city": "Bonn"}}', Order)
    assert order == Order(number=17, sent=date(2026, 11, 20), to=Place(city="Bonn"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not usable JSON"),
        ("Sure!", "not usable JSON"),
        (
            '{"number": 0, "to": {}}',
            r"not a valid Order: number: .*greater than 0; sent: Field required; to\.city: Field required;",
        ),
        ("[]", "the whole: "),
        ('{"number": NaN}', "NaN is not a JSON number"),
        ('{"number": 1e999}', "finite"),
        ('{"number": "\\ud800"}', "surrogates"),
        ("\ud800", "not usable JSON"),
        ("[" * 100_000, "levels deep"),
        ("[" * (ARGUMENTS_DEPTH_MAX + 1) + "]" * (ARGUMENTS_DEPTH_MAX + 1), "levels deep"),
    ],
)
def test_an_answer_that_does_not_fit_is_told_in_one_line(text: str, said: str) -> None:
    with pytest.raises(AnswerInvalid, match=said) as caught:
        typed(text, Order)
    assert "\n" not in caught.value.message


def test_many_and_long_problems_stay_one_short_line() -> None:
    class Strange(BaseModel):
        found: list[Literal["x"]]
        by_name: dict[str, int]

    text = '{"found": [' + ", ".join(['"y"'] * 500) + '], "by_name": {"' + "a\\n" * 5_000 + '": "b"}}'
    with pytest.raises(AnswerInvalid, match="and 496 more") as caught:
        typed(text, Strange)
    assert len(caught.value.message) <= FORMAT_PROBLEM_CHARS_MAX + 200
    assert "\n" not in caught.value.message


@given(st.builds(Order, number=st.integers(1, 10**9), sent=st.dates(), to=st.builds(Place), default=st.text()))
def test_what_a_type_writes_fits_its_schema_and_is_read_back(order: Order) -> None:
    text = order.model_dump_json()
    for strict in (False, True):
        assert format_problem(text, format_of(Order, strict=strict)) is None
    assert typed(text, Order) == order


@given(st.text() | st.recursive(st.none() | st.text(), st.lists).map(str))
def test_any_text_is_read_or_refused_as_designed(text: str) -> None:
    try:
        assert isinstance(typed(text, Place), Place)
    except AnswerInvalid as error:
        error.message.encode()


@pytest.mark.parametrize("given", [BaseModel, {"type": "object"}, str, None, 3, Place(city="Bonn")])
def test_what_is_no_type_of_answers_is_refused_with_what_to_write(given: object) -> None:
    with pytest.raises(InvalidInput, match=r"is no type of answers; write `class Ticket\(BaseModel\)"):
        format_of(given)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # meant
