"""Following a session's history by long poll: which executions it starts, and that something has happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final, Literal

from temporalio.api.enums.v1 import EventType, WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from holdfast.connection.executions import OPEN
from holdfast.connection.history_poll import History, result_of
from holdfast.connection.workflow_reader import WorkflowReader
from holdfast.core.wire.session_contracts import SessionView

AWAY_SECONDS: Final = 1.0
"""How often to look whether a session that has left the server is back: the server does not notify of that."""

CHILD_ENDS: Final = {
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED: "child_workflow_execution_completed_event_attributes",
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_FAILED: "child_workflow_execution_failed_event_attributes",
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_CANCELED: "child_workflow_execution_canceled_event_attributes",
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TIMED_OUT: "child_workflow_execution_timed_out_event_attributes",
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TERMINATED: "child_workflow_execution_terminated_event_attributes",
}
"""How a history tells that a child has ended, and where it says which."""

HERE: Final = OPEN | {WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW}
"""A session in one of these is on the server."""


class SessionRun(History):
    """The history of one run of a session, of which the first `past` events are over and done with."""

    def __init__(self, temporal: Client, workflow_id: str, run_id: str, past: int) -> None:
        super().__init__(temporal, workflow_id, run_id, closed=False)
        self.started_ids: list[str] = []
        """Executions that have begun and were not told yet; of the past, those that are under way."""
        self._past = past
        self._read = 0

    def _take(self, events: Sequence[HistoryEvent]) -> bool:
        super()._take(events)
        for event in events:
            self._read = max(self._read, event.event_id)
            if event.event_type == EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED:
                started = event.child_workflow_execution_started_event_attributes
                self.started_ids.append(started.workflow_execution.workflow_id)
            elif event.event_type in CHILD_ENDS and self._read <= self._past:
                ended = getattr(event, CHILD_ENDS[event.event_type]).workflow_execution.workflow_id
                self.started_ids = [each for each in self.started_ids if each != ended]
        return self.over or (self._read >= self._past and self._is_news())

    def _is_news(self) -> bool:
        return bool(self.started_ids)


class SessionNews(SessionRun):
    """As SessionRun, but anything that happens after the past is news."""

    def _is_news(self) -> bool:
        return self._read > self._past


async def executions_of(temporal: Client, workflow_id: str) -> AsyncGenerator[str, None]:
    """Yield the ids of the execution under way and of those that follow, each once it has begun, until the close.

    The session must be there. While it is away (it was idle), its return is waited for; once it is closed, or was ended
    from outside, there is no more.
    """
    info = await WorkflowReader(temporal, workflow_id).info()
    run_id, past = info.execution.run_id, info.history_length
    while True:
        run = SessionRun(temporal, workflow_id, run_id, past)
        while not run.over:
            await run.news()
            for execution_id in run.started_ids:
                yield execution_id
            run.started_ids = []
        following = run.next_run_id or await _returned(temporal, workflow_id, run_id)
        if following is None:
            return
        run_id, past = following, 0


async def news_from_now(temporal: Client, workflow_id: str) -> SessionNews | Literal["closed", "ended from outside"]:
    """Return whose `news` tell of anything that the session does from now on, or why it does nothing any more.

    One that is away from the server is given some time to return.
    """
    info = await WorkflowReader(temporal, workflow_id).info()
    if info.status == WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED:
        if await _was_closed(temporal, workflow_id, info.execution.run_id):
            return "closed"
        await asyncio.sleep(AWAY_SECONDS)
    elif info.status not in HERE:
        return "ended from outside"
    return SessionNews(temporal, workflow_id, info.execution.run_id, info.history_length)


async def _returned(temporal: Client, workflow_id: str, run_id: str) -> str | None:
    """Return the run that brings the session back after the run that has ended; none when nothing will."""
    while True:
        info = await WorkflowReader(temporal, workflow_id).info()
        if info.execution.run_id != run_id:
            return info.execution.run_id
        if info.status != WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED:
            return None
        if await _was_closed(temporal, workflow_id, run_id):
            return None
        await asyncio.sleep(AWAY_SECONDS)


async def _was_closed(temporal: Client, workflow_id: str, run_id: str) -> bool:
    """Return whether the session has left the server for ever with this run, which is complete."""
    handle = temporal.get_workflow_handle(workflow_id, run_id=run_id, result_type=SessionView)
    view: SessionView = await result_of(handle, follow_runs=False)
    return view.status == "closed"
