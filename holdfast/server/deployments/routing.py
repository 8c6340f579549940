"""Which build gets new runs: promoting one, and giving it a share of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

from temporalio.api.workflowservice.v1 import (
    SetWorkerDeploymentCurrentVersionRequest,
    SetWorkerDeploymentRampingVersionRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from holdfast.connection.deployment_version import DeploymentVersion
from holdfast.connection.rpc_errors import refusal, rpc_message
from holdfast.core.base.errors import Conflict, HoldfastError, InvalidInput, ServerUnavailable
from holdfast.server.deployments.versions import BuildStatus, Deployment, deployment, worker_count

SET_TIMEOUT: Final = timedelta(seconds=60)
"""How long a change may take: the server asks all its parts, which took more than 5 s on a busy machine."""

SETTLED_SECONDS_MAX: Final = 10.0
"""How long to wait until all parts of the server route by the change: a second, as a rule.

A server (1.32) that was told to promote a build without any task queue says for ever that they do not.
"""

SETTLED_POLL_SECONDS: Final = 0.2

REGISTERED_SECONDS_MAX: Final = 20.0
"""How long to wait for a build whose workers have just started.

The server learns of each of their queues at that queue's first request for work, one by one.
"""

REGISTERED_POLL_SECONDS: Final = 0.5

UNREGISTERED: Final = "missing active task queues"
"""What the server says of a build that lacks a queue of the current one."""

STALE: Final = "conflict token"
"""What the server says of a change by somebody who has not seen the latest one."""


async def promote(
    temporal: TemporalClient, version: DeploymentVersion, *, allow_no_pollers: bool = False
) -> str | None:
    """Make a build the current one, which gets new runs, and return the one that was current before, if any.

    Returns once the server routes by it, or has not in SETTLED_SECONDS_MAX. Raises InvalidInput for a build that the
    server does not know; Conflict for one without workers, or one that still lacks a queue of the current one after
    REGISTERED_SECONDS_MAX; ServerUnavailable.
    """
    there = await deployment(temporal, version.deployment)
    await _check(temporal, there, version, allow_no_pollers=allow_no_pollers)
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=temporal.namespace,
        deployment_name=version.deployment,
        build_id=version.build_id,
        identity=temporal.identity,
        allow_no_pollers=allow_no_pollers,
        conflict_token=there.conflict_token,
    )
    change = partial(temporal.workflow_service.set_worker_deployment_current_version, request, timeout=SET_TIMEOUT)
    await _set(temporal, change, version, there)
    await _settled(temporal, version.deployment)
    return there.current


async def ramp(
    temporal: TemporalClient, version: DeploymentVersion, percent: float, *, allow_no_pollers: bool = False
) -> None:
    """Give a build so many percent of new runs, or none with 0. Returns and raises as `promote` does.

    Raises Conflict for the build that is current, too: it has the rest.
    """
    if not 0 <= percent <= 100:  # noqa: PLR2004  # percent
        raise InvalidInput(f"{percent:g} % cannot be a share of new runs; give 0 to 100")
    there = await deployment(temporal, version.deployment)
    build = there.build(version.build_id)
    if build.status is BuildStatus.CURRENT:
        share = "it has all new runs that no other build gets"
        raise Conflict(f"{version} is current: {share}; ramp another one, or promote it")
    if not percent and build.status is not BuildStatus.RAMPING:
        return  # it has none
    if percent:
        await _check(temporal, there, version, allow_no_pollers=allow_no_pollers)
    request = SetWorkerDeploymentRampingVersionRequest(
        namespace=temporal.namespace,
        deployment_name=version.deployment,
        build_id=version.build_id if percent else "",
        percentage=percent,
        identity=temporal.identity,
        allow_no_pollers=allow_no_pollers,
        conflict_token=there.conflict_token,
    )
    change = partial(temporal.workflow_service.set_worker_deployment_ramping_version, request, timeout=SET_TIMEOUT)
    await _set(temporal, change, version, there)
    await _settled(temporal, version.deployment)


async def _check(
    temporal: TemporalClient, there: Deployment, version: DeploymentVersion, *, allow_no_pollers: bool
) -> None:
    there.build(version.build_id)
    if not allow_no_pollers and not await worker_count(temporal, version):
        problem = f"no worker of {version} has asked for work in the last 75 s: its runs would wait"
        start = f"start one with `--build-id {version.build_id}`, or give --allow-no-pollers"
        raise Conflict(f"{problem}; {start}")


async def _set(
    temporal: TemporalClient, change: Callable[[], Awaitable[Any]], version: DeploymentVersion, seen: Deployment
) -> None:
    """Make a change of what was `seen`, once the build's workers are registered on all queues that it needs.

    Raises Conflict where the server refuses it, or somebody else has changed the deployment meanwhile.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + REGISTERED_SECONDS_MAX
    while True:
        try:
            await change()
        except RPCError as error:
            if UNREGISTERED not in str(error) or clock() >= deadline:
                raise await _refused(temporal, error, version, seen) from None
        else:
            return
        await asyncio.sleep(REGISTERED_POLL_SECONDS)  # the server has no event for it


async def _refused(
    temporal: TemporalClient, error: RPCError, version: DeploymentVersion, seen: Deployment
) -> HoldfastError:
    """Return what a refused change of what was `seen` means."""
    if STALE in str(error):
        now = (await deployment(temporal, version.deployment)).current
        changed = f"{now!r} is current now" if now != seen.current else "its builds or shares are others now"
        problem = f"somebody else has changed deployment {version.deployment!r} meanwhile: {changed}"
        return Conflict(f"{problem}; look with `holdfast deploy status`, and repeat it if it is still meant")
    if error.status is RPCStatusCode.FAILED_PRECONDITION:
        problem = f"the server does not route to {version}: {rpc_message(error)}"
        return Conflict(f"{problem}; `holdfast deploy status` shows what is there")
    return refusal(error)


async def _settled(temporal: TemporalClient, name: str) -> None:
    """Wait until all parts of the server have learned of a change, as far as it says so.

    A server that is away meanwhile is waited for as long: the change is made, and an error would say that it is not.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + SETTLED_SECONDS_MAX
    while True:
        with suppress(ServerUnavailable):
            if (await deployment(temporal, name)).is_settled:
                return
        if clock() >= deadline:
            return
        await asyncio.sleep(SETTLED_POLL_SECONDS)  # the server has no event for it
