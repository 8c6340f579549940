"""The names and shapes by which workers deliver events to sinks: the workflow that elects one of them, its activity."""

from __future__ import annotations

import re
from typing import Final

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import Frozen

SINK_NAME_CHARS_MAX: Final = 64
"""The longest name of a sink, its consumer id."""

EVENT_SINK: Final = "EventSink"
DELIVER_ACTIVITY: Final = "deliver_events"

HEARTBEAT_SECONDS: Final = 5.0
"""After so long a silence of the worker that delivers, another one goes on."""

TURN_SECONDS: Final = 24 * 3600.0
"""How long one activity delivers; then the workflow goes on in a new run, so that its history stays as short."""


class SinkStart(Frozen):
    """What starts an `EventSink`: the sink's name, its consumer id, and whose executions it is told of."""

    consumer: str
    task_queue: str


def checked_consumer(name: str) -> str:
    """Return a sink's name if it can be one; InvalidInput otherwise."""
    if not re.fullmatch(f"[A-Za-z0-9_-]{{1,{SINK_NAME_CHARS_MAX}}}", name):
        told = f"letters, digits, `_` and `-`, at most {SINK_NAME_CHARS_MAX}"
        raise InvalidInput(f"{name[:80]!r} is no name for a sink; use {told}")
    return name


def sink_id(start: SinkStart) -> str:
    """Return the workflow's id: there is one per consumer and task queue, so one worker delivers at a time."""
    return f"holdfast-sink-{start.task_queue}-{start.consumer}"


def sink_queue(start: SinkStart) -> str:
    """Return the task queue that those workers serve which have the sink."""
    return f"{start.task_queue}-sink-{start.consumer}"
