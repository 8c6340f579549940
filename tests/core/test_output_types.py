"""What a tool's return annotation declares: which do, what fits, how it is written, and what does not fit."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, computed_field, field_serializer
from typing_extensions import TypedDict

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import canonical
from holdfast.core.tools.output_types import PROBLEM_CHARS_MAX, OutputType
from holdfast.core.tools.tool_results import StopRun
from holdfast.core.tools.tools import AnyTool, tool


class Place(BaseModel):
    """A place."""

    name: str
    latitude: float = Field(default=0, ge=-90, le=90, serialization_alias="lat")

    @computed_field  # type: ignore[prop-decorator]  # mypy's own gap, as pydantic's documentation says
    @property
    def north(self) -> bool:
        """Whether it is in the north."""
        return self.latitude > 0


class Row(TypedDict):
    """A row."""

    id: int


@dataclasses.dataclass
class Point:
    """A point."""

    x: int


class Opaque:
    """What pydantic cannot check."""


@dataclasses.dataclass
class Holder:
    """Something with an opaque part."""

    part: Opaque


class Broken(BaseModel):
    """A model that cannot be written."""

    x: int

    @field_serializer("x")
    def _written(self, _: int) -> int:
        raise RuntimeError("no ink")


def returning(annotation: object) -> AnyTool:
    def made() -> object:
        """Return something."""

    made.__annotations__["return"] = annotation
    return tool(made)


def output(annotation: object) -> OutputType:
    found = returning(annotation).output
    assert found is not None
    return found


@pytest.mark.parametrize(
    "annotation",
    [
        Place,
        Row,
        Point,
        Place | None,
        list[Place],
        dict[str, Row],
        Place | StopRun,
        Awaitable[Point],
        tuple[int, Point],
    ],
)
def test_a_model_typed_dict_or_dataclass_anywhere_in_it_is_declared(annotation: object) -> None:
    made = returning(annotation)
    assert made.output is not None
    assert made.schema.output == made.output.schema


@pytest.mark.parametrize(
    "annotation",
    [str, int, None, list[str], dict[str, Any], Any, object, StopRun, str | StopRun, Literal["a"], Callable[..., int]],
)
def test_anything_else_leaves_results_as_they_are_and_the_schema_without_output(annotation: object) -> None:
    made = returning(annotation)
    assert made.output is None
    assert b"output" not in canonical(made.schema)


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (Place, Place(name="a", latitude=1), '{"name":"a","lat":1.0,"north":true}'),
        (Place, {"name": "a"}, '{"name":"a","lat":0.0,"north":false}'),
        (Row, {"id": 1}, '{"id":1}'),
        (Point, Point(3), '{"x":3}'),
        (list[Point], [Point(3), {"x": 4}], '[{"x":3},{"x":4}]'),
        (Place | None, None, "null"),
        (Place | str, "just words", "just words"),
        (Place | StopRun, StopRun({"name": "a"}, "enough"), '{"name":"a","lat":0.0,"north":false}'),
    ],
)
def test_what_fits_is_written_as_its_type_writes_it(annotation: object, value: object, text: str) -> None:
    assert output(annotation).text_of(value) == text


@pytest.mark.parametrize(
    ("annotation", "value", "problem"),
    [
        (Place, {"latitude": 91}, "name: Field required; latitude: Input should be less than or equal to 90"),
        (Place, "words", "the result: Input should be a mapping of names to values"),
        (Place, None, "the result: Input should be a mapping of names to values"),
        (Row, {"id": "x"}, "id: Input should be a valid integer"),
        (Point, Point("three"), "Expected `int`"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (list[Point], [Point(3), 4], "1: Input should be a dictionary or an instance of Point"),
        (Place | StopRun, StopRun("words", "enough"), "the result: Input should be a mapping of names to values"),
        (Broken, Broken(x=1), "no ink"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(annotation: object, value: object, problem: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        output(annotation).text_of(value)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= PROBLEM_CHARS_MAX


def test_the_schema_is_that_of_what_is_written_and_takes_no_room_in_requests() -> None:
    made, plain = returning(Place), returning(str)
    assert made.schema.output is not None
    assert set(json.loads(json.dumps(made.schema.output))["properties"]) == {"name", "lat", "north"}
    assert made.traits.described_bytes == plain.traits.described_bytes


@pytest.mark.parametrize("annotation", [Holder, list[Holder]])
def test_a_type_that_cannot_be_checked_is_refused_with_the_tools_name(annotation: object) -> None:
    with pytest.raises(InvalidInput, match=r"tool 'made': its return annotation .*Holder.* cannot be checked"):
        returning(annotation)
