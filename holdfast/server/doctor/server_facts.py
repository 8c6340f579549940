"""Facts about a Temporal server: its version, namespace, clock, who polls which queue, what workers offer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    GetSystemInfoRequest,
    ListWorkersRequest,
    PollActivityTaskQueueRequest,
)
from temporalio.client import ActivityFailureError
from temporalio.client import Client as TemporalClient
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.wire.contracts import RESOLVE_TOOLS_ACTIVITY
from holdfast.core.wire.tool_catalog import ToolCatalog, ToolsRequest
from holdfast.server.doctor.server_findings import (
    NO_WORKER_ANSWERED,
    AgentTools,
    ClockReading,
    NamespaceFacts,
    Poller,
    ServingWorker,
)

RPC_TIMEOUT: Final = timedelta(seconds=3)

CLOCK_QUEUE: Final = "holdfast-clock"
"""A queue on which nothing is ever put: who polls it learns from the server when it did so."""

CLOCK_POLL_TIMEOUT: Final = timedelta(seconds=10)
CLOCK_LOOKS_MAX: Final = 50
CLOCK_LOOK_SECONDS: Final = 0.05

ANSWER_TIMEOUT: Final = timedelta(seconds=3)
"""How long a worker may take to say what it offers."""

ASKED_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """The server's version, and how long it took to say so."""

    number: str
    seconds: float


async def version(temporal: TemporalClient) -> ServerVersion:
    """Return the server's version. Raises RPCError."""
    began = time.monotonic()
    answer = await temporal.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=RPC_TIMEOUT)
    return ServerVersion(answer.server_version or "unknown", time.monotonic() - began)


async def namespace(temporal: TemporalClient) -> NamespaceFacts:
    """Return what there is of the connection's namespace. Raises RPCError."""
    request = DescribeNamespaceRequest(namespace=temporal.namespace)
    answer = await temporal.workflow_service.describe_namespace(request, timeout=RPC_TIMEOUT)
    can = answer.namespace_info.capabilities
    return NamespaceFacts(
        name=temporal.namespace,
        retention=answer.config.workflow_execution_retention_ttl.ToTimedelta(),
        takes_updates=can.sync_update,
        pushes_cancels=can.worker_commands,
        starts_activities=can.standalone_activities,
    )


async def pollers(temporal: TemporalClient, task_queue: str, kind: TaskQueueType.ValueType) -> list[Poller]:
    """Return who has asked the queue for work within the last minutes. Raises RPCError."""
    now = datetime.now(UTC).timestamp()
    workers = (await _described(temporal, task_queue, kind)).pollers
    return [Poller(each.identity, max(0.0, now - each.last_access_time.ToNanoseconds() / 1e9)) for each in workers]


async def serving(temporal: TemporalClient, task_queue: str) -> list[ServingWorker]:
    """Return how the queue's workers describe themselves; nobody where the server keeps no such list."""
    try:
        answer = await temporal.workflow_service.list_workers(
            ListWorkersRequest(namespace=temporal.namespace), timeout=RPC_TIMEOUT
        )
    except RPCError:
        return []
    every = (each.worker_heartbeat for each in answer.workers_info)
    return [
        ServingWorker(
            identity=each.worker_identity,
            host=each.host_info.host_name,
            sdk=f"{each.sdk_name} {each.sdk_version}",
        )
        for each in every
        if each.task_queue == task_queue
    ]


async def moment(temporal: TemporalClient) -> ClockReading | None:
    """Return what the server's clock says; none where it does not tell. Raises RPCError.

    The server tells the time nowhere but in what it notes: here, when a queue was last polled.
    """
    identity = f"doctor-{uuid4()}"
    request = PollActivityTaskQueueRequest(
        namespace=temporal.namespace, task_queue=TaskQueue(name=CLOCK_QUEUE), identity=identity
    )
    before = time.time()
    polling = asyncio.ensure_future(
        temporal.workflow_service.poll_activity_task_queue(request, timeout=CLOCK_POLL_TIMEOUT)
    )
    try:
        for _ in range(CLOCK_LOOKS_MAX):
            answer = await _described(temporal, CLOCK_QUEUE, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
            after = time.time()
            for each in answer.pollers:
                if each.identity == identity:
                    return ClockReading(before, each.last_access_time.ToNanoseconds() / 1e9, after)
            if polling.done():
                return None
            await asyncio.sleep(CLOCK_LOOK_SECONDS)  # the server has no event for it
    finally:
        polling.cancel()
        with suppress(RPCError, asyncio.CancelledError):
            await polling
    return None


async def equipment(temporal: TemporalClient, task_queue: str, agents: Iterable[AgentDefinition]) -> list[AgentTools]:
    """Ask a worker of the queue what it gives to each agent, as a run does when it begins. Raises RPCError."""
    at_once = asyncio.Semaphore(ASKED_AT_ONCE)

    async def ask(agent: AgentDefinition) -> AgentTools:
        async with at_once:
            return await _equipment(temporal, task_queue, agent)

    return list(await asyncio.gather(*map(ask, agents)))


async def _equipment(temporal: TemporalClient, task_queue: str, agent: AgentDefinition) -> AgentTools:
    try:
        catalog: Any = await temporal.execute_activity(
            RESOLVE_TOOLS_ACTIVITY,
            ToolsRequest.of(agent, datetime.now(UTC)),
            id=f"doctor-{uuid4()}",
            task_queue=task_queue,
            result_type=ToolCatalog,
            schedule_to_close_timeout=ANSWER_TIMEOUT,
            retry_policy=RetryPolicy(maximum_attempts=1),
            rpc_timeout=RPC_TIMEOUT,
        )
    except ActivityFailureError as error:
        cause = error.cause
        reason = cause.message if isinstance(cause, ApplicationError) else NO_WORKER_ANSWERED
        return AgentTools(agent.name, None, reason)
    return AgentTools(agent.name, catalog)


async def _described(
    temporal: TemporalClient, task_queue: str, kind: TaskQueueType.ValueType
) -> DescribeTaskQueueResponse:
    request = DescribeTaskQueueRequest(
        namespace=temporal.namespace, task_queue=TaskQueue(name=task_queue), task_queue_type=kind
    )
    return await temporal.workflow_service.describe_task_queue(request, timeout=RPC_TIMEOUT)
