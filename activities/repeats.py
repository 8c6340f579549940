"""Attempts that nobody wants: behind the run's time limit, or of a run that ended while no worker was there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError

from holdfast.core.contracts import DEBUG_QUERY
from holdfast.core.limits import LATE_SECONDS
from holdfast.core.state import ExecutionStatus
from holdfast.core.usage import Usage
from holdfast.local.progress import Progress

ASK_TIMEOUT: Final = timedelta(seconds=10)


async def refuse_if_unwanted() -> None:
    """Raise for an attempt that begins after the run's time limit, or a repeated one whose run has ended.

    A run that cannot be asked is taken to go on.
    """
    info = activity.info()
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
        return
    if ExecutionStatus(facts["status"]).is_terminal:
        raise _refused("the run has ended; this attempt is not made")


def _refused(text: str, *details: Usage) -> ApplicationError:
    benign = ApplicationErrorCategory.BENIGN
    return ApplicationError(text, *details, type="RunEnded", non_retryable=True, category=benign)
