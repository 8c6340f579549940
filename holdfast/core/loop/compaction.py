"""Compaction: moves older messages away to be summarised, and stores the summary (docs/spec.md, section 7)."""

from __future__ import annotations

from holdfast.core.agent.hooks import Trigger
from holdfast.core.agent.policies import SummaryPolicy
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.loop import headroom, limit_checks, model_result
from holdfast.core.loop.conversation_summary import due, summarised, to_buffer
from holdfast.core.loop.events import BufferSummarised, SummaryFailed
from holdfast.core.loop.own_tools import todo_list
from holdfast.core.loop.transition import Transition


def begin(transition: Transition) -> bool:
    """Move older messages to the buffer and request their summary when the policy calls for it; return whether it did.

    It does so too where the call cannot fit into the context window. Nothing is moved when the budget has no room for a
    summary.
    """
    policy = transition.rules.definition.context.summary
    if policy is None:
        return False
    if headroom.window_excess(transition):
        return _shorten(transition, policy)
    done = transition.execution.step_executions
    response = done[-1].step.inference_response if done else None
    if response is None or not due(policy, response.context_tokens):
        return False
    return _move(transition, policy)


def begin_after(transition: Transition, error: ErrorRecord) -> bool:
    """Do the same after a model call that was too long for its endpoint, once in a step; return whether it did.

    The first call of a run with an input guard is not made again: its guard has been cancelled with it.
    """
    policy = transition.rules.definition.context.summary
    if policy is None or error.type != headroom.CONTEXT_TOO_LONG or limit_checks.out_of_time(transition):
        return False
    if transition.step.number == 1 and transition.rules.hooks_for(Trigger.INPUT_GUARD):
        return False
    if not _shorten(transition, policy):
        return False
    transition.warn(
        f"a model call was too long, so older messages are summarised and it is made again: {error.message}"
    )
    return True


def _shorten(transition: Transition, policy: SummaryPolicy) -> bool:
    """Have older messages summarised unless that was done in this step already; return whether it is.

    At least half of the messages are moved, and all but the open question where that moves none.
    """
    if transition.execution.shortened_step == transition.step.number:
        return False
    half = min(policy.keep_messages, len(transition.store.messages) // 2)
    if not any(_move(transition, replace(policy, keep_messages=keep)) for keep in (half, 0)):
        return False
    transition.change(shortened_step=transition.step.number)
    return True


def _move(transition: Transition, policy: SummaryPolicy) -> bool:
    """Move older messages to the buffer and request their summary; return whether it did."""
    before, transition.store = transition.store, to_buffer(transition.store, policy)
    if transition.store is before:
        return False
    transition.change(summary_under_way=True)  # what it costs depends on that: the agent's own model makes it
    command = headroom.summary_call(transition)
    if command is None:
        transition.store = before
        transition.change(summary_under_way=False)
        return False
    transition.change(compactions=transition.execution.compactions + 1)
    transition.do(command)
    return True


def take_in(transition: Transition, event: BufferSummarised | SummaryFailed) -> None:
    """Store the summary and count its usage, failed attempts too; without a summary the buffer stays as it is."""
    model_result.count_summary(transition, event)
    transition.change(summary_under_way=False)
    if isinstance(event, SummaryFailed):
        transition.warn(f"older messages could not be summarised: {event.error.type}: {event.error.message}")
    elif event.text.strip():
        transition.store = summarised(transition.store, event.text)
        headroom.count_after_summary(transition)
        todo_list.show_again(transition)
    else:
        transition.warn("older messages could not be summarised: the model's summary was empty")
