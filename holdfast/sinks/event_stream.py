"""`EventStream`: events that are read as one, in order: an execution's, or those of one Temporal run of a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from holdfast.core.wire.event_envelope import NumberedEvent
from holdfast.core.wire.session_events import SessionEvent
from holdfast.core.wire.workflow_ids import is_session, session_workflow_id


@dataclass(frozen=True, slots=True)
class EventStream:
    """An execution has one stream, over all its Temporal runs: it ends once.

    A session can end on the server and come back, under the same workflow id: each of its Temporal runs, which has a
    `run_id` here, is a stream that ends once. So is what an execution does after an operator's reset; its `run_id` is
    the Temporal run that the reset began.
    """

    workflow_id: str
    run_id: str | None = None

    @property
    def of_session(self) -> bool:
        """Whether its events are a session's."""
        return is_session(self.workflow_id)

    @property
    def after_reset(self) -> bool:
        """Whether it is what an execution does after a reset."""
        return self.run_id is not None and not self.of_session

    @property
    def key(self) -> str:
        """What tells it from every other one: `EXECUTION`, or `session-AGENT` or `EXECUTION` and `/TEMPORAL_RUN`."""
        return self.workflow_id if self.run_id is None else f"{self.workflow_id}/{self.run_id}"

    @classmethod
    def of_key(cls, key: str) -> Self:
        """Return the stream that has this key."""
        workflow_id, _, run_id = key.partition("/")
        return cls(workflow_id, run_id or None)

    @classmethod
    def of(cls, numbered: NumberedEvent) -> Self:
        """Return the stream that the event is out of."""
        event = numbered.event
        if isinstance(event, SessionEvent):
            return cls(session_workflow_id(event.agent_id), event.temporal_run_id)
        return cls(event.execution_id, numbered.reset_run_id)
