"""Compaction: moves older messages away to be summarised, and stores the summary (docs/spec.md, section 7)."""

from __future__ import annotations

from holdfast.core.loop import headroom, model_result
from holdfast.core.loop.conversation_summary import due, summarised, to_buffer
from holdfast.core.loop.events import BufferSummarised, SummaryFailed
from holdfast.core.loop.own_tools import todo_list
from holdfast.core.loop.transition import Transition


def begin(transition: Transition) -> bool:
    """Move older messages to the buffer and request their summary when the policy calls for it; return whether it did.

    Nothing is moved when the budget has no room for a summary.
    """
    policy = transition.rules.definition.context.summary
    done = transition.execution.step_executions
    response = done[-1].step.inference_response if done else None
    if policy is None or response is None or not due(policy, response.usage.input_tokens):
        return False
    before, transition.store = transition.store, to_buffer(transition.store, policy)
    if transition.store is before:
        return False
    command = headroom.summary_call(transition)
    if command is None:
        transition.store = before
        return False
    transition.change(summary_under_way=True, compactions=transition.execution.compactions + 1)
    transition.do(command)
    return True


def take_in(transition: Transition, event: BufferSummarised | SummaryFailed) -> None:
    """Store the summary and count its usage, failed attempts too; without a summary the buffer stays as it is."""
    transition.change(summary_under_way=False)
    model_result.count_summary(transition, event)
    if isinstance(event, SummaryFailed):
        transition.warn(f"older messages could not be summarised: {event.error.type}: {event.error.message}")
    elif event.text.strip():
        transition.store = summarised(transition.store, event.text)
        headroom.count_summary(transition)
        todo_list.show_again(transition)
    else:
        transition.warn("older messages could not be summarised: the model's summary was empty")
