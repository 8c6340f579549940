"""The events of one execution or session, kept for queries.

A Temporal run has the events since it began. They are not in its history: a replay derives them again. Each is kept
with the length of the history at the task that it came in: whoever follows the history wants no event that is ahead of
it (`EventsRequest.recorded`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
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
    """The events of a Temporal run that continues `previous_run_id`, which had the first `before` events."""

    def __init__(self, before: int = 0, previous_run_id: str | None = None) -> None:
        self._before = before
        self._previous_run_id = previous_run_id
        self._events: list[AnyObserved] = []
        self._lengths: list[int] = []

    @property
    def total(self) -> int:
        """How many events the execution has had so far."""
        return self._before + len(self._events)

    def take(self, event: Observed) -> None:
        """Add an event."""
        self._events.append(cast("AnyObserved", event))  # the union lists every kind there is
        self._lengths.append(workflow.info().get_current_history_length())

    def page(self, request: EventsRequest) -> EventsPage:
        """Return the events from a place on, as many as one answer holds, but at least one where there is one."""
        start = min(max(request.start, self._before), self.total)
        recorded = _recorded(self._lengths, request)
        events: list[AnyObserved] = []
        used = 0
        for event in self._events[start - self._before : recorded]:
            used += len(to_json(event))
            if events and used > bounds.PAGE_BYTES_MAX:
                break
            events.append(event)
        return EventsPage(
            first=self._before,
            start=start,
            events=tuple(events),
            total=max(start, self._before + recorded),
            previous_run_id=self._previous_run_id,
        )


class SessionEventLog:
    """The events of a session in this Temporal run, derived from its transitions."""

    def __init__(self, state: SessionState | None) -> None:
        self._run_id = workflow.info().run_id
        self._before = 0
        self._previous_run_id: str | None = None
        self._total = 0
        self._events = deque[AnySessionEvent](maxlen=SESSION_EVENTS_MAX)
        self._lengths = deque[int](maxlen=SESSION_EVENTS_MAX)
        if state is not None:
            self.go_on(state)

    def go_on(self, state: SessionState) -> None:
        """Continue the numbering of the previous Temporal run."""
        self._before = self._total = state.events_before
        self._previous_run_id = state.events_run_id

    def take(self, before: SessionState | None, after: SessionState) -> None:
        """Add the events of a transition."""
        for event in session_events(before, after, self._run_id):
            self._events.append(event)
            self._lengths.append(workflow.info().get_current_history_length())
            self._total += 1

    def handed_on(self, state: SessionState) -> SessionState:
        """Return the session with the event counts for the next Temporal run."""
        run_id = self._run_id if self._events else self._previous_run_id
        return replace(state, events_before=self._total, events_run_id=run_id)

    def page(self, request: EventsRequest) -> SessionEventsPage:
        """Return the events from a place on, as many as one answer holds, but at least one where there is one."""
        first = self._total - len(self._events)
        start = min(max(request.start, first), self._total)
        recorded = _recorded(self._lengths, request)
        events: list[AnySessionEvent] = []
        used = 0
        for event in islice(self._events, start - first, recorded):
            used += len(to_json(event))
            if events and used > bounds.PAGE_BYTES_MAX:
                break
            events.append(event)
        return SessionEventsPage(
            before=self._before,
            first=first,
            start=start,
            events=tuple(events),
            total=max(start, first + recorded),
            previous_run_id=self._previous_run_id,
        )


def _recorded(lengths: Sequence[int], request: EventsRequest) -> int:
    """Return how many events, each of which came at one of these lengths of the history, it has recorded."""
    return len(lengths) if request.recorded is None else bisect_right(lengths, request.recorded)
