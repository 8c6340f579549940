"""Watching runs that an operator resets (`temporal workflow reset`): what happens once more is told once more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import AgentDefinition, tool
from holdfast.client import Holdfast
from holdfast.client.watch_events import Watched
from holdfast.core.wire.execution_events import (
    AgentExecutionCompleted,
    InferenceRequestStarted,
    InferenceResponseReceived,
    ToolCallCompleted,
)
from holdfast.testing.holds import Hold
from holdfast.testing.script import Reply, call, say
from tests.resets import reset
from tests.serving import Serve, Served

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]

CLERK = AgentDefinition(name="clerk", tools=("look",))
TASKS = (0, 2, 4)
"""Which workflow tasks a run is reset to: its first, and those amid and behind its two tool calls."""


@tool
def look() -> str:
    """Look."""
    return "seen"


async def all_of(client: Holdfast, execution_id: str, answering: asyncio.Event | None = None) -> list[Watched]:
    """Return what is told of a run; `answering` is set once that is its third model call, or a subagent's first."""
    events = list[Watched]()
    async for each in client.watch(execution_id):
        events.append(each)
        begun = isinstance(each, InferenceRequestStarted) and (each.step_number, each.execution_id)
        if answering and begun and begun not in ((1, execution_id), (2, execution_id)):
            answering.set()
    return events


@asynccontextmanager
async def at_its_answer(serve: Serve) -> AsyncGenerator[tuple[Served, str, Hold]]:
    """A run after two tool calls, whose answer is held; of a reset run it is not."""
    hold = Hold()

    def turn(request: dict[str, Any]) -> Reply:
        if sum(each["role"] == "tool" for each in request["messages"]) < 2:
            return call("look")
        return say("again") if hold.held else Reply(text="at first", hold=hold)

    async with serve(turn, [look]) as served:
        execution_id = await served.client.start(CLERK, "go")
        await hold.until_held()
        yield served, execution_id, hold


def told_of(events: list[Watched]) -> list[str]:
    return [each.response.text or "look" for each in events if isinstance(each, InferenceResponseReceived)]


@pytest.mark.parametrize("task", TASKS)
async def test_a_watch_tells_what_happens_after_a_reset(serve: Serve, task: int) -> None:
    async with at_its_answer(serve) as (served, execution_id, hold):
        answering = asyncio.Event()
        before = asyncio.create_task(all_of(served.client, execution_id, answering))
        await answering.wait()
        await reset(served.client, execution_id, task)
        async with asyncio.timeout(60):
            live, late = await before, await all_of(served.client, execution_id)
        hold.release()
    kept = task // 2
    assert told_of(live) == [*["look"] * (2 + 2 - kept), "again"]
    assert told_of(late) == ["look", "look", "again"]
    assert sum(isinstance(each, ToolCallCompleted) for each in late) == 2
    for each in (live[-1], late[-1]):
        assert isinstance(each, AgentExecutionCompleted)


async def test_a_run_that_is_reset_after_its_end_is_watched_to_its_new_end(serve: Serve) -> None:
    async with at_its_answer(serve) as (served, execution_id, hold):
        hold.release()
        await served.client.result(execution_id)
        await reset(served.client, execution_id, 4)
        async with asyncio.timeout(60):
            late = await all_of(served.client, execution_id)
    assert told_of(late) == ["look", "look", "again"]


async def test_a_subagent_of_before_a_reset_does_not_hold_up_the_watch(serve: Serve) -> None:
    """The server lets it go on under its id, so that the reset run cannot begin it again."""
    hold, answering = Hold(), asyncio.Event()

    def turn(request: dict[str, Any]) -> Reply:
        if request["messages"][-1]["role"] == "tool":
            return say("so it is")
        if any(each["content"] == "a task" for each in request["messages"]):
            return Reply(text="at first", hold=hold)
        return call("spawn", agent="writer", task="a task")

    async with serve(turn) as served:
        client, lead = served.client, AgentDefinition(name="lead", subagents=("writer",))
        execution_id = await client.start(lead, "go", subagents=(AgentDefinition(name="writer"),))
        await hold.until_held()
        watching = asyncio.create_task(all_of(client, execution_id, answering))
        await answering.wait()
        await reset(client, execution_id, 0)
        async with asyncio.timeout(60):
            live = await watching
        hold.release()
    assert told_of(live)[-1] == "so it is"
    assert isinstance(live[-1], AgentExecutionCompleted)
