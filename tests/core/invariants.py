"""What must hold after every step of the loop, whatever the events: the rules of SPEC sections 1 to 5 as assertions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.core.commands import CallModel, CallTool, CancelInFlight, Command, Finish, StartTimer
from holdfast.core.events import Event, ExecutionStarted
from holdfast.core.limits import STOP_SIGNALS_MAX
from holdfast.core.messages import Message
from holdfast.core.state import AgentState, ExecutionStatus
from holdfast.core.stopping import StopReason
from holdfast.core.usage import Usage

MOVES = {
    ExecutionStatus.PENDING: {ExecutionStatus.PENDING},
    ExecutionStatus.IN_PROGRESS: set(ExecutionStatus) - {ExecutionStatus.PENDING},
    ExecutionStatus.COMPLETED: {ExecutionStatus.COMPLETED},
    ExecutionStatus.STOPPED: {ExecutionStatus.STOPPED},
    ExecutionStatus.FAILED: {ExecutionStatus.FAILED},
}
"""Where a status can go with any event but a beginning, which leads to `in_progress`, or at once to `stopped`."""


def assert_legal(
    before: AgentState, dump: dict[str, Any], event: Event, after: AgentState, commands: Sequence[Command]
) -> None:
    """Check one step; `dump` is `before.to_dict()`, taken before the step."""
    assert before.to_dict() == dump, "a step changed the state it was given"
    assert after.created_at == before.created_at
    assert after.updated_at >= before.updated_at
    assert list(after.messages[: len(before.messages)]) == list(before.messages), "what was said is gone"
    beginning = isinstance(event, ExecutionStarted)
    if beginning:
        assert after.status in (ExecutionStatus.IN_PROGRESS, ExecutionStatus.STOPPED)
        assert after.execution_count == before.execution_count + 1
    else:
        assert after.status in MOVES[before.status]
        assert after.execution_count == before.execution_count
    if not beginning and before.status is not ExecutionStatus.IN_PROGRESS:
        assert after is before, "a late event changed something"
        assert commands == ()
    if not beginning and before.execution is not None:
        _assert_execution_grew(before, after)
    _assert_consistent(after)
    _assert_commands_fit(before, after, commands)


def _assert_execution_grew(before: AgentState, after: AgentState) -> None:
    was, now = before.running, after.running
    assert now.execution_id == was.execution_id
    assert now.budget == was.budget
    signals = was.continuation.stop_signals
    assert now.continuation.stop_signals[: len(signals)] == signals, "a signal was lost"
    assert list(now.step_executions[: len(was.step_executions)]) == list(was.step_executions)
    assert now.usage.total_tokens >= was.usage.total_tokens


def _assert_consistent(state: AgentState) -> None:
    execution = state.execution
    if execution is None:
        return
    under_way = execution.current_step
    limit = state.budget.max_steps
    assert limit is None or state.step_count <= limit
    from_outside = [each for each in execution.continuation.stop_signals if each.reason is StopReason.USER_REQUESTED]
    assert len(from_outside) <= STOP_SIGNALS_MAX
    assert [done.step.number for done in execution.step_executions] == list(range(1, state.step_count + 1))
    assert (state.status is ExecutionStatus.FAILED) == (execution.error is not None)
    assert state.status.is_terminal == (execution.completed_at is not None)
    assert state.status.is_terminal or under_way is not None, "nothing is under way and nothing has ended"
    used = sum((step.usage for step in state.steps), Usage())
    assert state.usage == (used + under_way.usage if under_way else used)
    assert_every_call_has_one_answer(state.messages)
    for step in state.steps:
        executed = [execution.call.id for execution in step.tool_executions]
        assert executed == [call.id for call in step.requested_tool_calls], "records are missing or out of order"
    state.debug()


def _assert_commands_fit(before: AgentState, after: AgentState, commands: Sequence[Command]) -> None:
    kinds = [type(command) for command in commands]
    ended_now = after.status.is_terminal and after.execution is not before.execution
    assert (Finish in kinds) == ended_now
    assert CancelInFlight not in kinds or kinds == [CancelInFlight, Finish]
    assert StartTimer not in kinds or kinds == [StartTimer, CallModel]
    assert kinds.count(CallModel) <= 1
    if after.status.is_terminal:
        assert CallModel not in kinds
        assert CallTool not in kinds
    for command in commands:
        if isinstance(command, CallModel):
            assert command.step_number == after.step_count + 1
            assert command.max_output_tokens is None or command.max_output_tokens > 0
        if isinstance(command, CallTool):
            step = after.running.current_step
            assert step is not None
            assert step.requested_tool_calls[command.index] == command.call
            assert command.call.malformed is None


def assert_every_call_has_one_answer(messages: Iterable[Message]) -> None:
    """Check the provider's pairing rule: an assistant's calls are answered right behind it, once each, in order."""
    unanswered: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert unanswered, f"{message.tool_call_id} answers nothing"
            assert message.tool_call_id == unanswered.pop(0)
            continue
        assert not unanswered, f"no answer for {unanswered}"
        ids = [call.id for call in message.tool_calls]
        assert all(ids), "a call without an id"
        assert len(set(ids)) == len(ids), "two calls of one id"
        unanswered = ids
    assert not unanswered, f"no answer for {unanswered}"
