"""When older messages are moved away to be summarised, and what becomes of the summary (SPEC section 7)."""

from __future__ import annotations

from holdfast.core import checkpoints
from holdfast.core.commands import SummariseBuffer
from holdfast.core.events import BufferSummarised, SummaryFailed
from holdfast.core.summarising import due, summarised, to_buffer
from holdfast.core.turn import Turn


def begin(turn: Turn) -> bool:
    """Move older messages to the buffer and ask for their summary, where the policy says so; return whether it does."""
    policy = turn.rules.definition.context.summary
    done = turn.execution.step_executions
    response = done[-1].step.inference_response if done else None
    if policy is None or response is None or not due(policy, response.usage.input_tokens):
        return False
    store = to_buffer(turn.store, policy)
    if store is turn.store:
        return False
    turn.store = store
    turn.change(summary_under_way=True, compactions=turn.execution.compactions + 1)
    turn.do(SummariseBuffer(turn.step.number, checkpoints.output_clamp(turn)))
    return True


def take_in(turn: Turn, event: BufferSummarised | SummaryFailed) -> None:
    """Keep the summary, and count what it used; where there is none, the buffer stays as it is."""
    turn.change(summary_under_way=False)
    if isinstance(event, SummaryFailed):
        turn.warn(f"older messages could not be summarised: {event.error.type}: {event.error.message}")
        return
    cost = checkpoints.cost_of(turn, event.usage)
    turn.spend(event.usage, cost)
    step = turn.step
    turn.change_step(overhead=step.overhead + event.usage, overhead_cost=step.overhead_cost + cost)
    if event.text.strip():
        turn.store = summarised(turn.store, event.text)
    else:
        turn.warn("older messages could not be summarised: the model's summary was empty")
