"""Cancelling what is in flight, and taking in its partial answers and usage (docs/spec.md, section 4).

A model call that is cancelled, a summary's too, and a subagent that is stopped have used something already. The loop
asks for the cancel and, before it ends, awaits their ends: `ModelCancelled`, `SubagentReturned`. The shell reports each
within a short grace, with nothing known when there is nothing. Tools are cancelled as of the moment, not awaited.
"""

from __future__ import annotations

from holdfast.core.agent.subagents import SPAWN_TOOL
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.steps import CallStage, InferenceResponse
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop import limit_checks, model_result, tool_calls
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
from holdfast.core.loop.pending_messages import keep_message
from holdfast.core.loop.transition import Transition


def asking(transition: Transition) -> bool:
    """Return whether the model is being asked: anything it says at another time is not wanted."""
    step, execution = transition.execution.current_step, transition.execution
    if step is None or step.inference_response is not None:
        return False
    return execution.hooks_under_way is None and not execution.summary_under_way


def cancel(transition: Transition) -> None:
    """Cancel everything under way but the timer; `cancelling` says whether ends of it are awaited."""
    execution, step = transition.execution, transition.execution.current_step
    asked, children = asking(transition) or execution.summary_under_way, _subagents(transition)
    if execution.open_calls or execution.hooks_under_way or (step is not None and step.inference_response is None):
        transition.do(CancelInFlight())
    transition.change(hooks_under_way=None, summary_under_way=False, cancelling=asked or bool(children))
    if step is not None and step.inference_response is not None:
        tool_calls.cancel_calls(transition, but=children)


def take_in(transition: Transition, event: Event) -> bool:
    """Take in what is learnt of what was cancelled, and what comes from outside; return whether all has ended."""
    match event:
        case ModelAnswered() | ModelCancelled() | ModelFailed() if not transition.execution.open_calls:
            _model_ended(transition, event)
            return True
        case BufferSummarised() | SummaryFailed() if not transition.execution.open_calls:
            model_result.count_summary(transition, event)  # what it says is not wanted any more
            return True
        case SubagentReturned():
            return _subagent_ended(transition, event)
        case DriverFailed():
            transition.fail(event.error)
            return True
        case RunContinued():
            return True  # whoever would have reported is gone
        case MessageArrived():
            keep_message(transition, event.message)
        case StopRequested() if event.signal.reason not in _standing(transition):
            transition.signal(event.signal)  # another one for the same reason says nothing new
        case _:
            pass  # too late
    return False


def _model_ended(transition: Transition, event: ModelAnswered | ModelCancelled | ModelFailed) -> None:
    """Keep what had come of the model call that was cancelled, and count what it used, as far as that is known."""
    said: InferenceResponse | None = None
    if isinstance(event, ModelAnswered):
        said = replace(event.response, tool_calls=())  # it came to its end just then; its calls are not run any more
    elif isinstance(event, ModelCancelled):
        said = event.partial and replace(event.partial, tool_calls=())
    used = said.usage if said else Usage()
    cost = limit_checks.cost_of(transition, used, said.cost, said.model) if said else 0.0
    model_result.count_wasted(
        transition,
        event.failed_usage if isinstance(event, ModelAnswered) else model_result.wasted_usage(transition, event),
    )
    transition.change_step(partial_response=said and replace(said, cost=cost))
    transition.spend(used, cost)


def _subagent_ended(transition: Transition, event: SubagentReturned) -> bool:
    """Count what a subagent used until it was cancelled; return whether it was the last one that is awaited."""
    each = next((each for each in transition.execution.open_calls if each.call.id == event.call_id), None)
    if each is None:
        return False
    tool_calls.cancelled_subagent_ended(transition, each, event)
    return not transition.execution.open_calls


def _standing(transition: Transition) -> set[StopReason]:
    return {signal.reason for signal in transition.execution.continuation.stop_signals}


def _subagents(transition: Transition) -> frozenset[int]:
    """Return the places of the calls whose subagents run."""
    if not transition.rules.subagents:
        return frozenset()
    running = (each for each in transition.execution.open_calls if each.stage is CallStage.RUNNING)
    return frozenset(each.index for each in running if each.call.name == SPAWN_TOOL)
