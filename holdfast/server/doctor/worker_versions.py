"""The doctor's look at builds: workers that have one get nothing until a build of their deployment is current."""

from __future__ import annotations

from typing import Final

from temporalio.client import Client as TemporalClient

from holdfast.connection.queue_routing import QueueRouting, promotion, queue_routing, shown
from holdfast.connection.rpc_errors import answered
from holdfast.connection.settings import Settings
from holdfast.core.conversation.amounts import counted
from holdfast.server.deployments.versions import RPC_TIMEOUT
from holdfast.server.doctor.findings import Finding, fine, warned, wrong

BUILDS: Final = "worker builds"


async def examine_builds(temporal: TemporalClient, settings: Settings) -> list[Finding]:
    """Return whether new runs of the task queue come to a worker that is there."""
    return [builds(await answered(queue_routing(temporal, settings.task_queue, RPC_TIMEOUT)))]


def builds(there: QueueRouting) -> Finding:
    """Judge whether new runs come to a worker that is there; where no worker is at all, its own check says so."""
    polling = shown(there.builds)
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
        unused = f"{result}: nothing goes to {counted(there.others, 'worker')} without a build"
        return warned(BUILDS, unused, "end them, or start them with --build-id")
    return fine(BUILDS, f"{result}; polling: {polling}")


def _without_current(there: QueueRouting, polling: str) -> Finding:
    if not there.builds:
        return fine(BUILDS, "workers have no build: each serves every run")
    result = f"workers of {polling} serve {there.task_queue!r}, and no build is current"
    remedy = promotion(there.builds[-1])
    if there.others:
        return warned(BUILDS, f"{result}: only workers without a build get runs", remedy)
    return wrong(BUILDS, f"{result}: runs wait for ever", remedy)
