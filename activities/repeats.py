"""Attempts that nobody wants: late ones, those of an ended run, those that the server has given to another worker."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError

from holdfast.core.contracts import DEBUG_QUERY, RECORD_ACTIVITY
from holdfast.core.limits import LATE_SECONDS
from holdfast.core.state import ExecutionStatus
from holdfast.core.usage import Usage
from holdfast.local.progress import Progress

ASK_TIMEOUT: Final = timedelta(seconds=10)


async def refuse_if_unwanted() -> None:
    """Raise for an attempt that begins after the run's time limit, or a repeated one that its run does not wait for.

    That is one of a run that has ended, and one that the server has given up meanwhile: a worker that was frozen takes
    up what it had been given. A run that cannot be asked is taken to go on.
    """
    info = activity.info()
    if info.activity_type == RECORD_ACTIVITY:  # it is for when the run has ended, however often; twice does no harm
        return
    if info.heartbeat_timeout is not None and info.schedule_to_close_timeout is not None:
        # The call of a run with a time limit, until LATE_SECONDS after it (`workflows.calls`);
        # both moments are the server's: no clock of ours decides about a budget
        late_at = info.scheduled_time + info.schedule_to_close_timeout - timedelta(seconds=LATE_SECONDS)
        if info.started_time >= late_at:
            used = Progress.after(info.heartbeat_details).failed_usage  # by the attempts before
            raise _refused("the run's time is over; this attempt is not made", used)
    if info.attempt == 1:
        return
    workflow = activity.client().get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
    try:
        facts: dict[str, Any] = await workflow.query(DEBUG_QUERY, result_type=dict, rpc_timeout=ASK_TIMEOUT)
    except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
        facts = {"status": ExecutionStatus.IN_PROGRESS}
    if ExecutionStatus(facts["status"]).is_terminal:
        raise _refused("the run has ended; this attempt is not made")
    if not await _is_awaited(info):
        raise _refused("the server has given this attempt up; it is not made")


async def _is_awaited(info: activity.Info) -> bool:
    """Return whether the server waits for this very attempt."""
    run = WorkflowExecution(workflow_id=info.workflow_id or "", run_id=info.workflow_run_id or "")
    request = DescribeWorkflowExecutionRequest(namespace=info.namespace, execution=run)
    try:
        described = await activity.client().workflow_service.describe_workflow_execution(request, timeout=ASK_TIMEOUT)
    except RPCError:
        return True
    return any(
        (each.activity_id, each.attempt) == (info.activity_id, info.attempt)
        and each.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
        for each in described.pending_activities
    )


def _refused(text: str, *details: Usage) -> ApplicationError:
    benign = ApplicationErrorCategory.BENIGN
    return ApplicationError(text, *details, type="RunEnded", non_retryable=True, category=benign)
