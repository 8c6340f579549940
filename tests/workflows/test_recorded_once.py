"""What hooks and `local` tools did stands in the history before a run ends or goes on: a signal repeats none of it."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from pathlib import Path

import pytest

from holdfast import AgentDefinition, ExecutionStatus, tool
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.hooks import HookContext, Trigger, hook
from holdfast.core.agent.toolset import Toolset
from holdfast.testing.script import Call, calls, say
from tests.serving import served
from tests.workflows.chains import chain_of
from tests.workflows.histories import markers

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="once", tools="all", hooks="all")
MESSAGES_MAX = 40


async def talked_to(client: Holdfast, execution_id: str) -> int:
    """Send messages until the run has ended, or there were many; return how many were taken."""
    for number in range(MESSAGES_MAX):
        if not await client.message(execution_id, f"message {number}"):
            return number
        await asyncio.sleep(0.05)
    return MESSAGES_MAX


async def test_the_last_hook_runs_once_for_an_end_that_messages_race(settings: Settings, tmp_path: Path) -> None:
    begun, ran = threading.Event(), list[int]()

    async def last(context: HookContext) -> None:
        ran.append(context.step_number)
        begun.set()
        await asyncio.sleep(0.5)

    hooks = (hook(Trigger.AFTER_EXECUTION, name="last", timeout_seconds=5)(last),)
    async with served(settings, tmp_path / "ledger", [say("end")], Toolset(hooks=hooks)) as each:
        execution_id = await each.client.start(AGENT, "Go.")
        await asyncio.to_thread(begun.wait, 10)
        assert await talked_to(each.client, execution_id)
        state = await each.client.result(execution_id)
    assert state.status is ExecutionStatus.COMPLETED
    assert ran == [1]


@pytest.mark.slow
async def test_a_local_tool_runs_once_where_its_run_goes_on_in_a_new_one(settings: Settings, tmp_path: Path) -> None:
    ran: list[int] = []

    @tool(local=True, idempotent=True)
    async def look(number: int) -> str:
        """Look."""
        ran.append(number)
        await asyncio.sleep(0.3)
        return "seen"

    script = [*(calls(Call("look", {"number": number})) for number in range(3)), say("end")]
    often = dataclasses.replace(settings, continue_events=1)
    async with served(often, tmp_path / "ledger", script, Toolset(tools=(look,))) as each:
        execution_id = await each.client.start(AGENT, "Go.")
        assert await talked_to(each.client, execution_id)
        await each.client.result(execution_id)
        runs = await chain_of(each.client, execution_id)
    assert ran == [0, 1, 2]
    assert len(runs) > 1
    assert sum(len(markers(history.events)) for history in runs) >= len(ran)
