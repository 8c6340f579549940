"""The agent loop as a function: `AgentLoop.step(state, event) -> (state, commands)` (docs/spec.md, section 6).

    begin ─▶ [before_execution] ─▶ ◇ ─▶ next step
    next step ─▶ [before_step] ─▶ ◇ ─▶ [before_inference] ─▶ (SummariseBuffer ─▶) ◇ ─▶ CallModel ─▶ answered
    beside the first CallModel: [input_guard]; an answer waits until it has passed
    answered ─▶ [after_inference] ─▶ ◇ ─▶ the calls (`tool_calls`) ─▶ ◇ ─▶ [after_step] ─▶ evaluate
    evaluate ─▶ archive ─▶ (HandOver ─▶) next step, or the end
    the end ─▶ [on_stop], or [on_error] after an error ─▶ [after_execution] ─▶ final status, Finish

A place without hooks is passed at once. At ◇ the limits are checked, and a stop signal leads to the end. A stop now,
the time limit and a fault of the driver lead there from anywhere: calls in flight are cancelled, and their ends are
awaited where they matter (`cancellation`). The table AFTER says what follows the hooks of each place.

An event that comes too late (the run has ended, the call is answered already) changes nothing and asks for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, assert_never

from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import ENDING, Trigger
from holdfast.core.agent.state import AgentState
from holdfast.core.base.retries import BUDGET_SPENT
from holdfast.core.base.usage import NOTHING_USED
from holdfast.core.conversation.steps import CallStage, OpenCall
from holdfast.core.loop import (
    cancellation,
    compaction,
    handoffs,
    headroom,
    input_guard,
    limit_checks,
    model_result,
    start,
    step_end,
    step_start,
    time_limit,
    tool_calls,
)
from holdfast.core.loop.commands import CancelInFlight, Command
from holdfast.core.loop.events import (
    BufferSummarised,
    ChangeRefused,
    DecisionUnreadable,
    DefinitionChanged,
    DriverFailed,
    Event,
    ExecutionStarted,
    HandoffRefused,
    HooksReturned,
    MessageArrived,
    ModelAnswered,
    ModelCancelled,
    ModelFailed,
    RunContinued,
    ScriptAdvanced,
    StepDue,
    StopRequested,
    SubagentReturned,
    SummaryFailed,
    TimerFired,
    ToolFailed,
    ToolReturned,
    WaitEvent,
)
from holdfast.core.loop.execution_rules import Rules
from holdfast.core.loop.own_tools import critique
from holdfast.core.loop.pending_messages import apply_changes, deliver_pending, queue_message
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.execution_events import ContinuationEvaluated

NextState = tuple[AgentState, tuple[Command, ...]]


class AgentLoop(Rules):
    """The rules of one agent, with the step function."""

    def step(self, state: AgentState, event: Event) -> NextState:
        """Return the state after `event` and the commands to carry out. Pure: equal inputs give equal outputs."""
        if isinstance(event, ExecutionStarted):
            transition = _begun(self, state, event)
        elif isinstance(event, DefinitionChanged) and start.may_change(state, ()):
            transition = _changed(self, state, event)
        elif state.execution is None or state.execution.status.is_terminal:
            return state, ()
        else:
            transition = Transition(self, state, state.execution, event.at)
            if not state.execution.cancelling:
                _take_in(transition, event)
            elif cancellation.take_in(transition, event):
                _cancelled(transition)
        time_limit.keep_time(transition)
        return transition.state, tuple(transition.commands)


def _take_in(transition: Transition, event: Event) -> None:  # noqa: C901, PLR0912  # one case per event
    if isinstance(event, WaitEvent):
        _call_moved(transition, event.call_id, lambda each: tool_calls.wait_changed(transition, each, event))
        return
    match event:
        case ModelAnswered():
            _model_answered(transition, event)
        case ModelFailed():
            _model_failed(transition, event)
        case ScriptAdvanced():
            _call_moved(transition, event.call_id, lambda each: tool_calls.script_advanced(transition, each, event))
        case ToolReturned() | ToolFailed() | SubagentReturned():
            _call_moved(transition, event.call_id, lambda each: tool_calls.call_ended(transition, each, event))
        case HooksReturned():
            _hooks_returned(transition, event)
        case BufferSummarised() | SummaryFailed():
            _buffer_summarised(transition, event)
        case MessageArrived():
            queue_message(transition, event.message)
        case StopRequested():
            _stop_requested(transition, event)
        case TimerFired():
            _timer_fired(transition)
        case RunContinued():
            _go_on(transition, resumed=False)
        case StepDue():
            _step_due(transition)
        case DecisionUnreadable():
            transition.warn(f"a decision was not accepted: {event.problem}")
        case ChangeRefused():
            transition.warn(f"the agent was not changed: {event.error.message}")
        case HandoffRefused():
            if handoffs.refused(transition, event.error):
                _next_step_unless_resting(transition)
        case DriverFailed():
            _driver_failed(transition, event)
        case ModelCancelled():
            _model_failed(transition, model_result.failed_outside(event))
        case DefinitionChanged():
            pass  # something is under way by the old rules
        case ExecutionStarted():
            raise ValueError("an execution is begun by `step` itself")
        case _:
            assert_never(event)


# --- the beginning


def _begun(rules: AgentLoop, state: AgentState, event: ExecutionStarted) -> Transition:
    if state.status is ExecutionStatus.IN_PROGRESS:
        transition = start.taken_up(rules, state, event)
        _go_on(transition, resumed=True)  # nothing that has ended is done again
        return transition
    transition = start.begun(rules, state, event)
    _reach(transition, Trigger.BEFORE_EXECUTION)
    time_limit.start_timer(transition)
    return transition


def _changed(rules: AgentLoop, state: AgentState, event: DefinitionChanged) -> Transition:
    """Issue the next commands by the new rules; the old rules have issued none of them."""
    transition = start.changed(rules, state, event)
    if event.handoff:
        _next_step_unless_resting(transition)
        return transition
    trigger = transition.execution.hooks_under_way
    transition.change(hooks_under_way=None)
    if trigger is Trigger.BEFORE_EXECUTION:
        _reach(transition, trigger)
    elif limit_checks.before_step(transition):  # it is spent already
        transition.change(summary_under_way=False)
        _end(transition)
    elif trigger is not None or transition.execution.current_step is None:
        transition.note_override()
        _reach(transition, trigger or Trigger.BEFORE_STEP)
    else:
        transition.note_override()
        _ask_again(transition, emit=False)
    time_limit.start_timer(transition)
    return transition


def _go_on(transition: Transition, *, resumed: bool) -> None:
    """Issue again the commands that were under way when another driver, or an earlier Temporal run, left off."""
    execution = transition.execution
    trigger, step = execution.hooks_under_way, execution.current_step
    if execution.cancelling:
        _cancelled(transition)  # nobody is left to report
        return
    if _out_of_time(transition):
        return
    if trigger is not None:
        step_start.run_hooks(transition, trigger)
    elif step is None:
        if not handoffs.ask(transition):
            _reach(transition, Trigger.BEFORE_STEP)
    elif step.inference_response is not None and execution.guarding:
        if not input_guard.begin_again(transition):
            _reach(transition, Trigger.AFTER_INFERENCE)
    elif step.inference_response is not None:
        tool_calls.take_up(transition)
        _go_on_when_answered(transition)
    else:
        _ask_again(transition, emit=resumed)
    time_limit.start_timer(transition)


def _ask_again(transition: Transition, *, emit: bool) -> None:
    """Issue the summary or the model call under way once more, with the input guard beside it."""
    if transition.execution.summary_under_way:
        step_start.summarise_again(transition)
    elif limit_checks.before_grown_call(transition):
        _end(transition)  # messages since then leave the budget no room
    else:
        step_start.ask_model(transition, emit=emit)
        input_guard.begin_again(transition)


def _out_of_time(transition: Transition) -> bool:
    """End an execution whose time limit passed while no driver ran it, before anything is issued again."""
    if not time_limit.has_struck(transition):
        return False
    tool_calls.answer_unknown_ends(transition)
    limit_checks.signal_time(transition)
    if transition.must_stop:
        cancellation.withdraw(transition)
        _cancelled(transition)  # nothing is under way yet
    return transition.must_stop


def _before_execution_passed(transition: Transition) -> None:
    if limit_checks.before_step(transition):
        _end(transition)
    else:
        transition.note_override()
        _reach(transition, Trigger.BEFORE_STEP)


# --- a step


def _next_step_unless_resting(transition: Transition) -> None:
    if not transition.rules.step_by_step:
        _reach(transition, Trigger.BEFORE_STEP)


def _before_step_passed(transition: Transition) -> None:
    """Begin a step, unless a limit or a signal forbids it."""
    if limit_checks.before_step(transition):
        _end(transition)
        return
    transition.note_override()
    step_start.open_step(transition)
    _reach(transition, Trigger.BEFORE_INFERENCE)


def _before_inference_passed(transition: Transition) -> None:
    deliver_pending(transition)
    if not limit_checks.out_of_time(transition) and compaction.begin(transition):
        return
    if limit_checks.before_grown_call(transition):
        _end(transition)  # messages of hooks leave the budget no room; a call that cannot fit is not made
        return
    step_start.ask_model(transition)
    input_guard.begin(transition)


def _buffer_summarised(transition: Transition, event: BufferSummarised | SummaryFailed) -> None:
    if not transition.execution.summary_under_way:
        return
    compaction.take_in(transition, event)
    if limit_checks.before_call(transition):
        _end(transition)  # the summary used up what was left; a call that cannot fit is not made
        return
    transition.note_override()
    deliver_pending(transition)
    step_start.ask_model(transition)
    input_guard.begin(transition)


def _model_answered(transition: Transition, event: ModelAnswered) -> None:
    if not cancellation.awaits_model(transition):
        return
    model_result.keep_answer(transition, event)
    if not transition.execution.guarding:
        _reach(transition, Trigger.AFTER_INFERENCE)


def _guard_returned(transition: Transition, event: HooksReturned) -> None:
    """Let the answer count, if it is there already; a stop of the guard cancels the model call in flight."""
    if not transition.execution.guarding:
        return
    if not input_guard.take_in(transition, event):
        _abort(transition)
    elif input_guard.passed(transition):
        _reach(transition, Trigger.AFTER_INFERENCE)


def _after_inference_passed(transition: Transition) -> None:
    response = transition.step.inference_response
    if response is not None and limit_checks.after_inference(transition, response):
        tool_calls.cancel_calls(transition)
        _step_complete(transition)
        return
    transition.note_override()
    tool_calls.begin_calls(transition)
    _go_on_when_answered(transition)


def _call_moved(transition: Transition, call_id: str, move: Callable[[OpenCall], None]) -> None:
    """Apply `move` to an open call; nothing happens when it is not open."""
    each = next((each for each in transition.execution.open_calls if each.call.id == call_id), None)
    if each is not None:
        move(each)
        _go_on_when_answered(transition)


def _go_on_when_answered(transition: Transition) -> None:
    execution = transition.execution  # a hook that raised has archived the step already
    if execution.current_step is not None and not execution.open_calls and execution.hooks_under_way is None:
        _step_complete(transition)


def _step_complete(transition: Transition) -> None:
    """Judge the step, whose calls are all answered, and check the limits."""
    step_end.judge_answer(transition)
    if critique.begin(transition):
        return
    limit_checks.after_step(transition, more_to_do=step_end.more_to_do(transition))
    _reach(transition, Trigger.AFTER_STEP)


def _evaluate(transition: Transition) -> None:
    """Decide whether to go on, and archive the step (docs/spec.md, section 4)."""
    more_to_do, signals = step_end.more_to_do(transition), transition.execution.continuation.stop_signals
    should_stop = transition.should_stop(more_to_do=more_to_do)
    overridden = not should_stop and (bool(signals) or not more_to_do)
    step_end.archive(transition, overridden=overridden)
    transition.emit(ContinuationEvaluated, should_stop=should_stop, overridden=overridden)
    if should_stop:
        _end(transition)
    elif not handoffs.ask(transition):
        _next_step_unless_resting(transition)


def _step_due(transition: Transition) -> None:
    if start.rests(transition.execution) and not _out_of_time(transition):
        _reach(transition, Trigger.BEFORE_STEP)


# --- what comes from outside


def _stop_requested(transition: Transition, event: StopRequested) -> None:
    if transition.execution.hooks_under_way in ENDING:
        return  # how this execution ends is decided already
    transition.signal(event.signal)
    if event.mode == "now":
        _abort_unless_overridden(transition)


def _timer_fired(transition: Transition) -> None:
    if time_limit.has_struck(transition):  # it is no timer from before a pause
        limit_checks.signal_time(transition)
        _abort_unless_overridden(transition)


def _driver_failed(transition: Transition, event: DriverFailed) -> None:
    ending_already = transition.execution.hooks_under_way in ENDING
    transition.fail(event.error)
    if ending_already:
        transition.do(CancelInFlight())
        transition.change(hooks_under_way=None)
        step_end.conclude(transition)  # no more hooks: the driver that runs them has failed
    else:
        if event.lost and (cancellation.awaits_model(transition) or transition.execution.summary_under_way):
            model_result.count_wasted(transition, headroom.lost_call(transition, NOTHING_USED))
        cancellation.cancel(transition)
        _cancelled(transition)  # nothing is awaited from it either


def _abort_unless_overridden(transition: Transition) -> None:
    if transition.must_stop:
        _abort(transition)
    else:
        transition.note_override()


def _abort(transition: Transition) -> None:
    """End at once, after the awaited ends of cancelled calls."""
    cancellation.cancel(transition)
    if not transition.execution.cancelling:
        _cancelled(transition)


def _cancelled(transition: Transition) -> None:
    """Finish after everything cancelled has ended. A step without an answer stays: it did not complete."""
    input_guard.withdraw(transition)
    transition.change(cancelling=False)
    step = transition.execution.current_step
    if step is not None and (step.inference_response is not None or step.errors):  # or it is held back
        tool_calls.cancel_calls(transition)
        step_end.judge_cut_off(transition)
        step_end.archive(transition)
    _end(transition)


def _model_failed(transition: Transition, event: ModelFailed) -> None:
    if not cancellation.awaits_model(transition):
        return
    if model_result.fall_back(transition, event):
        (_end if limit_checks.before_call(transition) else step_start.ask_model)(transition)
        return
    input_guard.abandon(transition)
    model_result.count_failure(transition, event)
    if event.error.type == BUDGET_SPENT:
        limit_checks.after_spent_attempts(transition)
        _end(transition)
        return
    if compaction.begin_after(transition, event.error):
        return
    transition.change_step(errors=(*transition.step.errors, event.error))
    transition.fail(event.error)
    step_end.archive(transition)
    _end(transition)


# --- hooks


def _reach(transition: Transition, trigger: Trigger) -> None:
    """Run the hooks of `trigger`, if any; AFTER says what follows."""
    if transition.rules.hooks_for(trigger):
        transition.change(hooks_under_way=trigger)
        step_start.run_hooks(transition, trigger)
    else:
        AFTER[trigger](transition)


def _hooks_returned(transition: Transition, event: HooksReturned) -> None:
    if event.call_id is not None:
        _call_moved(transition, event.call_id, lambda each: _call_hooks_returned(transition, each, event))
        return
    if event.trigger is Trigger.INPUT_GUARD:
        _guard_returned(transition, event)
        return
    if transition.execution.hooks_under_way is not event.trigger:
        return
    problem = apply_changes(transition, event)
    if problem is not None and event.trigger not in ENDING:
        transition.fail(problem)
        _abort(transition)
        return
    transition.change(hooks_under_way=None)
    if problem is not None and event.trigger is Trigger.ON_STOP:
        transition.fail(problem)
        _reach_end(transition)
        return
    if problem is not None and event.trigger is Trigger.ON_ERROR:
        transition.warn(f"{problem.type}: {problem.message}")  # the execution fails for its first cause
    elif problem is not None:
        transition.fail(problem)  # last of all: no hook runs behind it
    AFTER[event.trigger](transition)


def _call_hooks_returned(transition: Transition, each: OpenCall, event: HooksReturned) -> None:
    stage = CallStage.BEFORE_TOOL if event.trigger is Trigger.BEFORE_TOOL else CallStage.AFTER_TOOL
    if each.stage is not stage:
        return
    problem = apply_changes(transition, event)
    if problem is not None:
        transition.fail(problem)
        _abort(transition)
        return
    tool_calls.hooks_returned(transition, each, event.runs)


# --- the end


def _end(transition: Transition) -> None:
    for finish in (input_guard.withdraw, handoffs.take_place, critique.settle, step_end.emit_stopped):
        finish(transition)
    _reach_end(transition)


def _reach_end(transition: Transition) -> None:
    _reach(transition, Trigger.ON_ERROR if transition.execution.error is not None else Trigger.ON_STOP)


AFTER: Final[dict[Trigger, Callable[[Transition], None]]] = {
    Trigger.BEFORE_EXECUTION: _before_execution_passed,
    Trigger.BEFORE_STEP: _before_step_passed,
    Trigger.BEFORE_INFERENCE: _before_inference_passed,
    Trigger.AFTER_INFERENCE: _after_inference_passed,
    Trigger.AFTER_STEP: _evaluate,
    Trigger.ON_STOP: lambda transition: _reach(transition, Trigger.AFTER_EXECUTION),
    Trigger.ON_ERROR: lambda transition: _reach(transition, Trigger.AFTER_EXECUTION),
    Trigger.AFTER_EXECUTION: step_end.conclude,
}
"""The continuation after the hooks of each trigger; those around tools belong to `tool_calls`."""
