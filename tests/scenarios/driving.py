"""A scenario in-process and on Temporal, both with the real client against the same fake endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from activities.provider import OpenAIModel, ProviderSettings
from holdfast.core.errors import ExecutionFailed
from holdfast.core.state import AgentState
from holdfast.local import LocalDriver
from holdfast.testing.openai_server import FakeOpenAI
from tests.scenarios.scenario import MODEL, Deed, Scenario, Stop
from tests.scenarios.tools import Gate, tools_at
from tests.serving import Served

SECONDS_MAX = 10
"""The longest a scenario may take, so that one that hangs is named instead of ending the whole session."""

TIMES = frozenset({"created_at", "updated_at", "started_at", "completed_at", "current_step_started_at", "at"})
"""Masked: both drivers have a clock of their own, and no two runs happen at the same moment.

Nothing else is: both runs are given the same agent id and execution id, from which all other ids follow, and both ask
the same endpoint, so that texts which name its address are equal, too.
"""

MOMENT = "2025-01-01T00:00:00Z"


async def locally(scenario: Scenario, endpoint: FakeOpenAI, agent_id: str, execution_id: str) -> AgentState:
    """Run `scenario` with the in-process driver."""
    gate, ids, seen = Gate(), iter((agent_id, execution_id)), len(endpoint.requests)
    model = OpenAIModel(ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model=MODEL))
    driver = LocalDriver(scenario.agent, model=model, tools=tools_at(gate), new_id=lambda: next(ids))

    async def perform(deed: Deed) -> None:
        match deed:
            case Stop():
                driver.stop(deed.reason, mode=deed.mode)
            case _:
                raise NotImplementedError(f"the in-process driver cannot do {deed.do!r} yet")

    try:
        run = asyncio.create_task(driver.execute(scenario.question, budget=scenario.budget))
        return await _finished(scenario, run, gate, endpoint, seen, perform)
    finally:
        await model.close()


async def on_temporal(scenario: Scenario, served: Served, gate: Gate, agent_id: str, execution_id: str) -> AgentState:
    """Run `scenario` on the worker that `served` holds, whose tools stand at `gate`."""
    client, seen = served.client, len(served.endpoint.requests)
    await client.start(
        scenario.agent, scenario.question, budget=scenario.budget, agent_id=agent_id, execution_id=execution_id
    )

    async def result() -> AgentState:
        try:
            return await client.result(execution_id)
        except ExecutionFailed as failed:
            return AgentState.from_dict(failed.state or {})

    async def perform(deed: Deed) -> None:
        match deed:
            case Stop():
                stopped = await client.stop(execution_id, deed.reason, mode=deed.mode, source="local")
                assert stopped, "the run had ended already"
            case _:
                raise NotImplementedError(f"a client cannot do {deed.do!r} yet")

    run = asyncio.create_task(result())
    return await _finished(scenario, run, gate, served.endpoint, seen, perform)


async def _finished(
    scenario: Scenario,
    run: asyncio.Task[AgentState],
    gate: Gate,
    endpoint: FakeOpenAI,
    seen: int,
    perform: Callable[[Deed], Awaitable[None]],
) -> AgentState:
    """Do what happens from outside, each deed at its moment and one after another, and wait for the end.

    `seen` requests were at the endpoint before. The gate opens once no deed is left that is done there.
    """
    async with asyncio.timeout(SECONDS_MAX):
        for index, deed in enumerate(scenario.outside):
            await _come(deed, gate, endpoint, seen)
            await perform(deed)
            if not any(later.when == "the gate is reached" for later in scenario.outside[index + 1 :]):
                gate.opened.set()
        return await run


async def _come(deed: Deed, gate: Gate, endpoint: FakeOpenAI, seen: int) -> None:
    match deed.when:
        case "the model is asked":
            await endpoint.until(lambda requests: len(requests) >= seen + deed.nth)
        case "the gate is reached":
            await asyncio.to_thread(gate.reached.wait, SECONDS_MAX)
        case "an approval is asked":
            raise NotImplementedError("no driver asks for approvals yet")


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
