"""Builds the record of an ended execution from its snapshot. Reads and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import RECORDED_TEXT_CHARS_MAX, TASK_CHARS_MAX, WARNING_CHARS_MAX, WARNINGS_MAX
from holdfast.core.base.safe_text import clamped
from holdfast.core.wire.branch_points import messages_before
from holdfast.core.wire.carry_over import STEPS, latest
from holdfast.core.wire.contracts import RecordRequest
from holdfast.core.wire.records import ExecutionRecord, Part, Snapshot


def parts_needed(snapshot: Snapshot) -> tuple[Part, ...]:
    """Return the parts that `record_of` needs: the last one of the steps, which has the answer."""
    return tuple(part for part in snapshot.parts if part.series == STEPS)[-1:]


def question_of(state: AgentState) -> str:
    """Return the beginning of the execution's question, if the conversation still has it.

    For an execution that began with a state and no question it is the last user message of that state.
    """
    place = messages_before(state)
    if place == len(state.messages):
        return ""
    texts = (state.messages[at].text for at in range(place, -1, -1) if state.messages[at].role == "user")
    return clamped(next(texts, ""), TASK_CHARS_MAX)


def record_of(request: RecordRequest, snapshot: Snapshot, digest: str, parts: Mapping[str, bytes]) -> ExecutionRecord:
    """Return the record of the execution that ended with `snapshot` (of that digest).

    `parts` has the bytes of `parts_needed`, by their digests. Raises StateInvalid when they are not those, ValueError
    for an execution that has not ended.
    """
    head = snapshot.head
    execution = head.running
    if execution.completed_at is None:
        raise ValueError(f"the run {execution.execution_id} has not ended yet; its record is written then")
    step_count = len(snapshot.steps) + sum(part.count for part in snapshot.parts if part.series is STEPS)
    answer = latest(snapshot, parts).current_response
    return ExecutionRecord(
        agent_id=head.agent_id,
        parent_agent_id=head.parent_agent_id,
        agent=request.agent,
        execution_id=execution.execution_id,
        tenant=execution.tenant,
        number=max(1, head.execution_count),
        task=request.task,
        answer=clamped(answer, RECORDED_TEXT_CHARS_MAX),
        status=execution.status,
        stop_reason=head.stop_reason,
        why=head.stop_signal.message if head.stop_signal else "",
        started_at=execution.started_at,
        completed_at=execution.completed_at,
        usage=execution.usage,
        cost=execution.cost,
        unpriced=execution.unpriced,
        step_count=step_count,
        steps_used=step_count + execution.subagent_steps,
        snapshot=digest,
    )


def without_record(state: AgentState, why: str) -> AgentState:
    """Return the state of an ended execution, with a warning that it has no record."""
    text = clamped(f"no record was kept: {why}", WARNING_CHARS_MAX)
    return state.with_execution(state.updated_at, warnings=(*state.warnings, text)[-WARNINGS_MAX:])
