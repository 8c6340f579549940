"""What is asked about one execution: its events from the workflow, its answer's progress from the server.

Of a session the events alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, Generic

from pydantic import ValidationError
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState, WorkflowExecutionStatus
from temporalio.api.workflow.v1 import PendingActivityInfo, WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, DescribeWorkflowExecutionResponse
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.exceptions import FailureError
from temporalio.service import RPCError

from holdfast.connection.event_page_cache import ClosedRuns, PageT
from holdfast.connection.history_poll import Patience
from holdfast.connection.rpc_errors import NO_WORKER, refusal
from holdfast.core.base.errors import ExecutionNotFound, ServerUnavailable
from holdfast.core.wire.contracts import EVENTS_QUERY, CallProgress, EventsRequest

ASK_TIMEOUT: Final = timedelta(seconds=10)
"""How long one question to the server or, by query, to a worker may take."""

LOST_TIMEOUT: Final = timedelta(seconds=3)
"""How long the first try of a query may take: the SDK loses one that arrives at the moment at which a run ends."""

AGAIN_SECONDS: Final = 0.2
"""How long to wait before asking again a worker that was not there."""

ENDED_SECONDS_MAX: Final = 15.0
"""How long a run that has ended waits for a worker that gives its events."""

UNABLE_MAX: Final = 10
"""How often in a row a worker may say that it cannot answer (it may be about to end) before that is believed."""

RUNNING: Final = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING

ENDED_BADLY: Final = frozenset(
    {
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_FAILED,
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CANCELED,
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED,
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TIMED_OUT,
    }
)


class Reader(Generic[PageT]):
    """Asks about one workflow; a server that is away is waited for as `Patience` does.

    Its events come as pages of `page_type`: an execution's are EventsPage, a session's SessionEventsPage.
    """

    def __init__(
        self, temporal: TemporalClient, workflow_id: str, closed_runs: ClosedRuns[PageT], page_type: type[PageT]
    ) -> None:
        self._temporal = temporal
        self._closed_runs = closed_runs
        self._id = workflow_id
        self._page_type = page_type
        self._patience = Patience()

    async def first_run(self, place: int) -> str:
        """Return the id of the run that has the event at `place`, or will have it. Raises ExecutionNotFound."""
        latest = await self._info()
        run_id, first = latest.execution.run_id, latest.first_run_id or latest.execution.run_id
        with suppress(ExecutionNotFound):  # the server does not keep runs for ever
            if place == 0:
                return (await self._info(first)).execution.run_id
            while run_id != first:
                page = await self.page(run_id, place, closed=run_id != latest.execution.run_id)
                if page.first <= place or page.previous_run_id is None:
                    return run_id
                run_id = (await self._info(page.previous_run_id)).execution.run_id
        return run_id

    async def is_closed(self, run_id: str) -> bool:
        """Return whether the run has ended."""
        return (await self._info(run_id)).status != RUNNING

    async def stands_at(self, run_id: str, length: int) -> bool:
        """Return whether the run goes on and its history is just so long; not so where the server does not say."""
        with suppress(RPCError):
            info = (await self._described(run_id)).workflow_execution_info
            return info.status == RUNNING and info.history_length == length
        return False

    async def page(self, run_id: str, place: int, *, closed: bool) -> PageT:
        """Return the run's events from `place` on, as many as fit; a worker's absence is waited out.

        Raises ServerUnavailable when the execution has ended and no worker gives its events, or none can.
        """
        if closed:
            return await self._closed_runs.page(run_id, place, lambda start: self._asked(run_id, start))
        return await self._asked(run_id, place)

    async def _asked(self, run_id: str, place: int) -> PageT:
        handle = self._temporal.get_workflow_handle(self._id, run_id=run_id)
        gives_up_at, unable, timeout = time.monotonic() + ENDED_SECONDS_MAX, 0, min(LOST_TIMEOUT, ASK_TIMEOUT)
        while True:
            try:
                page: PageT = await handle.query(
                    EVENTS_QUERY, EventsRequest(start=place), result_type=self._page_type, rpc_timeout=timeout
                )
            except RPCError as error:
                timeout = ASK_TIMEOUT
                await self._without_page(error, gives_up_at)
            except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
                unable += 1
                if unable > UNABLE_MAX:
                    text = f"the worker cannot tell the events of run {self._id}: {error}"
                    raise ServerUnavailable(text) from None
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                self._patience.answered()
                return page

    async def _without_page(self, error: RPCError, gives_up_at: float) -> None:
        """Wait a little before asking again; raise when there is no use in it."""
        if error.status not in NO_WORKER:
            await self._patience.after(error, self._id)
            return
        if time.monotonic() > gives_up_at:
            info = await self._info()
            if info.status != RUNNING:
                raise refusal(error, self._id, asks_worker=info.task_queue) from None
        await asyncio.sleep(AGAIN_SECONDS)

    async def ended_badly(self) -> bool:
        """Return whether the execution has failed, or was ended by the server."""
        return (await self._info()).status in ENDED_BADLY

    async def pending(self, run_id: str, activity_id: str) -> PendingActivityInfo | None:
        """Return what the server knows of a call under way; none when it does not know it, or does not answer."""
        return next((each for each in await self.calls(run_id) if each.activity_id == activity_id), None)

    async def calls(self, run_id: str = "") -> Sequence[PendingActivityInfo]:
        """Return the calls under way, of the latest run by default; none when the server does not answer."""
        with suppress(RPCError):  # the history is asked, too, and gives up when there is no use in it
            return (await self._described(run_id)).pending_activities
        return ()

    async def progress(self, call: PendingActivityInfo) -> CallProgress | None:
        """Return what the call's heartbeats tell; none where they tell nothing that we know."""
        details = call.heartbeat_details.payloads[:1]
        if not details:
            return None
        try:
            [progress] = await self._temporal.data_converter.decode(details, [CallProgress])
        except (ValidationError, RuntimeError):  # another version's
            return None
        return progress if isinstance(progress, CallProgress) else None

    async def failure(self, call: PendingActivityInfo) -> str:
        """Return why the call's latest attempt failed; nothing where none has."""
        if not call.HasField("last_failure"):
            return ""
        error = await self._temporal.data_converter.decode_failure(call.last_failure)
        return error.message if isinstance(error, FailureError) else str(error)

    async def _info(self, run_id: str = "") -> WorkflowExecutionInfo:
        """Return the facts of a run, of the latest one by default."""
        while True:
            try:
                described = await self._described(run_id)
            except RPCError as error:
                await self._patience.after(error, self._id)
            else:
                self._patience.answered()
                return described.workflow_execution_info

    async def _described(self, run_id: str) -> DescribeWorkflowExecutionResponse:
        # not the SDK's own `describe`, which fails for a paused run
        execution = WorkflowExecution(workflow_id=self._id, run_id=run_id)
        request = DescribeWorkflowExecutionRequest(namespace=self._temporal.namespace, execution=execution)
        return await self._temporal.workflow_service.describe_workflow_execution(request, timeout=ASK_TIMEOUT)


def next_attempt_at(call: PendingActivityInfo) -> datetime | None:
    """Return when the call's next attempt is to begin; none where one is under way or waits for a worker."""
    waits = call.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    if not waits or not call.HasField("last_failure") or not call.HasField("next_attempt_schedule_time"):
        return None
    return call.next_attempt_schedule_time.ToDatetime(UTC)
