"""When older messages are moved away to be summarised, and what becomes of the summary (docs/spec.md, section 7)."""

from __future__ import annotations

from holdfast.core.loop import headroom, model_result
from holdfast.core.loop.conversation_summary import due, summarised, to_buffer
from holdfast.core.loop.events import BufferSummarised, SummaryFailed
from holdfast.core.loop.transition import Transition


def begin(turn: Transition) -> bool:
    """Move older messages to the buffer and ask for their summary, where the policy says so; return whether it does.

    Not where the budget has no room for a summary.
    """
    policy = turn.rules.definition.context.summary
    done = turn.execution.step_executions
    response = done[-1].step.inference_response if done else None
    if policy is None or response is None or not due(policy, response.usage.input_tokens):
        return False
    before, turn.store = turn.store, to_buffer(turn.store, policy)
    if turn.store is before:
        return False
    asked = headroom.summary_call(turn)
    if asked is None:
        turn.store = before
        return False
    turn.change(summary_under_way=True, compactions=turn.execution.compactions + 1)
    turn.do(asked)
    return True


def take_in(turn: Transition, event: BufferSummarised | SummaryFailed) -> None:
    """Keep the summary, and count what it used, failed attempts too; without one the buffer stays as it is."""
    turn.change(summary_under_way=False)
    model_result.count_summary(turn, event)
    if isinstance(event, SummaryFailed):
        turn.warn(f"older messages could not be summarised: {event.error.type}: {event.error.message}")
    elif event.text.strip():
        turn.store = summarised(turn.store, event.text)
        headroom.count_summary(turn)
    else:
        turn.warn("older messages could not be summarised: the model's summary was empty")
