"""Reading an execution: its events from the workflow, the progress of its answer from the server.

Of a session the events alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

from pydantic import ValidationError
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState, WorkflowExecutionStatus
from temporalio.api.history.v1 import WorkflowExecutionStartedEventAttributes
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import Client as TemporalClient
from temporalio.exceptions import FailureError
from temporalio.service import RPCError

from holdfast.connection import workflow_reader
from holdfast.connection.event_page_cache import ClosedRuns, PageT
from holdfast.connection.executions import OPEN, RUNNING
from holdfast.connection.history_poll import History
from holdfast.connection.workflow_reader import ASK_TIMEOUT, WorkflowReader
from holdfast.core.base.errors import ExecutionNotFound
from holdfast.core.tools.call_context import ToolProgress
from holdfast.core.wire.contracts import EVENTS_QUERY, CallProgress, EventsRequest

DetailT = TypeVar("DetailT", CallProgress, ToolProgress)

ENDED_BADLY: Final = frozenset(
    {
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_FAILED,
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CANCELED,
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED,
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TIMED_OUT,
    }
)


class Reader(WorkflowReader, Generic[PageT]):
    """Asks about one workflow, whose events come as pages of `page_type`.

    An execution's are EventsPage, a session's SessionEventsPage.
    """

    def __init__(
        self, temporal: TemporalClient, workflow_id: str, closed_runs: ClosedRuns[PageT], page_type: type[PageT]
    ) -> None:
        super().__init__(temporal, workflow_id)
        self._closed_runs = closed_runs
        self._page_type = page_type

    async def first_run(self, place: int, *, before_resets: bool = False) -> str:
        """Return the id of the run that has the event at `place`, or will have it. Raises ExecutionNotFound.

        `before_resets` leaves out what an operator's resets began.

        The server does not keep runs for ever: where it has deleted that one, it is the earliest that is still there.
        """
        latest = await self.info()
        run_id, first = latest.execution.run_id, latest.first_run_id or latest.execution.run_id
        if before_resets and (reset := await self.latest_reset()):
            run_id = (await self._started(reset)).original_execution_run_id
        if place == 0:
            with suppress(ExecutionNotFound):
                return (await self.info(first)).execution.run_id
        with suppress(ExecutionNotFound):
            while run_id != first:
                page = await self.page(run_id, place, closed=run_id != latest.execution.run_id)
                if page.first <= place or page.previous_run_id is None:
                    return run_id
                run_id = (await self.info(page.previous_run_id)).execution.run_id
        return run_id

    async def is_closed(self, run_id: str) -> bool:
        """Return whether the run has ended."""
        return (await self.info(run_id)).status not in OPEN

    async def reset_to(self, run_id: str) -> str | None:
        """Return the run that the execution goes on with instead of one that has ended; none in most cases.

        An operator has it do so (`temporal workflow reset`), from some place of that run or of an earlier one.
        """
        described = await self.described_patiently(run_id)
        info = described.workflow_execution_info
        if reset := described.workflow_extended_info.reset_run_id:
            return reset
        if info.status != WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED:
            return None
        latest = await self.info()  # an earlier run was reset, which ended this one
        is_reset = latest.execution.run_id != run_id and latest.first_run_id == info.first_run_id
        return latest.execution.run_id if is_reset else None

    async def latest_reset(self, after: str | None = None) -> str | None:
        """Return the run that the latest reset began, by an operator; none without one since the run `after`.

        Raises ExecutionNotFound, ServerUnavailable.
        """
        info = await self.info()
        run_id = info.execution.run_id
        with suppress(ExecutionNotFound):  # the server has deleted an earlier one
            while run_id not in (after, info.first_run_id, ""):
                started = await self._started(run_id)
                if started.original_execution_run_id != run_id:
                    return run_id
                run_id = started.continued_execution_run_id
        return None

    async def _started(self, run_id: str) -> WorkflowExecutionStartedEventAttributes:
        """Return how a run began; one that a reset began has the beginning of the run that was reset."""
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self.temporal.namespace,
            execution=WorkflowExecution(workflow_id=self._workflow_id, run_id=run_id),
            maximum_page_size=1,
        )
        while True:
            try:
                page = await self.temporal.workflow_service.get_workflow_execution_history(request, timeout=ASK_TIMEOUT)
            except RPCError as error:
                await self.patience.after(error, self._workflow_id)
            else:
                self.patience.answered()
                return page.history.events[0].workflow_execution_started_event_attributes

    async def kept(self, run_id: str) -> int:
        """Return how many events are kept in a run that began by a reset, counted from the execution's beginning.

        A worker's absence is waited out.
        """
        history = History(self.temporal, self._workflow_id, run_id, closed=False)
        while history.kept is None and not history.over:
            await history.news()
        return (await self._query_events(run_id, 0, history.kept)).total

    async def stands_at(self, run_id: str, length: int) -> bool:
        """Return whether the run goes on and its history is just so long; not so where the server does not say."""
        with suppress(RPCError):
            info = (await self.described(run_id)).workflow_execution_info
            return info.status == RUNNING and info.history_length == length
        return False

    async def page(self, run_id: str, place: int, *, closed: bool, recorded: int | None = None) -> PageT:
        """Return the run's events from `place` on, as many as fit; a worker's absence is waited out.

        Of a run that goes on, those that its history has, as far as it was followed (`History.recorded`).

        Raises ServerUnavailable when the execution has ended and no worker gives its events, or none can.
        """
        if closed:
            return await self._closed_runs.page(run_id, place, lambda start: self._query_events(run_id, start))
        return await self._query_events(run_id, place, recorded)

    async def _query_events(self, run_id: str, place: int, recorded: int | None = None) -> PageT:
        request, ended = EventsRequest(start=place, recorded=recorded), workflow_reader.ENDED_SECONDS_MAX
        return await self.answer(EVENTS_QUERY, request, self._page_type, run_id, ended_seconds_max=ended)

    async def ended_badly(self) -> bool:
        """Return whether the execution has failed, or was ended by the server; not so where that does not say now."""
        with suppress(RPCError):  # who asks has waited for it already
            return (await self.described()).workflow_execution_info.status in ENDED_BADLY
        return False

    async def pending(self, run_id: str, activity_id: str) -> PendingActivityInfo | None:
        """Return what the server knows of a call under way; none when it does not know it, or does not answer."""
        return next((each for each in await self.calls(run_id) if each.activity_id == activity_id), None)

    async def calls(self, run_id: str = "") -> Sequence[PendingActivityInfo]:
        """Return the calls under way, of the latest run by default; none when the server does not answer."""
        with suppress(RPCError):  # the history is asked, too, and gives up when there is no use in it
            return (await self.described(run_id)).pending_activities
        return ()

    async def progress(self, call: PendingActivityInfo) -> CallProgress | None:
        """Return what the call's heartbeats tell; none where they tell nothing that we know."""
        return await self._detail(call, 0, CallProgress)

    async def tool_progress(self, call: PendingActivityInfo) -> ToolProgress | None:
        """Return what the tool of a call has reported last; none where it has reported nothing."""
        return await self._detail(call, 1, ToolProgress)

    async def _detail(self, call: PendingActivityInfo, place: int, kind: type[DetailT]) -> DetailT | None:
        details = call.heartbeat_details.payloads[place : place + 1]
        if not details:
            return None
        try:
            [detail] = await self.temporal.data_converter.decode(details, [kind])
        except (ValidationError, RuntimeError):  # another version's
            return None
        return detail if isinstance(detail, kind) else None

    async def failure(self, call: PendingActivityInfo) -> str:
        """Return why the call's latest attempt failed; nothing where none has."""
        if not call.HasField("last_failure"):
            return ""
        error = await self.temporal.data_converter.decode_failure(call.last_failure)
        return error.message if isinstance(error, FailureError) else str(error)


def next_attempt_at(call: PendingActivityInfo) -> datetime | None:
    """Return when the call's next attempt is to begin; none where one is under way or waits for a worker."""
    waits = call.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    if not waits or not call.HasField("last_failure") or not call.HasField("next_attempt_schedule_time"):
        return None
    return call.next_attempt_schedule_time.ToDatetime(UTC)
