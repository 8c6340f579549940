"""The tool calls of one step, from the model's request to one answer for each (docs/spec.md, section 3).

    requested ─▶ waiting ─▶ before_tool ─▶ approval ─▶ running ─▶ after_tool ─▶ answered
        │          ▲            │              │                                  ▲
        │          │            │ blocked      │ denied, expired                  │
        │          │            └──────────────┴──────────────────────────────────┤
        │          └ until the calls that must run alone are done                 │
        └ malformed, unknown, too many ───────────────────────────────────────────┘

A call passes a stage that nobody waits at (no hook, no approval rule) without stopping there. The calls of a step run
side by side, unless the definition or the tool says that they run alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from holdfast.core.agent.execution_state import ExecutionStatus, call_name, named_id
from holdfast.core.agent.hooks import Changes, Trigger
from holdfast.core.agent.subagents import SPAWN_TOOL, problem_with_number, problem_with_spawn, told_of_subagent
from holdfast.core.agent.tools import ended_without_answer, missing_arguments
from holdfast.core.base.bounds import (
    CALL_ID_CHARS_MAX,
    CALLS_KEPT_MAX,
    CALLS_PER_STEP_MAX,
    HOOK_CHANGES_BYTES_MAX,
    HOOK_CHANGES_STEP_BYTES_MAX,
    STEP_RESULTS_BYTES_MAX,
    SUBAGENTS_AT_ONCE_MAX,
)
from holdfast.core.base.did_you_mean import nearest
from holdfast.core.base.frozen import replace, trusted
from holdfast.core.base.safe_text import clamped_json
from holdfast.core.base.truncation import shortened
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import CallStage, ErrorRecord, InferenceResponse, OpenCall, Outcome, ToolExecution
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop import approvals, limit_checks
from holdfast.core.loop.commands import CallTool, RunHooks, SpawnSubagent
from holdfast.core.loop.events import ApprovalDecided, ApprovalExpired, SubagentReturned, ToolFailed, ToolReturned
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.execution_events import (
    SubagentCompleted,
    SubagentSpawned,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
)


def with_own_call_ids(turn: Transition, response: InferenceResponse) -> InferenceResponse:
    """Give every call an id that is unique in its step; providers leave them empty or repeat them.

    Where one of them is to wait for a person, unique in the whole execution: a decision that comes twice, or a patience
    that ends late, must not be about another call.
    """
    if not response.tool_calls:
        return response
    step_number = turn.step.number
    asks = any(turn.rules.may_ask(call.name) for call in response.tool_calls)
    before = turn.execution.step_executions if asks else ()  # as often as people are asked, not in every step
    seen = {call.id for done in before for call in done.step.requested_tool_calls}
    calls: list[ToolCall] = []
    for index, call in enumerate(response.tool_calls[:CALLS_KEPT_MAX]):
        usable = call.id if 0 < len(call.id) <= CALL_ID_CHARS_MAX and call.id not in seen else ""
        usable = usable or f"call_{step_number}_{index}"
        while usable in seen:
            usable += "_"
        seen.add(usable)
        calls.append(call if usable == call.id else replace(call, id=usable))
    return replace(response, tool_calls=tuple(calls))


def begin_calls(turn: Transition) -> None:
    """Begin the calls that the model asked for; those that cannot run get their answer at once."""
    opened: list[OpenCall] = []
    for index, call in enumerate(turn.step.requested_tool_calls):
        problem = _problem_with(turn, call, index, opened)
        if problem is None:
            opened.append(trusted(OpenCall, index=index, call=call))
        else:
            _record(turn, _ended(turn, OpenCall(index=index, call=call), Outcome.FAILED, error=problem))
    turn.change(open_calls=tuple(opened))
    _start_waiting(turn)


def _start_waiting(turn: Transition) -> None:
    """Start every call that waits and need wait no longer: one that runs alone, when all before it have ended."""
    while (startable := _first_startable(turn)) is not None:  # each start can end calls, or start others
        _before_tool(turn, startable)


def _first_startable(turn: Transition) -> OpenCall | None:
    if turn.execution.open_calls and limit_checks.out_of_time(turn):
        return None
    for place, each in enumerate(turn.execution.open_calls):
        alone = turn.rules.alone(each.call.name)
        if each.stage is CallStage.WAITING and not (alone and place):
            return each
        if alone:
            return None
    return None


def _problem_with(turn: Transition, call: ToolCall, index: int, before: Sequence[OpenCall]) -> ErrorRecord | None:
    """Return why `call` must not run beside those `before` it, if so; its tool checks its arguments itself."""
    rules = turn.rules
    if call.malformed is not None:
        return ErrorRecord(type="InvalidArguments", message=call.malformed, source=call.name)
    if call.name == SPAWN_TOOL and rules.subagents:
        beside = sum(each.call.name == SPAWN_TOOL for each in before)
        problem = problem_with_spawn(call, rules.subagents, rules.depth)
        problem = problem or problem_with_number(beside, turn.execution.subagents_started)
        if problem is not None:
            return problem
    elif call.name not in rules.tools:
        known = (*rules.tools, SPAWN_TOOL) if rules.subagents else tuple(rules.tools)
        text = f"the model asked for the tool {call.name!r}, {nearest(call.name, known)}"
        return ErrorRecord(type="UnknownTool", message=text, source=call.name)
    if index >= CALLS_PER_STEP_MAX:
        text = f"not run: at most {CALLS_PER_STEP_MAX} calls of one step run; ask again for the rest"
        return ErrorRecord(type="TooManyCalls", message=text, source=call.name)
    return None


def _before_tool(turn: Transition, each: OpenCall) -> None:
    if turn.rules.hooks_for(Trigger.BEFORE_TOOL, each.call.name):
        _put(turn, replace(each, stage=CallStage.BEFORE_TOOL))
        _run_call_hooks(turn, each, Trigger.BEFORE_TOOL)
    else:
        _seek_approval(turn, each)


def _run_call_hooks(turn: Transition, each: OpenCall, trigger: Trigger) -> None:
    """Ask for the hooks at `trigger` around this call."""
    hooks = turn.rules.hooks_for(trigger, each.call.name)
    name = f"{call_name(turn.step.number, each.index)}-{trigger}"
    context = turn.context_for(trigger, each.call, each.ended)
    share = min(HOOK_CHANGES_BYTES_MAX, HOOK_CHANGES_STEP_BYTES_MAX // len(turn.step.requested_tool_calls))
    turn.do(RunHooks(hooks=hooks, context=context, name=name, changes_bytes_max=share))


def hooks_changed_call(turn: Transition, each: OpenCall, changes: Changes, hook: str) -> OpenCall | None:
    """Return the call as a before_tool hook changed it; none when it blocked the call, which has its answer then."""
    if changes.arguments is not None:
        each = replace(each, call=replace(each.call, arguments=changes.arguments))
        _put(turn, each)
    if changes.block is None:
        return each
    text = f"blocked by the hook {hook!r}: {changes.block}"
    error = ErrorRecord(type="ToolExecutionBlocked", message=text, source=hook)
    _close(turn, each, _ended(turn, each, Outcome.BLOCKED, error=error))
    return None


def after_hooks(turn: Transition, each: OpenCall) -> None:
    """Move a call on whose hooks have run."""
    if each.ended is not None:
        _close(turn, each, each.ended)
    else:
        _seek_approval(turn, each)


def _seek_approval(turn: Transition, each: OpenCall) -> None:
    if _lacks_arguments(turn, each):  # nobody is to decide about what could not run
        return
    rule = approvals.rule_for(turn, each)
    if rule is None:
        _run(turn, each)
        return
    waiting = approvals.waits(turn, each, rule)
    _put(turn, waiting)
    approvals.ask(turn, waiting)


def approval_ended(turn: Transition, each: OpenCall, event: ApprovalDecided | ApprovalExpired) -> None:
    """Act on a decision about a call that waits for one; about any other call it changes nothing."""
    if each.stage is not CallStage.APPROVAL or (came_to := approvals.decided(turn, each, event)) is None:
        return
    each, error = came_to
    if error is not None:
        _close(turn, each, _ended(turn, each, Outcome.DENIED, error=error))
    else:
        _run(turn, replace(each, started_at=None))


def _lacks_arguments(turn: Transition, each: OpenCall) -> bool:
    """Return whether the call cannot run for want of arguments; it has its answer then, and costs no activity."""
    traits = turn.rules.tools.get(each.call.name)
    problem = missing_arguments(traits, each.call.arguments) if traits is not None else None
    if problem is None:
        return False
    error = ErrorRecord(type="InvalidArguments", message=problem, source=each.call.name)
    _close(turn, each, _ended(turn, each, Outcome.FAILED, error=error))
    return True


def _run(turn: Transition, each: OpenCall) -> None:
    if limit_checks.out_of_time(turn) or _lacks_arguments(turn, each):  # a person may have edited them
        return
    running = replace(each, stage=CallStage.RUNNING, started_at=turn.at)
    _put(turn, running)
    turn.tell(ToolCallStarted, call=each.call)
    if each.call.name == SPAWN_TOOL and turn.rules.subagents:
        turn.change(subagents_started=turn.execution.subagents_started + 1)
    _run_call(turn, running)


def _run_call(turn: Transition, each: OpenCall) -> None:
    """Ask for the tool or the subagent of this call."""
    step, rules = turn.step.number, turn.rules
    if each.call.name != SPAWN_TOOL or not rules.subagents:
        turn.do(CallTool(step_number=step, index=each.index, call=each.call))
        return
    problem = problem_with_spawn(each.call, rules.subagents, rules.depth)  # a hook or a person may have changed it
    if problem is not None:
        _close(turn, each, _ended(turn, each, Outcome.FAILED, error=problem))
        return
    agent, task = str(each.call.arguments["agent"]), str(each.call.arguments["task"])
    child = rules.subagents[agent]
    # what is left is shared by the step's subagents before any of them begins: none can take another's part
    asked = sum(call.name == SPAWN_TOOL for call in turn.step.requested_tool_calls)
    beside = min(asked, SUBAGENTS_AT_ONCE_MAX)
    remainder = turn.state.budget_remaining.remaining(steps_used=1).shared_by(beside)  # this step is used up, too
    turn.do(
        SpawnSubagent(
            step_number=step,
            index=each.index,
            call_id=each.call.id,
            agent=agent,
            task=task,
            budget=child.budget.for_child(remainder, child.budget_policy),
            depth_left=rules.depth - 1,
        )
    )
    turn.tell(SubagentSpawned, call_id=each.call.id, index=each.index, agent=agent, task=task)


def call_ended(turn: Transition, each: OpenCall, event: ToolReturned | ToolFailed | SubagentReturned) -> None:
    """Take in the end of a call that runs; of any other it changes nothing."""
    if each.stage is not CallStage.RUNNING:
        return
    result, error = None, None
    share = STEP_RESULTS_BYTES_MAX // len(turn.step.requested_tool_calls)
    match event:
        case ToolReturned():
            result = event.result
        case ToolFailed():
            error = event.error
        case SubagentReturned():
            agent = str(each.call.arguments.get("agent"))
            result, error = told_of_subagent(agent, event.status, event.answer, event.why)
            _count_subagent(turn, each, event)
        case _:
            assert_never(event)
    outcome = Outcome.FAILED if error is not None else Outcome.SUCCEEDED
    if error is not None:
        error = replace(error, message=clamped_json(error.message, share))
    elif result is not None:
        result = shortened(result, share)
    each = replace(each, started_at=event.started_at)
    execution = _ended(turn, each, outcome, result=result, error=error)
    if isinstance(event, SubagentReturned):
        execution = replace(execution, usage=event.used.usage, cost=event.used.cost, unpriced=event.used.unpriced)
    if isinstance(event, ToolReturned) and event.stop is not None:
        facts = {**event.stop_context, "tool": each.call.name, "call_id": each.call.id}
        turn.signal_now(StopReason.STOP_REQUESTED, event.stop, each.call.name, facts)
    if turn.rules.hooks_for(Trigger.AFTER_TOOL, each.call.name):
        waiting = replace(each, stage=CallStage.AFTER_TOOL, ended=execution)
        _put(turn, waiting)
        _run_call_hooks(turn, waiting, Trigger.AFTER_TOOL)
    else:
        _close(turn, each, execution)


def cancel_calls(turn: Transition, *, but: frozenset[int] = frozenset()) -> None:
    """Give every call that has not ended the answer that it was cancelled; one that has ended keeps its end.

    The calls at the places `but` stay open: their ends are still to come.
    """
    still_open = {each.call.id: each for each in turn.execution.open_calls}
    for index, call in turn.step.unanswered_calls:
        if index not in but:
            each = still_open.get(call.id) or OpenCall(index=index, call=call)
            _record(turn, each.ended or _cancelled(turn, each))
    turn.change(open_calls=tuple(each for each in turn.execution.open_calls if each.index in but))


def cancelled_subagent_ended(turn: Transition, each: OpenCall, event: SubagentReturned) -> None:
    """Record the end of a subagent that was cancelled, and count what it used."""
    _remove(turn, each)
    _count_subagent(turn, each, event)
    if event.status is ExecutionStatus.COMPLETED:  # just before the cancel reached it
        share = STEP_RESULTS_BYTES_MAX // len(turn.step.requested_tool_calls)
        ended = _ended(turn, each, Outcome.SUCCEEDED, result=shortened(event.answer, share))
    else:
        ended = _cancelled(turn, each)
    _record(turn, replace(ended, usage=event.used.usage, cost=event.used.cost, unpriced=event.used.unpriced))


def _count_subagent(turn: Transition, each: OpenCall, event: SubagentReturned) -> None:
    """Count what a subagent used, warn of what of it has no known price, and tell its end."""
    used = event.used
    turn.execution = turn.execution.with_subagent(used)
    for model in used.unpriced:
        turn.warn_unpriced(model)
    turn.tell(
        SubagentCompleted,
        call_id=each.call.id,
        agent=str(each.call.arguments.get("agent")),
        status=event.status,
        usage=used.usage,
        cost=used.cost,
        unpriced=used.unpriced,
    )


def _cancelled(turn: Transition, each: OpenCall) -> ToolExecution:
    why = turn.execution.continuation.describe()
    error = ErrorRecord(type="Cancelled", message=f"the run was stopped ({why})", source=each.call.name)
    begun = replace(each, started_at=each.started_at or turn.execution.current_step_started_at)
    return _ended(turn, begun, Outcome.CANCELLED, error=error)


def take_up(turn: Transition) -> None:
    """Ask again for what the open calls wait for."""
    tell_unknown_ends(turn)
    _answer_unknown_tools(turn)
    for each in turn.execution.open_calls:
        match each.stage:
            case CallStage.WAITING:
                pass
            case CallStage.BEFORE_TOOL:
                _run_call_hooks(turn, each, Trigger.BEFORE_TOOL)
            case CallStage.AFTER_TOOL:
                _run_call_hooks(turn, each, Trigger.AFTER_TOOL)
            case CallStage.APPROVAL:
                approvals.ask(turn, each)
            case CallStage.RUNNING:
                _run_call(turn, each)
            case _:
                assert_never(each.stage)
    _start_waiting(turn)


def tell_unknown_ends(turn: Transition) -> None:
    """Answer the calls that ran and must not be repeated: how they ended, nobody knows any more."""
    for each in turn.execution.open_calls:
        traits = turn.rules.tools.get(each.call.name)
        if each.stage is CallStage.RUNNING and traits is not None and traits.at_most_once:
            unknown = ended_without_answer(traits, "the run was interrupted")
            _remove(turn, each)
            _record(turn, _ended(turn, each, Outcome.FAILED, error=unknown))


def _answer_unknown_tools(turn: Transition) -> None:
    """Answer the open calls of tools that are not there any more: a state can be taken up by another definition."""
    for each in turn.execution.open_calls:
        gone = each.call.name not in turn.rules.tools and not (each.call.name == SPAWN_TOOL and turn.rules.subagents)
        problem = _problem_with(turn, each.call, each.index, ()) if gone else None
        if problem is None or each.stage is CallStage.AFTER_TOOL:
            continue
        if each.stage is CallStage.RUNNING:
            problem = replace(problem, message=f"{problem.message}; whether it has run is not known")
        _remove(turn, each)
        _record(turn, _ended(turn, each, Outcome.FAILED, error=problem))


def _put(turn: Transition, changed: OpenCall) -> None:
    calls = turn.execution.open_calls
    turn.change(open_calls=tuple(changed if each.index == changed.index else each for each in calls))


def _remove(turn: Transition, each: OpenCall) -> None:
    turn.change(open_calls=tuple(other for other in turn.execution.open_calls if other.index != each.index))


def _close(turn: Transition, each: OpenCall, execution: ToolExecution) -> None:
    """Answer a call, and start those that waited for its end."""
    _remove(turn, each)
    _record(turn, execution)
    _start_waiting(turn)


def _record(turn: Transition, execution: ToolExecution) -> None:
    """Keep a call's end; executions stand in the order the model asked, whoever came first."""
    ended = turn.step.tool_executions
    if ended:
        order = {call.id: index for index, call in enumerate(turn.step.requested_tool_calls)}
        ended = tuple(sorted((*ended, execution), key=lambda each: order[each.call.id]))
    else:
        ended = (execution,)
    turn.change_step(tool_executions=ended)
    turn.tell(ToolCallBlocked if execution.was_blocked else ToolCallCompleted, tool_execution=execution)


def _ended(
    turn: Transition,
    each: OpenCall,
    outcome: Outcome,
    *,
    result: str | None = None,
    error: ErrorRecord | None = None,
) -> ToolExecution:
    return trusted(
        ToolExecution,
        id=named_id(turn.execution.execution_id, call_name(turn.step.number, each.index)),
        call=each.call,
        outcome=outcome,
        result=result,
        error=error,
        started_at=each.started_at or turn.at,
        completed_at=turn.at,
        approval=each.approval,
    )
