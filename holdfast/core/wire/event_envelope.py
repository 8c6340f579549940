"""The envelope of a delivered event: flat JSON with a sequence number and a unique id.

    {"id": "EXECUTION/7", "sequence": 7, "version": 1, "kind": "ToolCallStarted", "agent_id": …, "execution_id": …,
     "parent_agent_id": …, "at": …, "step_number": …, the kind's own fields …}
    {"id": "TEMPORAL_RUN/7", "sequence": 7, "version": 1, "kind": "MessageAccepted", "agent_id": …,
     "temporal_run_id": …, "agent": …, "tenant": …, "at": …, the kind's own fields …}

An event has the same id whoever delivers it and however often, so that consumers can drop duplicates. After a reset
(`temporal workflow reset`) sequences are repeated: the ids have the Temporal run of the reset then, not the execution.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Final, cast

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.stored_forms import EVENT
from holdfast.core.base.validation_errors import problem_text
from holdfast.core.wire.execution_events import KINDS, AnyObserved
from holdfast.core.wire.session_events import SESSION_KINDS, AnySessionEvent, SessionEvent

VERSION: Final = EVENT.version
"""The version of this form; it changes when a reader of an older one would misunderstand a newer one."""

STREAM: Final = "[0-9a-f-]{36}"
"""What an event's id has before the slash."""

ENVELOPE: Final = ("id", "sequence", "version")
"""The fields around the event itself."""


AnyEvent = Annotated[AnyObserved | AnySessionEvent, Field(discriminator="kind")]
"""Any delivered event: of an execution or of a session."""

DELIVERED_KINDS: Final = MappingProxyType({**KINDS, **SESSION_KINDS})
"""Every kind of it by its name."""


@dataclass(frozen=True, slots=True)
class NumberedEvent:
    """An event and its place among those of its execution, or of its session, from 1 on.

    `reset_run_id` is the Temporal run with which an operator's reset began the execution anew, for events after that.
    """

    sequence: int
    event: AnyEvent
    reset_run_id: str | None = None

    @property
    def id(self) -> str:
        """The unique id: `EXECUTION/SEQUENCE`, of a session and after a reset `TEMPORAL_RUN/SEQUENCE`."""
        event = self.event
        if isinstance(event, SessionEvent):
            return f"{event.temporal_run_id}/{self.sequence}"
        return f"{self.reset_run_id or event.execution_id}/{self.sequence}"


@cache
def _adapter() -> TypeAdapter[AnyEvent]:
    return TypeAdapter(AnyEvent)


def to_dict(numbered: NumberedEvent) -> dict[str, Any]:
    """Return the event as JSON-ready data."""
    event = cast("dict[str, Any]", _adapter().dump_python(numbered.event, mode="json"))
    kind = event.pop("kind")
    return {"id": numbered.id, "sequence": numbered.sequence, "version": VERSION, "kind": kind, **event}


def to_line(numbered: NumberedEvent) -> bytes:
    """Return the event as one line of JSON, its end included."""
    return to_json(to_dict(numbered)) + b"\n"


def from_dict(data: Mapping[str, Any]) -> NumberedEvent:
    """Return the event that `to_dict` wrote; InvalidInput for anything else, or another version's."""
    version, sequence = data.get("version"), data.get("sequence")
    if version != VERSION:
        raise InvalidInput(
            f"the event has version {version!r:.60}, this Holdfast reads {VERSION}: update the older one"
        )
    if type(sequence) is not int or sequence < 1:
        raise InvalidInput(f"the event's sequence is {sequence!r:.60}; it is a whole number from 1 on")
    try:
        event = _adapter().validate_python({name: each for name, each in data.items() if name not in ENVELOPE})
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise InvalidInput(
            f"this is not a valid event: {'.'.join(map(str, problem['loc']))}: {problem_text(problem)}"[:400]
        ) from None
    numbered = NumberedEvent(sequence, event, _reset_run_id(data.get("id"), event))
    if data.get("id") != numbered.id:
        raise InvalidInput(f"the event's id is {data.get('id')!r:.100}, by its other fields it is {numbered.id!r}")
    return numbered


def _reset_run_id(id_: object, event: AnyEvent) -> str | None:
    """Return the Temporal run in an event's id; none where the execution stands there, or in a session's."""
    stream = str(id_).rpartition("/")[0]
    if isinstance(event, SessionEvent) or stream == event.execution_id or not re.fullmatch(STREAM, stream):
        return None
    return stream


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of what `to_dict` writes."""
    whole = _adapter().json_schema(mode="serialization")
    for name in DELIVERED_KINDS:
        part = whole["$defs"][name]
        own = part["properties"]
        envelope = {
            "id": {"title": "Id", "type": "string", "pattern": f"^{STREAM}/[1-9][0-9]*$"},
            "sequence": {"title": "Sequence", "type": "integer", "minimum": 1},
            "version": {"title": "Version", "type": "integer", "const": VERSION},
        }
        part["properties"] = {**envelope, "kind": own["kind"], **own}
        part["required"] = [*part["properties"]]
    return {"title": "Event", "description": "One event of an execution or of a session, as it is delivered.", **whole}
