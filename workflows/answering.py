"""What an execution answers to queries: nothing of it is written into its history."""

from __future__ import annotations

from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from holdfast.core.carrying import Past
    from holdfast.core.contracts import (
        BUDGET_QUERY,
        BUFFER_QUERY,
        DEBUG_QUERY,
        EVENTS_QUERY,
        STATE_QUERY,
        TRANSCRIPT_QUERY,
        BufferPage,
        EventsPage,
        EventsRequest,
        PageRequest,
        StatePage,
        TranscriptPage,
        TranscriptRequest,
    )
    from holdfast.core.paging import page
    from holdfast.core.state import AgentState
    from holdfast.core.summarising import summary_request
    from workflows.observing import Observing
    from workflows.telling import Telling


class Answering:
    """The queries of `AgentExecution`, which keeps the values they are about."""

    _state: AgentState
    _past: Past
    _telling: Telling
    _observing: Observing

    @workflow.query(name=STATE_QUERY, description="The state, page by page.")
    def state(self, request: PageRequest | None = None) -> StatePage:
        """Return a page of the state; the first one without a request."""
        return page(self._state, request or PageRequest())

    @workflow.query(name=DEBUG_QUERY, description="The few facts one asks for first.")
    def debug(self) -> dict[str, Any]:
        """Return status, steps, signals, errors and usage."""
        return self._state.debug()

    @workflow.query(name=TRANSCRIPT_QUERY, description="What the model has been told, for the inference activity.")
    def transcript(self, asked: TranscriptRequest) -> TranscriptPage:
        """Return a run of messages as the model sees them."""
        return self._telling.page(asked)

    @workflow.query(name=BUFFER_QUERY, description="What is to be summarised, for the summarise activity.")
    def buffer(self) -> BufferPage:
        """Return what a model is asked in order to summarise the buffer."""
        return BufferPage(messages=summary_request(self._state.store))

    @workflow.query(name=EVENTS_QUERY, description="What a listener would have heard, page by page.")
    def events(self, request: EventsRequest | None = None) -> EventsPage:
        """Return the observed events from a place on."""
        return self._observing.page(request or EventsRequest())

    @workflow.query(name=BUDGET_QUERY, description="The limits, and what is left of them.")
    def budget(self) -> dict[str, Any]:
        """Return the limits in force and what is left, each none where there is no limit."""
        left = self._state.budget_remaining
        return {"budget": self._state.budget.model_dump(mode="json"), "remaining": left.model_dump(mode="json")}
