"""Where limits are looked at (SPEC sections 4 and 5): which are reached, and what the next call may still use."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from holdfast.core.budget import ExecutionBudget
from holdfast.core.steps import InferenceResponse
from holdfast.core.stopping import StopReason
from holdfast.core.turn import Turn
from holdfast.core.usage import TOKENS_PRICED, Usage

UNKNOWN_PRICE: Final = "nobody knows what the model's tokens cost: the cost counts as zero and max_cost limits nothing"


def before_step(turn: Turn) -> bool:
    """Signal every limit that forbids another step; return whether the loop must stop."""
    _signal_steps(turn)
    _signal_spent(turn)
    strikes_at = turn.execution.time_limit_at
    if strikes_at is not None and turn.at >= strikes_at:
        signal_time(turn)
    return turn.must_stop


def before_call(turn: Turn) -> bool:
    """Signal what forbids the step's model call after something else was used for it; return whether to stop."""
    _signal_spent(turn)
    return turn.must_stop


def after_inference(turn: Turn, response: InferenceResponse) -> bool:
    """Signal what the answer used up, where more would have come; return whether to stop before its tools."""
    budget, execution = turn.execution.budget, turn.execution
    if response.tool_calls or response.finish_reason == "length":
        if budget.max_tokens is not None and execution.usage.total_tokens >= budget.max_tokens:
            _signal_tokens(turn)
        if budget.max_cost is not None and execution.cost >= budget.max_cost:
            _signal_cost(turn)
    if all(signal.reason is StopReason.USER_REQUESTED for signal in turn.execution.continuation.standing):
        return False  # had it been `now`, we would not be here: this one lets the step finish
    return turn.must_stop


def after_step(turn: Turn, *, more_to_do: bool) -> None:
    """Signal the step limit where the loop would go on."""
    if more_to_do and not turn.should_stop(more_to_do=True):
        _signal_steps(turn)


def cost_of(turn: Turn, usage: Usage, told: float | None = None) -> float:
    """Return what `usage` costs in US dollars: as told, else by the definition's prices, else nothing and a warning."""
    if told is not None:
        return told
    llm = turn.llm
    if llm is not None and llm.prices is not None:
        return llm.prices.cost(usage)
    if usage.total_tokens:
        turn.warn(UNKNOWN_PRICE)
    return 0.0


def output_clamp(turn: Turn) -> int | None:
    """Return the most the next answer may hold: the definition's own limit and what the budget has left.

    A limit that has nothing left was overridden, or no call would be made: it does not count any more.
    """
    llm = turn.llm
    own = llm.max_output_tokens if llm else None
    limits = (own, _tokens_left(turn), _tokens_affordable(turn))
    return min((limit for limit in limits if limit is not None and limit > 0), default=None)


def signal_time(turn: Turn) -> None:
    """Signal the time limit."""
    turn.signal_once(StopReason.TIME_LIMIT, _time_told(turn.execution.budget, turn.at), "budget")


def _signal_steps(turn: Turn) -> None:
    limit = turn.execution.budget.max_steps
    if limit is not None and turn.step_number + turn.execution.subagent_steps >= limit:
        turn.signal_once(StopReason.STEPS_LIMIT, f"max_steps {limit} reached", "budget")


def _signal_tokens(turn: Turn) -> None:
    limit, used = turn.execution.budget.max_tokens or 0, turn.execution.usage.total_tokens
    room = "reached" if used >= limit else f"leaves no room for another call after {used}"
    turn.signal_once(StopReason.TOKEN_LIMIT, f"max_tokens {limit} {room}", "budget")


def _signal_cost(turn: Turn) -> None:
    limit, used = turn.execution.budget.max_cost or 0.0, turn.execution.cost
    room = "reached" if used >= limit else f"leaves no room for another call after {used:.6f}"
    turn.signal_once(StopReason.COST_LIMIT, f"max_cost {limit:g} USD {room}", "budget")


def _signal_spent(turn: Turn) -> None:
    if _tokens_spent(turn):
        _signal_tokens(turn)
    if _cost_spent(turn):
        _signal_cost(turn)


def _time_told(budget: ExecutionBudget, at: datetime) -> str:
    by_deadline = budget.max_seconds is None or (budget.deadline is not None and at >= budget.deadline)
    return f"deadline {budget.deadline} passed" if by_deadline else f"max_seconds {budget.max_seconds:g} reached"


def _tokens_spent(turn: Turn) -> bool:
    left = _tokens_left(turn)
    return left is not None and left <= 0


def _cost_spent(turn: Turn) -> bool:
    limit = turn.execution.budget.max_cost
    if limit is None:
        return False
    left, affordable = _money_left(turn), _tokens_affordable(turn)
    unaffordable = (left is not None and left < 0) or (affordable is not None and affordable <= 0)
    return turn.execution.cost >= limit or unaffordable


def _last_input(turn: Turn) -> int:
    """Return how many tokens the next call's input has at the least: a conversation only grows."""
    done = turn.execution.step_executions
    response = done[-1].step.inference_response if done else None
    return response.usage.input_tokens if response else 0


def _tokens_left(turn: Turn) -> int | None:
    """Return how many tokens the budget has left for the next answer's own words, none when it is unlimited."""
    limit = turn.execution.budget.max_tokens
    return None if limit is None else limit - turn.execution.usage.total_tokens - _last_input(turn)


def _tokens_affordable(turn: Turn) -> int | None:
    """Return how many tokens of answer the budget's money still pays, none when that is unlimited or unknown."""
    left, llm = _money_left(turn), turn.llm
    if left is None or llm is None or llm.prices is None or not llm.prices.output_usd:
        return None
    return int(left * TOKENS_PRICED / llm.prices.output_usd)


def _money_left(turn: Turn) -> float | None:
    """Return the US dollars that the budget has left for the next answer, none when unlimited or unknown."""
    limit, llm = turn.execution.budget.max_cost, turn.llm
    if limit is None or llm is None or llm.prices is None:
        return None
    return limit - turn.execution.cost - llm.prices.cost(Usage(input_tokens=_last_input(turn)))
