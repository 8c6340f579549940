"""What tools report while they run: from threads and event loops, bounded, and never harmful to the call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast import ToolContext, tool
from holdfast.core.base.errors import InvalidInput
from holdfast.core.tools.call_context import ToolProgress
from holdfast.core.tools.tool_results import StopRun
from holdfast.core.tools.tools import AnyTool
from holdfast.runtime.call_reports import LOG_CHARS_MAX
from holdfast.runtime.tool_runner import run_tool

CONTEXT = ToolContext(execution_id="e-1", idempotency_key="k", attempt=2, step=3, call_id="c-1")
FLAVOURS = ["sync", "async"]


def reporting(flavour: str, work: Callable[[ToolContext], object]) -> AnyTool:
    """Return a tool, sync or async, that does `work` with its context."""

    @tool(name="work")
    def in_a_thread(context: ToolContext) -> object:
        return work(context)

    @tool(name="work")
    async def on_a_loop(context: ToolContext) -> object:
        return work(context)

    return in_a_thread if flavour == "sync" else on_a_loop


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("apart", [True, False], ids=["apart", "here"])
async def test_changes_of_the_metadata_come_with_the_reply(flavour: str, *, apart: bool) -> None:
    def work(context: ToolContext) -> str:
        context.set_metadata(order="o-1", step=1)
        context.set_metadata(step=2, old=None)
        return "done"

    reply = await run_tool(reporting(flavour, work), {}, CONTEXT, apart=apart)
    assert (reply.text, dict(reply.metadata)) == ("done", {"order": "o-1", "step": 2, "old": None})


async def test_changes_come_also_with_a_stop() -> None:
    def work(context: ToolContext) -> StopRun:
        context.set_metadata(order="o-1")
        return StopRun("sold", "enough")

    reply = await run_tool(reporting("sync", work), {}, CONTEXT)
    assert (reply.text, reply.stop, dict(reply.metadata)) == ("sold", "enough", {"order": "o-1"})


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"agent": "me"}, "reserved"), ({"big": "x" * 17_000}, "the limit is 16,384"), ({"at": object()}, "not a JSON")],
    ids=["ours", "too much", "no JSON"],
)
async def test_changes_that_cannot_be_kept_are_an_error_of_the_tool(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        await run_tool(reporting("sync", lambda context: context.set_metadata(**changes)), {}, CONTEXT)


async def test_a_refused_change_leaves_those_before_it() -> None:
    def work(context: ToolContext) -> str:
        context.set_metadata(order="o-1")
        with pytest.raises(InvalidInput):
            context.set_metadata(agent="me")
        return "done"

    assert dict((await run_tool(reporting("sync", work), {}, CONTEXT)).metadata) == {"order": "o-1"}


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_progress_reaches_whoever_runs_the_tool_on_its_own_loop(flavour: str) -> None:
    seen, arrived = list[ToolProgress](), asyncio.Event()

    def listener(report: ToolProgress) -> None:
        assert asyncio.get_running_loop() is loop
        seen.append(report)
        arrived.set()

    async def until_told(context: ToolContext) -> None:
        context.progress("page 1", fraction=0.25)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(arrived.wait(), loop))

    loop = asyncio.get_running_loop()
    await run_tool(waiting_tool(flavour, until_told), {}, CONTEXT, apart=True, on_progress=listener)
    report = ToolProgress(call_id="c-1", tool="work", step=3, attempt=2, text="page 1", fraction=0.25)
    assert seen == [report]


def waiting_tool(flavour: str, work: Callable[[ToolContext], Coroutine[Any, Any, None]]) -> AnyTool:
    @tool(name="work")
    def in_a_thread(context: ToolContext) -> None:
        asyncio.run(work(context))

    @tool(name="work")
    async def on_a_loop(context: ToolContext) -> None:
        await work(context)

    return in_a_thread if flavour == "sync" else on_a_loop


async def test_of_a_hundred_thousand_reports_few_are_passed_on_and_the_last_is_one_of_them() -> None:
    seen, last = list[str](), asyncio.Event()

    def listener(report: ToolProgress) -> None:
        seen.append(report.text)
        if report.text == "99999":
            last.set()

    async def flood(context: ToolContext) -> None:
        for number in range(100_000):
            context.progress(str(number))
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(last.wait(), loop))

    loop = asyncio.get_running_loop()
    await run_tool(waiting_tool("async", flood), {}, CONTEXT, apart=True, on_progress=listener)
    assert seen[-1] == "99999"
    assert len(seen) < 1_000


async def test_what_is_reported_after_the_end_is_dropped() -> None:
    contexts, seen = list[ToolContext](), list[ToolProgress]()
    made = reporting("sync", contexts.append)
    reply = await run_tool(made, {}, CONTEXT, on_progress=seen.append)
    contexts[0].set_metadata(late=True)
    contexts[0].progress("late")
    for _ in range(3):
        await asyncio.sleep(0)
    assert (dict(reply.metadata), seen) == ({}, [])


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_line_of_the_log_is_one_line_with_the_ids_of_the_call(
    flavour: str, caplog: pytest.LogCaptureFixture
) -> None:
    def work(context: ToolContext) -> None:
        context.log("sent\nfor %s", order=17)
        context.log("x" * 10_000)

    with caplog.at_level(logging.INFO, logger="holdfast.tool"):
        await run_tool(reporting(flavour, work), {}, CONTEXT, apart=True)
    first, second = (record.getMessage() for record in caplog.records if record.name == "holdfast.tool")
    assert first == "work: sent for %s order=17 execution_id=e-1 call_id=c-1 attempt=2"
    assert len(second) <= LOG_CHARS_MAX


async def test_a_field_that_cannot_be_written_does_not_harm_the_call() -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def work(context: ToolContext) -> str:
        context.log("look", at=Mute())
        return "done"

    assert (await run_tool(reporting("sync", work), {}, CONTEXT)).text == "done"
