"""Builds without workers on a real server: other programs' names, two people at once, a server that pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    CreateWorkerDeploymentRequest,
    CreateWorkerDeploymentVersionRequest,
    ListWorkflowExecutionsRequest,
    ListWorkflowExecutionsResponse,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client import Holdfast, Settings
from holdfast.connection.deployment_version import DeploymentVersion
from holdfast.core.base.errors import Conflict, InvalidInput, ServerUnavailable
from holdfast.core.wire.session_contracts import AGENT_SESSION
from holdfast.server.deployments import drain as draining
from holdfast.server.deployments import routing, versions

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]

AWAY_LOOKS = 3
"""Up to which look a server is away that restarts."""


async def with_builds(settings: Settings, *builds: str) -> Holdfast:
    """Return a connection to a server that has a deployment of the queue's name with these builds."""
    client, name = await Holdfast.connect(settings), settings.task_queue
    service, namespace = client.temporal.workflow_service, client.temporal.namespace
    begin = CreateWorkerDeploymentRequest(namespace=namespace, deployment_name=name, identity="a test", request_id=name)
    await service.create_worker_deployment(begin)
    for each in builds:
        version = WorkerDeploymentVersion(deployment_name=name, build_id=each)
        request = CreateWorkerDeploymentVersionRequest(
            namespace=namespace, deployment_version=version, identity="a test", request_id=each
        )
        await service.create_worker_deployment_version(request)
    return client


async def test_builds_of_other_programs_are_listed_under_any_name(settings: Settings) -> None:
    strange = ("feature/x", "it's one", "v1")
    temporal = (await with_builds(settings, *strange)).temporal
    there = await versions.surveyed(temporal, await versions.deployment(temporal, settings.task_queue))
    assert sorted(each.build_id for each in there.builds) == sorted(strange)
    assert there.build("v1").workers == 0
    with pytest.raises(InvalidInput, match=r"a deployment cannot be called 'no\.such'"):
        await versions.deployment(temporal, "no.such")


@pytest.mark.parametrize("change", ["promote", "ramp"])
async def test_who_has_not_seen_the_latest_change_undoes_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    temporal = (await with_builds(settings, "v1", "v2")).temporal
    name, looks = settings.task_queue, list[str]()

    async def looked(*arguments: Any) -> versions.Deployment:  # noqa: ANN401  # passed on
        there = await versions.deployment(*arguments)
        if not looks:  # somebody else promotes behind this look
            looks.append(name)
            request = SetWorkerDeploymentCurrentVersionRequest(
                namespace=temporal.namespace, deployment_name=name, build_id="v2", allow_no_pollers=True
            )
            await temporal.workflow_service.set_worker_deployment_current_version(request, timeout=routing.SET_TIMEOUT)
        return there

    monkeypatch.setattr(routing, "deployment", looked)
    version = DeploymentVersion(name, "v1")
    changing: Coroutine[Any, Any, object] = (
        routing.promote(temporal, version, allow_no_pollers=True)
        if change == "promote"
        else routing.ramp(temporal, version, 10, allow_no_pollers=True)
    )
    with pytest.raises(Conflict, match=r"somebody else has changed deployment .* 'v2' is current now; look with"):
        await changing
    there = await versions.deployment(temporal, name)
    assert (there.current, there.build("v1").status) == ("v2", versions.BuildStatus.INACTIVE)


async def test_a_drain_waits_for_a_server_that_is_away_for_a_while(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporal = (await with_builds(settings, "v1")).temporal
    away = [ServerUnavailable("it restarts")] * 2

    async def looked(*arguments: Any) -> versions.Deployment:  # noqa: ANN401  # passed on
        if away:
            raise away.pop()
        return await versions.deployment(*arguments)

    monkeypatch.setattr(draining, "deployment", looked)
    monkeypatch.setattr(draining, "POLL_SECONDS", 0.01)
    version = DeploymentVersion(settings.task_queue, "v1")
    build = await draining.drain(temporal, version, 60, lambda _: None)
    assert (build.status, away) == (versions.BuildStatus.INACTIVE, [])
    away.append(ServerUnavailable("it is gone"))
    monkeypatch.setattr(draining, "SILENCE_SECONDS_MAX", -1.0)
    with pytest.raises(ServerUnavailable, match="it is gone"):
        await draining.drain(temporal, version, 60, lambda _: None)


async def test_a_change_that_is_made_is_no_error_where_the_server_is_away_then(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporal = (await with_builds(settings, "v1", "v2")).temporal
    looks = list[str]()

    async def looked(*arguments: Any) -> versions.Deployment:  # noqa: ANN401  # passed on
        looks.append(settings.task_queue)
        if 1 < len(looks) <= AWAY_LOOKS:  # the first one is before the change
            raise ServerUnavailable("it restarts")
        return await versions.deployment(*arguments)

    monkeypatch.setattr(routing, "deployment", looked)
    version = DeploymentVersion(settings.task_queue, "v1")
    assert await routing.promote(temporal, version, allow_no_pollers=True) is None
    assert len(looks) > AWAY_LOOKS, "it is looked at again"
    looks.clear()
    await routing.ramp(temporal, DeploymentVersion(settings.task_queue, "v2"), 10, allow_no_pollers=True)
    there = await versions.deployment(temporal, settings.task_queue)
    assert (there.current, there.build("v2").percent) == ("v1", 10)


class Resting:
    """A server with twice as many sessions on a build as are asked at once; none of them answers."""

    def __init__(self, *failures: Exception) -> None:
        self.asked = list[str]()
        self._failures = list(failures)
        self.namespace, self.data_converter = "default", DataConverter.default
        self.workflow_service = SimpleNamespace(list_workflow_executions=self._list)

    async def _list(self, request: ListWorkflowExecutionsRequest, **_: object) -> ListWorkflowExecutionsResponse:
        if self._failures:
            raise self._failures.pop()
        sessions = range(2 * draining.MOVED_AT_ONCE_MAX if AGENT_SESSION in request.query else 0)
        ids = [WorkflowExecution(workflow_id=f"session-{number}") for number in sessions]
        return ListWorkflowExecutionsResponse(executions=[WorkflowExecutionInfo(execution=each) for each in ids])

    def get_workflow_handle(self, workflow_id: str) -> Resting:
        self.asked.append(workflow_id)
        return self

    async def execute_update(self, *_: object, rpc_timeout: timedelta) -> None:
        await asyncio.sleep(rpc_timeout.total_seconds())
        raise WorkflowUpdateRPCTimeoutOrCancelledError


@pytest.mark.parametrize("failures", [(), (RPCError("it restarts", RPCStatusCode.UNAVAILABLE, b""),)], ids=str)
async def test_a_drain_ends_in_time_though_no_session_answers(
    monkeypatch: pytest.MonkeyPatch, failures: Sequence[Exception]
) -> None:
    server, version = Resting(*failures), DeploymentVersion("desk", "v1")
    build = versions.Build("v1", versions.BuildStatus.DRAINING, workers=1, runs=0, sessions=16)

    async def looked(*_: object) -> versions.Deployment:
        return versions.Deployment(name="desk", builds=(build,), current="v2", is_settled=True, conflict_token=b"")

    async def counted(*_: object) -> versions.Build:
        return build

    monkeypatch.setattr(draining, "deployment", looked)
    monkeypatch.setattr(draining, "counted", counted)
    monkeypatch.setattr(draining, "POLL_SECONDS", 0.01)
    began = asyncio.get_running_loop().time()
    with pytest.raises(Conflict, match="not drained after 1 s"):
        await draining.drain(cast("Any", server), version, 1, lambda _: None)
    assert asyncio.get_running_loop().time() - began < versions.RPC_TIMEOUT.total_seconds()
    assert len(server.asked) >= draining.MOVED_AT_ONCE_MAX
