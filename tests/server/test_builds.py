"""What belongs to a build and what does not: subagents, rate-limited calls, tools elsewhere, earlier runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest

from holdfast import LLM, AgentDefinition
from holdfast.client import AgentHandle, Holdfast, Settings
from holdfast.connection.deployment_version import DeploymentVersion
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.toolset import Toolset
from holdfast.core.tools.tools import AnyTool, tool
from holdfast.models.routed_model import RoutedModel
from holdfast.models.routes import Route
from holdfast.server.deployments import routing
from holdfast.server.deployments.drain import drain
from holdfast.server.deployments.routing import promote
from holdfast.server.deployments.versions import BuildStatus, deployment
from holdfast.testing import ScriptedModel, say
from holdfast.testing.openai_server import FakeOpenAI
from tests.server.builds import SECONDS_MAX, answering, registered
from tests.workflows.histories import replayed
from workers import Workers, make_tools_worker, make_worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(400)]

LIMITED = LLM(model="large")
LIMITED_AGENT = AgentDefinition(name="asker", llm=LIMITED, tools="all")
PLAIN = AgentDefinition(name="asker", llm=LLM(model="small"), tools="all")
HELPER = AgentDefinition(name="helper", llm=LIMITED, tools="all")
LEAD = AgentDefinition(name="lead", llm=LIMITED, tools="all", subagents=("helper",))
STARTED = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
BEFORE = "before"
"""What a worker without a build calls itself."""


def tools(build: str, queue: str | None = None) -> Toolset:
    """The tools of a build; `far` is for `queue`."""

    def far() -> str:
        """Say whose tool this is."""
        return f"far-{build}"

    def named() -> str:
        """Say which build this is."""
        return build

    async def gate(path: str) -> str:
        """Wait until there is a file.

        Args:
            path: the file
        """
        while not Path(path).exists():  # noqa: ASYNC110, ASYNC240  # the test makes it
            await asyncio.sleep(0.05)
        return build

    own: tuple[AnyTool, ...] = (tool(name="build")(named), tool(gate))
    return Toolset(tools=(*own, tool(task_queue=queue)(far)) if queue else own)


@asynccontextmanager
async def build(settings: Settings, build_id: str | None, queue: str | None = None) -> AsyncGenerator[Workers]:
    """A worker of that build in this process, whose model says which one it is; with a route of limits."""
    name = build_id or BEFORE
    version = DeploymentVersion(settings.task_queue, build_id) if build_id else None
    async with FakeOpenAI(answering(f"model-{name}")) as endpoint:
        route = {"api": "openai_chat", "model": "m", "base_url": endpoint.base_url}
        limited = {**route, "rate_limits": {"requests_per_minute": 6_000}}
        routes = {"large": Route.model_validate(limited), "small": Route.model_validate(route)}
        model = RoutedModel(ScriptedModel([say("own")]), routes, {})
        client = await Holdfast.connect(settings)
        try:
            async with make_worker(client.temporal, settings, tools(name, queue), model, version=version) as workers:
                if version:
                    await registered(client, version)
                yield workers
        finally:
            await model.close()


async def said(client: Holdfast, id_: str) -> str:
    return (await client.result(id_)).final_response


async def at_work(client: Holdfast, id_: str) -> None:
    """Wait until the run's call of `gate` is under way."""
    handle = client.temporal.get_workflow_handle(id_)
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            calls = (await handle.describe()).raw_description.pending_activities
            if any(each.activity_type.name == "gate" and each.state == STARTED for each in calls):
                return
            await asyncio.sleep(0.1)  # the server has no event for it


async def test_a_run_keeps_its_build_in_subagents_and_queues_of_that_build_and_shares_tools_without_one(
    settings: Settings, tmp_path: Path
) -> None:
    queue, gate = f"far-{uuid4()}", tmp_path / "open"
    client = await Holdfast.connect(settings)
    elsewhere = replace(settings, task_queue=queue)
    far = make_tools_worker(client.temporal, elsewhere, tools("shared", queue), WorkerSettings())
    async with far, build(settings, "v1", queue):
        await promote(client.temporal, DeploymentVersion(settings.task_queue, "v1"))
        old = await client.start(LEAD, f"gate:{gate} spawn:helper far", subagents=[HELPER])
        async with build(settings, "v2", queue):
            await promote(client.temporal, DeploymentVersion(settings.task_queue, "v2"))
            new = await client.start(LEAD, "build spawn:helper far", subagents=[HELPER])
            assert await said(client, new) == "model-v2 v2 model-v2 v2 far-shared"
            gate.touch()
            assert await said(client, old) == "model-v1 v1 model-v1 v1 far-shared"


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
async def test_tool_workers_are_of_the_agents_build_or_of_a_deployment_of_their_own(
    settings: Settings,
    tmp_path: Path,
    shared: bool,  # noqa: FBT001  # of pytest
) -> None:
    queue, gate = f"far-{uuid4()}", tmp_path / "open"
    client = await Holdfast.connect(settings)
    name = settings.task_queue if shared else queue
    first, second = (DeploymentVersion(name, each) for each in ("v1", "v2"))

    def tool_worker(version: DeploymentVersion) -> Workers:
        elsewhere, here = replace(settings, task_queue=queue), tools(version.build_id, queue)
        return make_tools_worker(client.temporal, elsewhere, here, WorkerSettings(), version=version)

    async with build(settings, "v1", queue), tool_worker(first):
        await promote(client.temporal, DeploymentVersion(settings.task_queue, "v1"))
        await registered(client, first, queue)
        if not shared:
            await promote(client.temporal, first)
        old = await client.start(LIMITED_AGENT, f"gate:{gate} far")
        async with build(settings, "v2", queue), tool_worker(second):
            await registered(client, second, queue)  # a build that lacks a queue of the current one is not promoted
            await promote(client.temporal, DeploymentVersion(settings.task_queue, "v2"))
            if not shared:
                await promote(client.temporal, second)
            new = await client.start(LIMITED_AGENT, "far")
            assert await said(client, new) == "model-v2 far-v2"
            gate.touch()
            of_old = "far-v1" if shared else "far-v2"
            assert await said(client, old) == f"model-v1 v1 {of_old}"


async def test_a_build_is_promoted_once_its_workers_serve_every_queue_of_the_current_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "REGISTERED_SECONDS_MAX", SECONDS_MAX)
    queue = f"far-{uuid4()}"
    elsewhere, client = replace(settings, task_queue=queue), await Holdfast.connect(settings)
    first, second = (DeploymentVersion(settings.task_queue, each) for each in ("v1", "v2"))

    def tool_worker(version: DeploymentVersion) -> Workers:
        here = tools(version.build_id, queue)
        return make_tools_worker(client.temporal, elsewhere, here, WorkerSettings(), version=version)

    async with build(settings, "v1", queue), tool_worker(first):
        await registered(client, first, queue)
        await promote(client.temporal, first)
        async with build(settings, "v2", queue):
            used = await client.start(LIMITED_AGENT, "far")  # the server asks only for queues that had tasks lately
            assert await said(client, used) == "model-v1 far-v1"
            promoting = asyncio.create_task(promote(client.temporal, second))
            finished, _ = await asyncio.wait([promoting], timeout=2)
            assert not finished, "its queue of tools is missing"
            async with tool_worker(second):
                assert await promoting == "v1"
                assert await said(client, await client.start(LIMITED_AGENT, "far")) == "model-v2 far-v2"


@pytest.mark.slow
async def test_a_run_that_continues_as_new_moves_and_one_from_before_builds_goes_on(
    settings: Settings, tmp_path: Path
) -> None:
    gate = tmp_path / "open"
    client = await Holdfast.connect(settings)
    often = await Holdfast.connect(replace(settings, continue_events=1))
    async with build(settings, None):
        early = await client.start(PLAIN, f"gate:{gate} build")
        talking: AgentHandle[str] = client.agent(definition=PLAIN)
        assert (await talking.ask("build")).output == "model-before before"
        async with build(settings, "v1"):
            await promote(client.temporal, DeploymentVersion(settings.task_queue, "v1"))
            long = await often.start(PLAIN, f"build gate:{gate} build")
            async with build(settings, "v2"):
                await promote(client.temporal, DeploymentVersion(settings.task_queue, "v2"))
                gate.touch()
                assert await said(client, early) == "model-v2 before v2", "it moved at its next task"
                assert await said(client, long) == "model-v2 v1 v1 v2", "it moved behind the step that it was in"
                assert (await talking.ask("build")).output == "model-v2 v2"
    await replayed(client, early)
    await replayed(client, long)


@pytest.mark.slow
async def test_workers_without_a_build_take_over_what_builds_had(settings: Settings, tmp_path: Path) -> None:
    gate, name = tmp_path / "open", settings.task_queue
    client = await Holdfast.connect(settings)
    async with build(settings, None):
        async with build(settings, "v1"):
            await promote(client.temporal, DeploymentVersion(name, "v1"))
            left = await client.start(PLAIN, f"gate:{gate}")
            await at_work(client, left)
            talking: AgentHandle[str] = client.agent(definition=PLAIN)
            assert (await talking.ask("build")).output == "model-v1 v1"
            there = await deployment(client.temporal, name)
            unversioned = SetWorkerDeploymentCurrentVersionRequest(  # what the command of docs/deploy.md sends
                namespace=client.temporal.namespace, deployment_name=name, conflict_token=there.conflict_token
            )
            await client.temporal.workflow_service.set_worker_deployment_current_version(unversioned)
            async with asyncio.timeout(SECONDS_MAX):  # the server may list the build as current for a moment
                while (await deployment(client.temporal, name)).build("v1").status is not BuildStatus.DRAINING:  # noqa: ASYNC110  # the server has no event for it
                    await asyncio.sleep(0.2)
            looked, version = asyncio.Event(), DeploymentVersion(name, "v1")
            async with asyncio.TaskGroup() as group:
                draining = group.create_task(drain(client.temporal, version, 300, lambda _: looked.set()))
                await looked.wait()
                assert not draining.done(), "a run is under way"
                gate.touch()
                assert await said(client, left) == "model-v1 v1", "what is under way ends on its build"
            assert draining.result().status is BuildStatus.DRAINED
        assert (await talking.ask("build")).output == "model-before before"
        assert await said(client, await client.start(PLAIN, "build")) == "model-before before"


@pytest.mark.slow
async def test_a_run_whose_build_has_gone_waits_for_a_worker_with_that_id_and_an_ended_one_is_readable(
    settings: Settings, tmp_path: Path
) -> None:
    gate = tmp_path / "open"
    client = await Holdfast.connect(settings)
    async with build(settings, "v2"):
        async with build(settings, "v1"):
            await promote(client.temporal, DeploymentVersion(settings.task_queue, "v1"))
            ended = await client.start(PLAIN, "build")
            assert await said(client, ended) == "model-v1 v1"
            left = await client.start(PLAIN, f"gate:{gate}")
            await at_work(client, left)
            await promote(client.temporal, DeploymentVersion(settings.task_queue, "v2"))
        gate.touch()
        new = await client.start(PLAIN, "build")
        assert await said(client, new) == "model-v2 v2"
        assert await said(client, ended) == "model-v1 v1"
        listed = {each.execution_id: each.status for each in await client.runs()}
        assert listed[left] == "in_progress", "nobody of v2 takes it up"
        async with build(settings, "v1"):
            assert await said(client, left) == "model-v1 v1"
