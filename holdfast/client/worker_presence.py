"""Whether a worker serves a task queue, and why a workflow has not answered or begun. Asks, never guesses."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.enums.v1 import PendingActivityState, PendingWorkflowTaskState, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import PendingActivityInfo, PendingWorkflowTaskInfo
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkflowExecutionResponse,
)
from temporalio.client import Client as TemporalClient
from temporalio.exceptions import FailureError
from temporalio.service import RPCError

from holdfast.client.watch_events import AttemptFailed
from holdfast.connection.event_page_reader import Reader, next_attempt_at
from holdfast.connection.executions import response
from holdfast.connection.queue_routing import ASK_TIMEOUT, TaskTarget, lately, task_target
from holdfast.connection.rpc_errors import answered
from holdfast.core.agent.execution_state import tool_call_place
from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.safe_text import clamped
from holdfast.core.wire.contracts import RESOLVE_MCP_ACTIVITY, EventsPage, route_of_queue

SHORT_WAIT: Final = timedelta(seconds=1)
"""What a call waits in its queue anyway is not told."""


async def is_served(temporal: TemporalClient, task_queue: str, workflow_id: str = "") -> bool:
    """Return whether a worker that gets a workflow's tasks has lately asked for some; also while the server is silent.

    Without `workflow_id` it is about a new one.
    """
    try:
        return (await task_target(temporal, task_queue, workflow_id)).is_served
    except RPCError:
        return True


async def unserved(temporal: TemporalClient, task_queue: str, workflow_id: str = "") -> TaskTarget | None:
    """Return whose workers a workflow, or a new one, waits for in vain; none where they are there.

    Raises ServerUnavailable.
    """
    target = await answered(task_target(temporal, task_queue, workflow_id))
    return None if target.is_served else target


async def cause_of_silence(temporal: TemporalClient, task_queue: str, workflow_id: str) -> str:
    """Return why a workflow has not answered, as far as the server tells; `task_queue` is whose workers it needs."""
    try:
        target = await task_target(temporal, task_queue, workflow_id)
        seen_at = await last_seen(temporal, target.routing.task_queue)
        if not target.is_served or seen_at is None:
            return f"{target.problem}; {target.remedy}"
        described = await response(temporal, workflow_id, rpc_timeout=ASK_TIMEOUT)
        return await _what_it_waits_for(temporal, described, f"a worker was seen {_ago(seen_at)} ago")
    except RPCError as error:
        return f"the server is too busy, or away ({error.status.name.lower()})"


WORKFLOW: Final = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
ACTIVITY: Final = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY


async def last_seen(
    temporal: TemporalClient, task_queue: str, kind: TaskQueueType.ValueType = WORKFLOW
) -> datetime | None:
    """Return when a worker last asked for tasks, None when that is long ago. Raises RPCError."""
    request = DescribeTaskQueueRequest(
        namespace=temporal.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=kind,
    )
    described = await temporal.workflow_service.describe_task_queue(request, timeout=ASK_TIMEOUT)
    return max((each.last_access_time.ToDatetime(UTC) for each in lately(described.pollers)), default=None)


async def _what_it_waits_for(
    temporal: TemporalClient, described: DescribeWorkflowExecutionResponse, last_poll: str
) -> str:
    for each in described.pending_activities:
        if each.HasField("last_failure"):
            return f"its {each.activity_type.name} fails: {await _failure(temporal, each)} (attempt {each.attempt})"
    if described.HasField("pending_workflow_task"):
        return _task(described.pending_workflow_task, last_poll)
    if described.pending_activities:
        return f"it waits for its {described.pending_activities[0].activity_type.name}; {last_poll}"
    return f"its worker, or the server, is too busy; {last_poll}"


def _task(task: PendingWorkflowTaskInfo, last_poll: str) -> str:
    since = _ago(task.original_scheduled_time.ToDatetime(UTC))
    times = f", at attempt {task.attempt}" if task.attempt > 1 else ""
    if task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED:
        return f"a worker has been at its task for {since}{times}: the worker, or the server, is too busy"
    return f"its task has waited for a worker for {since}{times}; {last_poll}: it is too busy, or gone"


async def _failure(temporal: TemporalClient, call: PendingActivityInfo) -> str:
    error = await temporal.data_converter.decode_failure(call.last_failure)
    return clamped(error.message if isinstance(error, FailureError) else str(error), ERROR_CHARS_MAX)


def _ago(moment: datetime) -> str:
    return f"{max(0.0, (datetime.now(UTC) - moment).total_seconds()):.0f} s"


async def listing_failure(reader: Reader[EventsPage], execution_id: str, run_id: str = "") -> AttemptFailed | None:
    """Return the latest failure to list the servers' tools for a run; none while no attempt has failed."""
    for call in await reader.calls(run_id):
        if call.activity_type.name == RESOLVE_MCP_ACTIVITY and (message := await reader.failure(call)):
            text = clamped(message, ERROR_CHARS_MAX)
            return AttemptFailed(execution_id, 0, call.attempt - 1, text, next_attempt_at(call))
    return None


@dataclass(frozen=True, slots=True)
class UnservedCall:
    """The tool call at place `index` of a step, which waits on a queue that no worker has lately asked for work."""

    step_number: int
    index: int
    task_queue: str


async def unserved_calls(reader: Reader[EventsPage], calls: Sequence[PendingActivityInfo]) -> list[UnservedCall]:
    """Return those of a run's calls under way that wait where no worker is; none where the server does not tell."""
    waiting = [
        UnservedCall(*place, call.activity_options.task_queue.name)
        for call in calls
        if (place := tool_call_place(call.activity_id)) is not None and _waits_for_a_worker(call)
    ]
    served: dict[str, bool] = {}
    for queue in {each.task_queue for each in waiting}:
        try:
            served[queue] = await last_seen(reader.temporal, queue, ACTIVITY) is not None
        except RPCError:
            served[queue] = True
    return [each for each in waiting if not served[each.task_queue]]


async def rate_wait(reader: Reader[EventsPage], call: PendingActivityInfo) -> str:
    """Return what a model call under way waits for before it is made; empty where it does not wait.

    It waits in the task queue of its route, or in the worker that has taken it.
    """
    if call.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED:
        progress = await reader.progress(call)
        return progress.wait if progress is not None and progress.attempt == call.attempt else ""
    if not _waits_for_a_worker(call) or datetime.now(UTC) - call.scheduled_time.ToDatetime(UTC) < SHORT_WAIT:
        return ""
    queue = call.activity_options.task_queue.name
    if (route := route_of_queue(queue)) is None:
        return ""
    with suppress(RPCError):
        if await last_seen(reader.temporal, queue, ACTIVITY) is None:
            return f"a worker of the task queue {queue!r}: none has lately asked for work"
    return f"the rate limit of the route {route!r}"


def _waits_for_a_worker(call: PendingActivityInfo) -> bool:
    """Return whether the server gives the call to whoever asks, and says on which queue: older ones do not."""
    scheduled = call.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    return scheduled and next_attempt_at(call) is None and bool(call.activity_options.task_queue.name)
