"""Marks what Temporal refers to: every history that a namespace still has, pending activities, schedules.

A reference passes from one history to another without being written again only where the server copies it: to a child,
a parent, a reset or the next Temporal run. So the executions are gone through twice: the second time those that began
meanwhile, and again those that are open.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Any, Final

from google.protobuf.message import Message
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus as Status
from temporalio.api.history.v1 import History
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    DescribeActivityExecutionRequest,
    DescribeScheduleRequest,
    DescribeWorkflowExecutionRequest,
    GetWorkflowExecutionHistoryRequest,
    ListActivityExecutionsRequest,
    ListSchedulesRequest,
    ListWorkflowExecutionsRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from holdfast.connection.rpc_errors import refusal
from holdfast.core.base.errors import PayloadRefused
from holdfast.server.garbage.concurrency import all_of
from holdfast.server.garbage.mark_file import MarkFile
from holdfast.server.garbage.references import ReferenceReader
from holdfast.server.garbage.registration import StoreUser
from holdfast.storage.fetch_result_tool import results_folder

RUNS_AT_ONCE: Final = 8
"""How many histories are read at once; a page of one has up to 4 MB."""

LISTED_AT_ONCE: Final = 200
"""How many executions are listed per request, and how many are read before the marks are saved."""

READ_TIMEOUT: Final = timedelta(seconds=30)
"""The timeout of one request; the SDK repeats one that the server could not answer at the moment."""

CLOSED: Final = frozenset(
    {
        Status.WORKFLOW_EXECUTION_STATUS_COMPLETED,
        Status.WORKFLOW_EXECUTION_STATUS_FAILED,
        Status.WORKFLOW_EXECUTION_STATUS_CANCELED,
        Status.WORKFLOW_EXECUTION_STATUS_TERMINATED,
        Status.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW,
        Status.WORKFLOW_EXECUTION_STATUS_TIMED_OUT,
    }
)
"""The statuses of a history that never changes again; any other, also one that we do not know, may."""


class TemporalSource:
    """One namespace."""

    def __init__(
        self,
        temporal: TemporalClient,
        user: StoreUser,
        reader: ReferenceReader,
        progress: Callable[[int], None],
    ) -> None:
        """`progress` is called with how many more executions were read."""
        self._service = temporal.workflow_service
        self._user = user
        self._reader = reader
        self._progress = progress

    async def mark(self, marks: MarkFile, *, again: bool) -> None:
        """Mark what the namespace's executions, schedules and standalone activities refer to.

        Raises ServerUnavailable, and PayloadRefused where an encryption key is missing.
        """
        async for page in self._pages():
            await all_of((self._execution(each, marks, again=again) for each in page), RUNS_AT_ONCE)
            marks.commit()
        await self._schedules(marks)
        await self._activities(marks)
        marks.commit()

    async def _execution(self, info: WorkflowExecutionInfo, marks: MarkFile, *, again: bool) -> None:
        source = f"{self._user.id}/{info.execution.run_id}"
        if marks.has_read(source):
            return
        marks.mark([results_folder(info.execution.workflow_id).encode()])
        try:
            # described first: what an activity leaves on its way into the history is in one or the other
            described = None if info.status in CLOSED else await self._description(info.execution)
            if described is not None:
                marks.mark(await self._reader.in_message(described))
            async for history in self._histories(info.execution):
                marks.mark(await self._reader.in_message(history))
        except PayloadRefused as error:
            problem = f"the run {info.execution.workflow_id} in the namespace {self._user.namespace!r}: {error}"
            raise PayloadRefused(f"{problem}; nothing was moved or deleted") from None
        if info.status in CLOSED:
            marks.read(source)
        if not again:
            self._progress(1)

    async def _pages(self) -> AsyncGenerator[list[WorkflowExecutionInfo]]:
        request = ListWorkflowExecutionsRequest(namespace=self._user.namespace, page_size=LISTED_AT_ONCE)
        async for page in self._paged(self._service.list_workflow_executions, request):
            yield list(page.executions)

    async def _histories(self, execution: WorkflowExecution) -> AsyncGenerator[History]:
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self._user.namespace, execution=execution, skip_archival=True
        )
        call = self._service.get_workflow_execution_history
        async for page in self._paged(call, request, missing_is_none=True):  # it may be deleted meanwhile
            yield page.history
            for blob in page.raw_history:
                yield History.FromString(blob.data)

    async def _description(self, execution: WorkflowExecution) -> Message | None:
        request = DescribeWorkflowExecutionRequest(namespace=self._user.namespace, execution=execution)
        description: Message | None = await self._answer(
            self._service.describe_workflow_execution, request, missing_is_none=True
        )
        return description

    async def _schedules(self, marks: MarkFile) -> None:
        request = ListSchedulesRequest(namespace=self._user.namespace, maximum_page_size=LISTED_AT_ONCE)
        async for page in self._paged(self._service.list_schedules, request, optional=True):
            for each in page.schedules:
                asked = DescribeScheduleRequest(namespace=self._user.namespace, schedule_id=each.schedule_id)
                await self._mark_described(marks, self._service.describe_schedule, asked)

    async def _activities(self, marks: MarkFile) -> None:
        """Mark what activities without a workflow refer to: programs of others may start some with our converter."""
        request = ListActivityExecutionsRequest(namespace=self._user.namespace, page_size=LISTED_AT_ONCE)
        async for page in self._paged(self._service.list_activity_executions, request, optional=True):
            for each in page.executions:
                asked = DescribeActivityExecutionRequest(
                    namespace=self._user.namespace,
                    activity_id=each.activity_id,
                    run_id=each.run_id,
                    include_input=True,
                    include_outcome=True,
                    include_heartbeat_details=True,
                    include_last_failure=True,
                )
                await self._mark_described(marks, self._service.describe_activity_execution, asked)

    async def _mark_described(self, marks: MarkFile, call: Callable[..., Any], request: Message) -> None:
        described = await self._answer(call, request, missing_is_none=True)
        if described is not None:
            marks.mark(await self._reader.in_message(described))

    async def _paged(
        self,
        call: Callable[..., Any],
        request: Any,  # noqa: ANN401  # one with a page token
        *,
        missing_is_none: bool = False,
        optional: bool = False,
    ) -> AsyncGenerator[Any]:
        """Yield the pages of an answer; the other arguments are those of `_answer`."""
        while True:
            page = await self._answer(call, request, missing_is_none=missing_is_none, optional=optional)
            if page is None:
                return
            yield page
            if not page.next_page_token:
                return
            request.next_page_token = page.next_page_token

    async def _answer(
        self,
        call: Callable[..., Any],
        request: Message,
        *,
        missing_is_none: bool = False,
        optional: bool = False,
    ) -> Any:  # noqa: ANN401  # the response to the request
        """Return the server's answer; none for what is gone, or for an `optional` part that the server lacks."""
        try:
            return await call(request, retry=True, timeout=READ_TIMEOUT)
        except RPCError as error:
            if missing_is_none and error.status is RPCStatusCode.NOT_FOUND:
                return None
            if optional and error.status is RPCStatusCode.UNIMPLEMENTED:
                return None
            raise refusal(error) from None
