"""What the server knows of a workflow, or of many, as the SDK holds it; a paused one is under way. Asks no worker.

The SDK (1.35) knows no status for a workflow that an operator has paused: its own `describe` raises ValueError over
one, and its own list over each page that has one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution as ExecutionIds
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    ListWorkflowExecutionsRequest,
)
from temporalio.client import Client, WorkflowExecution

RUNNING: Final = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING
PAUSED: Final = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_PAUSED

OPEN: Final = frozenset({RUNNING, PAUSED})
"""A workflow in one of these has not ended: one that an operator has paused goes on later."""

UNDER_WAY: Final = "ExecutionStatus IN ('Running', 'Paused')"
"""The condition of the server's list filter for those."""

PAGE_ROWS: Final = 1_000
"""So many workflows one page of the list has, which is also the SDK's number."""


async def response(
    temporal: Client, workflow_id: str, run_id: str = "", *, rpc_timeout: timedelta, retry: bool = False
) -> DescribeWorkflowExecutionResponse:
    """Return all that the server knows of a Temporal run, of the latest one by default. Raises RPCError."""
    ids = ExecutionIds(workflow_id=workflow_id, run_id=run_id)
    request = DescribeWorkflowExecutionRequest(namespace=temporal.namespace, execution=ids)
    service = temporal.workflow_service
    return await service.describe_workflow_execution(request, retry=retry, timeout=rpc_timeout)


async def described(temporal: Client, workflow_id: str, *, rpc_timeout: timedelta) -> WorkflowExecution:
    """Return the facts of a workflow's latest Temporal run, with the SDK's retries. Raises RPCError."""
    found = await response(temporal, workflow_id, rpc_timeout=rpc_timeout, retry=True)
    return _execution(temporal, found.workflow_execution_info)


async def executions(
    temporal: Client, query: str, *, limit: int | None = None, rpc_timeout: timedelta | None = None
) -> AsyncGenerator[WorkflowExecution, None]:
    """Yield what the server's list has for a query, at most `limit`. Raises RPCError."""
    token, left = b"", limit
    while left is None or left > 0:
        request = ListWorkflowExecutionsRequest(
            namespace=temporal.namespace,
            page_size=PAGE_ROWS if left is None else min(left, PAGE_ROWS),
            next_page_token=token,
            query=query,
        )
        page = await temporal.workflow_service.list_workflow_executions(request, retry=True, timeout=rpc_timeout)
        for each in page.executions:
            yield _execution(temporal, each)
        left = None if left is None else left - len(page.executions)
        token = page.next_page_token
        if not token:
            return


def is_paused(execution: WorkflowExecution) -> bool:
    """Return whether an operator has paused the workflow, whose `status` then says that it is running."""
    return execution.raw_info.status == PAUSED


def _execution(temporal: Client, info: WorkflowExecutionInfo) -> WorkflowExecution:
    known = info
    if info.status == PAUSED:
        known = WorkflowExecutionInfo()
        known.CopyFrom(info)
        known.status = RUNNING
    make = WorkflowExecution._from_raw_info  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the SDK has no other
    execution = make(known, temporal.namespace, temporal.data_converter)
    execution.raw_info = info
    return execution
