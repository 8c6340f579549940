"""docs/schema/events.jsonl has every kind of event as it is delivered; docs/events.md says what the code does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from holdfast.core.base import bounds
from holdfast.core.wire.event_envelope import DELIVERED_KINDS, from_dict, to_dict
from holdfast.core.wire.session_events import SESSION_EVENTS_MAX
from holdfast.sinks.delivery import RESTED_AT_ONCE
from holdfast.sinks.webhook import AWAY, TIMEOUT_SECONDS
from tests.sinks.examples import NUMBERED

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "events.md").read_text(encoding="utf-8")
SCHEMA = json.loads((DOCS / "schema" / "event.json").read_text(encoding="utf-8"))
EXAMPLES = (DOCS / "schema" / "events.jsonl").read_text(encoding="utf-8")
SHOWN: list[dict[str, Any]] = [json.loads(line) for line in EXAMPLES.splitlines()]
VALIDATOR: Any = jsonschema.Draft202012Validator(SCHEMA)  # its own overloads are partly unknown


def test_each_kind_has_one_example_as_it_is_delivered() -> None:
    assert sorted(each["kind"] for each in SHOWN) == sorted(DELIVERED_KINDS)
    assert [to_dict(each) for each in NUMBERED] == SHOWN
    assert [from_dict(each) for each in SHOWN] == [*NUMBERED]


@pytest.mark.parametrize("shown", SHOWN, ids=lambda each: str(each["kind"]))
def test_each_example_fits_the_published_schema(shown: dict[str, Any]) -> None:
    VALIDATOR.validate(shown)
    for field in shown:
        assert not VALIDATOR.is_valid({name: value for name, value in shown.items() if name != field}), field


def test_the_numbers_of_the_page_are_the_real_ones() -> None:
    told = (
        f"at most {bounds.LISTENER_SECONDS_MAX:g} s",
        f"{bounds.LISTENER_EVENTS_MAX:,} events behind",
        f"At most {bounds.SINK_FOLLOWED_MAX} executions and sessions",
        f"{RESTED_AT_ONCE} a second",
        f"the {SESSION_EVENTS_MAX:,} latest",
        f"first {bounds.DETAILS_WORDS_CHARS_MAX} characters",
        f"at most {bounds.SINK_BATCH_EVENTS_MAX} events or 1 MB",
        f"tried {bounds.SINK_TRIES_MAX} times",
        f"can take {TIMEOUT_SECONDS:g} s",
    )
    flat = " ".join(PAGE.split())
    assert [each for each in told if each not in flat] == []
    assert all(str(each) in flat for each in AWAY)
    assert (bounds.SINK_BATCH_BYTES_MAX, bounds.SINK_REFUSALS_MAX) == (1024 * 1024, 3)
