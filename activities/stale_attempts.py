"""Attempts that nobody wants: late ones, those of an ended run, those that the server has given to another worker."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState, TimeoutType, WorkflowExecutionStatus
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, DescribeWorkflowExecutionResponse
from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError

from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.bounds import LATE_SECONDS
from holdfast.core.base.usage import Usage
from holdfast.core.wire.contracts import DEBUG_QUERY, RECORD_ACTIVITY
from holdfast.runtime.model_progress import Progress

LATE_SECONDS_MAX: Final = 10.0
"""How long after the server gave it away a first attempt is begun unasked: a worker whose threads keep one another
waiting may come to it when the server has taken it for lost. A clock that is wrong costs a question."""

GIVEN_UP_SECONDS: Final = 40.0
"""After so long without a heartbeat the server and the SDK have given up any attempt: one that has waited longer by our
clock has not, and the clock is wrong."""

ASK_TIMEOUT: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class PreviousAttempt:
    """What an attempt knows of the one before it, and of its run.

    `timed_out` is whether that one took longer than the server allows, `unheard` whether the run has not yet taken note
    of all that was said to it, or cannot be asked: it may have been stopped.
    """

    timed_out: bool = False
    unheard: bool = False


FIRST: Final = PreviousAttempt()
"""That of an attempt with none before it."""


async def refuse_if_unwanted(*, late: bool = False) -> PreviousAttempt:
    """Raise for an attempt that begins after the run's time limit, or a repeated or late one that is not waited for.

    That is one of a run that has ended, and one that the server has given up meanwhile: a worker that was frozen takes
    up what it had been given. A `late` one is asked about whatever the clocks say. Returns what is known of the attempt
    before this one, and whether the run could be asked.
    """
    info = activity.info()
    if info.activity_type == RECORD_ACTIVITY:  # it is for when the run has ended, however often; twice does no harm
        return FIRST
    if info.heartbeat_timeout is not None and info.schedule_to_close_timeout is not None:
        # The call of a run with a time limit, until LATE_SECONDS after it (`workflows.execution.activity_calls`);
        # both moments are the server's: no clock of ours decides about a budget
        late_at = info.scheduled_time + info.schedule_to_close_timeout - timedelta(seconds=LATE_SECONDS)
        if info.started_time >= late_at:
            used = Progress.after(info.heartbeat_details).failed_usage  # by the attempts before
            raise _refused("the run's time limit has passed; this attempt was not started", used)
    if info.attempt == 1 and not late and waited_seconds() < LATE_SECONDS_MAX:
        return FIRST
    described = await _described(info)
    if described is not None and described.HasField("pending_workflow_task"):
        # the run has something to hear first, which may end it: a query waits until it has
        workflow = activity.client().get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        with suppress(RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
            facts: dict[str, Any] = await workflow.query(DEBUG_QUERY, result_type=dict, rpc_timeout=ASK_TIMEOUT)
            if ExecutionStatus(facts["status"]).is_terminal:
                raise _refused("the run has ended; this attempt was not started")
        described = await _described(info)
    if described is None:
        return PreviousAttempt(unheard=True)
    mine = next((each for each in described.pending_activities if _is_this(each, info)), None)
    if described.workflow_execution_info.status != WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING:
        raise _refused("the run has ended; this attempt was not started")
    if mine is None:
        raise _refused("the server no longer waits for this attempt; it was not started")
    timeout = mine.last_failure.timeout_failure_info.timeout_type
    return PreviousAttempt(
        timed_out=timeout == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE,
        unheard=described.HasField("pending_workflow_task"),
    )


def waited_seconds() -> float:
    """Return for how long the server has waited for this attempt, as far as its clock and this machine's agree."""
    return abs((datetime.now(UTC) - activity.info().started_time).total_seconds())


def late_seconds() -> float:
    """Return the same for an attempt that this worker has come to so late that it may soon be given up; else 0."""
    waited = waited_seconds()
    return waited if LATE_SECONDS_MAX < waited < GIVEN_UP_SECONDS else 0.0


async def _described(info: activity.Info) -> DescribeWorkflowExecutionResponse | None:
    """Return what the server says of the run, none where it cannot be asked."""
    run = WorkflowExecution(workflow_id=info.workflow_id or "", run_id=info.workflow_run_id or "")
    request = DescribeWorkflowExecutionRequest(namespace=info.namespace, execution=run)
    try:
        return await activity.client().workflow_service.describe_workflow_execution(request, timeout=ASK_TIMEOUT)
    except RPCError:
        return None


def _is_this(pending: PendingActivityInfo, info: activity.Info) -> bool:
    """Return whether the server waits for this very attempt."""
    started = pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    return started and (pending.activity_id, pending.attempt) == (info.activity_id, info.attempt)


def _refused(text: str, *details: Usage) -> ApplicationError:
    benign = ApplicationErrorCategory.BENIGN
    return ApplicationError(text, *details, type="RunEnded", non_retryable=True, category=benign)
