"""What people are told who wait for a build: one that nobody has promoted, and one whose workers are gone."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from pathlib import Path

import pytest

from holdfast.client import AgentHandle, Holdfast, Settings
from holdfast.client.worker_presence import cause_of_silence, unserved
from holdfast.connection.queue_routing import task_target
from holdfast.core.base.errors import ServerUnavailable
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.testing.openai_server import FakeOpenAI
from tests.cli.program import Project, beside
from tests.server.builds import AGENT, SECONDS_MAX, Deploy, answering, worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(400)]

DEFINITION = "---\nname: asker\ntools: all\n---\nDo what you are asked.\n"


async def temporal_cli(settings: Settings, command: str) -> None:
    """Do what a hint has told a person to do."""
    program, *arguments = shlex.split(command)
    assert program == "temporal"
    where = ("--address", settings.address or "")
    process = await asyncio.create_subprocess_exec(Path(sys.executable).with_name(program), *arguments, *where)
    assert await asyncio.wait_for(process.wait(), SECONDS_MAX) == 0


async def gone(client: Holdfast, workflow_id: str) -> None:
    """Wait until the server knows that nobody serves the workflow any more: ended workers still count for a minute."""
    async with asyncio.timeout(SECONDS_MAX):
        while await unserved(client.temporal, client.settings.task_queue, workflow_id) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.5)  # the server has no event for it


@pytest.mark.slow
async def test_a_run_and_a_message_say_that_no_build_is_current_and_go_on_once_one_is(
    settings: Settings, tmp_path: Path
) -> None:
    deploy, name = Deploy(settings, tmp_path), settings.task_queue
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "asker.md").write_text(DEFINITION, encoding="utf-8")
    project = Project(tmp_path, beside(settings))
    missing = f"workers of 'v1' serve the task queue '{name}', and no build is current"
    command = f"`holdfast deploy promote v1 --deployment {name}`"
    async with FakeOpenAI(answering()) as endpoint, worker(settings, endpoint, "v1"):
        with (
            project.started("run", "asker", "build") as running,
            project.started("send", "00000000-0000-4000-8000-000000000001", "build", "--agent", "asker") as sending,
        ):
            hint = await asyncio.to_thread(running.heard, "no build is current")
            assert hint == f"{missing}: the run waits for {command}\n"
            hint = await asyncio.to_thread(sending.heard, "no build is current")
            assert hint == f"{missing}: the message waits for {command} (Ctrl-C leaves)\n"
            await deploy.done("promote", "v1")
            ended = await asyncio.to_thread(running.ended, SECONDS_MAX)
            assert (ended.code, "v1" in ended.out) == (0, True), ended
            ended = await asyncio.to_thread(sending.ended, SECONDS_MAX)
            assert (ended.code, ended.out) == (0, "v1\n"), ended


@pytest.mark.slow
async def test_who_waits_for_a_build_that_is_gone_is_told_which_and_how_to_move_what_waits(
    settings: Settings, tmp_path: Path
) -> None:
    deploy, gate, queue = Deploy(settings, tmp_path), tmp_path / "open", settings.task_queue
    client = await Holdfast.connect(settings)
    session: AgentHandle[str] = client.agent(definition=AGENT)
    session_id = session_workflow_id(session.agent_id)
    async with FakeOpenAI(answering()) as endpoint, worker(settings, endpoint, "v2"):
        async with worker(settings, endpoint, "v1"):
            await deploy.done("promote", "v1")
            assert (await session.ask("build")).output == "v1"
            run = await client.start(AGENT, f"gate:{gate} build")
            target = await task_target(client.temporal, queue, run)
            while target.version != (queue, "v1"):  # its first task
                await asyncio.sleep(0.1)
                target = await task_target(client.temporal, queue, run)
            assert target.is_served
            await deploy.done("promote", "v2")
        await gone(client, run)
        with pytest.raises(ServerUnavailable) as caught:
            await client.state(run)
        told = str(caught.value)
        assert f"no worker of build 'v1' of deployment '{queue}', to which it is pinned" in told
        assert f"start one with `holdfast worker --build-id v1 --task-queue {queue}`" in told
        [move] = re.findall(r"`(temporal [^`]*)`", told)
        silent = await cause_of_silence(client.temporal, queue, session_id)
        assert "build 'v1'" in silent
        assert f"--workflow-id {session_id} " in silent
        project = Project(tmp_path, beside(settings))
        with project.started("send", session.agent_id, "build") as sending:
            hint = await asyncio.to_thread(sending.heard, "build 'v1'")
            assert f"the message waits for `holdfast worker --build-id v1 --task-queue {queue}`" in hint
            await temporal_cli(settings, re.findall(r"`(temporal [^`]*)`", silent)[0])
            ended = await asyncio.to_thread(sending.ended, SECONDS_MAX)
            assert (ended.code, ended.out) == (0, "v2\n"), ended
        gate.touch()
        await temporal_cli(settings, move)
        assert (await client.result(run)).final_response == "v2 v2"
