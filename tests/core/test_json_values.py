"""`JsonMap`: what pydantic's JsonValue lets pass and JSON cannot carry is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from holdfast.core.agent.hooks import Changes
from holdfast.core.base.bounds import ARGUMENTS_DEPTH_MAX, TEXT_CHARS_MAX
from holdfast.core.base.frozen import Frozen, canonical
from holdfast.core.base.json_values import JsonMap
from tests.core.strategies import json_maps


class Note(Frozen):
    """A value with foreign data."""

    data: JsonMap


@given(json_maps)
def test_json_passes_and_comes_back(data: dict[str, Any]) -> None:
    note = Note(data=data)
    assert note.data == data
    assert Note.model_validate_json(canonical(note), strict=True) == note


LONG = "x" * (TEXT_CHARS_MAX + 1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a":NaN}', "the number at 'a' is nan"),
        ('{"a":1e999}', "the number at 'a' is inf"),
        ('{"a":[1,{"b":-Infinity}]}', r"the number at 'a\.1\.b' is -inf"),
        (f'{{"a":["{LONG}"]}}', r"the text of 1,048,577 characters at 'a\.0' is over 1,048,576"),
        (f'{{"{LONG}":1}}', "at most 1048576 characters"),
        (f'{{"{LONG[1:]}":NaN}}', "the number at 'xxx"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_anything_else_is_refused_and_its_place_told(text: str, told: str) -> None:
    with pytest.raises(ValidationError, match=told) as caught:
        Note.model_validate_json(f'{{"data":{text}}}')
    assert len(caught.value.errors()[0]["msg"]) < 300


@pytest.mark.parametrize(
    "value", [float("nan"), float("-inf"), [LONG], {1, 2}, object()], ids=lambda value: repr(value)[:9]
)
def test_it_is_refused_in_python_too(value: object) -> None:
    with pytest.raises(ValidationError, match=r"data\.a"):
        Note.model_validate({"data": {"a": value}})


def test_the_longest_text_passes() -> None:
    data: dict[str, Any] = {"long": ["x" * TEXT_CHARS_MAX]}
    assert Note.model_validate_json(canonical(Note(data=data))).data == data


@pytest.mark.parametrize("field", ["metadata", "arguments"])
def test_what_a_hook_brings_is_nested_no_deeper_than_a_models_arguments(field: str) -> None:
    deep: list[Any] = []
    for _ in range(ARGUMENTS_DEPTH_MAX - 2):
        deep = [deep]
    kept = Changes.model_validate({field: {"a": deep}})
    assert Changes.model_validate_json(canonical(kept)) == kept
    with pytest.raises(ValidationError, match=f"{field}\n.*nested deeper than {ARGUMENTS_DEPTH_MAX} levels"):
        Changes.model_validate({field: {"a": [[deep]]}})
