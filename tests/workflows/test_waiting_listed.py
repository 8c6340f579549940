"""What hooks lead to stands at the same place of a history, however they came to their ends beside each other."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from holdfast import AgentDefinition, tool
from holdfast.client import Holdfast
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Changes, HookContext, Trigger, hook
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.verdicts import Verdict
from holdfast.testing.script import Call, Reply, calls, say, turn_number
from tests.serving import Serve
from tests.workflows.histories import replayed
from tests.workflows.waiting import waiting_calls

pytestmark = pytest.mark.temporal

CAREFUL = AgentDefinition.model_validate(
    {"name": "careful", "tools": "all", "hooks": "all", "approvals": [{"tools": ["pay"]}]}
)
HELPER = AgentDefinition(name="helper", system_prompt="You help.", tools=(), hooks=())
LEAD = AgentDefinition(name="lead", tools="all", hooks="all", system_prompt="You lead.", subagents=("helper",))
RUNS = 8
BATCHES = 3


@pytest.mark.slow
async def test_runs_that_are_asked_all_the_time_while_their_hooks_run_replay(serve: Serve) -> None:
    """A query has the server end the task under way: its hooks then come to their ends in another one."""

    async def look(_: HookContext) -> Changes:
        await asyncio.sleep(0)
        return Changes()

    @tool
    def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    def turn(request: dict[str, Any]) -> Reply:
        return say("done") if turn_number(request) else calls(*(Call("pay", {"n": n}) for n in range(4)))

    offer = Toolset(tools=(pay,), hooks=tuple(hook(each, name=f"at_{each}")(look) for each in Trigger))
    async with serve(turn, offer=offer) as served:
        ids = [await served.client.start(CAREFUL, "pay") for _ in range(RUNS)]
        states = await asyncio.gather(*(_decided(served.client, each) for each in ids))
        for each in ids:
            await replayed(served.client, each)
    assert {each.status for each in states} == {ExecutionStatus.COMPLETED}


@pytest.mark.slow
async def test_calls_and_subagents_that_uneven_hooks_let_begin_replay_in_their_order(serve: Serve) -> None:
    """The start of a child takes a turn more of the workflow's event loop than that of an activity does."""
    lengths = random.Random(7)  # noqa: S311  # no secret

    async def look(_: HookContext) -> Changes:
        await asyncio.sleep(lengths.random() * 0.03)
        return Changes()

    @tool
    async def nap() -> str:
        """Rest."""
        return "rested"

    def turn(request: dict[str, Any]) -> Reply:
        if request["messages"][0]["content"] == HELPER.system_prompt or turn_number(request) >= BATCHES:
            return say("done")
        return calls(*(Call("spawn", {"agent": "helper", "task": "x"}) if k % 2 else Call("nap", {}) for k in range(5)))

    offer = Toolset(tools=(nap,), hooks=(hook(Trigger.BEFORE_TOOL, name="uneven", timeout_seconds=5)(look),))
    async with serve(turn, offer=offer) as served:
        ids = [await served.client.start(LEAD, "go", subagents=[HELPER]) for _ in range(RUNS)]
        asking = [asyncio.create_task(_ask(served.client, each)) for each in ids]
        states = [await served.client.result(each) for each in ids]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        for each in ids:
            await replayed(served.client, each)
    assert {each.status for each in states} == {ExecutionStatus.COMPLETED}


async def _decided(client: Holdfast, execution_id: str) -> AgentState:
    asking = [asyncio.create_task(_ask(client, execution_id)) for _ in range(4)]
    try:
        for call_id in await waiting_calls(client, execution_id, 4):
            await client.decide(execution_id, call_id, Verdict(decision="approve"))
        return await client.result(execution_id)
    finally:
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def _ask(client: Holdfast, execution_id: str) -> None:
    while True:
        await client.debug(execution_id)
