"""What there is of a deployment: its builds, which of them gets new runs, who works for each and what runs there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.deployment.v1 import WorkerDeploymentInfo
from temporalio.api.deployment.v1 import WorkerDeploymentVersion as WireVersion
from temporalio.api.enums.v1 import RoutingConfigUpdateState, TaskQueueType, WorkerDeploymentVersionStatus
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkerDeploymentRequest,
    DescribeWorkerDeploymentVersionRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from holdfast.connection.deployment_version import DeploymentVersion
from holdfast.connection.executions import UNDER_WAY
from holdfast.connection.queue_routing import lately
from holdfast.connection.rpc_errors import answered, refusal, rpc_message
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import InvalidInput
from holdfast.core.conversation.amounts import counted as counted_text
from holdfast.core.wire.contracts import AGENT_EXECUTION
from holdfast.core.wire.session_contracts import AGENT_SESSION
from holdfast.core.wire.workflow_ids import type_filter

RPC_TIMEOUT: Final = timedelta(seconds=10)
"""How long one question to the server may take; a deployment is a workflow of the server's own."""

BUILDS_MAX: Final = 50
"""Of how many builds, those with the latest change first, workers and runs are counted and shown."""

AT_ONCE_MAX: Final = 8
"""So many requests to the server at the same time."""


class BuildStatus(StrEnum):
    """What a build is for the server: which runs it gets."""

    CURRENT = "current"
    RAMPING = "ramping"
    DRAINING = "draining"
    """It gets no new runs, and some that it has begun are open."""
    DRAINED = "drained"
    INACTIVE = "inactive"
    """It has never been promoted: it gets nothing."""


STATUSES: Final[Mapping[int, BuildStatus]] = {
    WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_CURRENT: BuildStatus.CURRENT,
    WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_RAMPING: BuildStatus.RAMPING,
    WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_DRAINING: BuildStatus.DRAINING,
    WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_DRAINED: BuildStatus.DRAINED,
}


@dataclass(frozen=True, slots=True)
class Build:
    """One build of a deployment. What has not been counted is none.

    `percent` is its share of new runs while it ramps; `since` when it got its status. `workers` have asked for work in
    the last 75 s; `runs` and `sessions` are open and pinned to it.
    """

    build_id: str
    status: BuildStatus
    percent: float | None = None
    since: datetime | None = None
    workers: int | None = None
    runs: int | None = None
    sessions: int | None = None

    @property
    def open_text(self) -> str:
        """What is open on it, as people are told it."""
        return f"open: {counted_text(self.runs or 0, 'run')}, {counted_text(self.sessions or 0, 'session')}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return {
            "build_id": self.build_id,
            "status": self.status,
            "percent": self.percent,
            "since": self.since and self.since.isoformat(),
            "workers": self.workers,
            "runs": self.runs,
            "sessions": self.sessions,
        }


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment's builds, the latest change first. `current` none: workers without a build get the new runs."""

    name: str
    builds: tuple[Build, ...]
    current: str | None
    is_settled: bool
    """Whether all parts of the server have learned of the latest promotion or ramp."""
    conflict_token: bytes = b""
    """What the server takes with a change, so that nobody else's change is undone unseen."""

    def build(self, build_id: str) -> Build:
        """Return the build of that id. Raises InvalidInput with the nearest name where there is none."""
        for each in self.builds:
            if each.build_id == build_id:
                return each
        there = suggestion(build_id, [each.build_id for each in self.builds])
        soon = "a new build is listed a few seconds after its first worker starts"
        raise InvalidInput(f"deployment {self.name!r} has no build {build_id[:140]!r} ({soon}); {there}")

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return {
            "deployment": self.name,
            "current": self.current,
            "builds": [each.to_dict() for each in self.builds],
        }


async def deployment(temporal: TemporalClient, name: str) -> Deployment:
    """Return a deployment, nothing counted. Raises InvalidInput where the server knows none, ServerUnavailable."""
    request = DescribeWorkerDeploymentRequest(namespace=temporal.namespace, deployment_name=name)
    try:
        described = await temporal.workflow_service.describe_worker_deployment(request, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            start = "start its workers with `--build-id ID`, or name another by --deployment"
            raise InvalidInput(f"there is no deployment {name[:140]!r} in {temporal.namespace!r}; {start}") from None
        if error.status is RPCStatusCode.UNIMPLEMENTED:
            text = "this server has no worker deployments; use Temporal server 1.32 or later"
            raise InvalidInput(text) from None
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            raise InvalidInput(f"a deployment cannot be called {name[:140]!r}: {rpc_message(error)}") from None
        raise refusal(error) from None
    info = described.worker_deployment_info
    builds = sorted((_build(each, info) for each in info.version_summaries), key=_latest_first)
    updating = RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_IN_PROGRESS
    return Deployment(
        name=name,
        builds=tuple(builds),
        current=info.routing_config.current_deployment_version.build_id or None,
        is_settled=info.routing_config_update_state != updating,
        conflict_token=described.conflict_token,
    )


async def routes_runs(temporal: TemporalClient, name: str) -> bool:
    """Return whether a build of the deployment is current; else its workers get nothing. Raises ServerUnavailable."""
    try:
        return (await deployment(temporal, name)).current is not None
    except InvalidInput:  # its first worker is registering, or the server has no deployments
        return False


async def surveyed(temporal: TemporalClient, there: Deployment) -> Deployment:
    """Return the deployment with workers, runs and sessions counted, of BUILDS_MAX builds. Raises ServerUnavailable."""
    at_once = asyncio.Semaphore(AT_ONCE_MAX)

    async def counted_in_turn(build: Build) -> Build:
        async with at_once:
            return await counted(temporal, there.name, build)

    builds = await asyncio.gather(*map(counted_in_turn, there.builds[:BUILDS_MAX]))
    return replace(there, builds=(*builds, *there.builds[BUILDS_MAX:]))


async def counted(temporal: TemporalClient, name: str, build: Build) -> Build:
    """Return the build with its workers, runs and sessions counted; as it is where its name is none that we take.

    Raises ServerUnavailable.
    """
    try:
        version = DeploymentVersion(name, build.build_id)
    except InvalidInput:  # another program's
        return build
    workers = await worker_count(temporal, version)
    if build.status in (BuildStatus.DRAINED, BuildStatus.INACTIVE):  # the server says that nothing is open there
        return replace(build, workers=workers, runs=0, sessions=0)
    runs = await answered(temporal.count_workflows(open_on(version, AGENT_EXECUTION), rpc_timeout=RPC_TIMEOUT))
    sessions = await answered(temporal.count_workflows(open_on(version, AGENT_SESSION), rpc_timeout=RPC_TIMEOUT))
    return replace(build, workers=workers, runs=runs.count, sessions=sessions.count)


def open_on(version: DeploymentVersion, workflow: str) -> str:
    """Return the query for open workflows of a type that are pinned to the version."""
    pinned = f"TemporalWorkerDeploymentVersion = '{version.searched_as}'"
    return f"{type_filter(workflow)} AND {pinned} AND {UNDER_WAY}"


async def worker_count(temporal: TemporalClient, version: DeploymentVersion) -> int:
    """Return how many workers of the version have lately asked for work, on any queue. Raises ServerUnavailable."""
    request = DescribeWorkerDeploymentVersionRequest(
        namespace=temporal.namespace,
        deployment_version=WireVersion(deployment_name=version.deployment, build_id=version.build_id),
    )
    try:
        described = await temporal.workflow_service.describe_worker_deployment_version(request, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:  # it has just been deleted, or its first worker is registering
            return 0
        raise refusal(error) from None
    queues = {(each.name, each.type) for each in described.version_task_queues}
    polling = [await pollers(temporal, *queue) for queue in sorted(queues)]
    return len({each.identity for group in polling for each in lately(group) if _is_of(each, version)})


async def pollers(temporal: TemporalClient, task_queue: str, kind: TaskQueueType.ValueType) -> list[PollerInfo]:
    """Return who has asked a queue for work in the last minutes. Raises ServerUnavailable."""
    request = DescribeTaskQueueRequest(
        namespace=temporal.namespace, task_queue=TaskQueue(name=task_queue), task_queue_type=kind
    )
    described = await answered(temporal.workflow_service.describe_task_queue(request, timeout=RPC_TIMEOUT))
    return list(described.pollers)


def _is_of(poller: PollerInfo, version: DeploymentVersion) -> bool:
    options = poller.deployment_options
    return (options.deployment_name, options.build_id) == (version.deployment, version.build_id)


def _latest_first(build: Build) -> float:
    return -build.since.timestamp() if build.since else 0.0


def _build(summary: WorkerDeploymentInfo.WorkerDeploymentVersionSummary, info: WorkerDeploymentInfo) -> Build:
    status = STATUSES.get(summary.status, BuildStatus.INACTIVE)
    since = {
        BuildStatus.CURRENT: summary.current_since_time,
        BuildStatus.RAMPING: summary.ramping_since_time,
        BuildStatus.DRAINING: summary.last_deactivation_time,
        BuildStatus.DRAINED: summary.drainage_info.last_changed_time,
        BuildStatus.INACTIVE: summary.create_time,
    }[status]
    return Build(
        build_id=summary.deployment_version.build_id,
        status=status,
        percent=info.routing_config.ramping_version_percentage if status is BuildStatus.RAMPING else None,
        since=_moment(since),
    )


def _moment(stamp: Timestamp) -> datetime | None:
    return stamp.ToDatetime(UTC) if stamp.seconds else None
