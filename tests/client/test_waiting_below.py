"""Which calls of a run's subagents wait for a person: in whole trees, in sessions, on servers that cannot tell."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import AgentDefinition, tool
from holdfast.cli.screens import pending_calls
from holdfast.client import Settings
from holdfast.client.run_source import RunSource
from holdfast.client.waiting_calls import WaitingCalls, waiting_below, waiting_calls, waiting_of_session
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ServerUnavailable
from holdfast.testing.script import Call, Reply, call, calls, say
from tests.serving import Serve, served

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]

LEAF = AgentDefinition.model_validate(
    {"name": "leaf", "tools": ["pay"], "approvals": [{"tools": ["pay"]}], "system_prompt": "leaf"}
)
MIDDLE = AgentDefinition(name="middle", tools=(), subagents=("leaf",), system_prompt="middle")
TOP = AgentDefinition(name="top", tools=(), subagents=("middle",), system_prompt="top")
WIDE = AgentDefinition(name="wide", tools=(), subagents=("leaf",), system_prompt="wide")
LEAVES = 3


@tool
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def turn(request: dict[str, Any]) -> Reply:
    if request["messages"][-1]["role"] == "tool":
        return say("done")
    match request["messages"][0]["content"]:
        case "top":
            return call("spawn", agent="middle", task="go")
        case "middle":
            return call("spawn", agent="leaf", task="go")
        case "wide":
            return calls(*(Call("spawn", {"agent": "leaf", "task": "go"}) for _ in range(LEAVES)))
        case _:
            return call("pay", amount=3)


async def until_waiting(told: RunSource, count: int = 1) -> WaitingCalls:
    """Return what waits below once so many calls do: the server learns of it a moment later."""
    async with asyncio.timeout(60):
        while len(found := await told.waiting_below()) < count:
            pass  # the list can be late
    return found


@pytest.mark.slow
async def test_a_call_of_a_subagents_subagent_is_found_from_the_run(serve: Serve) -> None:
    async with serve(turn, [pay]) as system:
        run = await system.client.start(TOP, "go", subagents=[LEAF, MIDDLE])
        [found] = await until_waiting(await RunSource.find(system.client, run))
        assert (found.agent, found.tool) == ("leaf", "pay")
        await system.client.stop(run)
        await system.client.result(run)


@pytest.mark.slow
async def test_a_call_of_a_subagents_subagent_is_found_from_a_run_of_a_session(serve: Serve) -> None:
    async with serve(turn, [pay]) as system:
        holdfast = system.client
        agent = holdfast.agent(str(uuid4()), TOP, subagents=[LEAF, MIDDLE])
        await agent.send("go")
        async with asyncio.timeout(60):
            while not (waiting := await waiting_of_session(system.client.temporal, agent.agent_id)):
                pass  # the list can be late
        [of_session] = waiting
        run = (await agent.view()).running_id
        assert run is not None
        [found] = await until_waiting(await RunSource.find(holdfast, run))
        assert (found.agent, found.tool, of_session) == ("leaf", "pay", found)
        await agent.close(stop=True)


@pytest.mark.slow
async def test_what_is_left_out_is_told(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    async with serve(turn, [pay]) as system:
        run = await system.client.start(WIDE, "go", subagents=[LEAF])
        whole = await until_waiting(await RunSource.find(system.client, run), LEAVES)
        assert not whole.more
        some = await waiting_calls(system.client.temporal, LEAVES - 1, among=f"RootWorkflowId = '{run}'")
        assert (len(some), some.more) == (LEAVES - 1, True)
        pending_calls.print_waiting(some)
        assert "holdfast waiting" in capsys.readouterr().err
        await system.client.stop(run)
        await system.client.result(run)


@pytest.mark.slow
async def test_a_server_without_our_attributes_cannot_tell_and_that_is_said(
    settings: Settings, plain_server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = replace(settings, address=plain_server)
    async with served(plain, tmp_path / "ledger.jsonl", turn, Toolset(tools=(pay,))) as system:
        run = await system.client.start(TOP, "go", subagents=[LEAF, MIDDLE])
        async with asyncio.timeout(60):
            async for state in system.client.follow(run):
                if state.execution is not None and state.execution.subagents_started:
                    break
        with pytest.raises(ServerUnavailable):
            await waiting_below(system.client.temporal, run)
        assert await pending_calls.or_hint(waiting_below(system.client.temporal, run)) is None
        assert "cannot list the calls that wait" in capsys.readouterr().err
        await system.client.stop(run)
        await system.client.result(run)
