"""Runs subagents as child workflows, and turns their ends into events. Decides nothing else."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any, Final

from temporalio import workflow
from temporalio.exceptions import ApplicationError, ChildWorkflowError, TerminatedError, WorkflowAlreadyStartedError
from temporalio.exceptions import TimeoutError as WorkflowTimeoutError
from temporalio.workflow import ChildWorkflowCancellationType, ChildWorkflowHandle, ParentClosePolicy

from holdfast.core.agent.budget import TreeUse
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.conversation.amounts import SUBAGENTS_MODEL
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import SpawnSubagent
from holdfast.core.loop.events import SubagentReturned
from holdfast.core.wire import run_metadata
from holdfast.core.wire.contracts import AGENT_EXECUTION, EXECUTION_FAILED, ExecutionInput
from holdfast.core.wire.result_contracts import ExecutionFailure, ExecutionResult
from holdfast.core.wire.workflow_ids import named_type
from workflows.search_attributes import begun_by, child_at_start
from workflows.shielding import begun, outcome

STARTING_MAX: Final = 4
"""Subagents started in one workflow task: each input can take some 400 KB, and at 4 MB the server ends the run."""


async def call_subagent(
    command: SpawnSubagent, start: ExecutionInput, execution_id: str, starting: asyncio.Semaphore
) -> SubagentReturned:
    """Run a subagent as a child workflow and return its end; `starting` bounds how many start at once."""
    started_at = workflow.now()
    try:
        async with starting:
            child, cancelled = await begun(asyncio.create_task(_child(command, start, execution_id)))
        if cancelled:
            child.cancel()
        result: ExecutionResult = await outcome(child)
    except (ChildWorkflowError, WorkflowAlreadyStartedError) as error:
        failure = failure_of(error) or _silent_end(error, command, execution_id)
        return SubagentReturned(
            call_id=command.call_id,
            status=ExecutionStatus.FAILED,
            answer="",
            why=failure.message,
            used=failure.used,
            started_at=started_at,
            at=workflow.now(),
        )
    return SubagentReturned(
        call_id=command.call_id,
        status=result.status,
        answer=result.final_response or result.partial_response,
        why=result.why,
        used=result.used,
        started_at=started_at,
        at=workflow.now(),
    )


async def _child(
    command: SpawnSubagent, start: ExecutionInput, execution_id: str
) -> ChildWorkflowHandle[Any, ExecutionResult]:
    """Start the subagent's run; the server ends it with ours."""
    about = run_metadata.of_subagent(start.definition, command.task, command.budget, begun_by())
    handle: ChildWorkflowHandle[Any, ExecutionResult] = await workflow.start_child_workflow(
        named_type(AGENT_EXECUTION, start.definition.name),
        start,
        result_type=ExecutionResult,
        id=execution_id,
        cancellation_type=ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
        search_attributes=child_at_start(start.definition.name) if start.searchable else None,
        static_summary=about.summary,
        static_details=about.details,
        memo=about.memo,
    )
    return handle


def failure_of(error: ChildWorkflowError | WorkflowAlreadyStartedError) -> ExecutionFailure | None:
    """Return the details of a failed execution, none where it ended in another way (terminated, timed out)."""
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type == EXECUTION_FAILED and cause.details:
        return ExecutionFailure.model_validate(cause.details[0])
    return None


def _silent_end(
    error: ChildWorkflowError | WorkflowAlreadyStartedError, command: SpawnSubagent, execution_id: str
) -> ExecutionFailure:
    """Return the end of a subagent that was terminated, or that could not begin as the one before a reset still runs.

    It counts as its whole budget, so that the tree's budget holds; as nothing when it was cancelled before it began.
    """
    cause = error.cause
    text = error_record(cause or error, command.agent).message
    ran = isinstance(cause, ApplicationError | TerminatedError | WorkflowTimeoutError)
    return ExecutionFailure(
        execution_id=execution_id,
        reason=StopReason.ERROR,
        message=f"{text}; what it used is not known and counts as all that it was allowed" if ran else text,
        used=_all_of(command) if ran else TreeUse(),
    )


def unreported(command: SpawnSubagent, at: datetime) -> SubagentReturned:
    """Return the end of a subagent that was cancelled and did not report in time: it counts as its whole budget."""
    return SubagentReturned(
        call_id=command.call_id,
        status=ExecutionStatus.STOPPED,
        answer="",
        why="",
        used=_all_of(command),
        started_at=at,
        at=at,
    )


def _all_of(command: SpawnSubagent) -> TreeUse:
    """Return a subagent's whole budget as its use; its models are not known."""
    return TreeUse.all_of(command.budget, f"{SUBAGENTS_MODEL}{command.agent!r}")
