"""Whose workers get a workflow's tasks: who polls its queue, how the server routes, and what is missing. Only asks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import Final

from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.enums.v1 import TaskQueueType, VersioningBehavior
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflow.v1 import WorkflowExecutionInfo, WorkflowExecutionVersioningInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from holdfast.connection.executions import OPEN, response
from holdfast.connection.rpc_errors import worker_command
from holdfast.core.wire.contracts import DEFAULT_TASK_QUEUE

SEEN_MAX: Final = timedelta(seconds=75)
"""A worker asks for work at least every minute: one that was not seen for longer is gone."""

ASK_TIMEOUT: Final = timedelta(seconds=3)
"""One question about a silence; whoever asks has waited long enough already."""

SHOWN_MAX: Final = 5
"""So many builds one line names."""

PERCENT_ALL: Final = 100.0

Version = tuple[str, str]
"""A deployment and a build of it, by any name: others name them, too."""


@dataclass(frozen=True, slots=True)
class QueueRouting:
    """Who polls a task queue for workflow tasks, and how the server routes its new runs."""

    task_queue: str
    builds: Sequence[Version]
    """Those of the workers that have lately asked for work."""
    others: int
    """How many workers without a build have."""
    current: Version | None
    ramping: Version | None = None
    percent: float = 0.0

    @property
    def target(self) -> Version | None:
        """Whose workers get new runs, or most of them; none where workers without a build do."""
        return self.ramping if self.percent >= PERCENT_ALL else self.current

    def serves(self, version: Version | None) -> bool:
        """Return whether a worker of the version polls, or one without a build."""
        return bool(self.others) if version is None else version in self.builds


@dataclass(frozen=True, slots=True)
class TaskTarget:
    """Whose workers get the tasks of one workflow, or of a new one.

    `version` none: those without a build. `workflow_id` is that of one which is `pinned` to it; `movable` while that is
    open.
    """

    routing: QueueRouting
    version: Version | None
    workflow_id: str = ""
    pinned: bool = False
    movable: bool = False

    @property
    def is_served(self) -> bool:
        """Whether a worker that gets them has lately asked for work."""
        return self.routing.serves(self.version)

    @property
    def problem(self) -> str:
        """What is missing where nobody serves it."""
        routing, queue = self.routing, self.routing.task_queue
        if self.version is None:
            if not routing.builds:
                return f"no worker serves the task queue {queue!r}"
            return f"workers of {shown(routing.builds)} serve the task queue {queue!r}, and no build is current"
        which = f"build {self.version[1]!r} of deployment {self.version[0]!r}"
        return f"no worker of {which}, {self._why}, serves the task queue {queue!r}"

    @property
    def _why(self) -> str:
        if not self.pinned:
            return "which gets new runs"
        return "to which it is pinned" if self.movable else "on which it ended"

    @property
    def command(self) -> str:
        """The command that it waits for."""
        if self.version is not None:
            return _build_command(self.version, self.routing.task_queue)
        if self.routing.builds:
            return promotion(self.routing.builds[-1])
        return worker_command(self.routing.task_queue)

    @property
    def remedy(self) -> str:
        """What to do where nobody serves it."""
        if self.version is None:
            return f"give it new runs with {self.command}" if self.routing.builds else f"start one with {self.command}"
        start = f"start one with {self.command}"
        if not self.pinned:
            return f"{start}, or promote a build that has one"
        if not self.movable:
            return start
        options = f"--workflow-id {self.workflow_id} --versioning-override-behavior auto_upgrade"
        return f"{start}, or move it to the current build with `temporal workflow update-options {options}`"

    @property
    def silence(self) -> str:
        """What to say where no worker has answered: one that has just gone still counts as one that polls."""
        return self.remedy if self.version is None and not self.routing.builds else f"{self.problem}; {self.remedy}"


async def queue_routing(temporal: TemporalClient, task_queue: str, at_most: timedelta = ASK_TIMEOUT) -> QueueRouting:
    """Return who polls the queue for workflow tasks, and how the server routes them. Raises RPCError."""
    request = DescribeTaskQueueRequest(
        namespace=temporal.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    described = await temporal.workflow_service.describe_task_queue(request, timeout=at_most)
    options = [each.deployment_options for each in lately(described.pollers)]
    routing = described.versioning_info
    return QueueRouting(
        task_queue=task_queue,
        builds=sorted({(each.deployment_name, each.build_id) for each in options if each.build_id}),
        others=sum(not each.build_id for each in options),
        current=_version(routing.current_deployment_version),
        ramping=_version(routing.ramping_deployment_version),
        percent=routing.ramping_version_percentage,
    )


async def task_target(temporal: TemporalClient, task_queue: str, workflow_id: str = "", run_id: str = "") -> TaskTarget:
    """Return whose workers get the tasks of a workflow, or of a new one where there is none of that id.

    `task_queue` is where a new one would begin. Raises RPCError.
    """
    info = await _workflow(temporal, workflow_id, run_id) if workflow_id else None
    if info is None:
        routing = await queue_routing(temporal, task_queue)
        return TaskTarget(routing, routing.target)
    routing = await queue_routing(temporal, info.task_queue or task_queue)
    version = pinned_to(info.versioning_info)
    if version is None:
        return TaskTarget(routing, routing.target, workflow_id)
    return TaskTarget(routing, version, workflow_id, pinned=True, movable=info.status in OPEN)


async def silence(temporal: TemporalClient, task_queue: str, workflow_id: str, run_id: str = "") -> str:
    """Return what to do where no worker answers for a workflow, as far as the server tells."""
    try:
        return (await task_target(temporal, task_queue, workflow_id, run_id)).silence
    except RPCError as error:
        return f"the server is too busy, or away ({error.status.name.lower()})"


def pinned_to(info: WorkflowExecutionVersioningInfo) -> Version | None:
    """Return the version that a workflow is pinned to, none where it goes with the current one."""
    override = info.versioning_override
    if override.HasField("pinned"):
        return _version(override.pinned.version)
    if override.auto_upgrade:
        return None
    is_pinned = info.behavior == VersioningBehavior.VERSIONING_BEHAVIOR_PINNED
    return _version(info.deployment_version) if is_pinned else None


def lately(polling: Iterable[PollerInfo]) -> list[PollerInfo]:
    """Return those who have asked so lately that they are still there."""
    now = datetime.now(UTC)
    return [each for each in polling if now - each.last_access_time.ToDatetime(UTC) < SEEN_MAX]


def shown(builds: Sequence[Version]) -> str:
    """Return builds as people are shown them."""
    more = f" and {len(builds) - SHOWN_MAX} more" if len(builds) > SHOWN_MAX else ""
    return ", ".join(repr(build) for _, build in builds[:SHOWN_MAX]) + more


def promotion(version: Version) -> str:
    """Return the command that gives a build new runs."""
    deployment, build = version
    named = "" if deployment == DEFAULT_TASK_QUEUE else f" --deployment {quote(deployment)}"
    return f"`holdfast deploy promote {quote(build)}{named}`"


def _build_command(version: Version, task_queue: str) -> str:
    deployment, build = version
    named = "" if deployment == task_queue else f" --deployment {quote(deployment)}"
    return worker_command(task_queue, f" --build-id {quote(build)}{named}")


def _version(version: WorkerDeploymentVersion) -> Version | None:
    return (version.deployment_name, version.build_id) if version.build_id else None


async def _workflow(temporal: TemporalClient, workflow_id: str, run_id: str) -> WorkflowExecutionInfo | None:
    try:
        described = await response(temporal, workflow_id, run_id, rpc_timeout=ASK_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    return described.workflow_execution_info
