"""Which limits are reached where the loop checks them (docs/spec.md, sections 4 and 5). `headroom`: what they leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pydantic import JsonValue

from holdfast.core.agent.budget import CALL_LIMITS, COST, SECONDS, STEP_LIMITS, TOKENS, BudgetUse, Limit
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.amounts import WORKERS_MODEL, refused_price
from holdfast.core.conversation.steps import ErrorRecord, InferenceResponse
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.headroom import keeps_half, model_call, money_left, next_input, tokens_affordable, tokens_left
from holdfast.core.loop.transition import Transition

REACHED: Final = "reached"


def before_step(turn: Transition) -> bool:
    """Signal every limit that forbids another step, or one that has hardly begun; return whether the loop must stop."""
    if refuses_unpriced(turn):
        return True
    use = turn.execution.use_of_calls()
    _signal_reached(turn, STEP_LIMITS, use)
    _signal_spent(turn, use)
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
    use, budget = turn.execution.use_of_calls(), turn.execution.budget
    tokens = budget.max_tokens is not None and (_spent(turn, TOKENS, use) or not _spent(turn, COST, use))
    _signal(turn, TOKENS if tokens else COST, use)


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
    told, facts = f"allowed this answer no more than {room} tokens", dict[str, JsonValue](answer_tokens_max=room)
    if keeps_half(turn, next_input(turn)):
        told = f"{told}: half is kept for the input of a first call, which nobody knows before it is counted"
    used, prices = response.usage + failed_usage, turn.llm.prices if turn.llm else None
    before = turn.execution.use_of_calls()
    tokens, cost = before.tokens + used.total_tokens, before.cost + (prices.cost(used) if prices else 0.0)
    use = before._replace(tokens=tokens, cost=cost)
    _signal(turn, TOKENS if tokens_left(turn, next_input(turn)) == room else COST, use, told, **facts)


def after_inference(turn: Transition, response: InferenceResponse) -> bool:
    """Signal what the answer used up, where more would have come; return whether to stop before its tools."""
    if not response.usage.total_tokens and not response.cost:
        name = (turn.llm.model if turn.llm else None) or response.model or WORKERS_MODEL
        turn.note_unpriced(name)  # the provider did not tell what it used
    if response.tool_calls or response.finish_reason == "length":
        _signal_reached(turn, CALL_LIMITS, turn.execution.use_of_calls())
    if response.tool_calls:
        _signal_struck(turn)
    if all(signal.reason is StopReason.USER_REQUESTED for signal in turn.execution.continuation.standing):
        return False  # had it been `now`, we would not be here: this one lets the step finish
    return turn.must_stop


def after_step(turn: Transition, *, more_to_do: bool) -> None:
    """Signal the step limit where the loop would go on."""
    if more_to_do and not turn.should_stop(more_to_do=True):
        _signal_reached(turn, STEP_LIMITS, turn.execution.use_of_calls(steps_over=1))


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
    deadline, execution = turn.execution.budget.deadline, turn.execution
    if deadline is not None and (SECONDS.of(execution.budget) is None or turn.at >= deadline):
        facts: dict[str, JsonValue] = {
            "limit": "deadline",
            "used": turn.at.isoformat(),
            "allowed": deadline.isoformat(),
        }
        turn.signal_once(SECONDS.reason, f"deadline {deadline} passed", "budget", **facts)
    else:
        _signal(turn, SECONDS, execution.use(turn.at), REACHED)


def _signal_struck(turn: Transition) -> bool:
    """Signal the time limit where it has struck; return whether it has."""
    strikes_at = turn.execution.time_limit_at
    if strikes_at is None or turn.at < strikes_at:
        return False
    signal_time(turn)
    return True


def _signal_spent(turn: Transition, use: BudgetUse | None = None) -> bool:
    """Signal what cannot hold another call; return whether anything cannot."""
    budget, spent = turn.execution.budget, False
    for limit in CALL_LIMITS:
        if limit.of(budget) is None:
            continue
        use = use or turn.execution.use_of_calls()
        if _spent(turn, limit, use):
            _signal(turn, limit, use)
            spent = True
    return spent


def _spent(turn: Transition, limit: Limit, use: BudgetUse) -> bool:
    """Return whether a limit is reached, or what is left of it cannot hold another model call."""
    allowed, no_room = limit.of(turn.execution.budget), NO_ROOM.get(limit)
    if allowed is None:
        return False
    return limit.used(use) >= allowed or (no_room is not None and no_room(turn))


def _signal_reached(turn: Transition, limits: tuple[Limit, ...], use: BudgetUse) -> None:
    """Signal those of `limits` that `use` has reached."""
    budget = turn.execution.budget
    for limit in limits:
        allowed = limit.of(budget)
        if allowed is not None and limit.used(use) >= allowed:
            _signal(turn, limit, use)


def _signal(turn: Transition, limit: Limit, use: BudgetUse, told: str = "", **facts: JsonValue) -> None:
    """Signal a limit: as `told`, else that it is reached, or that what is left of it has no room for another call."""
    allowed, used = limit.of(turn.execution.budget) or limit.number(0), limit.used(use)
    if not told:
        told = REACHED if used >= allowed else _no_room(turn, f"{used:{limit.precise}}")
    facts |= {"limit": limit.field, "used": used, "allowed": allowed}
    turn.signal_once(limit.reason, f"{limit.field} {limit.written(allowed)} {told}", "budget", **facts)


def _no_room(turn: Transition, used: str) -> str:
    return f"leaves no room after {used} for a call whose input can have {next_input(turn)} tokens"


def _no_tokens(turn: Transition) -> bool:
    left = tokens_left(turn, next_input(turn))
    return left is not None and left <= 0


def _no_money(turn: Transition) -> bool:
    input_max = next_input(turn)
    left, affordable = money_left(turn, input_max), tokens_affordable(turn, input_max)
    return (left is not None and left < 0) or (affordable is not None and affordable <= 0)


NO_ROOM: Final[Mapping[Limit, Callable[[Transition], bool]]] = {TOKENS: _no_tokens, COST: _no_money}
"""Whether a limit has no room for a model call before it is reached: that of what calls use themselves."""
