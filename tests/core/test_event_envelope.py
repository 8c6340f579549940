"""Events as they are delivered: ids, versions, there and back, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from holdfast.core.base.errors import InvalidInput
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.wire.event_envelope import NumberedEvent, from_dict, to_dict, to_line
from holdfast.core.wire.execution_events import ToolCallStarted

AGENT, EXECUTION = str(UUID(int=1)), str(UUID(int=2))
CALL = ToolCall(id="c1", name="add", arguments={"a": 1})
EVENT = NumberedEvent(7, ToolCallStarted(AGENT, EXECUTION, None, datetime(2026, 1, 1, tzinfo=UTC), 2, call=CALL))


def test_an_event_is_delivered_flat_with_an_id_of_its_execution_and_place() -> None:
    told = to_dict(EVENT)
    assert [*told][:4] == ["id", "sequence", "version", "kind"]
    assert (told["id"], told["sequence"], told["version"]) == (f"{EXECUTION}/7", 7, 1)
    assert (told["kind"], told["at"], told["call"]["arguments"]) == (
        "ToolCallStarted",
        "2026-01-01T00:00:00Z",
        {"a": 1},
    )


def test_what_is_delivered_is_read_as_the_same_event() -> None:
    assert from_dict(to_dict(EVENT)) == EVENT
    line = to_line(EVENT)
    assert (line.count(b"\n"), from_dict(json.loads(line))) == (1, EVENT)


def test_an_event_after_a_reset_has_an_id_of_the_temporal_run_that_it_began() -> None:
    again = replace(EVENT, reset_run_id=str(UUID(int=3)))
    told = to_dict(again)
    assert (told["id"], told["sequence"], told["execution_id"]) == (f"{UUID(int=3)}/7", 7, EXECUTION)
    assert from_dict(told) == again


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": 2}, "the event has version 2, this Holdfast reads 1"),
        ({"version": None}, "the event has version None"),
        ({"sequence": 0}, "sequence is 0; it is a whole number from 1"),
        ({"sequence": "7"}, "sequence is '7'"),
        (
            {"id": f"{UUID(int=3)}/8"},
            f"the event's id is '{UUID(int=3)}/8', by its other fields it is '{UUID(int=3)}/7'",
        ),
        ({"id": "another/7"}, "the event's id is 'another/7', by its other fields it is"),
        ({"kind": "Nothing"}, "this is not a valid event"),
        ({"call": 5}, "this is not a valid event: ToolCallStarted.call"),
    ],
)
def test_what_is_no_event_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        from_dict({**to_dict(EVENT), **changed})
