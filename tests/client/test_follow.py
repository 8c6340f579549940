"""Those who follow a run leave it alone: its first task is no more work for being followed."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast import AgentDefinition
from holdfast.client import Holdfast
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.state import AgentState
from holdfast.testing.script import say
from tests.serving import Serve
from workflows.replay_guard import STARTED_OVER

pytestmark = pytest.mark.temporal

RUNS = 8
FOLLOWERS = 3


async def test_a_run_that_is_followed_from_its_start_does_not_begin_anew(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="workflows.replay_guard")

    async def followed(client: Holdfast, execution_id: str) -> AgentState:
        return [state async for state in client.follow(execution_id)][-1]

    cached = WorkerSettings(cached_runs=100)  # a worker without a cache reads beyond a run's last task for each query
    async with serve([say("done", delay_seconds=1)] * RUNS, serving=cached) as served:
        client, agent = served.client, AgentDefinition(name="friend")
        ids = [await client.start(agent, "Go.") for _ in range(RUNS)]
        final = await asyncio.gather(*(followed(client, id_) for id_ in ids for _ in range(FOLLOWERS)))
    assert {each.final_response for each in final} == {"done"}
    assert [each for each in caplog.messages if STARTED_OVER in each] == []
