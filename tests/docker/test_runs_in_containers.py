"""Runs on the real server whose workspace is a container: lost, stopped, killed with its worker, restored."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentDefinition, ExecutionStatus, tool
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.steps import Outcome
from holdfast.storage.object_store import Objects
from holdfast.storage.records import Records
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, call, calls, say
from holdfast.workspace.calls import RESTORED, WorkspaceCalls
from holdfast.workspace.docker.container_spec import LABEL
from holdfast.workspace.docker.docker_backend import DockerBackend
from holdfast.workspace.tools import WorkspaceTools
from tests.chaos.processes import READY_SECONDS_MAX, worker
from tests.docker.daemon import HOST, Daemon, profile
from tests.serving import Serve

pytestmark = [pytest.mark.docker, pytest.mark.temporal, pytest.mark.timeout(600)]

GONE_SECONDS_MAX = 60.0


def offered(settings: Settings, backend: DockerBackend) -> Toolset:
    assert settings.storage is not None
    records = Records(Objects(settings.storage))
    return WorkspaceTools(WorkspaceCalls({"docker": backend}, records)).toolset()


def coder(image: str, *tools: str) -> AgentDefinition:
    return AgentDefinition(name="coder", tools=tools, workspace=profile(image))


def results(state: AgentState) -> list[str]:
    return [str(each.result or each.error_message) for step in state.steps for each in step.tool_executions]


async def test_a_run_works_in_a_container_and_goes_on_in_another_with_its_files(
    serve: Serve, settings: Settings, backend: DockerBackend, daemon: Daemon, image: str
) -> None:
    containers: list[str] = []

    @tool
    def lose() -> str:
        """Do what an end of the lease does."""
        containers.append(daemon.only())
        daemon.clear()
        return "lost"

    script = [
        call("write_file", path="src/a.py", content="print('hello')\n"),
        calls(Call("read_file", {"path": "src/a.py"}), Call("shell", {"command": "id -u; python3 src/a.py"})),
        call("lose"),
        call("run_python", code="import runpy; runpy.run_path('src/a.py')"),
        say("done"),
    ]
    offer = offered(settings, backend).joined(Toolset(tools=(lose,)))
    async with serve(script, offer=offer) as served:
        result = await served.client.run(coder(image, "lose"), "work")
    made, read, ran, lost, again = results(result.state)
    assert (made, read, lost) == ("made src/a.py: 15 bytes", "print('hello')\n", "lost")
    assert ran.endswith("]\n10001\nhello\n")
    assert again.startswith(RESTORED)
    assert again.endswith("]\nhello\n")
    assert [daemon.only()] != containers


async def test_a_stop_of_a_run_ends_its_command(
    serve: Serve, settings: Settings, backend: DockerBackend, daemon: Daemon, image: str
) -> None:
    script = [call("shell", command="trap '' TERM; while true; do sleep 77; done")]
    async with serve(script, offer=offered(settings, backend)) as served:
        run = await served.client.start(coder(image), "work")
        async with asyncio.timeout(READY_SECONDS_MAX):
            while not daemon.containers() or not any("sleep 77" in each for each in daemon.commands()):
                await asyncio.sleep(0.05)
        await served.client.stop(run)
        state = await served.client.result(run)
        async with asyncio.timeout(READY_SECONDS_MAX):
            while any("sleep 77" in each for each in daemon.commands()):  # another process's end
                await asyncio.sleep(0.05)
    assert state.status is ExecutionStatus.STOPPED


async def test_the_model_is_told_what_is_missing(
    serve: Serve, settings: Settings, backend: DockerBackend, image: str
) -> None:
    del image
    script = [call("shell", command="true"), say("no workspace")]
    async with serve(script, offer=offered(settings, backend)) as served:
        result = await served.client.run(coder("holdfast-absent:1"), "work")
    [message] = results(result.state)
    assert "the image 'holdfast-absent:1' is not on the worker's host" in message
    assert result.state.status is ExecutionStatus.COMPLETED


async def test_a_worker_killed_in_a_command_leaves_no_container_and_the_run_goes_on(
    settings: Settings, api: Any, tmp_path: Path, image: str
) -> None:
    script = [
        call("write_file", path="file", content="kept\n"),
        call("shell", command="echo lost >> file; sleep 1111"),
        call("shell", command="cat file"),
        say("done"),
    ]
    environment = {"HOLDFAST_WORKSPACES": "docker", "DOCKER_HOST": HOST}
    own = replace(settings, workspaces=("docker",))
    async with FakeOpenAI(script) as endpoint:
        client = await Holdfast.connect(own)
        async with worker(own, endpoint, tmp_path / "ledger", environment) as first:
            id_ = await client.start(coder(image), "work")
            daemon = Daemon(api, "default", f"{LABEL}={id_}")
            await sleeping(daemon)
            first.kill()
        async with asyncio.timeout(GONE_SECONDS_MAX):
            while daemon.names():  # another process's end
                await asyncio.sleep(0.2)
        async with worker(own, endpoint, tmp_path / "ledger", environment):
            state = await client.result(id_)
            daemon.clear()
    executions = [each for step in state.steps for each in step.tool_executions]
    assert executions[1].outcome is Outcome.FAILED
    assert executions[1].error is not None
    assert executions[1].error.type == "OutcomeUnknown"
    assert results(state)[2].startswith(RESTORED)
    assert results(state)[2].endswith("]\nkept\n")


async def sleeping(daemon: Daemon) -> None:
    async with asyncio.timeout(READY_SECONDS_MAX):
        while not daemon.containers() or not any("sleep 1111" in each for each in daemon.commands()):
            await asyncio.sleep(0.1)
