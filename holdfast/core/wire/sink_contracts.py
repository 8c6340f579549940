"""The contracts of event delivery to sinks: the workflow that elects a worker, and its activity."""

from __future__ import annotations

import re
from typing import Final, Literal

from pydantic import Field

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.stored_forms import is_first

SINK_NAME_CHARS_MAX: Final = 64
"""The longest name of a sink, its consumer id."""

EVENT_SINK: Final = "EventSink"
DELIVER_ACTIVITY: Final = "deliver_events"

HEARTBEAT_SECONDS: Final = 5.0
"""How long the delivering worker may be silent before another one takes over."""

TURN_SECONDS: Final = 24 * 3600.0
"""How long one activity delivers; then the workflow continues as new, so that its history stays short."""


class SinkStart(Frozen):
    """The input of an `EventSink`: the sink's consumer id, and the task queue whose executions it follows."""

    format: Literal[1] = Field(default=1, exclude_if=is_first)
    consumer: str
    task_queue: str


def checked_consumer(name: str) -> str:
    """Return a sink's name if it can be one; InvalidInput otherwise."""
    if not re.fullmatch(f"[A-Za-z0-9_-]{{1,{SINK_NAME_CHARS_MAX}}}", name):
        allowed = f"letters, digits, `_` and `-`, at most {SINK_NAME_CHARS_MAX}"
        raise InvalidInput(f"{name[:80]!r} is not a valid name for a sink; use {allowed}")
    return name


def sink_id(start: SinkStart) -> str:
    """Return the workflow's id: there is one per consumer and task queue, so one worker delivers at a time."""
    return f"holdfast-sink-{start.task_queue}-{start.consumer}"


def sink_queue(start: SinkStart) -> str:
    """Return the task queue served by the workers that have the sink."""
    return f"{start.task_queue}-sink-{start.consumer}"
