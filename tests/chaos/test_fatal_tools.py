"""A tool that kills its worker every time ends with an error, and its run goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.client import Client, Settings
from holdfast.core.definition import LLM, AgentDefinition
from holdfast.core.state import ExecutionStatus
from holdfast.core.tools import ATTEMPTS_MAX
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, calls, say
from tests.chaos.processes import worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(240)]

AGENT = AgentDefinition(name="crasher", tools=("crash",))
SOUND = AgentDefinition(name="noter", tools=("note",), llm=LLM(model="sound"))
DEATH_SECONDS_MAX = 60


async def test_a_tool_that_kills_its_worker_every_time_ends_with_an_error_that_says_so(
    settings: Settings, tmp_path: Path
) -> None:
    ledger = tmp_path / "tools.jsonl"
    script = {
        "scripted": [calls(Call("crash")), say("it crashes")],
        "sound": [*(calls(Call("note", {"text": str(number), "seconds": 1})) for number in range(3)), say("all noted")],
    }
    async with FakeOpenAI(script) as endpoint:
        client = await Client.connect(settings)
        neighbour = await client.start(SOUND, "note")
        execution_id = await client.start(AGENT, "crash")
        for _ in range(ATTEMPTS_MAX):
            async with worker(settings, endpoint, ledger) as process:
                assert await asyncio.to_thread(process.ended_within, DEATH_SECONDS_MAX) == -9
        async with worker(settings, endpoint, ledger) as survivor:
            state = await client.result(execution_id)
            assert (await client.result(neighbour)).final_response == "all noted"
            assert survivor.exit_code is None
    assert Ledger(ledger).count(name="crash") == ATTEMPTS_MAX
    assert (state.status, state.final_response) == (ExecutionStatus.COMPLETED, "it crashes")
    (error,) = state.errors
    assert error.type == "ToolTimeout"
    assert error.message == "the call did not end within its 3 attempts (its worker fell silent)"
