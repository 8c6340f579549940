"""What an operator does with `temporal workflow reset`, and `delete`."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, ResetWorkflowExecutionRequest
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client import Holdfast

DELETED_SECONDS_MAX = 90.0


async def reset(client: Holdfast, execution_id: str, task: int) -> None:
    """Reset a run to one of its workflow tasks."""
    temporal = client.temporal
    history = await temporal.get_workflow_handle(execution_id).fetch_history()
    completed = [
        each.event_id for each in history.events if each.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    ]
    request = ResetWorkflowExecutionRequest(
        namespace=temporal.namespace,
        workflow_execution=WorkflowExecution(workflow_id=execution_id),
        reason="a test",
        request_id=str(uuid4()),
        workflow_task_finish_event_id=completed[task],
    )
    await temporal.workflow_service.reset_workflow_execution(request)


async def deleted(client: Holdfast, workflow_id: str, run_id: str = "") -> None:
    """Have the server delete a Temporal run, as at the end of its retention; return when it has."""
    execution = WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
    request = DeleteWorkflowExecutionRequest(namespace=client.temporal.namespace, workflow_execution=execution)
    await client.temporal.workflow_service.delete_workflow_execution(request)
    async with asyncio.timeout(DELETED_SECONDS_MAX):
        while True:
            try:
                await client.temporal.get_workflow_handle(workflow_id, run_id=run_id or None).describe()
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return
                raise
            await asyncio.sleep(0.05)
