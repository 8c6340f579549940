"""A call whose queue no worker serves: whoever watches is told, and told again once a worker has taken it."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import aclosing
from dataclasses import replace
from uuid import uuid4

import pytest

from holdfast import AgentDefinition
from holdfast.cli.commands.show import _whole  # pyright: ignore[reportPrivateUsage]
from holdfast.client import Settings, Watched, WorkerAwaited
from holdfast.client.run_source import RunSource
from holdfast.client.watch_events import to_dict
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.toolset import Toolset
from holdfast.core.tools.tools import AnyTool, tool
from holdfast.core.wire.execution_events import ToolCallStarted
from holdfast.testing.script import call, say
from tests.serving import Serve
from workers import make_tools_worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]


def sandboxed(queue: str, told: threading.Event) -> AnyTool:
    @tool(task_queue=queue)
    async def shell(command: str) -> str:
        """Run a command."""
        await asyncio.to_thread(told.wait, 60)  # until whoever watches has heard that it runs
        return command

    return shell


@pytest.mark.slow
async def test_a_call_that_no_worker_takes_says_so_until_one_has(
    serve: Serve, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = f"sandbox-{uuid4()}"
    told = threading.Event()
    elsewhere = sandboxed(queue, told)
    agent, seen = AgentDefinition(name="coder", tools="all"), list[Watched]()
    async with serve([call("shell", command="ls"), say("done")], [elsewhere]) as served:
        execution_id = await served.client.start(agent, "list the files")
        async with aclosing(served.client.watch(execution_id)) as watched:
            async for each in watched:
                seen.append(each)
                if isinstance(each, WorkerAwaited):
                    break
            [shown] = await (await RunSource.find(served.client, execution_id)).awaited_workers()
            await _whole(served.client, execution_id, as_json=False)
            assert shown.line in " ".join(capsys.readouterr().out.split())
            await _whole(served.client, execution_id, as_json=True)
            assert json.loads(capsys.readouterr().out)["workers_awaited"] == [to_dict(shown)]
            there = replace(settings, task_queue=queue)
            toolset, serving = Toolset(tools=(elsewhere,)), WorkerSettings.from_environment()
            async with make_tools_worker(served.client.temporal, there, toolset, serving):
                async for each in watched:
                    seen.append(each)
                    if isinstance(each, WorkerAwaited):
                        told.set()
            ended = await RunSource.find(served.client, execution_id)
    [started] = [each for each in seen if isinstance(each, ToolCallStarted)]
    awaited = WorkerAwaited(execution_id, 1, started.call.id, "shell", queue)
    assert [each for each in seen if isinstance(each, WorkerAwaited)] == [awaited, replace(awaited, over=True)]
    assert shown == awaited
    assert shown.line == f"waits for a worker of the task queue {queue!r}: none has lately asked for work"
    assert await ended.awaited_workers() == []
