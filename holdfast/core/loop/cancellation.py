"""Cancelling what is in flight, and taking in its partial answers and usage (docs/spec.md, section 4).

A cancelled model call or summary and a stopped subagent have used tokens already. The loop issues the cancel and,
before it ends, awaits their ends: `ModelCancelled`, `SubagentReturned`. The driver reports each within a short grace
period, with nothing known if need be. Tools are cancelled at once and not awaited.
"""

from __future__ import annotations

from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.steps import CallStage, InferenceResponse
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop import input_guard, limit_checks, model_result, step_end, tool_calls
from holdfast.core.loop.commands import CancelInFlight
from holdfast.core.loop.events import (
    BufferSummarised,
    DriverFailed,
    Event,
    MessageArrived,
    ModelAnswered,
    ModelCancelled,
    ModelFailed,
    RunContinued,
    StopRequested,
    SubagentReturned,
    SummaryFailed,
)
from holdfast.core.loop.own_tools import agent_calls
from holdfast.core.loop.pending_messages import queue_message
from holdfast.core.loop.transition import Transition


def awaits_model(transition: Transition) -> bool:
    """Return whether a model call is under way; answers at any other time are ignored."""
    step, execution = transition.execution.current_step, transition.execution
    if step is None or step.inference_response is not None:
        return False
    return execution.hooks_under_way is None and not execution.summary_under_way


def cancel(transition: Transition) -> None:
    """Cancel everything under way but the timer; `cancelling` is true while ends are awaited."""
    execution, step = transition.execution, transition.execution.current_step
    awaits_answer, children = awaits_model(transition) or execution.summary_under_way, _subagents(transition)
    asking = step is not None and step.inference_response is None
    if execution.open_calls or execution.hooks_under_way or execution.guarding or asking:
        transition.do(CancelInFlight())
    withdraw(transition)
    step = transition.execution.current_step
    transition.change(cancelling=awaits_answer or bool(children))
    if step is not None and step.inference_response is not None:
        tool_calls.cancel_calls(transition, but=children)


def withdraw(transition: Transition) -> None:
    """Forget the hooks and the summary under way; an answer whose hooks they are does not count."""
    input_guard.withdraw(transition)
    step_end.hold_back(transition)
    if transition.execution.summary_under_way and transition.step.model_call_changes is not None:
        transition.change_step(model_call_changes=None)  # that call is not made, and the summary was another model's
    transition.change(hooks_under_way=None, summary_under_way=False)


def take_in(transition: Transition, event: Event) -> bool:
    """Handle an event while cancelled calls end; return whether all of them have ended."""
    match event:
        case ModelAnswered() | ModelCancelled() | ModelFailed() if not transition.execution.open_calls:
            _model_ended(transition, event)
            return True
        case BufferSummarised() | SummaryFailed() if not transition.execution.open_calls:
            model_result.count_summary(transition, event)  # its text is not needed any more
            return True
        case SubagentReturned():
            return _subagent_ended(transition, event)
        case DriverFailed():
            transition.fail(event.error)
            return True
        case RunContinued():
            return True  # nobody is left to report
        case MessageArrived():
            queue_message(transition, event.message)
        case StopRequested() if event.signal.reason not in _standing(transition):
            transition.signal(event.signal)  # another one for the same reason says nothing new
        case _:
            pass  # too late
    return False


def _model_ended(transition: Transition, event: ModelAnswered | ModelCancelled | ModelFailed) -> None:
    """Keep the partial answer of the cancelled model call, and count its usage, as far as that is known."""
    partial: InferenceResponse | None = None
    if isinstance(event, ModelAnswered):
        # it came to its end just then; its calls are not run any more
        partial = replace(event.response, tool_calls=(), items=())
    elif isinstance(event, ModelCancelled):
        partial = event.partial and replace(event.partial, tool_calls=(), items=())
    used = partial.usage if partial else Usage()
    cost = limit_checks.cost_of(transition, used, partial.cost, partial.model) if partial else 0.0
    model_result.count_wasted(
        transition,
        event.failed_usage if isinstance(event, ModelAnswered) else model_result.wasted_usage(transition, event),
    )
    transition.change_step(partial_response=partial and replace(partial, cost=cost))
    transition.spend(used, cost)


def _subagent_ended(transition: Transition, event: SubagentReturned) -> bool:
    """Count the usage of a cancelled subagent; return whether it was the last one awaited."""
    each = next((each for each in transition.execution.open_calls if each.call.id == event.call_id), None)
    if each is None:
        return False
    tool_calls.cancelled_subagent_ended(transition, each, event)
    return not transition.execution.open_calls


def _standing(transition: Transition) -> set[StopReason]:
    return {signal.reason for signal in transition.execution.continuation.stop_signals}


def _subagents(transition: Transition) -> frozenset[int]:
    """Return the places of the calls whose subagents run."""
    running = (each for each in transition.execution.open_calls if each.stage is CallStage.RUNNING)
    return frozenset(each.index for each in running if agent_calls.runs_agent(transition, each))
