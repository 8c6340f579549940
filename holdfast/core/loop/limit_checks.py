"""Checks the limits of a budget and signals those reached (docs/spec.md, sections 4 and 5); uses `headroom`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pydantic import JsonValue

from holdfast.core.agent.budget import CALL_LIMITS, COST, SECONDS, STEP_LIMITS, TOKENS, BudgetUse, Limit
from holdfast.core.base.server_tools import ServerTool, calls_cost
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.amounts import CALLS_OF, WORKERS_MODEL, refused_price
from holdfast.core.conversation.steps import ErrorRecord, InferenceResponse
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.headroom import (
    CONTEXT_TOO_LONG,
    keeps_half,
    model_call,
    money_left,
    next_input,
    tokens_affordable,
    tokens_left,
    window_problem,
)
from holdfast.core.loop.transition import Transition

REACHED: Final = "reached"

SERVER_TOOLS_UNBOUNDED: Final = "ServerToolsUnbounded"
"""The type of the error of a run under a limit that tools of its provider could pass."""


def before_step(transition: Transition) -> bool:
    """Signal every limit that forbids another step; return whether the loop must stop."""
    if refuses_call(transition):
        return True
    use = transition.execution.use_of_calls()
    _signal_reached(transition, STEP_LIMITS, use)
    _signal_spent(transition, use)
    _signal_struck(transition)
    return transition.must_stop


def before_call(transition: Transition) -> bool:
    """Signal every limit that forbids the step's model call after its summary or a fallback; return whether to stop."""
    if refuses_call(transition):
        return True
    _signal_spent(transition)
    _signal_struck(transition)
    _fails_too_long(transition)
    return transition.must_stop


def before_grown_call(transition: Transition) -> bool:
    """Signal every limit that forbids the step's model call after hooks have run; return whether to stop for one."""
    if transition.step.model_call_changes is not None and refuses_call(transition):
        return True
    spent, struck, too_long = _signal_spent(transition), _signal_struck(transition), _fails_too_long(transition)
    return (spent or struck or too_long) and transition.must_stop


def after_spent_attempts(transition: Transition) -> None:
    """Signal the limit that leaves a model call no room for another attempt."""
    use, budget = transition.execution.use_of_calls(), transition.execution.budget
    tokens = budget.max_tokens is not None and (_spent(transition, TOKENS, use) or not _spent(transition, COST, use))
    _signal(transition, TOKENS if tokens else COST, use)


def out_of_time(transition: Transition) -> bool:
    """Signal the time limit if it has passed; return whether nothing may begin any more.

    The timer's own event can come after others of the same moment: it ends the run then.
    """
    return _signal_struck(transition) and transition.must_stop


def signal_cut(transition: Transition, response: InferenceResponse, failed_usage: Usage) -> None:
    """Signal the limit that cut an answer short, before the answer is counted: it was allowed only what was left."""
    if response.finish_reason != "length":
        return
    command = model_call(transition)
    room = command.room
    if room is None or command.max_output_tokens != room:
        return
    if response.usage.output_tokens < room - failed_usage.total_tokens:  # failed attempts left it less
        return
    text, facts = f"allowed this answer no more than {room} tokens", dict[str, JsonValue](answer_tokens_max=room)
    if keeps_half(transition, next_input(transition)):
        text = f"{text}: half is kept for the input of a first call, which nobody knows before it is counted"
    used, prices = response.usage + failed_usage, transition.llm.prices if transition.llm else None
    before = transition.execution.use_of_calls()
    tokens, cost = before.tokens + used.total_tokens, before.cost + (prices.cost(used) if prices else 0.0)
    use = before._replace(tokens=tokens, cost=cost)
    _signal(transition, TOKENS if tokens_left(transition, next_input(transition)) == room else COST, use, text, **facts)


def after_inference(transition: Transition, response: InferenceResponse) -> bool:
    """Signal the limits that the answer used up, if more would follow; return whether to stop before its tools."""
    if not response.usage.total_tokens and not response.cost:
        name = (transition.llm.model if transition.llm else None) or response.model or WORKERS_MODEL
        transition.note_unpriced(name)  # the provider did not report its usage
    if response.tool_calls or response.finish_reason == "length":
        _signal_reached(transition, CALL_LIMITS, transition.execution.use_of_calls())
    if response.tool_calls:
        _signal_struck(transition)
    if all(signal.reason is StopReason.USER_REQUESTED for signal in transition.execution.continuation.standing):
        return False  # not `now`, or we would not be here: this one lets the step finish
    return transition.must_stop


def after_step(transition: Transition, *, more_to_do: bool) -> None:
    """Signal the step limit where the loop would go on."""
    if more_to_do and not transition.should_stop(more_to_do=True):
        _signal_reached(transition, STEP_LIMITS, transition.execution.use_of_calls(steps_over=1))


def cost_of(transition: Transition, usage: Usage, reported: float | None = None, model: str = "") -> float:
    """Return what `usage` costs in US dollars: as reported, else by known prices, else nothing, with a warning.

    `model` is the provider's name of the model, for the warning where the definition names none.
    """
    if reported is not None:
        return reported
    llm = transition.llm
    if llm is not None and llm.prices is not None:
        return llm.prices.cost(usage)
    if usage.total_tokens:
        transition.warn_unpriced((llm.model if llm else None) or model or WORKERS_MODEL, transition.price_place)
    return 0.0


def cost_of_server_calls(transition: Transition, response: InferenceResponse) -> float:
    """Return what the provider's own tools cost for an answer in US dollars; warns of those that have no price.

    It is 0 for an answer whose cost the provider has told: that is all of it.
    """
    if response.cost is not None or not response.server_tool_calls:
        return 0.0
    cost, unpriced = calls_cost(response.server_tool_calls, transition.llm.server_tools if transition.llm else ())
    for name in unpriced:
        transition.warn_unpriced(f"{CALLS_OF}{name}")
    return cost


def refuses_call(transition: Transition) -> bool:
    """Fail an execution whose budget refuses the next model call, whatever is left of it; return whether to stop.

    That is one to a model, or with tools of the provider's, without a known price, and one with such tools under a
    limit that they could pass.
    """
    llm, budget = transition.llm, transition.execution.budget
    tools = llm.server_tools if llm else ()
    if budget.unpriced == "refuse":
        names = [f"{CALLS_OF}{tool.name}" for tool in tools if tool.usd_per_call is None]
        if llm is None or llm.prices is None:
            names.insert(0, (llm.model if llm else None) or WORKERS_MODEL)
        if names:
            text = refused_price(names[0], transition.price_place)
            transition.fail(ErrorRecord(type="PriceUnknown", message=text, source="budget"))
            return transition.must_stop
    if not tools or not budget.refuses_server_tools:
        return False
    transition.fail(ErrorRecord(type=SERVER_TOOLS_UNBOUNDED, message=_unbounded(tools), source="budget"))
    return transition.must_stop


def _unbounded(tools: Iterable[ServerTool]) -> str:
    named = ", ".join(tool.name for tool in tools)
    return (
        f"the model's provider runs tools of its own ({named}), and what they will read and cost is not known: "
        "max_tokens and max_cost could be passed; set budget.server_tools to `allow` if they may be, else leave out "
        "llm.server_tools or those limits"
    )


def _fails_too_long(transition: Transition) -> bool:
    """Fail an execution whose next model call cannot fit into the context window; return whether it cannot."""
    text = window_problem(transition)
    if text:
        transition.fail(ErrorRecord(type=CONTEXT_TOO_LONG, message=text, source="model"))
    return bool(text)


def signal_time(transition: Transition) -> None:
    """Signal the time limit."""
    deadline, execution = transition.execution.budget.deadline, transition.execution
    if deadline is not None and (SECONDS.of(execution.budget) is None or transition.at >= deadline):
        facts: dict[str, JsonValue] = {
            "limit": "deadline",
            "used": transition.at.isoformat(),
            "allowed": deadline.isoformat(),
        }
        transition.signal_once(SECONDS.reason, f"deadline {deadline} passed", "budget", **facts)
    else:
        _signal(transition, SECONDS, execution.use(transition.at), REACHED)


def _signal_struck(transition: Transition) -> bool:
    """Signal the time limit if it has passed; return whether it has."""
    strikes_at = transition.execution.time_limit_at
    if strikes_at is None or transition.at < strikes_at:
        return False
    signal_time(transition)
    return True


def _signal_spent(transition: Transition, use: BudgetUse | None = None) -> bool:
    """Signal every limit that has no room for another call; return whether any has none."""
    budget, spent = transition.execution.budget, False
    for limit in CALL_LIMITS:
        if limit.of(budget) is None:
            continue
        use = use or transition.execution.use_of_calls()
        if _spent(transition, limit, use):
            _signal(transition, limit, use)
            spent = True
    return spent


def _spent(transition: Transition, limit: Limit, use: BudgetUse) -> bool:
    """Return whether a limit is reached, or what is left of it cannot hold another model call."""
    allowed, no_room = limit.of(transition.execution.budget), NO_ROOM.get(limit)
    if allowed is None:
        return False
    return limit.used(use) >= allowed or (no_room is not None and no_room(transition))


def _signal_reached(transition: Transition, limits: tuple[Limit, ...], use: BudgetUse) -> None:
    """Signal those of `limits` that `use` has reached."""
    budget = transition.execution.budget
    for limit in limits:
        allowed = limit.of(budget)
        if allowed is not None and limit.used(use) >= allowed:
            _signal(transition, limit, use)


def _signal(transition: Transition, limit: Limit, use: BudgetUse, text: str = "", **facts: JsonValue) -> None:
    """Signal a limit with `text`, else that it is reached, or that it has no room for another call."""
    allowed, used = limit.of(transition.execution.budget) or limit.number(0), limit.used(use)
    if not text:
        text = REACHED if used >= allowed else _no_room(transition, f"{used:{limit.precise}}")
    facts |= {"limit": limit.field, "used": used, "allowed": allowed}
    transition.signal_once(limit.reason, f"{limit.field} {limit.written(allowed)} {text}", "budget", **facts)


def _no_room(transition: Transition, used: str) -> str:
    return f"leaves no room after {used} for a call whose input can have {next_input(transition)} tokens"


def _no_tokens(transition: Transition) -> bool:
    left = tokens_left(transition, next_input(transition))
    return left is not None and left <= 0


def _no_money(transition: Transition) -> bool:
    input_max = next_input(transition)
    left, affordable = money_left(transition, input_max), tokens_affordable(transition, input_max)
    return (left is not None and left < 0) or (affordable is not None and affordable <= 0)


NO_ROOM: Final[Mapping[Limit, Callable[[Transition], bool]]] = {TOKENS: _no_tokens, COST: _no_money}
"""Whether a limit on what calls use has no room for another model call before it is reached."""
