"""What the connection that a program gives its worker means for how soon a stop reaches its calls."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest
from temporalio.runtime import Runtime, TelemetryConfig

from holdfast import AgentDefinition, tool
from holdfast.client import Holdfast, Settings
from holdfast.connection.temporal_client import connect, may_be_pushed
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import call
from workers import make_worker

pytestmark = pytest.mark.temporal

PUSHED_SECONDS = 10.0
"""How rarely a call asks whether it is to stop where the server would tell it."""


@pytest.mark.parametrize("interval", [None, timedelta(seconds=60)])
async def test_a_stop_reaches_a_tool_of_a_worker_that_no_server_can_push_to(
    settings: Settings, interval: timedelta | None
) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    @tool
    async def stand() -> str:
        """Stand until cancelled."""
        began_loop.call_soon_threadsafe(began.set)
        try:
            await asyncio.sleep(60)
        finally:
            began_loop.call_soon_threadsafe(cancelled.set)
        return "nobody came"

    began_loop = asyncio.get_running_loop()
    runtime = Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=interval)
    async with FakeOpenAI([call("stand")]) as endpoint:
        model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model="scripted"))
        connection = await connect(settings, runtime=runtime)
        assert not may_be_pushed(connection), "whether its workers heartbeat is not known"
        async with make_worker(connection, settings, Toolset(tools=(stand,)), model):
            client = await Holdfast.connect(settings)
            run = await client.start(AgentDefinition(name="stander", tools=("stand",)), "stand")
            async with asyncio.timeout(60):
                await began.wait()
            asked_at = time.monotonic()
            await client.stop(run)
            async with asyncio.timeout(60):
                await cancelled.wait()
            took = time.monotonic() - asked_at
            assert (await client.result(run)).stop_reason is StopReason.USER_REQUESTED
        await model.close()
    assert took < PUSHED_SECONDS - 1


async def test_our_own_runtime_tells_the_server_of_its_workers(settings: Settings) -> None:
    assert may_be_pushed(await connect(settings))
