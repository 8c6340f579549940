"""A repeated attempt first asks whether its run still wants it: a stop may have come while no worker was there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError

from holdfast.core.contracts import DEBUG_QUERY
from holdfast.core.state import ExecutionStatus

ASK_TIMEOUT: Final = timedelta(seconds=10)


async def refuse_if_ended() -> None:
    """Raise for a second or later attempt whose run has ended; a run that cannot be asked is taken to go on."""
    info = activity.info()
    if info.attempt == 1:
        return
    workflow = activity.client().get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
    try:
        facts: dict[str, Any] = await workflow.query(DEBUG_QUERY, result_type=dict, rpc_timeout=ASK_TIMEOUT)
    except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
        return
    if ExecutionStatus(facts["status"]).is_terminal:
        text = "the run has ended; this attempt is not made"
        raise ApplicationError(text, type="RunEnded", non_retryable=True, category=ApplicationErrorCategory.BENIGN)
