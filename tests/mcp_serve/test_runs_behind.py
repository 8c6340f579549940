"""What stands behind a call: a worker that is killed in the middle, and agents that call agents through MCP."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from holdfast import LLM, AgentDefinition
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.execution_state import ExecutionStatus, call_name, named_id
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ExecutionNotFound, ServerUnavailable
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.mcp.tools import KEY_META
from holdfast.mcp_serve import open_runs
from holdfast.mcp_serve.requests import AgentArguments, run_request
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Scripts, say
from holdfast.testing.script import call as calls
from tests.mcp_serve.callers import Place, Reports, call, over_stdio, text
from tests.serving import Serve, served

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

CLERK = AgentDefinition(name="clerk", llm=LLM(model="inner"), description="Answers questions.")
BOSS = AgentDefinition(name="boss", llm=LLM(model="outer"), mcp=("desk",))


@asynccontextmanager
async def worker(place: Place, endpoint: FakeOpenAI) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A worker's process; it is killed at the end."""
    where = ["--address", str(place.settings.address), "--task-queue", place.settings.task_queue]
    process = await asyncio.create_subprocess_exec(
        *(*place.program, "worker", "--agents", str(place.folder / "agents"), *where),
        env={**place.environment, "OPENAI_BASE_URL": endpoint.base_url, "OPENAI_API_KEY": "test-key"},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def until_served(client: Holdfast) -> None:
    """Wait for a worker that asks for work."""
    while not await client.has_worker():  # noqa: ASYNC110  # a server calls nobody
        await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_call_outlasts_the_worker_that_is_killed_in_the_middle(settings: Settings, tmp_path: Path) -> None:
    place, reports = Place.of(settings, tmp_path, [CLERK]), Reports()
    script = {"inner": [say("by another worker", delay_seconds=4)]}
    async with FakeOpenAI(script, ledger=tmp_path / "ledger") as endpoint, over_stdio(place) as client:
        async with worker(place, endpoint) as first:
            await until_served(await Holdfast.connect(settings))
            calling = asyncio.create_task(call(client, "clerk", reports=reports, message="hi"))
            await reports.until("asks the model")
            while not endpoint.requests:  # noqa: ASYNC110  # an endpoint calls nobody
                await asyncio.sleep(0.02)
            first.send_signal(signal.SIGKILL)
            await first.wait()
        assert not calling.done()
        async with worker(place, endpoint):
            result = await calling
        assert len(endpoint.requests) == 2, "the first worker had asked"
    assert (text(result), result.is_error) == ("by another worker", False)


@pytest.mark.slow
async def test_an_agent_calls_an_agent_through_mcp(settings: Settings, tmp_path: Path) -> None:
    place = Place.of(settings, tmp_path, [CLERK])
    scripts = {"outer": [calls("desk_clerk", message="six times seven?"), say("it is 42")], "inner": [say("42")]}
    async with both(settings, tmp_path, scripts, place) as client:
        result = await client.run(BOSS, "ask the clerk")
        [execution] = result.state.steps[0].tool_executions
        inner = await called(client, result.execution_id)
        state = await client.result(inner)
    assert (execution.result, result.output) == ("42", "it is 42")
    assert state.messages[0].content == "six times seven?"


@pytest.mark.slow
async def test_a_stop_of_the_calling_agent_stops_the_called_one(settings: Settings, tmp_path: Path) -> None:
    place = Place.of(settings, tmp_path, [CLERK])
    scripts = {"outer": [calls("desk_clerk", message="wait")], "inner": [say("never", delay_seconds=600)]}
    async with both(settings, tmp_path, scripts, place) as client:
        outer = await client.start(BOSS, "ask the clerk")
        inner = await called(client, outer)
        await client.stop(outer, "enough")
        assert (await client.result(outer)).status is ExecutionStatus.STOPPED
        state = await client.result(inner)
    assert state.status is ExecutionStatus.STOPPED
    assert state.stop_signal is not None
    assert state.stop_signal.source == "mcp"


async def test_a_stop_for_a_caller_that_has_gone_is_sent_again_while_the_server_is_silent(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_runs, "AGAIN_SECONDS", 0.05)
    async with serve([say("never", delay_seconds=600)]) as work:
        stop, tried = work.client.stop, 0

        async def silent_twice(execution_id: str, reason: str, *, source: str) -> bool:
            nonlocal tried
            tried += 1
            if tried < 3:
                raise ServerUnavailable("it is being restarted")
            return await stop(execution_id, reason, source=source)

        monkeypatch.setattr(work.client, "stop", silent_twice)
        await until_served(work.client)
        runs = open_runs.OpenRuns(work.client, {"clerk": CLERK})
        run = await runs.begin(run_request("clerk", AgentArguments(message="hi"), {}))
        runs.stop_later(run, "gone")
        await runs.wait(run, 100, unheard)
        await runs.close()
    assert tried == 3
    assert run.state is not None
    assert run.state.status is ExecutionStatus.STOPPED


async def unheard(line: str) -> None:
    """Take a line of progress."""


async def called(client: Holdfast, outer: str) -> str:
    """The run that the outer run's first call stands for, once it has begun."""
    key = {KEY_META: named_id(outer, call_name(1, 0))}
    run_id = run_request("clerk", AgentArguments(message="x"), key).run_id
    while True:
        with suppress(ExecutionNotFound):
            await client.debug(run_id)
            return run_id
        await asyncio.sleep(0.1)


@asynccontextmanager
async def both(settings: Settings, folder: Path, scripts: Scripts, place: Place) -> AsyncGenerator[Holdfast]:
    """A worker for both agents, whose server `desk` offers the clerk."""
    desk = McpServer(name="desk", command=tuple(place.command), env=place.environment)
    async with served(settings, folder / "ledger", scripts, Toolset(), mcp={"desk": desk}) as work:
        yield work.client
