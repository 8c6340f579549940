"""The agent loop as a function: `AgentLoop.step(state, event) -> (state, commands)` (docs/spec.md, section 6).

    begin ─▶ [before_execution] ─▶ ◇ ─▶ next step
    next step ─▶ [before_step] ─▶ ◇ ─▶ [before_inference] ─▶ (SummariseBuffer ─▶) ◇ ─▶ CallModel ─▶ answered
    answered ─▶ [after_inference] ─▶ ◇ ─▶ the calls (`tool_calls`) ─▶ ◇ ─▶ [after_step] ─▶ evaluate
    evaluate ─▶ archive ─▶ next step, or the end
    the end ─▶ [on_stop], or [on_error] after an error ─▶ [after_execution] ─▶ final status, Finish

[hooks] are passed at once where there are none. At ◇ the limits are looked at, and a signal leads to the end. A stop
(now), the time limit and a fault of the driver lead there from anywhere: what is in flight is cancelled, what is still
learnt of it is awaited (`cancellation`), each record says so. What comes after which hooks is one table, AFTER.

An event that comes too late (the run has ended, the call is answered already) changes nothing and asks for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, assert_never

from holdfast.core.agent.execution_state import ExecutionStatus, step_id
from holdfast.core.agent.hooks import ENDING, Trigger
from holdfast.core.agent.retries import BUDGET_SPENT
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import HOOK_CHANGES_BYTES_MAX
from holdfast.core.base.frozen import trusted
from holdfast.core.base.usage import NOTHING_USED
from holdfast.core.conversation.steps import AgentStep, CallStage, ErrorRecord, OpenCall
from holdfast.core.loop import (
    cancellation,
    compaction,
    headroom,
    limit_checks,
    model_result,
    start,
    step_end,
    tool_calls,
)
from holdfast.core.loop.commands import CancelInFlight, Command, RunHooks, SummariseBuffer
from holdfast.core.loop.events import (
    ApprovalDecided,
    ApprovalExpired,
    BufferSummarised,
    ChangeRefused,
    DecisionUnreadable,
    DefinitionChanged,
    DriverFailed,
    Event,
    ExecutionStarted,
    HooksReturned,
    MessageArrived,
    ModelAnswered,
    ModelCancelled,
    ModelFailed,
    RunContinued,
    StepDue,
    StopRequested,
    SubagentReturned,
    SummaryFailed,
    TimerFired,
    ToolFailed,
    ToolReturned,
)
from holdfast.core.loop.pending_messages import keep_changes, keep_message, say_waiting
from holdfast.core.loop.rules import Rules
from holdfast.core.loop.time_limit import keep_time, start_timer
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.execution_events import AgentStepStarted, ContinuationEvaluated, InferenceRequestStarted

NextState = tuple[AgentState, tuple[Command, ...]]


class AgentLoop(Rules):
    """The rules of one agent, and what they make of an event."""

    def step(self, state: AgentState, event: Event) -> NextState:
        """Return the state after `event` and what is to be done now. Pure: equal inputs give equal outputs."""
        if isinstance(event, ExecutionStarted):
            turn = _begun(self, state, event)
        elif isinstance(event, DefinitionChanged) and start.may_change(state, ()):
            turn = _changed(self, state, event)
        elif state.execution is None or state.execution.status.is_terminal:
            return state, ()
        else:
            turn = Transition(self, state, state.execution, event.at)
            if not state.execution.cancelling:
                _take_in(turn, event)
            elif cancellation.take_in(turn, event):
                _cancelled(turn)
        keep_time(turn)
        return turn.state, tuple(turn.commands)


def _take_in(turn: Transition, event: Event) -> None:  # noqa: C901, PLR0912  # one case per event
    match event:
        case ModelAnswered():
            _model_answered(turn, event)
        case ModelFailed():
            _model_failed(turn, event)
        case ToolReturned() | ToolFailed() | SubagentReturned():
            _call_moved(turn, event.call_id, lambda each: tool_calls.call_ended(turn, each, event))
        case ApprovalDecided() | ApprovalExpired():
            _call_moved(turn, event.call_id, lambda each: tool_calls.approval_ended(turn, each, event))
        case HooksReturned():
            _hooks_returned(turn, event)
        case BufferSummarised() | SummaryFailed():
            _buffer_summarised(turn, event)
        case MessageArrived():
            keep_message(turn, event.message)
        case StopRequested():
            _stop_requested(turn, event)
        case TimerFired():
            _timer_fired(turn)
        case RunContinued():
            _go_on(turn, resumed=False)
        case StepDue():
            _step_due(turn)
        case DecisionUnreadable():
            turn.warn(f"a decision was not taken: {event.problem}")
        case ChangeRefused():
            turn.warn(f"the agent was not changed: {event.error.message}")
        case DriverFailed():
            _driver_failed(turn, event.error)
        case ModelCancelled():
            _model_failed(turn, model_result.failed_outside(event))
        case DefinitionChanged():
            pass  # something is under way by the old rules
        case ExecutionStarted():
            raise ValueError("an execution is begun by `step` itself")
        case _:
            assert_never(event)


# --- the beginning


def _begun(rules: AgentLoop, state: AgentState, event: ExecutionStarted) -> Transition:
    if state.status is ExecutionStatus.IN_PROGRESS:
        turn = start.taken_up(rules, state, event)
        _go_on(turn, resumed=True)  # nothing that has ended is done again
        return turn
    turn = start.begun(rules, state, event)
    _reach(turn, Trigger.BEFORE_EXECUTION)
    start_timer(turn)
    return turn


def _changed(rules: AgentLoop, state: AgentState, event: DefinitionChanged) -> Transition:
    """Ask by the new rules for what comes next; nothing of it was asked for by the old ones."""
    turn = start.changed(rules, state, event)
    trigger = turn.execution.hooks_under_way
    turn.change(hooks_under_way=None)
    if trigger is Trigger.BEFORE_EXECUTION:
        _reach(turn, trigger)
    elif limit_checks.before_step(turn):  # it is spent already
        turn.change(summary_under_way=False)
        _end(turn)
    else:
        _note_override(turn)
        _go_on_as_changed(turn, trigger)
    start_timer(turn)
    return turn


def _go_on_as_changed(turn: Transition, trigger: Trigger | None) -> None:
    step = turn.execution.current_step
    if trigger is not None or step is None:
        _reach(turn, trigger or Trigger.BEFORE_STEP)
    elif turn.execution.summary_under_way:
        turn.do(headroom.summary_call(turn) or SummariseBuffer(step.number, 1))
    elif limit_checks.before_grown_call(turn):
        _end(turn)
    else:
        _ask_model(turn, tell=False)


def _go_on(turn: Transition, *, resumed: bool) -> None:
    """Ask again for what was under way when another driver, or another run of this one, left off."""
    execution = turn.execution
    trigger, step = execution.hooks_under_way, execution.current_step
    if execution.cancelling:
        _cancelled(turn)  # whoever would have reported is gone
        return
    if _out_of_time(turn):
        return
    if trigger is not None:
        _run_hooks(turn, trigger)
    elif step is None:
        _next_step(turn)
    elif step.inference_response is not None:
        tool_calls.take_up(turn)
        _go_on_when_answered(turn)
    elif execution.summary_under_way:
        turn.do(headroom.summary_call(turn) or SummariseBuffer(step.number, 1))
    elif limit_checks.before_grown_call(turn):
        _end(turn)  # what was said meanwhile is more than the budget has room for
    else:
        _ask_model(turn, tell=resumed)
    start_timer(turn)


def _out_of_time(turn: Transition) -> bool:
    """End an execution whose time limit struck while nobody drove it, before anything is asked again."""
    strikes_at = turn.execution.time_limit_at
    if strikes_at is None or turn.at < strikes_at or turn.execution.hooks_under_way in ENDING:
        return False
    tool_calls.tell_unknown_ends(turn)
    limit_checks.signal_time(turn)
    if turn.must_stop:
        turn.change(hooks_under_way=None, summary_under_way=False)
        _cancelled(turn)  # nothing is under way yet
    return turn.must_stop


def _before_execution_passed(turn: Transition) -> None:
    if limit_checks.before_step(turn):
        _end(turn)
    else:
        _note_override(turn)
        _next_step(turn)


# --- a step


def _next_step(turn: Transition) -> None:
    _reach(turn, Trigger.BEFORE_STEP)


def _before_step_passed(turn: Transition) -> None:
    """Begin a step, unless a limit or a signal forbids it."""
    if limit_checks.before_step(turn):
        _end(turn)
        return
    _note_override(turn)
    say_waiting(turn)
    number = len(turn.execution.step_executions) + 1
    step = trusted(
        AgentStep, id=step_id(turn.execution.execution_id, number), number=number, input_length=len(turn.store.messages)
    )
    turn.change(current_step=step, current_step_started_at=turn.at)
    turn.tell(AgentStepStarted)
    _reach(turn, Trigger.BEFORE_INFERENCE)


def _before_inference_passed(turn: Transition) -> None:
    say_waiting(turn)
    if not limit_checks.out_of_time(turn) and compaction.begin(turn):
        return
    if limit_checks.before_grown_call(turn):
        _end(turn)  # hooks have said more than the budget has room for; a call that cannot fit is not made
        return
    _ask_model(turn)


def _buffer_summarised(turn: Transition, event: BufferSummarised | SummaryFailed) -> None:
    if not turn.execution.summary_under_way:
        return
    compaction.take_in(turn, event)
    if limit_checks.before_call(turn):
        _end(turn)  # the summary used up what was left; a call that cannot fit is not made
        return
    _note_override(turn)
    say_waiting(turn)
    _ask_model(turn)


def _ask_model(turn: Transition, *, tell: bool = True) -> None:
    turn.change_step(input_length=len(turn.store.messages), compactions=turn.execution.compactions)
    asked = headroom.model_call(turn)
    turn.do(asked)
    if tell:
        turn.tell(InferenceRequestStarted, max_output_tokens=asked.max_output_tokens)


def _model_answered(turn: Transition, event: ModelAnswered) -> None:
    if not cancellation.asking(turn):
        return
    model_result.keep_answer(turn, event)
    _reach(turn, Trigger.AFTER_INFERENCE)


def _after_inference_passed(turn: Transition) -> None:
    response = turn.step.inference_response
    if response is not None and limit_checks.after_inference(turn, response):
        tool_calls.cancel_calls(turn)
        _step_complete(turn)
        return
    _note_override(turn)
    tool_calls.begin_calls(turn)
    _go_on_when_answered(turn)


def _call_moved(turn: Transition, call_id: str, move: Callable[[OpenCall], None]) -> None:
    """Let something happen to an open call; one that is not open changes nothing."""
    each = next((each for each in turn.execution.open_calls if each.call.id == call_id), None)
    if each is not None:
        move(each)
        _go_on_when_answered(turn)


def _go_on_when_answered(turn: Transition) -> None:
    execution = turn.execution  # a hook that raised has archived the step already
    if execution.current_step is not None and not execution.open_calls and execution.hooks_under_way is None:
        _step_complete(turn)


def _step_complete(turn: Transition) -> None:
    """Every call has its answer: look at what the step came to, then at the limits."""
    step_end.judge_answer(turn)
    limit_checks.after_step(turn, more_to_do=step_end.more_to_do(turn))
    _reach(turn, Trigger.AFTER_STEP)


def _evaluate(turn: Transition) -> None:
    """Decide whether to go on, and archive the step (docs/spec.md, section 4)."""
    more_to_do, signals = step_end.more_to_do(turn), turn.execution.continuation.stop_signals
    should_stop = turn.should_stop(more_to_do=more_to_do)
    overridden = not should_stop and (bool(signals) or not more_to_do)
    step_end.archive(turn, overridden=overridden)
    turn.tell(ContinuationEvaluated, should_stop=should_stop, overridden=overridden)
    if should_stop:
        _end(turn)
    elif not turn.rules.step_by_step:
        _next_step(turn)


def _step_due(turn: Transition) -> None:
    """Begin the next step, unless its time is over meanwhile."""
    if start.rests(turn.execution) and not _out_of_time(turn):
        _next_step(turn)


def _note_override(turn: Transition) -> None:
    """Count the override when the step under way goes on only because a hook asked for it."""
    if turn.execution.continuation.standing and not turn.must_stop:
        turn.change(continuation=turn.execution.continuation.overriding_now())


# --- what comes from outside


def _stop_requested(turn: Transition, event: StopRequested) -> None:
    if turn.execution.hooks_under_way in ENDING:
        return  # it is decided already how this execution ends
    turn.signal(event.signal)
    if event.mode == "now":
        _abort_unless_overridden(turn)


def _timer_fired(turn: Transition) -> None:
    strikes_at = turn.execution.time_limit_at
    if strikes_at is None or turn.at < strikes_at or turn.execution.hooks_under_way in ENDING:
        return  # a timer from before a pause
    limit_checks.signal_time(turn)
    _abort_unless_overridden(turn)


def _driver_failed(turn: Transition, error: ErrorRecord) -> None:
    ending_already = turn.execution.hooks_under_way in ENDING
    turn.fail(error)
    if ending_already:
        turn.do(CancelInFlight())
        turn.change(hooks_under_way=None)
        _conclude(turn)  # no hooks any more: whoever runs them has failed
    else:
        if cancellation.asking(turn) or turn.execution.summary_under_way:
            model_result.count_wasted(turn, headroom.lost_call(turn, NOTHING_USED))
        cancellation.cancel(turn)
        _cancelled(turn)  # nor is anything awaited of it


def _abort_unless_overridden(turn: Transition) -> None:
    if turn.must_stop:
        _abort(turn)
    else:
        _note_override(turn)


def _abort(turn: Transition) -> None:
    """End at once, but for the ends that are awaited of what is cancelled."""
    cancellation.cancel(turn)
    if not turn.execution.cancelling:
        _cancelled(turn)


def _cancelled(turn: Transition) -> None:
    """Everything that was cancelled has ended. A step that the model never answered stays: it did not complete."""
    turn.change(cancelling=False)
    step = turn.execution.current_step
    if step is not None and step.inference_response is not None:
        tool_calls.cancel_calls(turn)
        step_end.judge_errors(turn)
        step_end.archive(turn)
    _end(turn)


def _model_failed(turn: Transition, event: ModelFailed) -> None:
    if not cancellation.asking(turn):
        return
    model_result.count_failure(turn, event)
    if event.error.type == BUDGET_SPENT:
        limit_checks.after_spent_attempts(turn)
        _end(turn)
        return
    turn.change_step(errors=(*turn.step.errors, event.error))
    turn.fail(event.error)
    step_end.archive(turn)
    _end(turn)


# --- hooks


def _reach(turn: Transition, trigger: Trigger) -> None:
    """Come to a place where hooks may run; what comes after it, AFTER says."""
    if turn.rules.hooks_for(trigger):
        turn.change(hooks_under_way=trigger)
        _run_hooks(turn, trigger)
    else:
        AFTER[trigger](turn)


def _run_hooks(turn: Transition, trigger: Trigger) -> None:
    name = f"step-{turn.step_number}-{trigger}"
    hooks, context = turn.rules.hooks_for(trigger), turn.context_for(trigger)
    turn.do(RunHooks(hooks=hooks, context=context, name=name, changes_bytes_max=HOOK_CHANGES_BYTES_MAX))


def _hooks_returned(turn: Transition, event: HooksReturned) -> None:
    if event.call_id is not None:
        _call_moved(turn, event.call_id, lambda each: _call_hooks_returned(turn, each, event))
        return
    if turn.execution.hooks_under_way is not event.trigger:
        return
    problem = keep_changes(turn, event)
    if problem is not None and event.trigger not in ENDING:
        turn.fail(problem)
        _abort(turn)
        return
    turn.change(hooks_under_way=None)
    if problem is not None and event.trigger is Trigger.ON_STOP:
        turn.fail(problem)
        _reach_end(turn)
        return
    if problem is not None and event.trigger is Trigger.ON_ERROR:
        turn.warn(f"{problem.type}: {problem.message}")  # the execution fails for its first cause
    elif problem is not None:
        turn.fail(problem)  # last of all: no hook runs behind it
    AFTER[event.trigger](turn)


def _call_hooks_returned(turn: Transition, each: OpenCall, event: HooksReturned) -> None:
    stage = CallStage.BEFORE_TOOL if event.trigger is Trigger.BEFORE_TOOL else CallStage.AFTER_TOOL
    if each.stage is not stage:
        return
    problem = keep_changes(turn, event)
    if problem is not None:
        turn.fail(problem)
        _abort(turn)
        return
    changed: OpenCall | None = each
    for run in event.runs:
        if changed is not None and run.changes is not None:
            changed = tool_calls.hooks_changed_call(turn, changed, run.changes, run.name)
    if changed is not None:
        tool_calls.after_hooks(turn, changed)


# --- the end


def _end(turn: Transition) -> None:
    step_end.tell_stopped(turn)
    _reach_end(turn)


def _reach_end(turn: Transition) -> None:
    _reach(turn, Trigger.ON_ERROR if turn.execution.error is not None else Trigger.ON_STOP)


def _conclude(turn: Transition) -> None:
    say_waiting(turn)
    step_end.conclude(turn)


AFTER: Final[dict[Trigger, Callable[[Transition], None]]] = {
    Trigger.BEFORE_EXECUTION: _before_execution_passed,
    Trigger.BEFORE_STEP: _before_step_passed,
    Trigger.BEFORE_INFERENCE: _before_inference_passed,
    Trigger.AFTER_INFERENCE: _after_inference_passed,
    Trigger.AFTER_STEP: _evaluate,
    Trigger.ON_STOP: lambda turn: _reach(turn, Trigger.AFTER_EXECUTION),
    Trigger.ON_ERROR: lambda turn: _reach(turn, Trigger.AFTER_EXECUTION),
    Trigger.AFTER_EXECUTION: _conclude,
}
"""What comes after the hooks of each place; those around tools belong to `tool_calls`."""
