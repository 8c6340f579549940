"""What must hold after every step of the loop, whatever the events: docs/spec.md, sections 1 to 6, as assertions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.core.agent.execution_state import ExecutionState, ExecutionStatus
from holdfast.core.agent.hooks import ENDING, Trigger
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import MESSAGES_WAITING_MAX, STOP_SIGNALS_MAX, WARNINGS_MAX
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.steps import CallStage
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.agent_loop import AgentLoop
from holdfast.core.loop.commands import (
    CallModel,
    CallTool,
    CancelInFlight,
    Command,
    Emit,
    Finish,
    HandOver,
    RequestApproval,
    RunHooks,
    SpawnSubagent,
    StartTimer,
    SummariseBuffer,
)
from holdfast.core.loop.events import BufferSummarised, DefinitionChanged, Event, ExecutionStarted
from holdfast.core.loop.start import rests
from holdfast.core.loop.step_end import NOT_FATAL
from holdfast.testing import assert_every_call_answered

MOVES = {
    ExecutionStatus.PENDING: {ExecutionStatus.PENDING},
    ExecutionStatus.IN_PROGRESS: set(ExecutionStatus) - {ExecutionStatus.PENDING},
    ExecutionStatus.COMPLETED: {ExecutionStatus.COMPLETED},
    ExecutionStatus.STOPPED: {ExecutionStatus.STOPPED},
    ExecutionStatus.FAILED: {ExecutionStatus.FAILED},
}
"""Where a status can go with any event but a beginning."""

STAGES = {CallTool: CallStage.RUNNING, SpawnSubagent: CallStage.RUNNING, RequestApproval: CallStage.APPROVAL}


def assert_legal(
    loop: AgentLoop,
    before: AgentState,
    dump: dict[str, Any],
    event: Event,
    after: AgentState,
    commands: Sequence[Command],
) -> None:
    """Check one step; `dump` is `before.to_dict()`, taken before the step."""
    assert before.to_dict() == dump, "a step changed the state it was given"
    assert after.created_at == before.created_at
    assert after.updated_at >= before.updated_at
    going_on = before.status is ExecutionStatus.IN_PROGRESS
    if isinstance(event, ExecutionStarted) and not going_on:
        assert after.execution_count == before.execution_count + 1
        assert after.running.execution_id == event.execution_id
        hopeless = ("ContextTooLong", "ServerToolsUnbounded")
        no_call = after.running.error is not None and after.running.error.type in hopeless
        refusing = no_call or after.running.budget.unpriced == "refuse"
        refused = after.status is ExecutionStatus.FAILED and refusing
        assert refused or after.status in (ExecutionStatus.IN_PROGRESS, ExecutionStatus.STOPPED)
    else:
        assert after.status in MOVES[before.status]
        assert after.execution_count == before.execution_count
        if not going_on:
            assert after is before, "a late event changed something"
            assert commands == ()
    if going_on:
        _assert_execution_grew(before, event, after)
    _assert_consistent(loop, after)
    _assert_ended_right(loop, after)
    _assert_commands_fit(loop, before, after, commands)
    _assert_clamped(after, commands)


def _assert_execution_grew(before: AgentState, event: Event, after: AgentState) -> None:
    was, now = before.running, after.running
    for same in ("execution_id", "budget", "started_at"):
        given = event.budget if same == "budget" and isinstance(event, DefinitionChanged) else None
        assert getattr(now, same) in (getattr(was, same), given), same
    for grown in ("compactions", "reasks", "paused_seconds", "cost"):
        assert getattr(now, grown) >= getattr(was, grown), grown
    signals = was.continuation.stop_signals
    assert now.continuation.stop_signals[: len(signals)] == signals, "a signal was lost"
    assert now.continuation.overrides >= was.continuation.overrides
    assert now.warnings[: len(was.warnings)] == was.warnings
    assert list(now.step_executions[: len(was.step_executions)]) == list(was.step_executions)
    assert now.usage.input_tokens >= was.usage.input_tokens
    assert now.usage.output_tokens >= was.usage.output_tokens
    if now.compactions == was.compactions and not isinstance(event, BufferSummarised):
        assert list(after.messages[: len(before.messages)]) == list(before.messages), "what was said is gone"
    if was.current_step is not None and now.current_step is not None and was.current_step.id == now.current_step.id:
        records = {each.call.id: each for each in now.current_step.tool_executions}
        for each in was.current_step.tool_executions:
            assert records[each.call.id] == each, "a record was changed"


def _assert_consistent(loop: AgentLoop, state: AgentState) -> None:
    execution = state.execution
    if execution is None:
        return
    under_way, continuation = execution.current_step, execution.continuation
    limit = state.budget.max_steps
    assert limit is None or state.step_count <= limit + continuation.overrides
    assert continuation.overrides <= loop.definition.max_overrides
    from_outside = [each for each in continuation.stop_signals if each.reason is StopReason.USER_REQUESTED]
    assert len(from_outside) <= STOP_SIGNALS_MAX
    assert len(execution.waiting_messages) <= MESSAGES_WAITING_MAX + 1, "one is the loop's own"
    assert len(execution.warnings) <= WARNINGS_MAX
    assert len(set(execution.warnings)) == len(execution.warnings)
    assert [done.step.number for done in execution.step_executions] == list(range(1, state.step_count + 1))
    steps = (*state.steps, under_way) if under_way else state.steps
    looked_at = [each.ended for each in execution.open_calls if each.ended is not None]
    used = sum((step.usage for step in steps), Usage())
    assert state.usage == sum((each.usage for each in looked_at), used)
    assert abs(state.cost - sum(step.cost for step in steps) - sum(each.cost for each in looked_at)) < 1e-9
    assert_every_call_answered(state)
    for step in state.steps:
        executed = [each.call.id for each in step.tool_executions]
        assert executed == [each.id for each in step.requested_tool_calls], "records are missing or out of order"
    _assert_calls_add_up(loop, execution, state.updated_at)
    state.debug()


def _assert_calls_add_up(loop: AgentLoop, execution: ExecutionState, now: datetime) -> None:
    """Every requested call is open or answered, never both, once the calls have begun; those alone run alone."""
    step, opened = execution.current_step, execution.open_calls
    if step is None:
        assert opened == ()
        return
    if step.judgement is not None and step.judgement.completed_at is None:
        assert ([each.stage for each in opened], step.requested_tool_calls) == ([CallStage.RUNNING], ())
        return
    answered = [each.call.id for each in step.tool_executions]
    assert len(set(answered)) == len(answered)
    assert not {each.call.id for each in opened} & set(answered)
    opened = tuple(each for each in opened if each.parent_call_id is None)  # the others are a script's own
    answered = [each.call.id for each in step.tool_executions if each.parent_call_id is None]
    if opened:
        assert execution.hooks_under_way is None
        both = sorted([*answered, *(each.call.id for each in opened)])
        assert both == sorted(each.id for each in step.requested_tool_calls)
    assert [each.index for each in opened] == sorted(each.index for each in opened)
    for each in opened:
        assert step.requested_tool_calls[each.index].id == each.call.id
        assert (each.ended is not None) == (each.stage is CallStage.AFTER_TOOL)
        assert each.stage is not CallStage.RUNNING or each.started_at is not None
    begun = [each for each in opened if each.stage is not CallStage.WAITING]
    late = execution.time_limit_at is not None and now >= execution.time_limit_at
    assert begun or not opened or late, "every open call waits for another one"
    assert len(begun) <= 1 or not any(loop.alone(each.call.name) for each in begun)


def _assert_ended_right(loop: AgentLoop, state: AgentState) -> None:
    """The status follows the table (docs/spec.md, section 2), and nothing is under way once it is final."""
    execution = state.execution
    if execution is None:
        return
    asking = execution.current_step is not None and execution.current_step.inference_response is None
    if not state.status.is_terminal:
        assert execution.completed_at is None
        resting = loop.step_by_step and rests(execution)
        busy = execution.hooks_under_way or execution.open_calls or asking or execution.guarding
        assert not (execution.guarding and (state.step_count or execution.open_calls or execution.hooks_under_way))
        assert busy or resting or execution.handing_over, "nothing is under way, nothing has ended"
        assert not (resting and state.should_stop) or execution.continuation.standing, "it rests in order to go on"
        assert not (execution.summary_under_way and (execution.hooks_under_way or not asking))
        return
    highest = state.stop_signal
    errors = (error for step in state.steps for error in step.all_errors)
    fatal = loop.definition.errors == "fatal" and any(error.type not in NOT_FATAL for error in errors)
    failed = execution.error is not None or fatal or (highest is not None and highest.reason is StopReason.ERROR)
    forced = highest is not None and highest.reason.forced
    status = ExecutionStatus.STOPPED if forced else ExecutionStatus.COMPLETED
    assert state.status is (ExecutionStatus.FAILED if failed else status)
    assert execution.error is None or StopReason.ERROR in {each.reason for each in execution.continuation.stop_signals}
    assert state.stop_reason is not None or fatal
    assert execution.completed_at is not None
    assert execution.completed_at >= execution.started_at
    assert (execution.hooks_under_way, execution.summary_under_way, execution.open_calls) == (None, False, ())
    assert not execution.guarding
    assert (execution.waiting_messages, execution.paused_at) == ((), None)
    assert execution.current_step is None or asking, "a step that the model has answered was not kept"


def _assert_commands_fit(loop: AgentLoop, before: AgentState, after: AgentState, commands: Sequence[Command]) -> None:
    done = [command for command in commands if not isinstance(command, Emit)]
    kinds = [type(command) for command in done]
    ended_now = after.status.is_terminal and after.execution is not before.execution
    assert kinds.count(Finish) == (1 if ended_now else 0)
    assert Finish not in kinds or kinds[-1] is Finish
    assert StartTimer not in kinds or (kinds[0] is StartTimer and kinds.count(StartTimer) == 1)
    assert kinds.count(CallModel) + kinds.count(SummariseBuffer) <= 1
    if CancelInFlight in kinds:
        assert _in_flight(before), "nothing was in flight"
        rest = done[kinds.index(CancelInFlight) + 1 :]
        assert all(isinstance(each, Finish | RunHooks) for each in rest), "something was begun after the end"
        assert all(each.context.trigger in ENDING for each in rest if isinstance(each, RunHooks))
    if after.status.is_terminal:
        assert {CallModel, CallTool, SpawnSubagent, HandOver, RequestApproval, RunHooks, SummariseBuffer}.isdisjoint(
            kinds
        )
    for command in commands:
        _assert_command_fits(loop, after, command)


def _in_flight(state: AgentState) -> bool:
    execution = state.execution
    if execution is None or state.status.is_terminal:
        return False
    asking = execution.current_step is not None and execution.current_step.inference_response is None
    return asking or bool(execution.open_calls) or execution.hooks_under_way is not None or execution.guarding


def _assert_command_fits(loop: AgentLoop, after: AgentState, command: Command) -> None:
    execution = after.running
    open_calls = {each.call.id: each for each in execution.open_calls}
    match command:
        case CallModel() | SummariseBuffer():
            assert command.step_number == after.step_count + 1
            assert command.max_output_tokens is None or command.max_output_tokens > 0
            assert execution.summary_under_way is isinstance(command, SummariseBuffer)
        case CallTool() | RequestApproval():
            each = open_calls[command.call.id]
            assert (each.index, each.call, each.stage) == (command.index, command.call, STAGES[type(command)])
            assert command.call.malformed is None
        case SpawnSubagent():
            assert open_calls[command.call_id].stage is CallStage.RUNNING
            assert command.agent in loop.subagents or command.definition is not None
            assert 0 <= command.depth_left < loop.definition.max_depth
        case HandOver():
            assert execution.handing_over is not None
            assert command.agent == execution.handing_over.to_agent
            assert execution.current_step is None
        case RunHooks():
            context = command.context
            about = context.call.name if context.call else None
            assert command.hooks == loop.hooks_for(context.trigger, about) != ()
            if context.trigger is Trigger.INPUT_GUARD:
                assert execution.guarding
            elif context.call is None:
                assert execution.hooks_under_way is context.trigger
            else:
                assert open_calls[context.call.id].stage.value == context.trigger.value
            assert (context.tool_execution is not None) == (context.trigger == "after_tool")
        case Emit():
            envelope = command.event
            assert (envelope.agent_id, envelope.execution_id) == (after.agent_id, execution.execution_id)
            assert envelope.parent_agent_id == after.parent_agent_id
            assert loop.observed
        case StartTimer():
            assert command.fires_at == execution.time_limit_at
        case _:
            pass


def _assert_clamped(after: AgentState, commands: Sequence[Command]) -> None:
    """An answer of that length fits the tokens left, unless their limit was overridden (docs/spec.md, section 5)."""
    limit, execution = after.budget.max_tokens, after.execution
    if limit is None or execution is None:
        return
    if any(each.reason is StopReason.TOKEN_LIMIT for each in execution.continuation.stop_signals):
        return
    for command in commands:
        if isinstance(command, CallModel):
            assert command.max_output_tokens is not None
            left = limit - after.usage.total_tokens
            known = min(execution.next_input_max, left if execution.step_executions else left // 2)
            assert command.max_output_tokens <= left - known
