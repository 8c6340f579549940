"""Whether a workflow task is in a run's history as completed. Only asks."""

from __future__ import annotations

from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from holdfast.connection.workflow_reader import ASK_TIMEOUT

PAGE_EVENTS: Final = 16
PAGES_MAX: Final = 8
"""How far back a task is looked for: it is one of the latest, and further back it does not matter any more."""


async def is_recorded(temporal: TemporalClient, workflow_id: str, run_id: str, started_id: int) -> bool:
    """Return whether the task that began with the event `started_id` was completed; not so where that is not known.

    Nothing comes between the two events: what happens during a task is written behind its end.
    """
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=temporal.namespace,
        execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
        maximum_page_size=PAGE_EVENTS,
    )
    for _ in range(PAGES_MAX):
        try:
            page = await temporal.workflow_service.get_workflow_execution_history_reverse(request, timeout=ASK_TIMEOUT)
        except RPCError:
            return False
        for event in page.history.events:
            if event.event_id == started_id + 1:
                return event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        if not page.next_page_token:
            return False
        request.next_page_token = page.next_page_token
    return False
