"""A worker whose polls the server refuses for good: it ends by itself, also where a call of it does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import AgentDefinition
from holdfast.client import Holdfast, Settings
from holdfast.core.base.errors import ServerUnavailable
from holdfast.server.worker_process import worker_command, worker_environment
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import call, say
from tests.forked import WarmWorker
from tests.server.refused_polls import ENDS, FOLDER, REFUSED

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]

SECONDS_MAX = 60


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "exit_code"), [(False, 1), (True, ServerUnavailable.exit_code)])
async def test_a_worker_whose_polls_are_refused_ends_though_a_call_does_not(
    settings: Settings, tmp_path: Path, *, ends: bool, exit_code: int
) -> None:
    heard = list[str]()
    if ends:
        (tmp_path / ENDS).touch()
    async with FakeOpenAI([call("hold"), say("done")]) as endpoint:
        environment = {
            **worker_environment(),
            "OPENAI_BASE_URL": endpoint.base_url,
            "HOLDFAST_MODEL": "scripted",
            FOLDER: str(tmp_path),
        }
        command = worker_command(settings, ["tests.server.refused_polls"], serving={"grace_seconds": "1"})
        process = WarmWorker(command, heard.append, environment)
        try:
            assert await asyncio.to_thread(process.wait_until_ready, 120), heard
            client = await Holdfast.connect(settings)
            run = await client.start(AgentDefinition(name="holder", tools="all"), "hold on")
            code = await asyncio.to_thread(process.ended_within, SECONDS_MAX)
            await client.temporal.get_workflow_handle(run).terminate()
        finally:
            process.kill()
            await asyncio.to_thread(process.stop)
    assert code == exit_code, heard
    if not ends:
        assert heard[-1] == "error: the worker ends without calls that still run after 3 s: they count as lost", heard
    else:
        queue = f"the worker cannot serve the task queue {settings.task_queue!r} any more"
        assert heard[-1].startswith(f"error: {queue}: {REFUSED}; may it still"), heard
    assert any(REFUSED in each for each in heard), heard
