"""An execution of a session as a child workflow: its start, what it is told meanwhile, and its end."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, FailureError, WorkflowAlreadyStartedError
from temporalio.workflow import ChildWorkflowCancellationType, ParentClosePolicy

from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.session.session_state import SessionState, StartExecution, TurnEnd
from holdfast.core.wire import run_metadata
from holdfast.core.wire.contracts import (
    AGENT_EXECUTION,
    CHANGE_SIGNAL,
    MESSAGE_SIGNAL,
    STOP_SIGNAL,
    DefinitionChange,
    ExecutionInput,
    StopRequest,
)
from holdfast.core.wire.records import SnapshotReference
from holdfast.core.wire.result_contracts import ExecutionFailure, ExecutionResult
from holdfast.core.wire.workflow_ids import named_type
from workflows.execution.subagents import failure_of
from workflows.search_attributes import begun_by, child_at_start

SIGNALS: dict[type, str] = {Message: MESSAGE_SIGNAL, StopRequest: STOP_SIGNAL, DefinitionChange: CHANGE_SIGNAL}


class ChildExecution:
    """An execution under way. What it is told reaches it in order, a stop first, or not at all when it has ended."""

    def __init__(self) -> None:
        self._told: deque[Message | StopRequest | DefinitionChange] = deque()

    def tell(self, told: Message | StopRequest | DefinitionChange) -> None:
        """Send it something, as soon as it has started; a stop before all that has not been sent yet."""
        if isinstance(told, StopRequest):
            self._told.appendleft(told)
        else:
            self._told.append(told)

    async def run(self, command: StartExecution, session: SessionState) -> TurnEnd:
        """Start it and return how it has ended; one that cannot start has failed."""
        telling: asyncio.Task[None] | None = None
        try:
            handle = await self._started(command, session)
            telling = asyncio.create_task(self._tell(handle))
            result: ExecutionResult = await handle
        except ChildWorkflowError as error:
            return _failed(command, error)
        except WorkflowAlreadyStartedError:
            return _lost(command)
        finally:
            if telling is not None:
                telling.cancel()
        return _end(command, result.status, result.stop_reason, result)

    async def _started(
        self, command: StartExecution, session: SessionState
    ) -> workflow.ChildWorkflowHandle[Any, ExecutionResult]:
        settings, start = session.settings, command.start
        given = ExecutionInput(
            agent_id=session.agent_id,
            definition=command.definition,
            question="",
            budget=command.definition.budget,
            subagents=command.subagents,
            metadata=command.metadata,
            searchable=settings.searchable,
            continue_events=settings.continue_events,
            session=start,
        )
        number, said = start.executions + 1, start.messages[-1].text
        about = run_metadata.of_execution(command.definition, number, said, begun_by())
        return await workflow.start_child_workflow(
            named_type(AGENT_EXECUTION, command.definition.name),
            args=[given, SnapshotReference(snapshot=start.snapshot)] if start.snapshot else [given],
            result_type=ExecutionResult,
            id=command.execution_id,
            cancellation_type=ChildWorkflowCancellationType.ABANDON,
            parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
            search_attributes=child_at_start(command.definition.name) if settings.searchable else None,
            static_summary=about.summary,
            static_details=about.details,
            memo=about.memo,
        )

    async def _tell(self, handle: workflow.ChildWorkflowHandle[Any, ExecutionResult]) -> None:
        while True:
            await workflow.wait_condition(lambda: bool(self._told))
            told = self._told.popleft()
            try:
                await handle.signal(SIGNALS[type(told)], told)
            except FailureError:  # it has ended, and its result says what it has taken; or it takes no more signals
                if isinstance(told, StopRequest) and told.mode == "now":
                    with suppress(FailureError):
                        await workflow.get_external_workflow_handle(handle.id).cancel()


def _failed(command: StartExecution, error: ChildWorkflowError) -> TurnEnd:
    failure = failure_of(error)
    if failure is None:
        return _lost(command)
    return _end(command, ExecutionStatus.FAILED, failure.reason, failure)


def _end(
    command: StartExecution,
    status: ExecutionStatus,
    reason: StopReason | None,
    left: ExecutionResult | ExecutionFailure,
) -> TurnEnd:
    return TurnEnd(
        execution_id=command.execution_id,
        status=status,
        stop_reason=reason,
        snapshot=left.snapshot,
        messages_before=left.messages_before,
        taken=left.taken,
        usage=left.used.usage,
        cost=left.used.cost,
        unpriced=left.used.unpriced,
        at=workflow.now(),
    )


def _lost(command: StartExecution) -> TurnEnd:
    """Return the end of an execution that tells nothing of it: it was terminated, or never began."""
    return TurnEnd(
        execution_id=command.execution_id,
        status=ExecutionStatus.FAILED,
        stop_reason=StopReason.ERROR,
        snapshot=None,
        at=workflow.now(),
    )
