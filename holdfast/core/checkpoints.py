"""Where limits are looked at (SPEC sections 4 and 5): which are reached, and what the next call may still use."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from holdfast.core.budget import ExecutionBudget
from holdfast.core.commands import CallModel, SummariseBuffer
from holdfast.core.compiling import compiled
from holdfast.core.messages import SUMMARY_SECTION
from holdfast.core.reserving import messages_tokens, opening_tokens
from holdfast.core.steps import InferenceResponse
from holdfast.core.stopping import StopReason
from holdfast.core.summarising import summary_request
from holdfast.core.turn import Turn
from holdfast.core.usage import TOKENS_PRICED, Usage

UNKNOWN_PRICE: Final = "nobody knows what the tokens of "
"""How the one warning begins that names a model without prices."""

FREE_ROOM: Final = 1_000_000_000
"""What stands for the room of an answer that nothing limits."""

SUMMARY_ROOM_MIN: Final = 200
"""The least a summary must be allowed to hold, in tokens: a conversation is not given up for a few words."""


def before_step(turn: Turn) -> bool:
    """Signal every limit that forbids another step; return whether the loop must stop."""
    _signal_steps(turn)
    _signal_spent(turn)
    _signal_struck(turn)
    return turn.must_stop


def before_call(turn: Turn) -> bool:
    """Signal what forbids the step's model call after something else was used for it; return whether to stop."""
    _signal_spent(turn)
    _signal_struck(turn)
    return turn.must_stop


def before_grown_call(turn: Turn) -> bool:
    """Signal what forbids the step's model call after hooks have run; return whether that is a reason to stop."""
    spent, struck = _signal_spent(turn), _signal_struck(turn)
    return (spent or struck) and turn.must_stop


def after_spent_attempts(turn: Turn) -> None:
    """Signal the limit that left a model call nothing for another attempt."""
    if turn.execution.budget.max_tokens is not None and (_tokens_spent(turn) or not _cost_spent(turn)):
        _signal_tokens(turn)
    else:
        _signal_cost(turn)


def out_of_time(turn: Turn) -> bool:
    """Signal the time limit where it has struck; return whether nothing may begin any more.

    The timer's own event can come behind others of its moment: it ends the run then.
    """
    return _signal_struck(turn) and turn.must_stop


def signal_cut(turn: Turn, response: InferenceResponse, failed_usage: Usage) -> None:
    """Signal the limit that cut an answer short, before that is counted: no more was allowed than was left."""
    asked = model_call(turn)
    room = asked.room
    if response.finish_reason != "length" or room is None or asked.max_output_tokens != room:
        return
    if response.usage.output_tokens < room - failed_usage.total_tokens:  # attempts that failed left it less
        return
    budget, told = turn.execution.budget, f"allowed this answer no more than {room} tokens"
    if _tokens_left(turn, _next_input(turn)) == room:
        turn.signal_once(StopReason.TOKEN_LIMIT, f"max_tokens {budget.max_tokens} {told}", "budget")
    else:
        turn.signal_once(StopReason.COST_LIMIT, f"max_cost {budget.max_cost or 0.0:g} USD {told}", "budget")


def after_inference(turn: Turn, response: InferenceResponse) -> bool:
    """Signal what the answer used up, where more would have come; return whether to stop before its tools."""
    budget, execution = turn.execution.budget, turn.execution
    if response.tool_calls or response.finish_reason == "length":
        if budget.max_tokens is not None and execution.usage.total_tokens >= budget.max_tokens:
            _signal_tokens(turn)
        if budget.max_cost is not None and execution.cost >= budget.max_cost:
            _signal_cost(turn)
    if response.tool_calls:
        _signal_struck(turn)
    if all(signal.reason is StopReason.USER_REQUESTED for signal in turn.execution.continuation.standing):
        return False  # had it been `now`, we would not be here: this one lets the step finish
    return turn.must_stop


def after_step(turn: Turn, *, more_to_do: bool) -> None:
    """Signal the step limit where the loop would go on."""
    if more_to_do and not turn.should_stop(more_to_do=True):
        _signal_steps(turn)


def cost_of(turn: Turn, usage: Usage, told: float | None = None, model: str = "") -> float:
    """Return what `usage` costs in US dollars: as told, else by the prices that are known, else nothing and a warning.

    `model` is the name that the provider gave, for the warning where the definition names none.
    """
    if told is not None:
        return told
    llm = turn.llm
    if llm is not None and llm.prices is not None:
        return llm.prices.cost(usage)
    if usage.total_tokens and not any(each.startswith(UNKNOWN_PRICE) for each in turn.execution.warnings):
        name = (llm.model if llm else None) or model
        who = f"the model {name!r}" if name else "the worker's model"
        told_so = f"{UNKNOWN_PRICE}{who} cost: the cost counts as zero and max_cost limits nothing"
        turn.warn(f"{told_so}; set llm.prices or HOLDFAST_PRICES")
    return 0.0


def count_opening(turn: Turn) -> None:
    """Count what the next model call is told from its beginning on, where nothing says how much that is."""
    if turn.counting:
        turn.change(next_input_max=_everything(turn))


def count_summary(turn: Turn) -> None:
    """Count what the next model call is told after old messages gave way to their summary."""
    if turn.counting:
        summary = turn.tokens_of(turn.store.section(SUMMARY_SECTION).messages)
        turn.change(next_input_max=min(turn.execution.next_input_max + summary, _everything(turn)))


def model_call(turn: Turn) -> CallModel:
    """Return the step's model call, with what it may put out."""
    return CallModel(turn.step.number, *_allowed(turn, _next_input(turn)))


def summary_call(turn: Turn) -> SummariseBuffer | None:
    """Return the call that summarises the store's buffer, none where the budget has no room for it."""
    input_max = _summary_input(turn)
    money = _money_left(turn, input_max)
    if (money is not None and money < 0) or any(limit < SUMMARY_ROOM_MIN for limit in _limits(turn, input_max)):
        return None
    return SummariseBuffer(turn.step.number, *_allowed(turn, input_max))


def _limits(turn: Turn, input_max: int) -> tuple[int, ...]:
    """Return what each limit leaves for an answer after such an input, in tokens."""
    limits = (_tokens_left(turn, input_max), _tokens_affordable(turn, input_max))
    return tuple(limit for limit in limits if limit is not None)


def _allowed(turn: Turn, input_max: int) -> tuple[int | None, int | None, float]:
    """Return the most an answer may hold, what the budget alone leaves for it, and what an input token counts of that.

    A limit that has nothing left was overridden, or no call would be made: it does not count any more.
    """
    llm = turn.llm
    own, prices = (llm.max_output_tokens, llm.prices) if llm else (None, None)
    room = min((limit for limit in _limits(turn, input_max) if limit > 0), default=None)
    most = min((limit for limit in (own, room) if limit is not None), default=None)
    left = _money_left(turn, input_max)
    if prices is None or left is None or prices.output_usd or not prices.input_usd:
        return most, room, prices.input_weight if prices else 1.0
    # answers are free, but attempts that fail are not: what is left pays the inputs of so many
    weight = FREE_ROOM * prices.input_usd / max(left * TOKENS_PRICED, 1.0)
    return most, FREE_ROOM if room is None else room, max(1.0, weight)


def signal_time(turn: Turn) -> None:
    """Signal the time limit."""
    turn.signal_once(StopReason.TIME_LIMIT, _time_told(turn.execution.budget, turn.at), "budget")


def _signal_struck(turn: Turn) -> bool:
    """Signal the time limit where it has struck; return whether it has."""
    strikes_at = turn.execution.time_limit_at
    if strikes_at is None or turn.at < strikes_at:
        return False
    signal_time(turn)
    return True


def _signal_steps(turn: Turn) -> None:
    limit = turn.execution.budget.max_steps
    if limit is not None and turn.step_number + turn.execution.subagent_steps >= limit:
        turn.signal_once(StopReason.STEPS_LIMIT, f"max_steps {limit} reached", "budget")


def _signal_tokens(turn: Turn) -> None:
    limit, used = turn.execution.budget.max_tokens or 0, turn.execution.usage.total_tokens
    reached = "reached" if used >= limit else _no_room(turn, str(used))
    turn.signal_once(StopReason.TOKEN_LIMIT, f"max_tokens {limit} {reached}", "budget")


def _signal_cost(turn: Turn) -> None:
    limit, used = turn.execution.budget.max_cost or 0.0, turn.execution.cost
    reached = "reached" if used >= limit else _no_room(turn, f"{used:.6f}")
    turn.signal_once(StopReason.COST_LIMIT, f"max_cost {limit:g} USD {reached}", "budget")


def _no_room(turn: Turn, used: str) -> str:
    return f"leaves no room after {used} for a call whose input can have {_next_input(turn)} tokens"


def _signal_spent(turn: Turn) -> bool:
    """Signal what cannot hold another call; return whether anything cannot."""
    tokens, cost = _tokens_spent(turn), _cost_spent(turn)
    if tokens:
        _signal_tokens(turn)
    if cost:
        _signal_cost(turn)
    return tokens or cost


def _time_told(budget: ExecutionBudget, at: datetime) -> str:
    by_deadline = budget.max_seconds is None or (budget.deadline is not None and at >= budget.deadline)
    return f"deadline {budget.deadline} passed" if by_deadline else f"max_seconds {budget.max_seconds:g} reached"


def _tokens_spent(turn: Turn) -> bool:
    left = _tokens_left(turn, _next_input(turn))
    return left is not None and left <= 0


def _cost_spent(turn: Turn) -> bool:
    limit = turn.execution.budget.max_cost
    if limit is None:
        return False
    input_max = _next_input(turn)
    left, affordable = _money_left(turn, input_max), _tokens_affordable(turn, input_max)
    unaffordable = (left is not None and left < 0) or (affordable is not None and affordable <= 0)
    return turn.execution.cost >= limit or unaffordable


def _everything(turn: Turn) -> int:
    """Return the most tokens of all that the model is told, counted anew."""
    context, rules = turn.state.context, turn.rules
    opening = opening_tokens(context.system_prompt, rules.tools, rules.subagents, context.response_format)
    policy = rules.definition.context
    return opening + messages_tokens(compiled(turn.store, policy, turn.execution.execution_id))


def _next_input(turn: Turn) -> int:
    """Return the most tokens that the next model call's input can have."""
    execution = turn.execution
    return execution.next_input_max + turn.tokens_of(execution.waiting_messages) if turn.counting else 0


def _summary_input(turn: Turn) -> int:
    return messages_tokens(summary_request(turn.store)) if turn.counting else 0


def _is_first_of_root(turn: Turn) -> bool:
    """Return whether the next call is one whose input may take half of what there is and no more is kept for it.

    Bytes are some four times the tokens. Were all of them kept for a first call, a small budget would refuse a short
    question for the sake of a long list of tools; so the answer has at least half. Only an input that really takes more
    than the other half passes such a budget. Not so below a parent whose remainder counts: many small children would
    pass that together.
    """
    free = turn.parent_agent_id is None or turn.rules.definition.budget_policy == "own"
    return free and not turn.execution.step_executions


def _tokens_left(turn: Turn, input_max: int) -> int | None:
    """Return how many tokens the budget has left for the next answer's own words, none when it is unlimited."""
    limit = turn.execution.budget.max_tokens
    if limit is None:
        return None
    left = limit - turn.execution.usage.total_tokens
    return left - (min(input_max, left // 2) if _is_first_of_root(turn) else input_max)


def _tokens_affordable(turn: Turn, input_max: int) -> int | None:
    """Return how many tokens of answer the budget's money still pays, none when that is unlimited or unknown."""
    left, llm = _money_left(turn, input_max), turn.llm
    if left is None or llm is None or llm.prices is None or not llm.prices.output_usd:
        return None
    return int(left * TOKENS_PRICED / llm.prices.output_usd)


def _money_left(turn: Turn, input_max: int) -> float | None:
    """Return the US dollars that the budget has left for the next answer, none when unlimited or unknown."""
    limit, llm = turn.execution.budget.max_cost, turn.llm
    if limit is None or llm is None or llm.prices is None:
        return None
    left = limit - turn.execution.cost
    kept = llm.prices.cost(Usage(input_tokens=input_max))
    return left - (min(kept, left / 2) if _is_first_of_root(turn) else kept)
