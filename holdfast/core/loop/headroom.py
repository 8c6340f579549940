"""What room a budget leaves for the next model call: its input, its answer, its failed attempts. Signals nothing."""

from __future__ import annotations

from typing import Final

from holdfast.core.agent.context_view import compiled
from holdfast.core.agent.token_bounds import messages_tokens, opening_tokens
from holdfast.core.agent.usage_estimates import cut_usage, hidden_tokens
from holdfast.core.base.usage import TOKENS_PRICED, Usage, room_after
from holdfast.core.conversation.messages import BUFFER_SECTION, SUMMARY_SECTION
from holdfast.core.loop.commands import CallModel, SummariseBuffer
from holdfast.core.loop.conversation_summary import summary_request
from holdfast.core.loop.transition import Transition

FREE_ROOM: Final = 1_000_000_000
"""What stands for the room of an answer that nothing limits."""

SUMMARY_ROOM_MIN: Final = 200
"""The least a summary must be allowed to hold, in tokens: a conversation is not given up for a few words."""


def count_opening(turn: Transition) -> None:
    """Count what the next model call is told from its beginning on, where nothing says how much that is."""
    if turn.counting:
        turn.change(next_input_max=_everything(turn))


def count_summary(turn: Transition) -> None:
    """Count what the next model call is told after old messages gave way to their summary."""
    if turn.counting:
        summary = turn.tokens_of(turn.store.section(SUMMARY_SECTION).messages)
        turn.change(next_input_max=min(turn.execution.next_input_max + summary, _everything(turn)))


def model_call(turn: Transition) -> CallModel:
    """Return the step's model call, with what it may put out."""
    return CallModel(turn.step.number, *_allowed(turn, next_input(turn)))


def summary_call(turn: Transition) -> SummariseBuffer | None:
    """Return the call that summarises the store's buffer, none where the budget has no room for it."""
    input_max = _summary_input(turn)
    money = money_left(turn, input_max)
    if (money is not None and money < 0) or any(limit < SUMMARY_ROOM_MIN for limit in _limits(turn, input_max)):
        return None
    return SummariseBuffer(turn.step.number, *_allowed(turn, input_max))


def next_input(turn: Transition) -> int:
    """Return the most tokens that the next model call's input can have."""
    execution = turn.execution
    return execution.next_input_max + turn.tokens_of(execution.waiting_messages) if turn.counting else 0


def keeps_half(turn: Transition, input_max: int) -> bool:
    """Return whether a first call's answer is left half of the tokens, because its input might take more than that."""
    limit = turn.execution.budget.max_tokens
    left = 0 if limit is None else limit - turn.execution.usage.total_tokens
    return limit is not None and _is_first_of_root(turn) and input_max > left // 2


def tokens_left(turn: Transition, input_max: int) -> int | None:
    """Return how many tokens the budget has left for the next answer's own words, none when it is unlimited."""
    limit = turn.execution.budget.max_tokens
    if limit is None:
        return None
    left = limit - turn.execution.usage.total_tokens
    return left - (min(input_max, left // 2) if _is_first_of_root(turn) else input_max)


def tokens_affordable(turn: Transition, input_max: int) -> int | None:
    """Return how many tokens of answer the budget's money still pays, none when that is unlimited or unknown."""
    left, llm = money_left(turn, input_max), turn.llm
    if left is None or llm is None or llm.prices is None or not llm.prices.output_usd:
        return None
    return int(left * TOKENS_PRICED / llm.prices.output_usd)


def money_left(turn: Transition, input_max: int) -> float | None:
    """Return the US dollars that the budget has left for the next answer, none when unlimited or unknown."""
    limit, llm = turn.execution.budget.max_cost, turn.llm
    if limit is None or llm is None or llm.prices is None:
        return None
    left = limit - turn.execution.cost
    kept = llm.prices.cost(Usage(input_tokens=input_max))
    return left - (min(kept, left / 2) if _is_first_of_root(turn) else kept)


def _limits(turn: Transition, input_max: int) -> tuple[int, ...]:
    """Return what each limit leaves for an answer after such an input, in tokens."""
    limits = (tokens_left(turn, input_max), tokens_affordable(turn, input_max))
    return tuple(limit for limit in limits if limit is not None)


def _allowed(turn: Transition, input_max: int) -> tuple[int | None, int | None, float, int | None]:
    """Return the most an answer may hold, what the budget alone leaves for it, and what an input token counts of that.

    And the most tokens of the input, where anything depends on it.

    A limit that has nothing left was overridden, or no call would be made: it does not count any more.
    """
    llm = turn.llm
    own, prices = (llm.max_output_tokens, llm.prices) if llm else (None, None)
    room = min((limit for limit in _limits(turn, input_max) if limit > 0), default=None)
    most = min((limit for limit in (own, room) if limit is not None), default=None)
    left, counted = money_left(turn, input_max), input_max if turn.counting else None
    if prices is None or left is None or prices.output_usd or not prices.input_usd:
        return most, room, prices.input_weight if prices else 1.0, counted
    # answers are free, but attempts that fail are not: what is left pays the inputs of so many
    weight = FREE_ROOM * prices.input_usd / max(left * TOKENS_PRICED, 1.0)
    return most, FREE_ROOM if room is None else room, max(1.0, weight), counted


def lost_call(turn: Transition, failed: Usage) -> Usage:
    """Return the most that a model call, or a summary, whose end is unknown can have used.

    `failed` is what the attempts used that failed before.
    """
    policy, summarising = turn.rules.definition.context, turn.store.has(BUFFER_SECTION)
    sent = next_input(turn) if turn.counting else _everything(turn) + turn.tokens_of(turn.execution.waiting_messages)
    if policy.summary is not None and summarising:
        sent = max(sent, messages_tokens(summary_request(turn.store)))
    call = model_call(turn)
    room = room_after(call.room, failed, call.input_weight)
    limits = [limit for limit in (call.max_output_tokens, room) if limit is not None]
    output_max = max(0, min(limits)) if limits else None
    return cut_usage(None, lambda: sent, hidden_tokens(output_max), output_max)


def _everything(turn: Transition) -> int:
    """Return the most tokens of all that the model is told, counted anew."""
    context, rules = turn.state.context, turn.rules
    opening = opening_tokens(context.system_prompt, rules.tools, rules.subagents, context.response_format)
    policy = rules.definition.context
    return opening + messages_tokens(compiled(turn.store, policy, turn.execution.execution_id))


def _summary_input(turn: Transition) -> int:
    return messages_tokens(summary_request(turn.store)) if turn.counting else 0


def _is_first_of_root(turn: Transition) -> bool:
    """Return whether the next call is one whose input may take half of what there is and no more is kept for it.

    Bytes are some four times the tokens. Were all of them kept for a first call, a small budget would refuse a short
    question for the sake of a long list of tools; so the answer has at least half. Only an input that really takes more
    than the other half passes such a budget. Not so below a parent whose remainder counts: many small children would
    pass that together.
    """
    free = turn.parent_agent_id is None or turn.rules.definition.budget_policy == "own"
    return free and not turn.execution.step_executions
