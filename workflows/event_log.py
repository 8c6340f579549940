"""What listeners would hear of one execution or session, kept for who asks by query.

A Temporal run has the events since it began. Nothing of it is in its history: a replay makes them again.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import cast

from pydantic_core import to_json
from temporalio import workflow

from holdfast.core.base import bounds
from holdfast.core.base.frozen import replace
from holdfast.core.session.event_derivation import session_events
from holdfast.core.session.session_state import SessionState
from holdfast.core.wire.contracts import EventsPage, EventsRequest
from holdfast.core.wire.execution_events import AnyObserved, Observed
from holdfast.core.wire.session_events import SESSION_EVENTS_MAX, AnySessionEvent, SessionEventsPage


class EventLog:
    """The events of a run that goes on from `previous_run_id`, in which the first `before` events were observed."""

    def __init__(self, before: int = 0, previous_run_id: str | None = None) -> None:
        self._before = before
        self._previous_run_id = previous_run_id
        self._events: list[AnyObserved] = []

    @property
    def total(self) -> int:
        """How many events the execution has had so far."""
        return self._before + len(self._events)

    def take(self, event: Observed) -> None:
        """Keep an event."""
        self._events.append(cast("AnyObserved", event))  # the union lists every kind there is

    def page(self, request: EventsRequest) -> EventsPage:
        """Return the events from a place on, as many as one answer holds, but at least one where there is one."""
        start = min(max(request.start, self._before), self.total)
        told: list[AnyObserved] = []
        used = 0
        for event in self._events[start - self._before :]:
            used += len(to_json(event))
            if told and used > bounds.PAGE_BYTES_MAX:
                break
            told.append(event)
        return EventsPage(
            first=self._before,
            start=start,
            events=tuple(told),
            total=self.total,
            previous_run_id=self._previous_run_id,
        )


class SessionEventLog:
    """The events of a session in this Temporal run, made of what the session was and has become."""

    def __init__(self, state: SessionState | None) -> None:
        self._run_id = workflow.info().run_id
        self._before = 0
        self._previous_run_id: str | None = None
        self._total = 0
        self._events = deque[AnySessionEvent](maxlen=SESSION_EVENTS_MAX)
        if state is not None:
            self.go_on(state)

    def go_on(self, state: SessionState) -> None:
        """Number from where the Temporal run before this one has left the session."""
        self._before = self._total = state.events_before
        self._previous_run_id = state.events_run_id

    def take(self, before: SessionState | None, after: SessionState) -> None:
        """Keep what is to be told of a transition."""
        for event in session_events(before, after, self._run_id):
            self._events.append(event)
            self._total += 1

    def handed_on(self, state: SessionState) -> SessionState:
        """Return the session as another Temporal run goes on with it."""
        run_id = self._run_id if self._events else self._previous_run_id
        return replace(state, events_before=self._total, events_run_id=run_id)

    def page(self, request: EventsRequest) -> SessionEventsPage:
        """Return the events from a place on, as many as one answer holds, but at least one where there is one."""
        first = self._total - len(self._events)
        start = min(max(request.start, first), self._total)
        found: list[AnySessionEvent] = []
        used = 0
        for event in islice(self._events, start - first, None):
            used += len(to_json(event))
            if found and used > bounds.PAGE_BYTES_MAX:
                break
            found.append(event)
        return SessionEventsPage(
            before=self._before,
            first=first,
            start=start,
            events=tuple(found),
            total=self._total,
            previous_run_id=self._previous_run_id,
        )
