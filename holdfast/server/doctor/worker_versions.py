"""The doctor's look at builds: workers that have one get nothing until a build of their deployment is current."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client as TemporalClient

from holdfast.connection.rpc_errors import answered
from holdfast.connection.settings import Settings
from holdfast.server.deployments.versions import RPC_TIMEOUT, lately
from holdfast.server.doctor.findings import Finding, fine, warned, wrong

BUILDS: Final = "worker builds"

SHOWN_MAX: Final = 5
"""So many builds one line names."""


@dataclass(frozen=True, slots=True)
class BuildFacts:
    """Who polls a task queue, and how the server routes its new runs. A build is (deployment, build id)."""

    task_queue: str
    builds: Sequence[tuple[str, str]]
    """Those of the workers that have lately asked for work."""
    others: int
    """How many workers without a build have."""
    current: tuple[str, str] | None
    ramping: tuple[str, str] | None = None
    percent: float = 0.0


async def examine_builds(temporal: TemporalClient, settings: Settings) -> list[Finding]:
    """Return whether new runs of the task queue come to a worker that is there."""
    return [builds(await facts(temporal, settings.task_queue))]


async def facts(temporal: TemporalClient, task_queue: str) -> BuildFacts:
    """Return who polls the queue for workflow tasks, and how the server routes them. Raises ServerUnavailable."""
    request = DescribeTaskQueueRequest(
        namespace=temporal.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    described = await answered(temporal.workflow_service.describe_task_queue(request, timeout=RPC_TIMEOUT))
    options = [each.deployment_options for each in lately(described.pollers)]
    routing = described.versioning_info
    current, ramping = routing.current_deployment_version, routing.ramping_deployment_version
    return BuildFacts(
        task_queue=task_queue,
        builds=sorted({(each.deployment_name, each.build_id) for each in options if each.build_id}),
        others=sum(not each.build_id for each in options),
        current=(current.deployment_name, current.build_id) if current.build_id else None,
        ramping=(ramping.deployment_name, ramping.build_id) if ramping.build_id else None,
        percent=routing.ramping_version_percentage,
    )


def builds(there: BuildFacts) -> Finding:
    """Judge whether new runs come to a worker that is there; where no worker is at all, its own check says so."""
    polling = ", ".join(repr(build) for _, build in there.builds[:SHOWN_MAX])
    if there.current is None:
        return _without_current(there, polling)
    deployment, build = there.current
    share = f", {there.ramping[1]!r} gets {there.percent:g} %" if there.ramping else ""
    result = f"{build!r} of {deployment!r} is current{share}"
    for each in (there.current, there.ramping):
        if each is not None and each not in there.builds:
            start = f"start a worker with `--build-id {each[1]}`, or promote a build that has one"
            return wrong(BUILDS, f"{result}, and no worker of {each[1]!r} polls: its new runs wait", start)
    if there.others:
        unused = f"{result}: the {there.others} workers without a build get nothing"
        return warned(BUILDS, unused, "end them, or start them with --build-id")
    return fine(BUILDS, f"{result}; polling: {polling}")


def _without_current(there: BuildFacts, polling: str) -> Finding:
    if not there.builds:
        return fine(BUILDS, "workers have no build: each serves every run")
    result = f"workers of {polling} serve {there.task_queue!r}, and no build is current"
    deployment, build = there.builds[-1]
    named = "" if deployment == there.task_queue else f" --deployment {deployment}"
    remedy = f"`holdfast deploy promote {build}{named}`"
    if there.others:
        return warned(BUILDS, f"{result}: only workers without a build get runs", remedy)
    return wrong(BUILDS, f"{result}: runs wait for ever", remedy)
