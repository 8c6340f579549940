"""What routes say of their models reaches the budget, call by call: the longest answer and every price."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import LLM, AgentDefinition, Changes, ExecutionBudget, HookContext, ModelCallChanges, hook
from holdfast.core.agent.hooks import Hook
from holdfast.core.agent.state import AgentState
from holdfast.core.base.usage import Prices
from holdfast.events import InferenceRequestStarted
from holdfast.local import LocalDriver
from holdfast.testing import say
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply

NO_CREDIT = Reply(status=402, text="no credit")
CACHES = {"input_usd": 2.0, "output_usd": 10.0, "cached_usd": 0.5, "cache_write_usd": 4.0}
"""Of a model that no table lists."""


def route(endpoint: FakeOpenAI, **more: Any) -> dict[str, Any]:  # noqa: ANN401  # fields of any type
    return {"api": "openai_chat", "model": "no-such-model", "base_url": endpoint.base_url, **more}


async def execute(routes: dict[str, Any], *hooks: Hook, **budget: Any) -> tuple[AgentState, list[int | None]]:  # noqa: ANN401
    """Return the end of a run over these routes, and the answers that its calls were allowed."""
    allowed = list[int | None]()
    first, *others = routes
    llm = LLM.model_validate({"model": first, "fallback": others})
    agent = AgentDefinition(name="clerk", llm=llm, hooks="all", model_patience_seconds=0)
    driver = LocalDriver(agent, models=routes, hooks=hooks)
    driver.on(InferenceRequestStarted, lambda event: allowed.append(event.max_output_tokens))
    return await driver.execute("How much is it?", budget=ExecutionBudget(**budget)), allowed


async def test_each_call_is_allowed_what_its_route_says_and_the_loop_knows_it() -> None:
    async with FakeOpenAI([NO_CREDIT]) as large, FakeOpenAI([say("three")]) as small:
        routes = {"large": route(large, max_output_tokens=32_000), "small": route(small, max_output_tokens=50)}
        state, allowed = await execute(routes)
        sent = [each.body["max_completion_tokens"] for each in (*large.requests, *small.requests)]
    assert state.final_response == "three"
    assert allowed == sent == [32_000, 50]


async def test_a_hooks_model_is_allowed_what_its_route_says() -> None:
    @hook("before_inference")
    def ask_small(_: HookContext) -> Changes:
        return Changes(model_call=ModelCallChanges(model="small"))

    async with FakeOpenAI([]) as large, FakeOpenAI([say("three")]) as small:
        routes = {"large": route(large, max_output_tokens=32_000), "small": route(small, max_output_tokens=50)}
        state, allowed = await execute(routes, ask_small)
    assert (state.final_response, allowed) == ("three", [50])
    [step] = state.steps
    assert step.model_call_changes is not None
    assert step.model_call_changes.longest_answer == 50, "what the worker knew of the route is recorded"


async def test_a_fallback_that_no_table_lists_costs_its_routes_price_for_each_part() -> None:
    """900 read from the cache at 0.5, 60 written to it at 4, 40 more at 2, 100 of answer at 10 per million."""
    cached = {"prompt_tokens_details": {"cached_tokens": 900, "cache_write_tokens": 60}}
    three = say("3", usage=(1_000, 100), usage_details=cached)
    async with FakeOpenAI([NO_CREDIT]) as large, FakeOpenAI([three]) as own:
        state, _ = await execute({"large": route(large), "own": route(own, prices=CACHES)}, max_cost=1)
    assert state.cost == pytest.approx((900 * 0.5 + 60 * 4 + 40 * 2 + 100 * 10) / 1e6)
    assert not state.running.unpriced


async def test_a_fallback_reserves_its_input_at_the_dearest_price_of_its_route() -> None:
    """A first call keeps half of the money for its answer; the rest, less the input written to the cache, buys more."""
    prices = Prices.model_validate(CACHES)
    asked = list[tuple[int, int | None]]()
    for written in (CACHES["cache_write_usd"], 400.0):
        async with FakeOpenAI([NO_CREDIT]) as large, FakeOpenAI([say("3")]) as own:
            dear = route(own, prices={**CACHES, "cache_write_usd": written})
            _, allowed = await execute({"large": route(large), "own": dear}, max_cost=0.01)
            asked.append((len(own.requests), allowed[-1]))
    half = int(0.01 / 2 * 1e6 / prices.output_usd)
    [(_, cheap), (_, dearest)] = asked
    assert cheap is not None
    assert half < cheap < 2 * half
    assert dearest == half, "its input alone might take all the rest"
