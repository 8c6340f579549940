"""What the end of a run's history says: whether a task is completed, whether a stop came after it. Only asks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from holdfast.connection.workflow_reader import ASK_TIMEOUT
from holdfast.core.wire.contracts import STOP_SIGNAL

PAGE_EVENTS: Final = 16
PAGES_MAX: Final = 8
"""How far back a task is looked for: it is one of the latest, and further back it does not matter any more."""


async def is_recorded(temporal: TemporalClient, workflow_id: str, run_id: str, started_id: int) -> bool:
    """Return whether the task that began with the event `started_id` was completed; not so where that is not known.

    Nothing comes between the two events: what happens during a task is written behind its end.
    """
    with suppress(RPCError):
        async with aclosing(_latest(temporal, workflow_id, run_id)) as events:
            async for event in events:
                if event.event_id == started_id + 1:
                    return event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    return False


async def may_be_stopped(temporal: TemporalClient, workflow_id: str, run_id: str) -> bool:
    """Return whether a stop came after the latest completed task; so, too, where that is not known."""
    with suppress(RPCError):
        async with aclosing(_latest(temporal, workflow_id, run_id)) as events:
            async for event in events:
                if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                    return False
                if _is_stop(event):
                    return True
    return True


def _is_stop(event: HistoryEvent) -> bool:
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
        return event.workflow_execution_signaled_event_attributes.signal_name == STOP_SIGNAL
    return event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED


async def _latest(temporal: TemporalClient, workflow_id: str, run_id: str) -> AsyncGenerator[HistoryEvent, None]:
    """Yield the latest events, the last one first. Raises RPCError."""
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=temporal.namespace,
        execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
        maximum_page_size=PAGE_EVENTS,
    )
    for _ in range(PAGES_MAX):
        page = await temporal.workflow_service.get_workflow_execution_history_reverse(request, timeout=ASK_TIMEOUT)
        for event in page.history.events:
            yield event
        if not page.next_page_token:
            return
        request.next_page_token = page.next_page_token
