"""The queries of an execution; nothing of them enters its history."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from temporalio import workflow

from holdfast.core.agent.state import AgentState
from holdfast.core.loop.conversation_summary import summary_request
from holdfast.core.wire.carry_over import SealedHistory
from holdfast.core.wire.contracts import (
    BUDGET_QUERY,
    BUFFER_QUERY,
    DEBUG_QUERY,
    EVENTS_QUERY,
    PART_QUERY,
    SNAPSHOT_QUERY,
    STATE_QUERY,
    TRANSCRIPT_QUERY,
    BufferPage,
    EventsPage,
    EventsRequest,
    PageRequest,
    PartPage,
    PartRequest,
    StatePage,
    TranscriptPage,
    TranscriptRequest,
)
from holdfast.core.wire.paging import page
from holdfast.core.wire.records import Snapshot
from workflows.event_log import EventLog
from workflows.execution.request_delta import ModelTranscript


def _now() -> datetime:
    """Return the wall-clock time, for answers to queries alone, which decide nothing."""
    return max(datetime.now(UTC), workflow.now())


class QueryHandlers:
    """The queries of `AgentExecution`, which owns these values."""

    _state: AgentState
    _history: SealedHistory
    _transcript: ModelTranscript
    _event_log: EventLog
    _snapshot: Snapshot | None = None
    """The snapshot, once the execution has ended."""

    @workflow.query(name=STATE_QUERY, description="The state, page by page.")
    def state(self, request: PageRequest | None = None) -> StatePage:
        """Return a page of the state; the first one without a request."""
        return page(self._state.at(_now()), request or PageRequest())

    @workflow.query(name=DEBUG_QUERY, description="The few facts one asks for first.")
    def debug(self) -> dict[str, Any]:
        """Return status, steps, signals, errors and usage."""
        return self._state.debug()

    @workflow.query(name=TRANSCRIPT_QUERY, description="What the model was sent, for the inference activity.")
    def transcript(self, request: TranscriptRequest) -> TranscriptPage:
        """Return a run of messages as the model sees them."""
        return self._transcript.page(request)

    @workflow.query(name=BUFFER_QUERY, description="What is to be summarised, for the summarise activity.")
    def buffer(self) -> BufferPage:
        """Return the messages of a summary request."""
        return BufferPage(messages=summary_request(self._state.store))

    @workflow.query(name=EVENTS_QUERY, description="The execution events, page by page.")
    def events(self, request: EventsRequest | None = None) -> EventsPage:
        """Return the execution events from a place on."""
        return self._event_log.page(request or EventsRequest())

    @workflow.query(name=BUDGET_QUERY, description="The limits, and what is left of them.")
    def budget(self) -> dict[str, Any]:
        """Return the limits in force and what is left of each, none where there is no limit."""
        left = self._state.at(_now()).budget_remaining
        return {"budget": self._state.budget.model_dump(mode="json"), "remaining": left.model_dump(mode="json")}

    @workflow.query(name=SNAPSHOT_QUERY, description="What is kept of the execution, once it has ended.")
    def snapshot(self) -> Snapshot:
        """Return the snapshot, for the record activity."""
        if self._snapshot is None:
            raise ValueError("the run has not ended; `state` tells how far it is")
        return self._snapshot

    @workflow.query(name=PART_QUERY, description="A sealed part of the snapshot, for the record activity.")
    def part(self, request: PartRequest) -> PartPage:
        """Return the bytes of the part of that digest."""
        data = self._history.part(request.digest)
        if data is None:
            raise ValueError(f"there is no part {request.digest} in this run")
        return PartPage(data=data.decode())
