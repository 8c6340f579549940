"""Draining a build: idle sessions move to the current one, and its last runs are waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError

from holdfast.connection.deployment_version import DeploymentVersion
from holdfast.connection.executions import executions
from holdfast.connection.rpc_errors import answered
from holdfast.connection.workflow_reader import SILENCE_SECONDS_MAX
from holdfast.core.base.errors import Conflict, ServerUnavailable
from holdfast.core.wire.contracts import AGENT_EXECUTION
from holdfast.core.wire.session_contracts import AGENT_SESSION, OPEN_UPDATE
from holdfast.core.wire.workflow_ids import own_id
from holdfast.server.deployments.versions import RPC_TIMEOUT, Build, BuildStatus, counted, deployment, open_on

POLL_SECONDS: Final = 1.0
"""The pause between two looks; the server itself looks whether a build is drained every few minutes."""

MOVED_AT_ONCE_MAX: Final = 8
"""So many sessions are asked to move at the same time."""

MOVED_MAX: Final = 200
"""So many sessions are asked to move between two looks."""

AGAIN_SECONDS: Final = 30.0
"""After how long a session that is still there is asked again; one that works moves by itself."""

UNMOVED: Final = (RPCError, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError)
"""How a session answers that has ended, or is too busy: it is asked again later."""

NAMED_MAX: Final = 5
"""So many of the runs that are still there are named."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is open on a build: ids of some runs and sessions."""

    runs: tuple[str, ...]
    sessions: tuple[str, ...]


async def drain(
    temporal: TemporalClient, version: DeploymentVersion, seconds_max: float, report: Callable[[Build], None]
) -> Build:
    """Wait until the server says that nothing is open on the build, and return how it is; `report` gets each look.

    Sessions that rest there are asked to move. Raises InvalidInput for an unknown build, Conflict for one that gets new
    runs, or where something is open after `seconds_max`; ServerUnavailable for a server that is away for two minutes.
    """
    clock = asyncio.get_running_loop().time
    deadline, asked, answered_at = clock() + seconds_max, dict[str, float](), clock()
    while True:
        try:
            build = (await deployment(temporal, version.deployment)).build(version.build_id)
            counts = await counted(temporal, version.deployment, build)
        except ServerUnavailable:
            if clock() >= min(deadline, answered_at + SILENCE_SECONDS_MAX):
                raise
            await asyncio.sleep(POLL_SECONDS)
            continue
        answered_at = clock()
        if build.status in (BuildStatus.CURRENT, BuildStatus.RAMPING):
            other = "promote another one" if build.status is BuildStatus.CURRENT else "ramp it to 0"
            raise Conflict(f"{version} is {build.status}: it gets new runs; {other} first (`holdfast deploy`)")
        build = counts
        report(build)
        if build.status is not BuildStatus.DRAINING:
            return build
        if clock() >= deadline:
            raise Conflict(await _not_drained(temporal, version, build, seconds_max))
        if build.sessions and build.workers:
            with suppress(ServerUnavailable, TimeoutError):  # the next look says what has become of it
                async with asyncio.timeout_at(deadline):
                    await _move_sessions(temporal, version, asked, clock())
        await asyncio.sleep(min(POLL_SECONDS, max(0.0, deadline - clock())))  # the server has no event for it


async def left_on(temporal: TemporalClient, version: DeploymentVersion) -> Left:
    """Return the ids of some runs and sessions that are open on the build. Raises ServerUnavailable."""
    runs = await answered(_ids(temporal, open_on(version, AGENT_EXECUTION), NAMED_MAX))
    sessions = await answered(_ids(temporal, open_on(version, AGENT_SESSION), NAMED_MAX))
    return Left(tuple(runs), tuple(own_id(each) for each in sessions))


async def _not_drained(temporal: TemporalClient, version: DeploymentVersion, build: Build, seconds: float) -> str:
    left = await left_on(temporal, version)
    named = ", ".join((*left.runs, *left.sessions)[:NAMED_MAX])
    if not named:
        text = "nothing is open there any more, and the server has not looked again"
        return f"{version} is not drained after {seconds:g} s: {text}; run the same command again"
    problem = f"{version} is not drained after {seconds:g} s: {build.open_text}"
    remedy = "keep its workers" if build.workers else "no worker of it is there: start one"
    return f"{problem} ({named}); {remedy}, and run the same command again, or stop those runs"


async def _ids(temporal: TemporalClient, query: str, limit: int) -> list[str]:
    return [each.id async for each in executions(temporal, query, limit=limit, rpc_timeout=RPC_TIMEOUT)]


async def _move_sessions(
    temporal: TemporalClient, version: DeploymentVersion, asked: dict[str, float], now: float
) -> None:
    """Give sessions a task, at whose end one that rests moves to the current build: `open` changes nothing else."""
    at_once = asyncio.Semaphore(MOVED_AT_ONCE_MAX)

    async def move(workflow_id: str) -> None:
        async with at_once:
            with suppress(*UNMOVED):
                session: Any = temporal.get_workflow_handle(workflow_id)  # its overloads are only partly typed
                await session.execute_update(OPEN_UPDATE, None, rpc_timeout=RPC_TIMEOUT)

    there = await answered(_ids(temporal, open_on(version, AGENT_SESSION), MOVED_MAX))
    due = [each for each in there if now - asked.get(each, -AGAIN_SECONDS) >= AGAIN_SECONDS]
    asked.update(dict.fromkeys(due, now))
    await asyncio.gather(*map(move, due))
