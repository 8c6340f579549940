"""The rates at which the server gives out calls to routes with rate limits: one task queue for each route.

The server keeps a queue's rate, so it is written once: by `holdfast setup`, or by the first worker that finds none.
Workers that wrote theirs at each start would undo each other's where their files differ, and undo what a person has
set: one that finds another rate only says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import RateLimit, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, UpdateTaskQueueConfigRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from holdfast.connection.rpc_errors import rpc_message
from holdfast.core.base.errors import ServerUnavailable
from holdfast.core.wire.contracts import limited_queue
from holdfast.models.rate_limits.token_bucket import steady_rate
from holdfast.models.routes import RateLimits

LOGGER: Final = logging.getLogger("holdfast.worker")

RPC_TIMEOUT: Final = timedelta(seconds=5)
"""How long one request to the server may take."""

REASON: Final = "requests_per_minute of the route in models.yaml"
"""What the server notes beside a rate."""

ROUNDING: Final = 0.001
"""How far apart two rates can be, as a share, that are the same: the server keeps them with few digits."""


@dataclass(frozen=True, slots=True)
class QueueLimit:
    """How many calls a second the server gives out for a route, and how many it is to; none is no limit."""

    route: str
    queue: str
    wanted: float | None
    there: float | None

    @property
    def is_right(self) -> bool:
        """Whether the server has what `models.yaml` says."""
        if self.wanted is None or self.there is None:
            return self.wanted is self.there
        return abs(self.there - self.wanted) <= ROUNDING * self.wanted

    def to_dict(self) -> dict[str, object]:
        """Return it as JSON-ready data; rates are per minute."""
        there, wanted = (None if rate is None else round(rate * 60, 3) for rate in (self.there, self.wanted))
        return {"route": self.route, "task_queue": self.queue, "calls_per_minute": there, "wanted": wanted}

    @property
    def line(self) -> str:
        """The route and its rate, as people are shown it."""
        instead = "" if self.is_right else f" instead of {per_minute(self.wanted)}"
        return f"{self.route}: {per_minute(self.there)}{instead}"


def per_minute(rate: float | None) -> str:
    """Return a rate per second as people read it."""
    return "no rate" if rate is None else f"{rate * 60:,.4g} calls a minute"


async def queue_limits(
    temporal: TemporalClient, task_queue: str, limits: Mapping[str, RateLimits]
) -> tuple[QueueLimit, ...]:
    """Return what the server has for each route of `limits`, by the route's name. Raises RPCError."""
    return tuple([await _limit(temporal, task_queue, *each) for each in limits.items()])


async def write_limit(temporal: TemporalClient, limit: QueueLimit) -> QueueLimit:
    """Have the server keep what is wanted, and return that. Raises RPCError, also where it cannot."""
    rate = None if limit.wanted is None else RateLimit(requests_per_second=limit.wanted)
    update = UpdateTaskQueueConfigRequest.RateLimitUpdate(rate_limit=rate, reason=REASON)
    await temporal.workflow_service.update_task_queue_config(
        UpdateTaskQueueConfigRequest(
            namespace=temporal.namespace,
            identity=temporal.service_client.config.identity,
            task_queue=limit.queue,
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
            update_queue_rate_limit=update,
        ),
        timeout=RPC_TIMEOUT,
    )
    return QueueLimit(limit.route, limit.queue, limit.wanted, limit.wanted)


async def set_up_limits(
    temporal: TemporalClient, task_queue: str, limits: Mapping[str, RateLimits], *, check: bool
) -> tuple[QueueLimit, ...]:
    """Have the server keep what `limits` say; return what it has then. A `check` writes nothing.

    Raises ServerUnavailable where the server does not keep rates, or not for us.
    """
    try:
        there = await queue_limits(temporal, task_queue, limits)
        if check:
            return there
        return tuple([each if each.is_right else await write_limit(temporal, each) for each in there])
    except RPCError as error:
        why = f"{error.status.name.lower()}: {rpc_message(error)}"
        text = f"the server does not keep the rate limits of routes ({why})"
        raise ServerUnavailable(f"{text}; until it does, they hold within each worker alone") from None


async def write_missing_limits(temporal: TemporalClient, task_queue: str, limits: Mapping[str, RateLimits]) -> None:
    """Write the rates that the server does not have yet; log what differs, and what cannot be written.

    A worker goes on in any case: within it the same limits hold.
    """
    try:
        for limit in await queue_limits(temporal, task_queue, limits):
            if limit.there is None and limit.wanted is not None:
                await write_limit(temporal, limit)
            elif not limit.is_right:
                LOGGER.warning("the server's rate for the route %s; `holdfast setup` writes it", limit.line)
    except RPCError as error:
        why = f"{error.status.name.lower()}: {rpc_message(error)}"
        LOGGER.warning("the server does not keep the routes' rate limits, so they hold per worker only (%s)", why)


async def _limit(temporal: TemporalClient, task_queue: str, route: str, limits: RateLimits) -> QueueLimit:
    queue = limited_queue(task_queue, route)
    answer = await temporal.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=temporal.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
            report_config=True,
        ),
        timeout=RPC_TIMEOUT,
    )
    config = answer.config.queue_rate_limit
    there = config.rate_limit.requests_per_second if config.HasField("rate_limit") else None
    allowed = limits.requests_per_minute
    return QueueLimit(route, queue, None if allowed is None else steady_rate(allowed), there)
