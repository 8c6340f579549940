"""The tool calls of one step, from the model's request to one answer for each (docs/spec.md, section 3).

    requested ─▶ waiting ─▶ before_tool ─▶ approval ─▶ running ─▶ after_tool ─▶ answered
        │          ▲            │              │                                  ▲
        │          │            │ blocked      │ denied, expired                  │
        │          │            └──────────────┴──────────────────────────────────┤
        │          └ until the calls that must run alone are done                 │
        └ malformed, unknown, too many ───────────────────────────────────────────┘

A call skips a stage without a hook or an approval rule. The calls of a step run concurrently, unless the definition or
the tool says that they run alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from holdfast.core.agent.execution_state import ExecutionStatus, call_name, named_id
from holdfast.core.agent.handoffs import HANDOFF_TOOL
from holdfast.core.agent.hooks import Changes, HookRun, Trigger
from holdfast.core.agent.subagents import SPAWN_TOOL, problem_with_spawn
from holdfast.core.base.bounds import (
    HOOK_CHANGES_BYTES_MAX,
    HOOK_CHANGES_STEP_BYTES_MAX,
    STEP_RESULTS_BYTES_MAX,
)
from holdfast.core.base.frozen import replace, trusted
from holdfast.core.base.safe_text import clamped_json
from holdfast.core.base.truncation import shortened
from holdfast.core.conversation.attachments import ATTACHMENTS_STEP_MAX, Attachment, share_of_step
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import (
    CallStage,
    ErrorRecord,
    OpenCall,
    Outcome,
    ResultType,
    ToolExecution,
)
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop import approvals, handoffs, input_waits, limit_checks
from holdfast.core.loop.calls import call_problems, nested_calls
from holdfast.core.loop.commands import CallTool, RunHooks
from holdfast.core.loop.events import (
    ApprovalDecided,
    ApprovalExpired,
    ScriptAdvanced,
    SubagentReturned,
    ToolFailed,
    ToolReturned,
    WaitEvent,
)
from holdfast.core.loop.mcp_processes import with_process_note
from holdfast.core.loop.model_retries import bounded_retry
from holdfast.core.loop.own_tools import agent_calls, critique, questions
from holdfast.core.loop.own_tools.calls import Answer, agent_ended, own_answer
from holdfast.core.loop.pending_messages import merge_tool_metadata
from holdfast.core.loop.tool_replies import bounded_structure, with_workspace_files
from holdfast.core.loop.transition import Transition
from holdfast.core.tools.tool_errors import ended_without_answer
from holdfast.core.tools.tool_search import called_tool
from holdfast.core.tools.tool_traits import missing_arguments
from holdfast.core.wire.execution_events import (
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
)


def begin_calls(transition: Transition) -> None:
    """Begin the calls that the model requested; those that cannot run are answered at once."""
    tools = transition.rules.tools
    # the model's own text stays with what it requested: a call may yet be changed
    asked = (called_tool(each.normalized, tools) for each in transition.step.requested_tool_calls)
    _open(transition, (trusted(OpenCall, index=index, call=call) for index, call in enumerate(asked)))


def _open(transition: Transition, calls: Iterable[OpenCall]) -> None:
    opened = [*transition.execution.open_calls]
    for each in calls:
        problem = call_problems.problem_with(transition, each.call, each.index, opened)
        if problem is None:
            opened.append(each)
        else:
            _record(transition, _ended(transition, each, Outcome.FAILED, error=problem))
    transition.change(open_calls=tuple(opened))
    _start_waiting(transition)


def _start_waiting(transition: Transition) -> None:
    """Start every waiting call that may start; one that runs alone starts when all before it have ended."""
    while (startable := _first_startable(transition)) is not None:  # each start can end calls, or start others
        _before_tool(transition, startable)


def _first_startable(transition: Transition) -> OpenCall | None:
    if transition.execution.open_calls and limit_checks.out_of_time(transition):
        return None
    for place, each in enumerate(nested_calls.startable(transition)):
        alone = transition.rules.alone(each.call.name)
        if each.stage is CallStage.WAITING and not (alone and place):
            return each
        if alone:
            return None
    return None


def _before_tool(transition: Transition, each: OpenCall) -> None:
    if transition.rules.hooks_for(Trigger.BEFORE_TOOL, each.call.name):
        _put(transition, replace(each, stage=CallStage.BEFORE_TOOL))
        _run_call_hooks(transition, each, Trigger.BEFORE_TOOL)
    else:
        _seek_approval(transition, each)


def _run_call_hooks(transition: Transition, each: OpenCall, trigger: Trigger) -> None:
    """Issue the hooks at `trigger` around this call."""
    hooks = transition.rules.hooks_for(trigger, each.call.name)
    name = f"{call_name(transition.step.number, each.index)}-{trigger}"
    context = transition.context_for(trigger, each.call, each.ended)
    share = min(HOOK_CHANGES_BYTES_MAX, HOOK_CHANGES_STEP_BYTES_MAX // len(transition.step.requested_tool_calls))
    transition.do(RunHooks(hooks=hooks, context=context, name=name, changes_bytes_max=share))


def hooks_returned(transition: Transition, each: OpenCall, runs: Iterable[HookRun]) -> None:
    """Change a call as its hooks say, and move it on unless one of them blocked it."""
    changed: OpenCall | None = each
    for run in runs:
        if changed is not None and run.changes is not None:
            changed = _changed_by(transition, changed, run.changes, run.name)
    if changed is not None:
        _after_hooks(transition, changed)


def _changed_by(transition: Transition, each: OpenCall, changes: Changes, hook: str) -> OpenCall | None:
    """Return the call as a before_tool hook changed it; none when the hook blocked it, which answers the call."""
    if changes.arguments is not None:
        each = each.with_arguments(changes.arguments)
        _put(transition, each)
    if changes.block is None:
        return each
    text = f"blocked by the hook {hook!r}: {changes.block}"
    error = ErrorRecord(type="ToolExecutionBlocked", message=text, source=hook)
    _close(transition, each, _ended(transition, each, Outcome.BLOCKED, error=error))
    return None


def _after_hooks(transition: Transition, each: OpenCall) -> None:
    """Move a call on whose hooks have run."""
    if each.ended is not None:
        _close(transition, each, each.ended)
    else:
        _seek_approval(transition, each)


def _seek_approval(transition: Transition, each: OpenCall) -> None:
    if _lacks_arguments(transition, each):  # no approval for a call that could not run
        return
    rule = approvals.rule_for(transition, each)
    if rule is None:
        _run(transition, each)
        return
    waiting = approvals.waits(transition, each, rule)
    _put(transition, waiting)
    approvals.ask(transition, waiting)


def wait_changed(transition: Transition, each: OpenCall, event: WaitEvent) -> None:
    """Apply a decision about a call, what its server asks a person for, or the answer to that."""
    if isinstance(event, ApprovalDecided | ApprovalExpired):
        _approval_ended(transition, each, event)
    elif (moved := input_waits.moved(transition, each, event)) is not None:
        each, error = moved
        _put(transition, each)
        if error is not None:
            _has_run(transition, each, _ended(transition, each, Outcome.FAILED, error=error))
        elif (answer := questions.answer(each)) is not None:
            _answer(transition, each, answer)


def _approval_ended(transition: Transition, each: OpenCall, event: ApprovalDecided | ApprovalExpired) -> None:
    """Apply a decision to a call that waits for one; for any other call it changes nothing."""
    if each.stage is not CallStage.APPROVAL or (resolution := approvals.decided(transition, each, event)) is None:
        return
    each, error = resolution
    if error is not None:
        _close(transition, each, _ended(transition, each, Outcome.DENIED, error=error))
    else:
        _run(transition, replace(each, started_at=None))


def _lacks_arguments(transition: Transition, each: OpenCall) -> bool:
    """Return whether the call lacks arguments; if so it is answered here, without an activity."""
    traits = transition.rules.tools.get(each.call.name)
    problem = missing_arguments(traits, each.call.arguments) if traits is not None else None
    if problem is None:
        return False
    error = ErrorRecord(type="InvalidArguments", message=problem, source=each.call.name)
    _close(transition, each, _ended(transition, each, Outcome.FAILED, error=error))
    return True


def _run(transition: Transition, each: OpenCall) -> None:
    if limit_checks.out_of_time(transition) or _lacks_arguments(transition, each):  # a person may have edited them
        return
    running = replace(each, stage=CallStage.RUNNING, started_at=transition.at)
    _put(transition, running)
    transition.emit(ToolCallStarted, call=each.call)
    if each.call.name == SPAWN_TOOL and transition.rules.subagents:
        transition.change(subagents_started=transition.execution.subagents_started + 1)
    _run_call(transition, running)


def _run_call(transition: Transition, each: OpenCall, *, again: bool = False) -> None:
    """Issue the command for this call's tool or subagent; `again` where another driver had issued it."""
    step, rules = transition.step.number, transition.rules
    if each.call.name == HANDOFF_TOOL and rules.handoffs:
        _answer(transition, each, handoffs.hand_over(transition, each.call))
        return
    if nested_calls.runs_script(transition, each.call):
        if (advance := nested_calls.command_of(transition, each)) is not None:
            transition.do(advance)
        return
    if each.call.name != SPAWN_TOOL or not rules.subagents:
        traits = rules.tools.get(each.call.name)
        if traits is not None and traits.loop is not None:
            _answer(transition, each, own_answer(transition, each, traits.loop, again=again))
            return
        context = transition.call_context(each.call) if traits is not None and traits.context else None
        transition.do(CallTool(step_number=step, index=each.index, call=each.call, context=context))
        return
    problem = problem_with_spawn(each.call, rules.subagents, rules.depth)  # a hook or a person may have changed it
    if problem is not None:
        _close(transition, each, _ended(transition, each, Outcome.FAILED, error=problem))
        return
    agent, task = str(each.call.arguments["agent"]), str(each.call.arguments["task"])
    agent_calls.spawn(transition, each, rules.subagents[agent], task)


def _answer(transition: Transition, each: OpenCall, answer: Answer | OpenCall) -> None:
    """Answer a call that the loop runs itself, or keep it open as it waits."""
    if isinstance(answer, OpenCall):
        _put(transition, answer)
        return
    result, error = answer
    if error is not None:
        _close(transition, each, _ended(transition, each, Outcome.FAILED, error=error))
    else:
        _has_run(transition, each, _ended(transition, each, Outcome.SUCCEEDED, result=result))


def script_advanced(transition: Transition, each: OpenCall, event: ScriptAdvanced) -> None:
    """Begin the calls that the script of a running call makes; for any other call it changes nothing."""
    if each.stage is CallStage.RUNNING and nested_calls.command_of(transition, each) is not None:
        _open(transition, nested_calls.calls_made(transition, each, event.calls))
        _go_on_with_script(transition, each.call.id)


def _go_on_with_script(transition: Transition, call_id: str | None) -> None:
    """Take the script of that call further once all its calls have ended; a stop ends it there."""
    each = nested_calls.parent_of(transition, call_id)
    advance = None if each is None else nested_calls.command_of(transition, each)
    if each is None or advance is None or limit_checks.out_of_time(transition):
        return
    if transition.must_stop:
        _close(transition, each, _cancelled(transition, each))
    else:
        transition.do(advance)


def _share(transition: Transition, each: OpenCall, attached: tuple[Attachment, ...]) -> tuple[Attachment, ...]:
    """Return the files that the call may have of the step's; warns of the others."""
    attachments = share_of_step(attached, len(transition.step.requested_tool_calls))
    if left_out := len(attached) - len(attachments):
        shared = f"the calls of a step share {ATTACHMENTS_STEP_MAX}"
        transition.warn(f"{left_out} files of {each.call.name} ({each.call.id}) are left out: {shared}")
    return attachments


def call_ended(transition: Transition, each: OpenCall, event: ToolReturned | ToolFailed | SubagentReturned) -> None:
    """Handle the end of a running call; for any other call it changes nothing."""
    if each.stage is not CallStage.RUNNING or critique.take_in(transition, event):
        return
    result, error, structured = None, None, None
    attachments: tuple[Attachment, ...] = ()
    result_type: ResultType = "text"
    share = nested_calls.result_share(transition, each)
    match event:
        case ToolReturned():
            event = with_process_note(transition, each.call, event)
            result, result_type = event.result, event.result_type
            structured = bounded_structure(event, share)
            attachments = _share(transition, each, event.attachments)
        case ToolFailed():
            error = bounded_retry(transition, each.call.name, event.error)
        case SubagentReturned():
            result, error = agent_ended(transition, each, event)
        case _:
            assert_never(event)
    outcome = Outcome.FAILED if error is not None else Outcome.SUCCEEDED
    if error is not None:
        error = replace(error, message=clamped_json(error.message, share))
    elif result is not None:
        whole, result = result, shortened(result, share)
        result_type = result_type if result == whole else "text"  # what is cut is no JSON any more
    each = each if each.pending_input else replace(each, started_at=event.started_at)
    execution = _ended(transition, each, outcome, result=result, result_type=result_type, error=error)
    if structured is not None or attachments:
        execution = replace(execution, structured=structured, attachments=attachments)
    if isinstance(event, SubagentReturned):
        execution = replace(execution, usage=event.used.usage, cost=event.used.cost, unpriced=event.used.unpriced)
    if isinstance(event, ToolReturned):
        _apply_wishes(transition, each.call, event)
        execution = with_workspace_files(transition, execution, event)
    _has_run(transition, each, execution)


def _has_run(transition: Transition, each: OpenCall, execution: ToolExecution) -> None:
    """Run the hooks behind a call that has run, if any; else it is answered."""
    if transition.rules.hooks_for(Trigger.AFTER_TOOL, each.call.name):
        waiting = replace(each, stage=CallStage.AFTER_TOOL, ended=execution)
        _put(transition, waiting)
        _run_call_hooks(transition, waiting, Trigger.AFTER_TOOL)
    else:
        _close(transition, each, execution)


def _apply_wishes(transition: Transition, call: ToolCall, event: ToolReturned) -> None:
    """Apply what a tool asks for besides its result: a stop, and changes of the metadata."""
    if event.stop is not None:
        facts = {**event.stop_context, "tool": call.name, "call_id": call.id}
        transition.signal_now(StopReason.STOP_REQUESTED, event.stop, call.name, facts)
    if event.metadata:
        merge_tool_metadata(transition, event.metadata, call.name)


def cancel_calls(transition: Transition, *, but: frozenset[int] = frozenset()) -> None:
    """Answer every open call as cancelled; one that has ended keeps its result.

    The calls at the places `but` stay open: their ends are still to come.
    """
    still_open = {each.call.id: each for each in transition.execution.open_calls}
    for index, call in nested_calls.unanswered(transition):
        if index not in but:
            each = still_open.get(call.id) or OpenCall(
                index=index, call=called_tool(call.normalized, transition.rules.tools)
            )
            _record(transition, each.ended or _cancelled(transition, each))
    transition.change(open_calls=tuple(each for each in transition.execution.open_calls if each.index in but))


def cancelled_subagent_ended(transition: Transition, each: OpenCall, event: SubagentReturned) -> None:
    """Record the end of a subagent that was cancelled, and count what it used."""
    if critique.cancelled(transition, event):
        return
    _remove(transition, each)
    agent_calls.count(transition, agent_calls.agent_of(transition, each), event)
    if event.status is ExecutionStatus.COMPLETED:  # just before the cancel reached it
        share = STEP_RESULTS_BYTES_MAX // len(transition.step.requested_tool_calls)
        ended = _ended(transition, each, Outcome.SUCCEEDED, result=shortened(event.answer, share))
    else:
        ended = _cancelled(transition, each)
    _record(transition, replace(ended, usage=event.used.usage, cost=event.used.cost, unpriced=event.used.unpriced))


def _cancelled(transition: Transition, each: OpenCall) -> ToolExecution:
    why = transition.execution.continuation.describe()
    error = ErrorRecord(type="Cancelled", message=f"the run was stopped ({why})", source=each.call.name)
    begun = replace(each, started_at=each.started_at or transition.execution.current_step_started_at)
    return _ended(transition, begun, Outcome.CANCELLED, error=error)


def take_up(transition: Transition) -> None:
    """Issue again the commands that the open calls wait for."""
    if critique.begin_again(transition):
        return
    answer_unknown_ends(transition)
    _answer_unknown_tools(transition)
    for each in transition.execution.open_calls:
        match each.stage:
            case CallStage.WAITING:
                pass
            case CallStage.BEFORE_TOOL:
                _run_call_hooks(transition, each, Trigger.BEFORE_TOOL)
            case CallStage.AFTER_TOOL:
                _run_call_hooks(transition, each, Trigger.AFTER_TOOL)
            case CallStage.APPROVAL:
                waiting = approvals.waits_on(transition, each)
                _put(transition, waiting)
                approvals.ask(transition, waiting)
            case CallStage.INPUT:
                _put(transition, input_waits.again(each))
                _run_call(transition, each)
            case CallStage.RUNNING:
                _run_call(transition, each, again=True)
            case _:
                assert_never(each.stage)
    _start_waiting(transition)


def answer_unknown_ends(transition: Transition) -> None:
    """Answer the calls that ran and must not be repeated: their outcome is unknown."""
    for each in transition.execution.open_calls:
        traits = transition.rules.tools.get(each.call.name)
        if each.stage is CallStage.RUNNING and traits is not None and traits.at_most_once:
            error = ended_without_answer(traits, "the run was interrupted")
            _remove(transition, each)
            _record(transition, _ended(transition, each, Outcome.FAILED, error=error))


def _answer_unknown_tools(transition: Transition) -> None:
    """Answer the open calls of tools that no longer exist: another definition may resume a state."""
    for each in transition.execution.open_calls:
        unknown = each.call.name not in transition.rules.callable_names
        problem = call_problems.problem_with(transition, each.call, each.index, ()) if unknown else None
        if problem is None or each.stage is CallStage.AFTER_TOOL:
            continue
        if each.stage is CallStage.RUNNING:
            problem = replace(problem, message=f"{problem.message}; whether it has run is not known")
        _remove(transition, each)
        _record(transition, _ended(transition, each, Outcome.FAILED, error=problem))


def _put(transition: Transition, changed: OpenCall) -> None:
    calls = transition.execution.open_calls
    transition.change(open_calls=tuple(changed if each.index == changed.index else each for each in calls))


def _remove(transition: Transition, each: OpenCall) -> None:
    transition.change(open_calls=tuple(other for other in transition.execution.open_calls if other.index != each.index))


def _close(transition: Transition, each: OpenCall, execution: ToolExecution) -> None:
    """Answer a call, and start those that waited for its end."""
    _remove(transition, each)
    _record(transition, execution)
    _start_waiting(transition)
    if each.parent_call_id is not None:
        _go_on_with_script(transition, each.parent_call_id)


def _record(transition: Transition, execution: ToolExecution) -> None:
    """Store a call's outcome; executions are in the order of the model's request."""
    ended = transition.step.tool_executions
    if ended:
        ended = tuple(sorted((*ended, execution), key=nested_calls.order_in(transition.step)))
    else:
        ended = (execution,)
    transition.change_step(tool_executions=ended)
    transition.emit(ToolCallBlocked if execution.was_blocked else ToolCallCompleted, tool_execution=execution)


def _ended(
    transition: Transition,
    each: OpenCall,
    outcome: Outcome,
    *,
    result: str | None = None,
    result_type: ResultType = "text",
    error: ErrorRecord | None = None,
) -> ToolExecution:
    return trusted(
        ToolExecution,
        id=named_id(transition.execution.execution_id, call_name(transition.step.number, each.index)),
        call=each.call,
        outcome=outcome,
        result=result,
        result_type=result_type,
        error=error,
        started_at=each.started_at or transition.at,
        completed_at=transition.at,
        approval=each.approval,
        inputs=each.inputs,
        parent_call_id=each.parent_call_id,
        asked_digest=each.asked_digest,
    )
