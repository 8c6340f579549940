"""Opening and closing what tools share: on the loop of the tools, in one task, in order, and never without an end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import Agent, AgentDefinition, ToolContext, resource, tool
from holdfast.core.tools.resources import Resource
from holdfast.core.tools.tools import AnyTool
from holdfast.local import LocalDriver
from holdfast.runtime import open_resources
from holdfast.runtime.open_resources import OpenResources, ResourceFailed
from holdfast.runtime.tool_runner import run_tool
from holdfast.testing.script import Call, Reply, calls, say, turn_number
from holdfast.testing.scripted_model import ScriptedModel

CONTEXT = ToolContext(execution_id="e", idempotency_key="k", attempt=1)


class Pool:
    """Bound to the loop and the task that made it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.task = asyncio.current_task()
        self.lock = asyncio.Lock()


class Disk:
    """Made by a sync function."""

    def __init__(self) -> None:
        self.thread = threading.current_thread().name


class Place:
    """Resources and tools that note what happens to them."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.closed_in: list[asyncio.Task[Any] | None] = []
        self.pools: list[Pool] = []
        self.closed = threading.Event()

        @resource
        async def database() -> AsyncIterator[Pool]:
            pool = Pool()
            self.pools.append(pool)
            self.notes.append("database opened")
            yield pool
            self.closed_in.append(asyncio.current_task())
            self.notes.append("database closed")
            self.closed.set()

        @resource
        @contextmanager
        def disk() -> Generator[Disk]:
            self.notes.append("disk opened")
            yield Disk()
            self.notes.append("disk closed")

        @tool
        async def ask(db: Pool, disk: Disk) -> str:
            """Ask the database."""
            self.notes.append("asked")
            async with db.lock:  # would be refused on another loop
                await asyncio.sleep(0)
            return f"{db.loop is asyncio.get_running_loop()} {disk.thread}"

        @tool
        def ask_in_a_thread(db: Pool) -> str:
            """Ask the database from a thread."""
            return str(db in self.pools)

        self.resources: list[Resource] = [database, disk]
        self.tools: list[AnyTool] = [ask, ask_in_a_thread]


@pytest.mark.parametrize("apart", [True, False], ids=["apart", "here"])
async def test_a_tool_gets_what_was_opened_on_its_own_loop(*, apart: bool) -> None:
    place = Place()
    opened = OpenResources(place.tools, place.resources)
    await opened.open(apart=apart)
    replies = [
        (await run_tool(each, {}, CONTEXT, apart=apart, resources=opened)).text for each in (*place.tools, *place.tools)
    ]
    await opened.close()
    assert replies == ["True resource disk", "True"] * 2
    assert place.notes == ["database opened", "disk opened", "asked", "asked", "disk closed", "database closed"]
    assert place.closed_in == [place.pools[0].task], "what was entered in a task is left in it"
    await opened.close()
    assert len(place.notes) == 6, "closed once"


async def test_what_no_tool_takes_is_not_opened() -> None:
    place = Place()
    opened = OpenResources(place.tools[1:], place.resources)
    await opened.open(apart=True)
    await opened.close()
    assert place.notes == ["database opened", "database closed"]


async def test_a_tool_that_blocks_the_loop_does_not_move_others_off_the_loop_of_their_resource(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.runtime.user_code.BEGIN_SECONDS", 0.05)
    monkeypatch.setattr("holdfast.runtime.user_code.ONCE_MORE_SECONDS", 0.05)
    place, blocking, go_on = Place(), threading.Event(), threading.Event()

    @tool
    async def block() -> str:
        """Block the loop."""
        blocking.set()
        go_on.wait()
        return "free"

    opened = OpenResources(place.tools, place.resources)
    await opened.open(apart=True)
    blocked = asyncio.create_task(run_tool(block, {}, CONTEXT, apart=True))
    await asyncio.to_thread(blocking.wait)
    asked = asyncio.create_task(run_tool(place.tools[0], {}, CONTEXT, apart=True, resources=opened))
    await asyncio.sleep(0.3)  # long enough for any other call to begin on another loop
    assert "asked" not in place.notes
    go_on.set()
    assert (await asked).text == "True resource disk"
    assert (await blocked).text == "free"
    await opened.close()


async def never() -> None:
    await asyncio.Event().wait()


async def raises() -> AsyncIterator[Disk]:
    raise LookupError("no such host")
    yield Disk()


async def yields_nothing() -> AsyncIterator[Disk]:
    if threading.active_count() < 0:
        yield Disk()


async def exits() -> AsyncIterator[Disk]:
    raise SystemExit(3)
    yield Disk()


async def cancels() -> AsyncIterator[Disk]:
    raise asyncio.CancelledError  # as awaiting a task does that somebody has cancelled
    yield Disk()


class Odd(BaseException):
    """What no `except Exception` catches."""


async def breaks_off() -> AsyncIterator[Disk]:
    raise Odd
    yield Disk()


async def hangs() -> AsyncIterator[Disk]:
    await never()
    yield Disk()


def raises_in_a_thread() -> Iterator[Disk]:
    raise LookupError("no such file")
    yield Disk()


def returns_no_manager() -> Iterator[Disk]:
    return [Disk()]  # type: ignore[return-value]  # what somebody could write


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (raises, "LookupError: no such host"),
        (yields_nothing, "RuntimeError: generator didn't yield"),
        (exits, "SystemExit"),
        (cancels, "CancelledError"),
        (breaks_off, "it was cancelled, or broke off"),
        (hangs, "it took longer than 0.05 s"),
        (raises_in_a_thread, "LookupError: no such file"),
        (returns_no_manager, "TypeError: it returned a list"),
    ],
)
async def test_one_that_does_not_open_is_named_and_those_before_it_are_closed(
    function: Callable[[], Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_resources, "OPEN_SECONDS_MAX", 0.05)
    place = Place()
    opened = OpenResources(place.tools, [place.resources[0], resource(function)])
    with pytest.raises(ResourceFailed, match=f"the resource '{function.__name__}' could not be opened: {why}"):
        await opened.open(apart=True)
    assert place.notes == ["database opened", "database closed"]
    await opened.close()
    assert place.notes == ["database opened", "database closed"]


async def closes_badly() -> AsyncIterator[Disk]:
    yield Disk()
    raise LookupError("gone")


async def closes_cancelled() -> AsyncIterator[Disk]:
    yield Disk()
    raise asyncio.CancelledError


async def closes_never() -> AsyncIterator[Disk]:
    yield Disk()
    await never()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (closes_badly, "LookupError: gone"),
        (closes_cancelled, "CancelledError"),
        (closes_never, "it took longer than 0.05 s"),
    ],
)
async def test_one_that_does_not_close_is_logged_and_the_others_are_closed(
    function: Callable[[], Any], why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(open_resources, "CLOSE_SECONDS_MAX", 0.05)
    place = Place()
    opened = OpenResources(place.tools, [place.resources[0], resource(function)])
    await opened.open(apart=True)
    with caplog.at_level(logging.WARNING, logger="holdfast.worker"):
        await opened.close()
    assert f"the resource {function.__name__} could not be closed: {why}" in caplog.text
    assert place.notes == ["database opened", "database closed"]


@pytest.mark.parametrize("apart", [True, False], ids=["apart", "here"])
def test_a_start_that_is_cancelled_ends_when_nothing_is_open_any_more(*, apart: bool) -> None:
    place, begun = Place(), threading.Event()

    async def slow() -> AsyncIterator[Disk]:
        begun.set()
        await never()
        yield Disk()

    async def cancelled() -> None:
        opened = OpenResources(place.tools, [place.resources[0], resource(slow)])
        opening = asyncio.create_task(opened.open(apart=apart))
        await asyncio.to_thread(begun.wait)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert place.closed.is_set()
        await opened.close()

    asyncio.run(asyncio.wait_for(cancelled(), 60))


# --- in-process


def script(request: dict[str, Any]) -> Reply:
    if turn_number(request):
        return say("done")
    if "look" in str(request["messages"][-1]["content"]):
        return calls(Call("ask", {}))
    return calls(Call("ask", {}), Call("spawn", {"agent": "helper", "task": "look"}))


async def test_in_process_they_are_open_for_an_execution_and_its_subagents() -> None:
    place = Place()
    helper = AgentDefinition(name="helper", tools=("ask",))
    agent = Agent("lead", tools=[place.tools[0]], resources=place.resources, subagents=["helper"])
    driver = LocalDriver(agent, model=ScriptedModel(script), agents=[helper])
    for _ in range(2):
        state = await driver.execute("help")
        assert [each.text for each in state.messages if each.role == "tool"] == ["True resource disk", "done"]
    once = ["database opened", "disk opened", "asked", "asked", "disk closed", "database closed"]
    assert place.notes == once * 2


async def test_in_process_one_that_does_not_open_is_raised_before_the_model_is_asked() -> None:
    model = ScriptedModel([say("done")])

    @tool
    def use(disk: Disk) -> str:
        """Use it."""
        return disk.thread

    driver = LocalDriver(AgentDefinition(name="a", tools="all"), model=model, tools=[use], resources=[resource(raises)])
    for _ in range(2):
        with pytest.raises(ResourceFailed, match="no such host"):
            await driver.execute("go")
    assert not model.requests
