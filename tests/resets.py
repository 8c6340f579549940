"""What an operator does with `temporal workflow reset`."""

from __future__ import annotations

from uuid import uuid4

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from holdfast.client import Holdfast


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
