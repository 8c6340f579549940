"""The record of an execution that has ended, made of the snapshot that it left. Reads and writes nothing."""

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
    """Return the parts that `record_of` looks into: the last of the steps, which has the answer."""
    return tuple(part for part in snapshot.parts if part.series == STEPS)[-1:]


def asked_of(state: AgentState) -> str:
    """Return the beginning of what the execution was asked, as far as that still stands in the conversation.

    An execution that was begun with a state, and no question, was asked the last thing that a person says there.
    """
    place = messages_before(state)
    if place == len(state.messages):
        return ""
    said = (state.messages[at].text for at in range(place, -1, -1) if state.messages[at].role == "user")
    return clamped(next(said, ""), TASK_CHARS_MAX)


def record_of(request: RecordRequest, snapshot: Snapshot, digest: str, parts: Mapping[str, bytes]) -> ExecutionRecord:
    """Return the record of the execution that `snapshot` (of that digest) is the end of.

    `parts` has the bytes of `parts_needed`, by their digests. Raises StateInvalid when they are not those, ValueError
    for an execution that has not ended.
    """
    head = snapshot.head
    execution = head.running
    if execution.completed_at is None:
        raise ValueError(f"the execution {execution.execution_id} has not ended yet; its record is written then")
    step_count = len(snapshot.steps) + sum(part.count for part in snapshot.parts if part.series is STEPS)
    said = latest(snapshot, parts).current_response
    return ExecutionRecord(
        agent_id=head.agent_id,
        parent_agent_id=head.parent_agent_id,
        agent=request.agent,
        execution_id=execution.execution_id,
        number=max(1, head.execution_count),
        task=request.task,
        answer=clamped(said, RECORDED_TEXT_CHARS_MAX),
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
    """Return the state of an execution that has ended, with a warning that there is no record of it."""
    text = clamped(f"no record was kept: {why}", WARNING_CHARS_MAX)
    return state.with_execution(state.updated_at, warnings=(*state.warnings, text)[-WARNINGS_MAX:])
