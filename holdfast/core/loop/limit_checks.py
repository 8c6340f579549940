"""Which limits are reached where the loop checks them (docs/spec.md, sections 4 and 5). `headroom`: what they leave."""

from __future__ import annotations

from pydantic import JsonValue

from holdfast.core.base.usage import Usage
from holdfast.core.conversation.amounts import WORKERS_MODEL, refused_price
from holdfast.core.conversation.steps import ErrorRecord, InferenceResponse
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.headroom import keeps_half, model_call, money_left, next_input, tokens_affordable, tokens_left
from holdfast.core.loop.transition import Transition


def before_step(turn: Transition) -> bool:
    """Signal every limit that forbids another step, or one that has hardly begun; return whether the loop must stop."""
    if refuses_unpriced(turn):
        return True
    _signal_steps(turn, len(turn.execution.step_executions))
    _signal_spent(turn)
    _signal_struck(turn)
    return turn.must_stop


def before_call(turn: Transition) -> bool:
    """Signal what forbids the step's model call after something else was used for it; return whether to stop."""
    _signal_spent(turn)
    _signal_struck(turn)
    return turn.must_stop


def before_grown_call(turn: Transition) -> bool:
    """Signal what forbids the step's model call after hooks have run; return whether that is a reason to stop."""
    spent, struck = _signal_spent(turn), _signal_struck(turn)
    return (spent or struck) and turn.must_stop


def after_spent_attempts(turn: Transition) -> None:
    """Signal the limit that left a model call nothing for another attempt."""
    if turn.execution.budget.max_tokens is not None and (_tokens_spent(turn) or not _cost_spent(turn)):
        _signal_tokens(turn)
    else:
        _signal_cost(turn)


def out_of_time(turn: Transition) -> bool:
    """Signal the time limit where it has struck; return whether nothing may begin any more.

    The timer's own event can come behind others of its moment: it ends the run then.
    """
    return _signal_struck(turn) and turn.must_stop


def signal_cut(turn: Transition, response: InferenceResponse, failed_usage: Usage) -> None:
    """Signal the limit that cut an answer short, before that is counted: no more was allowed than was left."""
    if response.finish_reason != "length":
        return
    asked = model_call(turn)
    room = asked.room
    if room is None or asked.max_output_tokens != room:
        return
    if response.usage.output_tokens < room - failed_usage.total_tokens:  # attempts that failed left it less
        return
    budget, told = turn.execution.budget, f"allowed this answer no more than {room} tokens"
    used, facts = response.usage + failed_usage, dict[str, JsonValue](answer_tokens_max=room)
    if keeps_half(turn, next_input(turn)):
        told = f"{told}: half is kept for the input of a first call, which nobody knows before it is counted"
    if tokens_left(turn, next_input(turn)) == room:
        facts |= {"limit": "max_tokens", "allowed": budget.max_tokens}
        facts["used"] = turn.execution.usage.total_tokens + used.total_tokens
        turn.signal_once(StopReason.TOKEN_LIMIT, f"max_tokens {budget.max_tokens} {told}", "budget", **facts)
    else:
        prices = turn.llm.prices if turn.llm else None
        facts |= {"limit": "max_cost", "allowed": budget.max_cost}
        facts["used"] = turn.execution.cost + (prices.cost(used) if prices else 0.0)
        turn.signal_once(StopReason.COST_LIMIT, f"max_cost {budget.max_cost or 0.0:g} USD {told}", "budget", **facts)


def after_inference(turn: Transition, response: InferenceResponse) -> bool:
    """Signal what the answer used up, where more would have come; return whether to stop before its tools."""
    budget, execution = turn.execution.budget, turn.execution
    if not response.usage.total_tokens and not response.cost:
        name = (turn.llm.model if turn.llm else None) or response.model or WORKERS_MODEL
        turn.note_unpriced(name)  # the provider did not tell what it used
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


def after_step(turn: Transition, *, more_to_do: bool) -> None:
    """Signal the step limit where the loop would go on."""
    if more_to_do and not turn.should_stop(more_to_do=True):
        _signal_steps(turn, turn.step_number)


def cost_of(turn: Transition, usage: Usage, told: float | None = None, model: str = "") -> float:
    """Return what `usage` costs in US dollars: as told, else by the prices that are known, else nothing and a warning.

    `model` is the name that the provider gave, for the warning where the definition names none.
    """
    if told is not None:
        return told
    llm = turn.llm
    if llm is not None and llm.prices is not None:
        return llm.prices.cost(usage)
    if usage.total_tokens:
        turn.warn_unpriced((llm.model if llm else None) or model or WORKERS_MODEL)
    return 0.0


def refuses_unpriced(turn: Transition) -> bool:
    """Fail an execution whose budget refuses models without a known price and whose model has none."""
    llm = turn.llm
    if turn.execution.budget.unpriced != "refuse" or (llm is not None and llm.prices is not None):
        return False
    text = refused_price((llm.model if llm else None) or WORKERS_MODEL)
    turn.fail(ErrorRecord(type="PriceUnknown", message=text, source="budget"))
    return turn.must_stop


def signal_time(turn: Transition) -> None:
    """Signal the time limit."""
    budget, execution = turn.execution.budget, turn.execution
    facts: dict[str, JsonValue]
    if budget.max_seconds is None or (budget.deadline is not None and turn.at >= budget.deadline):
        told = f"deadline {budget.deadline} passed"
        allowed = budget.deadline.isoformat() if budget.deadline else None
        facts = {"limit": "deadline", "used": turn.at.isoformat(), "allowed": allowed}
    else:
        told = f"max_seconds {budget.max_seconds:g} reached"
        facts = {"limit": "max_seconds", "used": execution.seconds_used(turn.at), "allowed": budget.max_seconds}
    turn.signal_once(StopReason.TIME_LIMIT, told, "budget", **facts)


def _signal_struck(turn: Transition) -> bool:
    """Signal the time limit where it has struck; return whether it has."""
    strikes_at = turn.execution.time_limit_at
    if strikes_at is None or turn.at < strikes_at:
        return False
    signal_time(turn)
    return True


def _signal_steps(turn: Transition, taken: int) -> None:
    limit = turn.execution.budget.max_steps
    if limit is not None and taken + turn.execution.subagent_steps >= limit:
        facts: dict[str, JsonValue] = {"used": taken + turn.execution.subagent_steps, "allowed": limit}
        turn.signal_once(StopReason.STEPS_LIMIT, f"max_steps {limit} reached", "budget", limit="max_steps", **facts)


def _signal_tokens(turn: Transition) -> None:
    limit, used = turn.execution.budget.max_tokens or 0, turn.execution.usage.total_tokens
    reached = "reached" if used >= limit else _no_room(turn, str(used))
    facts: dict[str, JsonValue] = {"limit": "max_tokens", "used": used, "allowed": limit}
    turn.signal_once(StopReason.TOKEN_LIMIT, f"max_tokens {limit} {reached}", "budget", **facts)


def _signal_cost(turn: Transition) -> None:
    limit, used = turn.execution.budget.max_cost or 0.0, turn.execution.cost
    reached = "reached" if used >= limit else _no_room(turn, f"{used:.6f}")
    facts: dict[str, JsonValue] = {"limit": "max_cost", "used": used, "allowed": limit}
    turn.signal_once(StopReason.COST_LIMIT, f"max_cost {limit:g} USD {reached}", "budget", **facts)


def _no_room(turn: Transition, used: str) -> str:
    return f"leaves no room after {used} for a call whose input can have {next_input(turn)} tokens"


def _signal_spent(turn: Transition) -> bool:
    """Signal what cannot hold another call; return whether anything cannot."""
    tokens, cost = _tokens_spent(turn), _cost_spent(turn)
    if tokens:
        _signal_tokens(turn)
    if cost:
        _signal_cost(turn)
    return tokens or cost


def _tokens_spent(turn: Transition) -> bool:
    left = tokens_left(turn, next_input(turn))
    return left is not None and left <= 0


def _cost_spent(turn: Transition) -> bool:
    limit = turn.execution.budget.max_cost
    if limit is None:
        return False
    input_max = next_input(turn)
    left, affordable = money_left(turn, input_max), tokens_affordable(turn, input_max)
    unaffordable = (left is not None and left < 0) or (affordable is not None and affordable <= 0)
    return turn.execution.cost >= limit or unaffordable
