"""What a worker's readiness asks a real server: its namespace, and each task queue that the worker polls."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import TaskQueueType

from holdfast.client import Holdfast, Settings
from holdfast.connection.deployment_version import DeploymentVersion
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ServerUnavailable
from holdfast.core.wire.contracts import waiting_queue
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.server.worker_health import PolledQueue, check_server
from tests.chaos.tools import note
from tests.tcp_proxy import Proxy
from workers import QUEUE_BYTES_MAX, make_worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]

WORKFLOW = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
ACTIVITY = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY


@pytest.mark.parametrize("versioned", [False, True])
async def test_every_task_queue_of_a_worker_is_asked_for_with_a_build_and_without(
    settings: Settings, *, versioned: bool
) -> None:
    queue = settings.task_queue
    version = DeploymentVersion(f"dep-{uuid4()}", "v1") if versioned else None
    client = await Holdfast.connect(settings)
    model = OpenAIChat(ProviderSettings(base_url="http://127.0.0.1:1", api_key="test-key", model="scripted"))
    tools = Toolset(tools=(note,))
    try:
        async with make_worker(client.temporal, settings, tools, model, version=version) as workers:
            assert workers.task_queues == (
                PolledQueue(queue, WORKFLOW),
                PolledQueue(queue, ACTIVITY),
                PolledQueue(waiting_queue(queue), ACTIVITY),
            )
            await check_server(client.temporal, workers.task_queues)
    finally:
        await model.close()


async def test_a_task_queue_that_the_server_does_not_answer_for_is_named(settings: Settings) -> None:
    client = (await Holdfast.connect(settings)).temporal
    refused = "q" * (QUEUE_BYTES_MAX + 1)
    with pytest.raises(ServerUnavailable) as error:
        await check_server(client, [PolledQueue(settings.task_queue, WORKFLOW), PolledQueue(refused, ACTIVITY)])
    where = f"{settings.address}, namespace 'default', task queue '{refused}' (matching service): invalid_argument: "
    assert str(error.value).startswith(where)


async def test_a_namespace_that_is_not_there_and_a_server_that_is_away_are_told_by_address(settings: Settings) -> None:
    async with Proxy(str(settings.address)) as proxy:
        client = (await Holdfast.connect(replace(settings, address=proxy.own_address))).temporal
        await check_server(client, [])
        proxy.cut("reset")
        with pytest.raises(ServerUnavailable, match=f"^{proxy.own_address}, namespace 'default': un"):
            await check_server(client, [PolledQueue(settings.task_queue, WORKFLOW)])
