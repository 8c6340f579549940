"""A scenario in-process and on Temporal, both with the real client against the same fake endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from activities.provider import OpenAIModel, ProviderSettings
from holdfast.core.definition import AgentDefinition
from holdfast.core.errors import ExecutionFailed
from holdfast.core.state import AgentState
from holdfast.local import LocalDriver
from holdfast.testing.openai_server import FakeOpenAI
from tests.scenarios.scenarios import Gate, Scenario, tools_at
from tests.serving import Served

QUESTION = "What is to be done? ü😀"
SECONDS_MAX = 10
"""The longest a scenario may take, so that one that hangs is named instead of ending the whole session."""

TIMES = frozenset({"created_at", "updated_at", "started_at", "completed_at", "current_step_started_at", "at"})
"""Masked: both drivers have a clock of their own, and no two runs happen at the same moment.

Nothing else is: both runs are given the same agent id and execution id, from which all other ids follow, and both ask
the same endpoint, so that texts which name its address are equal, too.
"""

MOMENT = "2025-01-01T00:00:00Z"


def definition_of(scenario: Scenario) -> AgentDefinition:
    return AgentDefinition(name="scenario", system_prompt="Be brief.", llm=scenario.llm, tools=scenario.tools)


async def locally(scenario: Scenario, endpoint: FakeOpenAI, agent_id: str, execution_id: str) -> AgentState:
    """Run `scenario` with the in-process driver."""
    gate, ids = Gate(), iter((agent_id, execution_id))
    model = OpenAIModel(ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model="scripted"))
    driver = LocalDriver(definition_of(scenario), model=model, tools=tools_at(gate), new_id=lambda: next(ids))

    async def stop(reason: str, mode: Any) -> None:  # noqa: ANN401  # a StopMode
        driver.stop(reason, mode=mode)

    try:
        run = asyncio.create_task(driver.execute(QUESTION, budget=scenario.budget))
        return await _finished(scenario, run, gate, endpoint, stop)
    finally:
        await model.close()


async def on_temporal(scenario: Scenario, served: Served, gate: Gate, agent_id: str, execution_id: str) -> AgentState:
    """Run `scenario` on the worker that `served` holds, whose tools stand at `gate`."""
    client = served.client
    seen = len(served.endpoint.requests)
    await client.start(
        definition_of(scenario), QUESTION, budget=scenario.budget, agent_id=agent_id, execution_id=execution_id
    )

    async def result() -> AgentState:
        try:
            return await client.result(execution_id)
        except ExecutionFailed as failed:
            return AgentState.from_dict(failed.state or {})

    async def stop(reason: str, mode: Any) -> None:  # noqa: ANN401  # a StopMode
        assert await client.stop(execution_id, reason, mode=mode, source="local"), "the run had ended already"

    run = asyncio.create_task(result())
    return await _finished(scenario, run, gate, served.endpoint, stop, seen)


async def _finished(
    scenario: Scenario,
    run: asyncio.Task[AgentState],
    gate: Gate,
    endpoint: FakeOpenAI,
    stop: Callable[[str, Any], Awaitable[None]],
    seen: int | None = None,
) -> AgentState:
    before = len(endpoint.requests) if seen is None else seen
    async with asyncio.timeout(SECONDS_MAX):
        if scenario.stop is not None:
            if scenario.stop.when == "the model is asked":
                await endpoint.until(lambda requests: len(requests) > before)
            else:
                await asyncio.to_thread(gate.reached.wait, SECONDS_MAX)
            await stop(scenario.stop.reason, scenario.stop.mode)
            gate.opened.set()
        return await run


def masked(state: AgentState) -> AgentState:
    """Return `state` with every time replaced by the same one."""
    return AgentState.from_dict(cast("dict[str, Any]", _masked(state.to_dict())))


def _masked(value: object) -> object:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: MOMENT if name in TIMES and each else _masked(each) for name, each in fields.items()}
    if isinstance(value, list):
        return [_masked(each) for each in cast("list[object]", value)]
    return value


def differences(one: object, other: object, place: str = "state") -> list[str]:
    """Return where two states, as data, are not equal, and how: readable where a plain comparison is not."""
    if isinstance(one, dict) and isinstance(other, dict):
        mine, theirs = cast("dict[str, object]", one), cast("dict[str, object]", other)
        pairs = [(f"{place}.{name}", mine.get(name), theirs.get(name)) for name in sorted(mine | theirs)]
    elif isinstance(one, list) and isinstance(other, list) and len(cast("Any", one)) == len(cast("Any", other)):
        both = zip(cast("list[object]", one), cast("list[object]", other), strict=True)
        pairs = [(f"{place}[{index}]", mine, theirs) for index, (mine, theirs) in enumerate(both)]
    else:
        return [] if one == other else [f"{place}: {one!r:.200} on Temporal, {other!r:.200} in-process"]
    return [told for inner, mine, theirs in pairs for told in differences(mine, theirs, inner)]
