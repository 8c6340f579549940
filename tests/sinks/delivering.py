"""A worker with sinks, and what its runs should have told them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowQueryFailedError
from temporalio.service import RPCError

from activities.transcript_cache import TranscriptCache
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.toolset import Toolset
from holdfast.core.tools.tools import tool
from holdfast.core.wire.contracts import EVENTS_QUERY, EventsPage, EventsRequest
from holdfast.core.wire.sink_contracts import SinkStart, sink_id
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.sinks import Sink
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Script, Scripts, call, say
from workers import make_worker

SECONDS_MAX = 90.0
"""How long what is delivered may take to come on a busy machine."""

CHILD = AgentDefinition(name="child", tools="all", llm=LLM(model="kid"))
LEAD = AgentDefinition(name="lead", tools="all", subagents=("child",), llm=LLM(model="scripted"))
SCRIPT: Scripts = {
    "scripted": [call("spawn", agent="child", task="A part."), call("add", a=1, b=2), say("all done")],
    "kid": [say("a part")],
    "adder": [call("add", a=1, b=2), say("done")],
}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@asynccontextmanager
async def worker_with(
    settings: Settings, sinks: Sequence[Sink] = (), script: Script | Scripts = SCRIPT
) -> AsyncGenerator[Holdfast]:
    """A worker in this process, with a scripted endpoint behind it; its sinks' workflows end with it."""
    async with FakeOpenAI(script) as endpoint:
        client = await Holdfast.connect(settings)
        model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model="scripted"))
        worker = make_worker(client.temporal, settings, Toolset(tools=(add,)), model, TranscriptCache(), sinks=sinks)
        try:
            async with worker:
                yield client
        finally:
            await model.close()


async def run_of(client: Holdfast) -> list[str]:
    """Run the lead to its end; return its execution's id and the subagent's."""
    execution_id = await client.start(LEAD, "Do it.", subagents=[CHILD])
    ids: dict[str, None] = {}
    async for each in client.watch(execution_id):
        ids[each.execution_id] = None
    assert len(ids) == 2
    return [*ids]


async def expected_of(client: Holdfast, ids: Iterable[str]) -> list[str]:
    """Return the ids that the events of these executions are delivered with, as their own runs tell."""
    totals = await asyncio.gather(*(_total(client.temporal, each) for each in ids))
    return sorted(f"{id_}/{place}" for id_, total in zip(ids, totals, strict=True) for place in range(1, total + 1))


async def _total(temporal: TemporalClient, execution_id: str) -> int:
    handle = temporal.get_workflow_handle(execution_id)
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                page: EventsPage = await handle.query(EVENTS_QUERY, EventsRequest(start=10**6), result_type=EventsPage)
            except WorkflowQueryFailedError as error:
                if "deadlock" not in str(error):  # what the SDK takes a task for that a busy machine was slow with
                    raise
            else:
                return page.total


async def until(there: Callable[[], bool], what: Callable[[], object]) -> None:
    """Return when it is there; fail with `what` there is instead."""
    deadline = time.monotonic() + SECONDS_MAX
    while not there():
        assert time.monotonic() < deadline, what()
        await asyncio.sleep(0.05)


def events_in(path: Path) -> list[dict[str, Any]]:
    """Return the events of a file; its last line may be torn."""
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


async def end_sink(temporal: TemporalClient, settings: Settings, consumer: str) -> None:
    """End the workflow of a sink, which nobody serves any more."""
    start = SinkStart(consumer=consumer, task_queue=settings.task_queue)
    try:
        await temporal.get_workflow_handle(sink_id(start)).terminate()
    except RPCError as error:
        raise AssertionError(f"the workflow of the sink was not there: {error}") from None
