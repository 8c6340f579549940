"""`ChildExecution`: an execution of a session as a child workflow: its start, its signals and its end."""

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
    """An execution under way. Signals reach it in order, a stop first, or not at all when it has ended."""

    def __init__(self) -> None:
        self._outbox: deque[Message | StopRequest | DefinitionChange] = deque()
        self._has_ended = False

    def send(self, message: Message | StopRequest | DefinitionChange) -> None:
        """Send a signal once it has started; a stop goes before all that have not been sent yet."""
        if isinstance(message, StopRequest):
            self._outbox.appendleft(message)
        else:
            self._outbox.append(message)

    async def run(self, command: StartExecution, session: SessionState) -> TurnEnd:
        """Start it and return its end; one that cannot start has failed."""
        sender: asyncio.Task[None] | None = None
        try:
            handle = await self._started(command, session)
            sender = asyncio.create_task(self._send_all(handle))
            result: ExecutionResult = await handle
        except ChildWorkflowError as error:
            return _failed(command, error)
        except WorkflowAlreadyStartedError:
            return _lost(command)
        finally:
            self._has_ended = True
            if sender is not None:
                sender.cancel()
        return _end(command, result.status, result.stop_reason, result)

    async def _started(
        self, command: StartExecution, session: SessionState
    ) -> workflow.ChildWorkflowHandle[Any, ExecutionResult]:
        settings, start = session.settings, command.start
        start_input = ExecutionInput(
            agent_id=session.agent_id,
            definition=command.definition,
            question="",
            budget=command.definition.budget,
            subagents=command.subagents,
            metadata=command.metadata,
            tenant=settings.tenant,
            searchable=settings.searchable,
            continue_events=settings.continue_events,
            session=start,
        )
        number, question = start.executions + 1, start.messages[-1].shown_text
        about = run_metadata.of_execution(command.definition, number, question, begun_by())
        return await workflow.start_child_workflow(
            named_type(AGENT_EXECUTION, command.definition.name),
            args=[start_input, SnapshotReference(snapshot=start.snapshot)] if start.snapshot else [start_input],
            result_type=ExecutionResult,
            id=command.execution_id,
            cancellation_type=ChildWorkflowCancellationType.ABANDON,
            parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
            search_attributes=child_at_start(command.definition.name) if settings.searchable else None,
            static_summary=about.summary,
            static_details=about.details,
            memo=about.memo,
        )

    async def _send_all(self, handle: workflow.ChildWorkflowHandle[Any, ExecutionResult]) -> None:
        # the SDK does not end a signal that is on its way at a cancel: it withdraws it, and goes on
        while not self._has_ended:
            await workflow.wait_condition(lambda: bool(self._outbox))
            message = self._outbox.popleft()
            try:
                await handle.signal(SIGNALS[type(message)], message)
            except FailureError:  # it has ended, and its result lists delivered messages; or it accepts no more signals
                # a session that has gone on may be ending its Temporal run: that takes no command any more
                if isinstance(message, StopRequest) and message.mode == "now" and not self._has_ended:
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
    outcome: ExecutionResult | ExecutionFailure,
) -> TurnEnd:
    return TurnEnd(
        execution_id=command.execution_id,
        status=status,
        stop_reason=reason,
        snapshot=outcome.snapshot,
        messages_before=outcome.messages_before,
        taken=outcome.taken,
        usage=outcome.used.usage,
        cost=outcome.used.cost,
        unpriced=outcome.used.unpriced,
        at=workflow.now(),
    )


def _lost(command: StartExecution) -> TurnEnd:
    """Return the end of an execution without a result: it was terminated, or never began."""
    return TurnEnd(
        execution_id=command.execution_id,
        status=ExecutionStatus.FAILED,
        stop_reason=StopReason.ERROR,
        snapshot=None,
        at=workflow.now(),
    )
