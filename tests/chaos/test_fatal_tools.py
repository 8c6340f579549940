"""A tool that kills its worker every time ends with an error, and its run goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from activities.heartbeats import PUSHED_SECONDS
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.conversation.attempt_tally import DEATHS_MAX
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, calls, say
from tests.chaos.processes import worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(240)]

AGENT = AgentDefinition(name="crasher", tools=("crash",))
SOUND = AgentDefinition(name="noter", tools=("note",), llm=LLM(model="sound"))
DEATH_SECONDS_MAX = 90


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0, PUSHED_SECONDS + 1], ids=["at once", "after its first heartbeat"])
async def test_a_tool_that_kills_its_worker_every_time_ends_with_an_error_that_says_so(
    settings: Settings, tmp_path: Path, seconds: float
) -> None:
    ledger = tmp_path / "tools.jsonl"
    script = {
        "scripted": [calls(Call("crash", {"seconds": seconds})), say("it crashes")],
        "sound": [*(calls(Call("note", {"text": str(number), "seconds": 1})) for number in range(3)), say("all noted")],
    }
    async with FakeOpenAI(script) as endpoint:
        client = await Holdfast.connect(settings)
        neighbour = await client.start(SOUND, "note")
        execution_id = await client.start(AGENT, "crash")
        for _ in range(DEATHS_MAX):
            async with worker(settings, endpoint, ledger) as process:
                assert await asyncio.to_thread(process.ended_within, DEATH_SECONDS_MAX) == -9
        async with worker(settings, endpoint, ledger) as survivor:
            state = await client.result(execution_id)
            assert (await client.result(neighbour)).final_response == "all noted"
            assert survivor.exit_code is None
    assert Ledger(ledger).count(name="crash") == DEATHS_MAX
    assert (state.status, state.final_response) == (ExecutionStatus.COMPLETED, "it crashes")
    (error,) = state.errors
    assert error.type == "WorkerLost"
    assert error.message.startswith("the worker died 2 times while running this call, so it will not be retried; try")


@pytest.mark.slow
async def test_calls_beside_one_that_kills_its_worker_are_not_charged_and_it_is_begun_twice(
    settings: Settings, tmp_path: Path
) -> None:
    ledger = tmp_path / "tools.jsonl"
    beside = [Call("note", {"text": str(number), "seconds": 3}) for number in range(3)]
    script = {"scripted": [calls(*beside, Call("crash")), say("it crashes")]}
    agent = AgentDefinition(name="crasher", tools=("crash", "note"))
    async with FakeOpenAI(script) as endpoint:
        client = await Holdfast.connect(settings)
        execution_id = await client.start(agent, "crash")
        for _ in range(DEATHS_MAX):
            async with worker(settings, endpoint, ledger) as process:
                assert await asyncio.to_thread(process.ended_within, DEATH_SECONDS_MAX) == -9
        async with worker(settings, endpoint, ledger) as survivor:
            state = await client.result(execution_id)
            assert survivor.exit_code is None
    assert Ledger(ledger).count(name="crash") == DEATHS_MAX
    executions = state.steps[0].tool_executions
    assert [each.result for each in executions[:3]] == ["noted 0", "noted 1", "noted 2"]
    assert executions[3].error is not None
    assert executions[3].error.type == "WorkerLost"
