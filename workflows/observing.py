"""What listeners would hear of one execution, kept for who asks by query; a run has the events since it began."""

from __future__ import annotations

from typing import cast

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from pydantic_core import to_json

    from holdfast.core import limits
    from holdfast.core.contracts import EventsPage, EventsRequest
    from holdfast.core.observed import AnyObserved, Observed


class Observing:
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
            if told and used > limits.PAGE_BYTES_MAX:
                break
            told.append(event)
        return EventsPage(
            first=self._before,
            start=start,
            events=tuple(told),
            total=self.total,
            previous_run_id=self._previous_run_id,
        )
