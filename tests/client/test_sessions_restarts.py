"""A server that is killed and comes back: messages, answers and watches of a session outlast it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentDefinition
from holdfast.client import Settings
from holdfast.core.agent.toolset import Toolset
from holdfast.server.embedded import EmbeddedServer
from holdfast.server.ports import choose_ports
from holdfast.testing.script import Reply, say
from tests.serving import served

pytestmark = pytest.mark.temporal

FRIEND = AgentDefinition(name="friend", tools=())
SECONDS_MAX = 90


def slowly(request: dict[str, Any]) -> Reply:
    return say(f"to {request['messages'][-1]['content']}", delay_seconds=2)


@pytest.mark.slow
async def test_a_server_that_restarts_loses_no_message_and_no_answer(tmp_path: Path) -> None:
    ports, data_dir = choose_ports(0, 0), tmp_path / "data"

    def start() -> EmbeddedServer:
        return EmbeddedServer.start(data_dir, port=ports.grpc, ui_port=ports.http)

    server = await asyncio.to_thread(start)
    settings = Settings(address=server.address.address, task_queue="restarts", data_dir=data_dir)
    try:
        async with served(settings, tmp_path / "ledger.jsonl", slowly, Toolset()) as at_work:
            agent = at_work.client.agent(definition=FRIEND)
            running = asyncio.create_task(agent.ask("one"))
            await at_work.endpoint.until(lambda requests: len(requests) == 1)
            waiting = asyncio.create_task(agent.answer(await agent.send("two")))
            events: list[Any] = []

            async def watch() -> None:
                events.extend([each async for each in agent.watch()])

            watching = asyncio.create_task(watch())
            await asyncio.sleep(0.3)  # until all of them wait: nothing tells
            os.kill(server.address.pid, signal.SIGKILL)
            server.stop()
            sending = asyncio.create_task(agent.send("three"))
            assert not running.done(), "the server was killed too late to prove anything"
            server = await asyncio.to_thread(start)
            async with asyncio.timeout(SECONDS_MAX):
                states = [(await running).state, await waiting, await agent.answer(await sending)]
                await agent.close()
                await watching
    finally:
        server.stop()
    assert [state.final_response for state in states] == ["to one", "to two", "to three"]
    begun = [each.execution_id for each in events if each.kind == "AgentExecutionStarted"]
    assert begun == [state.running.execution_id for state in states]
