"""Builds without workers on a real server: other programs' names, two people at once, a server that pauses."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.workflowservice.v1 import (
    CreateWorkerDeploymentRequest,
    CreateWorkerDeploymentVersionRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)

from holdfast.client import Holdfast, Settings
from holdfast.connection.deployment_version import DeploymentVersion
from holdfast.core.base.errors import Conflict, InvalidInput, ServerUnavailable
from holdfast.server.deployments import drain as draining
from holdfast.server.deployments import routing, versions

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]


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
