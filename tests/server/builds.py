"""Workers of several builds, as processes or in this one, and `holdfast deploy` beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentVersionRequest
from temporalio.service import RPCError, RPCStatusCode

from holdfast import AgentDefinition
from holdfast.client import Holdfast, Settings
from holdfast.connection.deployment_version import DeploymentVersion
from holdfast.core.base.errors import InvalidInput
from holdfast.server.deployments.versions import deployment
from holdfast.server.worker_process import WorkerProcess, worker_command, worker_environment
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, Reply, calls, say
from tests.cli.program import Ended, Project, beside
from tests.forked import WarmWorker

SECONDS_MAX = 120
AGENT = AgentDefinition(name="asker", tools="all")

Word = Callable[[str], Call]
WORDS: Mapping[str, Word] = {
    "build": lambda _: Call("build"),
    "far": lambda _: Call("far"),
    "gate": lambda path: Call("gate", {"path": path}),
    "spawn": lambda agent: Call("spawn", {"agent": agent, "task": "build"}),
}


def answering(name: str = "") -> Callable[[dict[str, Any]], Reply]:
    """Return a script: a question's words, such as `gate:PATH build`, are called one step after another.

    The answer is what they returned, and `name` before that: of the model, which may be of a build as well.
    """

    def reply(request: dict[str, Any]) -> Reply:
        turn = max(place for place, each in enumerate(request["messages"]) if each["role"] == "user")
        results = [str(each["content"]) for each in request["messages"][turn:] if each["role"] == "tool"]
        words = str(request["messages"][turn]["content"]).split()
        if len(results) == len(words):
            return say(" ".join([name, *results]).strip())
        word, _, argument = words[len(results)].partition(":")
        return calls(WORDS[word](argument))

    return reply


async def registered(client: Holdfast, version: DeploymentVersion, *queues: str) -> None:
    """Wait until the server knows the build: its workers have polled for the first time, those of `queues`, too."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            with suppress(InvalidInput):
                (await deployment(client.temporal, version.deployment)).build(version.build_id)
                if not queues or {*queues} <= await _queues(client, version):
                    return
            await asyncio.sleep(0.2)  # the server has no event for it


async def _queues(client: Holdfast, version: DeploymentVersion) -> set[str]:
    """Return the names of the task queues that workers of the build poll."""
    request = DescribeWorkerDeploymentVersionRequest(
        namespace=client.temporal.namespace,
        deployment_version=WorkerDeploymentVersion(deployment_name=version.deployment, build_id=version.build_id),
    )
    try:
        described = await client.temporal.workflow_service.describe_worker_deployment_version(request)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:  # it is listed before it is there
            return set()
        raise
    return {each.name for each in described.version_task_queues}


@asynccontextmanager
async def worker(settings: Settings, endpoint: FakeOpenAI, build_id: str) -> AsyncGenerator[WorkerProcess]:
    """A worker process of that build."""
    told = {**worker_environment(), "OPENAI_BASE_URL": endpoint.base_url, "HOLDFAST_MODEL": "scripted"}
    command = worker_command(settings, ["tests.server.build_tools"], serving={"build_id": build_id})
    heard: list[str] = []
    process = WarmWorker(command, heard.append, {**told, "HOLDFAST_BUILD_ID": build_id})
    try:
        assert await asyncio.to_thread(process.wait_until_ready, SECONDS_MAX), heard
        assert f"build {build_id!r} of deployment {settings.task_queue!r}" in "".join(heard), heard
        await registered(await Holdfast.connect(settings), DeploymentVersion(settings.task_queue, build_id))
        yield process
    finally:
        await asyncio.to_thread(process.stop)


class Deploy:
    """`holdfast deploy` for the settings' task queue."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._project = Project(folder, beside(settings))

    async def __call__(self, *arguments: str) -> Ended:
        """Run the action to its end."""
        return await asyncio.to_thread(self._project.run, "deploy", *arguments, seconds_max=240)

    async def done(self, *arguments: str) -> Any:  # noqa: ANN401  # what JSON holds
        """Run the action, which must succeed, and return its JSON."""
        ended = await self(*arguments, "--json")
        assert ended.code == 0, ended
        return ended.document

    async def builds(self) -> dict[str, dict[str, Any]]:
        """Return what `status` says of each build."""
        return {each["build_id"]: each for each in (await self.done("status"))["builds"]}
