"""A scenario in-process and on Temporal, both with the real client against the same fake endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast
from uuid import UUID

from activities.provider import OpenAIModel, ProviderSettings
from holdfast.core.definition import AgentDefinition
from holdfast.core.errors import ExecutionFailed
from holdfast.core.state import AgentState
from holdfast.local import LocalDriver
from holdfast.testing.openai_server import FakeOpenAI
from tests.scenarios.scenarios import Gate, Scenario, tools_at
from tests.serving import Served

QUESTION = "What is to be done? ü😀"
SECONDS_MAX = 30
"""The longest a scenario may take, so that one that hangs is named instead of ending the whole session."""

TIMES = frozenset({"created_at", "updated_at", "started_at", "completed_at", "current_step_started_at", "at"})
"""Masked: both drivers have a clock of their own, and no two runs happen at the same moment.

Nothing else is: the ids that come from outside are given (`Ids`), all others follow from them, and both runs ask the
same endpoint, so that texts which name its address are equal too.
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
            assert failed.state is not None
            return AgentState.from_dict(failed.state)

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
                await gate.reached.wait()
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


def ids_of(number: int) -> tuple[str, str]:
    """Return agent id and execution id number `number`: the ids that come from outside."""
    return str(UUID(int=2 * number + 1)), str(UUID(int=2 * number + 2))
