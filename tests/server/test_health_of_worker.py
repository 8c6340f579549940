"""A real worker process tells by /live and /ready how it is: while it starts, loses what it needs, and drains."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

from holdfast import AgentDefinition
from holdfast.client import Holdfast, Settings
from holdfast.connection.data_directory import ServerAddress
from holdfast.server.worker_health import STARTING
from holdfast.server.worker_process import worker_command, worker_environment
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import call, say
from tests.chaos.processes import frozen
from tests.forked import WarmWorker
from tests.server.health import LIVE, PAUSE_SECONDS, READY, SECONDS_MAX, Health, not_ready
from tests.server.held_tool import BEGUN, ENDED, GOES_ON

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(400)]


async def polls(client: Holdfast, queue: str, pid: int) -> bool:
    """Return whether the process has polled the queue for workflow tasks, as the server knows it."""
    request = DescribeTaskQueueRequest(
        namespace=client.temporal.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    answer = await client.temporal.workflow_service.describe_task_queue(request)
    return any(each.identity.startswith(f"{pid}@") for each in answer.pollers)


@contextmanager
def unreachable(storage: str) -> Generator[None]:
    """Put a file in the place of the storage's folder for the length of the block."""
    objects = Path(storage.removeprefix("file://"))
    away = objects.rename(objects.with_name("away"))
    objects.write_text("no folder")
    yield
    objects.unlink()
    away.rename(objects)


async def exists(path: Path) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not await asyncio.to_thread(path.exists):  # noqa: ASYNC110  # another process makes it
            await asyncio.sleep(PAUSE_SECONDS)


async def test_a_worker_is_ready_exactly_while_it_can_serve_and_live_until_it_ends(
    settings: Settings, temporal_server: ServerAddress, tmp_path: Path
) -> None:
    health, heard = Health(), list[str]()
    async with FakeOpenAI([call("hold"), say("done")]) as endpoint:
        environment = {
            **worker_environment(),
            "OPENAI_BASE_URL": endpoint.base_url,
            "HOLDFAST_MODEL": "scripted",
            "HOLDFAST_HEALTH": str(health.port),
            "HOLDFAST_TEST_FOLDER": str(tmp_path),
        }
        grace = {"grace_seconds": str(SECONDS_MAX)}
        command = worker_command(settings, ["tests.server.held_tool"], serving=grace)
        with frozen(temporal_server.pid):
            process = WarmWorker(command, heard.append, environment)
            try:
                assert await health.until("/live", lambda _: True) == LIVE
                assert not_ready(await health.get("/ready")) == {"worker": STARTING}
            except BaseException:
                process.stop()
                raise
        try:
            await check_serving(health, settings, temporal_server, process.pid)
            client = await Holdfast.connect(settings)
            run = await client.start(AgentDefinition(name="holder", tools="all"), "hold on")
            await exists(tmp_path / BEGUN)
            os.kill(process.pid, signal.SIGTERM)
            stopping = {"worker": "stopping: it takes no new calls"}
            await health.until("/ready", lambda answer: not_ready(answer) == stopping)
            assert await health.get("/live") == LIVE
            assert not (tmp_path / ENDED).exists()
            (tmp_path / GOES_ON).touch()
            assert await asyncio.to_thread(process.ended_within, SECONDS_MAX) == 0
            assert (tmp_path / ENDED).exists()
            with pytest.raises(OSError, match="refused"):
                await health.get("/live")
            await client.temporal.get_workflow_handle(run).terminate()
        finally:
            await asyncio.to_thread(process.stop)
    address = f"http://127.0.0.1:{health.port}"
    assert heard[0] == f"health: {address}/live and {address}/ready"


async def check_serving(health: Health, settings: Settings, server: ServerAddress, pid: int) -> None:
    """Take away storage and server from a worker, one after the other, and give them back."""
    await health.until("/ready", lambda answer: answer == READY)
    client = await Holdfast.connect(settings)
    async with asyncio.timeout(SECONDS_MAX):
        while not await polls(client, settings.task_queue, pid):  # noqa: ASYNC110  # it is noted a moment later
            await asyncio.sleep(PAUSE_SECONDS)

    with unreachable(str(settings.storage)):
        # a busy machine may be late with an answer of the other one, too: not for long
        await health.until("/ready", lambda answer: not_ready(answer).keys() == {"storage"})
        await health.until("/ready", lambda answer: "cannot write probe" in not_ready(answer).get("storage", ""))
        assert await health.get("/live") == LIVE
    await health.until("/ready", lambda answer: answer == READY)

    with frozen(server.pid):
        await health.until("/ready", lambda answer: not_ready(answer).keys() == {"server"})
        assert await health.get("/live") == LIVE
    await health.until("/ready", lambda answer: answer == READY)


@pytest.mark.slow
def test_a_worker_whose_health_address_cannot_be_used_says_so_before_it_serves(settings: Settings) -> None:
    command = worker_command(settings, [], serving={"health": "192.0.2.1:8086"})
    ended = subprocess.run(
        command, env=worker_environment(), capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    problem = "the health address 192.0.2.1:8086 cannot be used: Cannot assign requested address"
    assert ended.stderr == f"error: {problem}; choose an address of this machine\n"
