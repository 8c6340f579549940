"""Attempts that are no longer wanted: late, of an ended run, or given to another worker by the server."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState, TimeoutType
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, DescribeWorkflowExecutionResponse
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError

from activities.run_queries import RUN_UNREADABLE, UNREADABLE, ask_run
from holdfast.connection.executions import OPEN, PAUSED
from holdfast.connection.recorded_tasks import may_be_stopped
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.bounds import LATE_SECONDS
from holdfast.core.base.usage import Usage
from holdfast.core.wire.contracts import DEBUG_QUERY, RECORD_ACTIVITY, RESOLVE_MCP_ACTIVITY
from holdfast.runtime.model_progress import Progress

LATE_SECONDS_MAX: Final = 10.0
"""How late after its dispatch a first attempt may start without asking the server: a worker whose threads block one
another may start it after the server has timed it out. A wrong clock costs one extra request."""

GIVEN_UP_SECONDS: Final = 40.0
"""After this long without a heartbeat the server and the SDK have timed out any attempt: if ours has waited longer by
our clock, the clock is wrong."""

ASK_TIMEOUT: Final = timedelta(seconds=10)


class RefusedAttempt(ApplicationError):
    """The attempt is not wanted any more, and was not started."""

    def __init__(self, text: str, *details: Usage) -> None:
        benign = ApplicationErrorCategory.BENIGN
        super().__init__(text, *details, type="RunEnded", non_retryable=True, category=benign)


class RunOver(RefusedAttempt):
    """The same, because its run has ended or has no time left: no other attempt follows either."""


@dataclass(frozen=True, slots=True)
class PreviousAttempt:
    """What an attempt knows about the previous one and about its run.

    `timed_out` is whether the previous one exceeded the server's start-to-close timeout. `unheard` is whether the run
    still has unprocessed signals or cannot be asked: it may have been stopped. `paused` is whether the previous one
    found its run paused, and could not read it. `waits_to_stop` is whether the run is paused and may have been stopped.
    """

    timed_out: bool = False
    unheard: bool = False
    paused: bool = False
    waits_to_stop: bool = False


FIRST: Final = PreviousAttempt()
"""The value for an attempt with none before it."""


async def refuse_if_unwanted(*, late: bool = False) -> PreviousAttempt:
    """Raise ApplicationError for an attempt past the run's time limit, or no longer wanted.

    An attempt is no longer wanted if its run has ended or the server has timed it out: a worker that was frozen starts
    what it had received before. With `late`, the server is asked whatever the clocks say. Returns what is known about
    the previous attempt, and whether the run could be asked.
    """
    info = activity.info()
    if info.activity_type == RECORD_ACTIVITY:  # it may run after the run has ended, and running twice does no harm
        return FIRST
    has_time_limit = info.heartbeat_timeout is not None and info.activity_type != RESOLVE_MCP_ACTIVITY
    if has_time_limit and info.schedule_to_close_timeout is not None:
        # with a time limit, schedule-to-close ends LATE_SECONDS after it (`workflows.execution.activity_calls`);
        # both moments are the server's: our clock must not decide about a budget
        late_at = info.scheduled_time + info.schedule_to_close_timeout - timedelta(seconds=LATE_SECONDS)
        if info.started_time >= late_at:
            used = Progress.after(info.heartbeat_details).counted_usage  # by the attempts before
            raise RunOver("the run's time limit has passed; this attempt was not started", used)
    if info.attempt == 1 and not late and waited_seconds() < LATE_SECONDS_MAX:
        return FIRST
    described = await _described(info)
    if described is not None and described.HasField("pending_workflow_task"):
        # the run has an unprocessed task, which may end it: a query waits until it is processed
        workflow = activity.client().get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        with suppress(*UNREADABLE):
            facts: dict[str, Any] = await ask_run(workflow, DEBUG_QUERY, dict[str, Any], rpc_timeout=ASK_TIMEOUT)
            if ExecutionStatus(facts["status"]).is_terminal:
                raise RunOver("the run has ended; this attempt was not started")
        described = await _described(info)
    if described is None:
        return PreviousAttempt(unheard=True)
    mine = next((each for each in described.pending_activities if _is_this(each, info)), None)
    if described.workflow_execution_info.status not in OPEN:
        raise RunOver("the run has ended; this attempt was not started")
    if mine is None:
        raise RefusedAttempt("the server no longer waits for this attempt; it was not started")
    timeout = mine.last_failure.timeout_failure_info.timeout_type
    waits_to_stop = await _waits_to_stop(described, info)
    return PreviousAttempt(
        timed_out=timeout == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE,
        unheard=described.HasField("pending_workflow_task") or waits_to_stop,
        paused=mine.last_failure.application_failure_info.type == RUN_UNREADABLE,
        waits_to_stop=waits_to_stop,
    )


async def is_repeated() -> bool:
    """Return whether the server goes on with this call in another attempt, or cannot be asked."""
    info = activity.info()
    described = await _described(info)
    if described is None:
        return True
    if described.workflow_execution_info.status not in OPEN:
        return False  # what was under way is still listed
    cancelled = PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED
    mine = (each for each in described.pending_activities if each.activity_id == info.activity_id)
    return any(each.state != cancelled for each in mine)


async def is_final() -> bool:
    """Return whether a cancelled call ends with this attempt: it was stopped, or took too long."""
    why = activity.cancellation_details()
    if why is None or why.cancel_requested:
        return True
    if why.worker_shutdown or why.paused or why.reset:
        return False
    return not await is_repeated()


def waited_seconds() -> float:
    """Return how long ago the server dispatched this attempt, in seconds, as far as its clock and ours agree."""
    return abs((datetime.now(UTC) - activity.info().started_time).total_seconds())


def late_seconds() -> float:
    """Return `waited_seconds` if this attempt started so late that it may soon time out; else 0."""
    waited = waited_seconds()
    return waited if LATE_SECONDS_MAX < waited < GIVEN_UP_SECONDS else 0.0


async def _waits_to_stop(described: DescribeWorkflowExecutionResponse, info: activity.Info) -> bool:
    """Return whether an operator has paused the run, and it may have been stopped: it has no task until it goes on."""
    if described.workflow_execution_info.status != PAUSED:
        return False
    return await may_be_stopped(activity.client(), info.workflow_id or "", info.workflow_run_id or "")


async def _described(info: activity.Info) -> DescribeWorkflowExecutionResponse | None:
    """Return the server's description of the run; None if the server cannot be asked."""
    run = WorkflowExecution(workflow_id=info.workflow_id or "", run_id=info.workflow_run_id or "")
    request = DescribeWorkflowExecutionRequest(namespace=info.namespace, execution=run)
    try:
        return await activity.client().workflow_service.describe_workflow_execution(request, timeout=ASK_TIMEOUT)
    except RPCError:
        return None


def _is_this(pending: PendingActivityInfo, info: activity.Info) -> bool:
    """Return whether `pending` is this attempt."""
    started = pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    return started and (pending.activity_id, pending.attempt) == (info.activity_id, info.attempt)
