"""Builds the workflow's result of an execution, or its failure. Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from temporalio.exceptions import ApplicationError

from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base import bounds
from holdfast.core.base.frozen import canonical
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.contracts import EXECUTION_FAILED, PageRequest
from holdfast.core.wire.paging import page
from holdfast.core.wire.result_contracts import ExecutionFailure, ExecutionResult


@dataclass(frozen=True, slots=True)
class SavedResult:
    """What remains of an ended execution: its snapshot, if stored, and the ids of its delivered messages."""

    snapshot: str | None = None
    taken: tuple[str, ...] = ()
    messages_before: int = 0
    whole: bool = True
    """Whether the result may hold a small state; not for a session, whose history would then hold the conversation."""


def result_of(state: AgentState, saved: SavedResult) -> ExecutionResult:
    """Return the result of an execution that ended well.

    Raises ApplicationError for one that failed, so that Temporal's own status of it is true.
    """
    if state.status is ExecutionStatus.FAILED:
        raise _failure_of(state, saved)
    return ExecutionResult(
        execution_id=state.running.execution_id,
        status=state.status,
        stop_reason=state.stop_reason,
        step_count=state.step_count,
        used=state.running.used,
        final_response=state.final_response,
        partial_response="" if state.has_final_response else state.current_response,
        why=state.stop_signal.message if state.stop_signal else "",
        state=_small(state) if saved.whole else None,
        snapshot=saved.snapshot,
        taken=saved.taken,
        messages_before=saved.messages_before,
    )


def _failure_of(state: AgentState, saved: SavedResult) -> ApplicationError:
    message = state.stop_signal.message if state.stop_signal else "the run failed"
    details = ExecutionFailure(
        execution_id=state.running.execution_id,
        reason=state.stop_reason or StopReason.ERROR,
        message=message,
        used=state.running.used,
        snapshot=saved.snapshot,
        taken=saved.taken,
        messages_before=saved.messages_before,
    )
    return ApplicationError(message, details, type=EXECUTION_FAILED, non_retryable=True)


def _small(state: AgentState) -> AgentState | None:
    """Return the state if it fits the result, else none: `page` stops reading at that size."""
    first = page(state, PageRequest(), bounds.RESULT_BYTES_MAX)
    whole = len(first.messages) == first.messages_total and len(first.steps) == first.steps_total
    return state if whole and len(canonical(state)) <= bounds.RESULT_BYTES_MAX else None
