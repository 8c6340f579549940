"""Following a run's history by long poll: learns that something has happened, without repeated queries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHandle, WorkflowHistoryEventFilterType
from temporalio.service import RPCError

from holdfast.connection.workflow_reader import PAUSED_SECONDS, POLL_TIMEOUT, ReadBackOff

T = TypeVar("T")

TASK_SECONDS_MAX: Final = 1.0
"""How long news wait while one workflow task follows the other; whoever has news asks the run."""

TASK_BEGINS: Final = EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED
TASK_ENDS: Final = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
    }
)

ENDS: Final = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: True,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW: True,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: False,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: False,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: False,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: False,
}
"""The last events of histories, and whether the run ended well."""


class History:
    """The history of one run of an execution, from its beginning on; of a run that is `closed` its end alone.

    Without a `run_id`, that of the latest run.
    """

    def __init__(self, temporal: TemporalClient, execution_id: str, run_id: str, *, closed: bool) -> None:
        self.run_id: Final = run_id
        self.over = False
        """Whether all of it has been read: the run has ended."""
        self.ended_well = False
        self.next_run_id: str | None = None
        """The run that continues this one as new."""
        self.length = 0
        """Up to which event it has been read."""
        self.recorded = 0
        """The number of the event with which the last workflow task that it has recorded began."""
        self.kept: int | None = None
        """The same of the last one that it has kept of another run, where it began by a reset, and was read so far."""
        self.in_task = False
        """Whether a workflow task is under way, as far as it was read: a query would come with the next one."""
        self._news_since: float | None = None
        self._told_before = 0
        """Up to which event the next page tells what was read already."""
        self._execution_id = execution_id
        handle = temporal.get_workflow_handle(execution_id, run_id=run_id or None)
        kind = WorkflowHistoryEventFilterType.CLOSE_EVENT if closed else WorkflowHistoryEventFilterType.ALL_EVENT
        self._pages = handle.fetch_history_events(wait_new_event=True, event_filter_type=kind, rpc_timeout=POLL_TIMEOUT)
        self._patience = ReadBackOff()

    async def news(self) -> None:
        """Return when a worker has done something for the run, or when it has ended.

        Where the next workflow task is under way by then, its end is waited for: a query that comes with a task can
        have it start over (`workflows.replay_guard`), and is answered no sooner. In a row of tasks without a pause
        between them, news come with the first event after TASK_SECONDS_MAX.
        """
        while not self.over:
            try:
                await self._pages.fetch_next_page()
            except RPCError as error:
                await self._patience.after(error, self._execution_id)
                continue
            self._patience.answered()
            is_news = self._take(self._pages.current_page or ())
            if not self.over and self._pages.next_page_token is None:
                # An operator has paused the run: the server waits for no event, and tells all again next time.
                self._told_before = self.length
                await asyncio.sleep(PAUSED_SECONDS)
            if is_news:
                return

    def _take(self, events: Sequence[HistoryEvent]) -> bool:
        """Return whether these events are news."""
        for event in events:
            if event.event_id <= self._told_before and event.event_type not in ENDS:
                continue
            self.length = event.event_id
            if event.event_type == TASK_BEGINS or event.event_type in TASK_ENDS:
                self.in_task = event.event_type == TASK_BEGINS
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                self.recorded = event.workflow_task_completed_event_attributes.started_event_id
                self._news_since = self._news_since or time.monotonic()
            if self.run_id and event.workflow_task_failed_event_attributes.new_run_id == self.run_id:  # only by a reset
                self.kept = self.recorded
            if event.event_type in ENDS:
                self.over, self.ended_well = True, ENDS[event.event_type]
                continued = event.workflow_execution_continued_as_new_event_attributes
                self.next_run_id = continued.new_execution_run_id or None
        since = self._news_since
        if not self.over and (since is None or (self.in_task and time.monotonic() - since < TASK_SECONDS_MAX)):
            return False
        self._news_since = None
        return True


async def until_closed(temporal: TemporalClient, execution_id: str) -> None:
    """Return when a run has ended, in whatever way, and those that continue it as new.

    A server that is away is waited for. Raises ExecutionNotFound, ServerUnavailable.
    """
    run_id: str | None = ""
    while run_id is not None:
        history = History(temporal, execution_id, run_id, closed=True)
        while not history.over:
            await history.news()
        run_id = history.next_run_id


async def result_of(handle: WorkflowHandle[Any, T], *, follow_runs: bool = True) -> T:
    """Return the result of a run that has ended; with `follow_runs` of the one that it was continued with.

    Raises as `until_closed` does, and WorkflowFailureError.
    """
    patience = ReadBackOff()
    while True:
        try:
            return await handle.result(follow_runs=follow_runs)
        except RPCError as error:
            await patience.after(error, handle.id)
