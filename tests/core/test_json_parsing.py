"""Reading a model's JSON: what is read can be written and read again by anybody."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from holdfast.core.base.bounds import ARGUMENTS_DEPTH_MAX
from holdfast.core.base.json_parsing import read_json
from tests.core.strategies import json_values


@given(json_values)
def test_json_is_read_as_it_was_written(value: JsonValue) -> None:
    assert read_json(json.dumps(value)) == value


@given(st.text() | st.text('[]{}",:0123456789.eE-+NaInfity\\ud8'))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        value = read_json(text)
    except ValueError:
        return
    assert read_json(json.dumps(value, allow_nan=False)) == value


def test_nesting_is_read_up_to_the_limit() -> None:
    deepest = "[" * ARGUMENTS_DEPTH_MAX + "]" * ARGUMENTS_DEPTH_MAX
    assert json.dumps(read_json(deepest)) == deepest
    with pytest.raises(ValueError, match=f"more than {ARGUMENTS_DEPTH_MAX} levels"):
        read_json(f"[{deepest}]")
