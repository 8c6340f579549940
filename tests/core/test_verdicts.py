"""What a person's decision may be: anything else is refused where it is made."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.core.base.bounds import ARGUMENTS_DEPTH_MAX, REASON_CHARS_MAX, SOURCE_CHARS_MAX
from holdfast.core.base.frozen import canonical
from holdfast.core.conversation.verdicts import Verdict


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "given",
    [
        {"decision": "approve"},
        {"decision": "deny", "by": "ann", "reason": "too dear"},
        {"decision": "edit", "arguments": {}},
        {"decision": "edit", "arguments": {"a": nested(ARGUMENTS_DEPTH_MAX - 2)}},
        {"decision": "edit", "arguments": {"a": [1, 2.5, None, {"b": "ü"}]}, "by": "ann"},
        {"decision": "deny", "by": "a" * SOURCE_CHARS_MAX, "reason": "r" * REASON_CHARS_MAX},
    ],
)
def test_a_verdict_comes_back_from_json_as_it_was(given: dict[str, Any]) -> None:
    verdict = Verdict(**given)
    assert Verdict.model_validate_json(canonical(verdict)) == verdict


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "decision"),
        ({"decision": "maybe"}, "decision"),
        ({"decision": "edit"}, "needs the `arguments`"),
        ({"decision": "approve", "arguments": {}}, "nothing else takes any"),
        ({"decision": "deny", "arguments": {"a": 1}}, "nothing else takes any"),
        ({"decision": "edit", "arguments": {"a": float("nan")}}, "arguments"),
        ({"decision": "edit", "arguments": {"a": [{"b": float("inf")}]}}, "arguments"),
        ({"decision": "edit", "arguments": {"a": "\ud800"}}, "arguments"),
        ({"decision": "edit", "arguments": {"\ud800": 1}}, "arguments"),
        ({"decision": "edit", "arguments": [1]}, "arguments"),
        ({"decision": "edit", "arguments": {"a": object()}}, "arguments"),
        ({"decision": "edit", "arguments": {"a": nested(ARGUMENTS_DEPTH_MAX)}}, "nested deeper than 64 levels"),
        ({"decision": "deny", "reason": "\ud800"}, "reason"),
        ({"decision": "deny", "by": "\ud800"}, "by"),
        ({"decision": "deny", "reason": "r" * (REASON_CHARS_MAX + 1)}, "reason"),
        ({"decision": "deny", "by": "a" * (SOURCE_CHARS_MAX + 1)}, "by"),
        ({"decision": "approve", "arguemnts": {}}, "arguemnts"),
    ],
)
def test_what_decides_nothing_clear_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Verdict(**given)
