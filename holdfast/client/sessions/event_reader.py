"""The events of a session, read from the Temporal runs that have them, by query. Writes into no history."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from holdfast.client.workflow_queries import event_pages
from holdfast.core.base.errors import ExecutionNotFound
from holdfast.core.wire.event_envelope import NumberedEvent
from holdfast.core.wire.session_events import SessionEventsPage
from holdfast.core.wire.workflow_ids import session_workflow_id

if TYPE_CHECKING:
    from holdfast.client.runs import Runs

EVENTS_READ_MAX: Final = 10_000
"""The most events of one session that are read, the latest."""


async def session_events(client: Runs, agent_id: str) -> list[NumberedEvent]:
    """Return the latest events of an agent's session, at most EVENTS_READ_MAX, the oldest first; asks a worker.

    Those of Temporal runs that the server has forgotten are missing: the sequences tell. Raises ExecutionNotFound for a
    session that the server does not know (any more), ServerUnavailable.
    """
    collected: deque[NumberedEvent] = deque()
    run_id: str | None = None
    while True:
        try:
            events, previous = await _of_run(client, agent_id, run_id)
        except ExecutionNotFound:
            if run_id is None:
                raise
            break
        collected.extendleft(reversed(events))
        if previous is None or len(collected) >= EVENTS_READ_MAX:
            break
        run_id = previous
    return [*islice(collected, max(0, len(collected) - EVENTS_READ_MAX), None)]


async def _of_run(client: Runs, agent_id: str, run_id: str | None) -> tuple[list[NumberedEvent], str | None]:
    """Return the events of a Temporal run of the session, by default its latest, and which one has those before."""
    handle = client.temporal.get_workflow_handle(session_workflow_id(agent_id), run_id=run_id)
    events, previous = list[NumberedEvent](), None
    queue = client.settings.task_queue
    async for page in event_pages(client.temporal, handle, SessionEventsPage, queue, what="session"):
        events += [NumberedEvent(sequence, each) for sequence, each in enumerate(page.events, page.start + 1)]
        previous = page.previous_run_id
    return events, previous
