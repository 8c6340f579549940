"""Namespaces of a Temporal server: creating one, and its retention."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Final

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, RegisterNamespaceRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from holdfast.connection.rpc_errors import answered, rpc_message
from holdfast.connection.workflow_reader import ASK_TIMEOUT
from holdfast.core.base.errors import InvalidInput, ServerUnavailable

RETENTION_DAYS_MAX: Final = 3_650
KNOWN_SECONDS_MAX: Final = 60.0
"""How long all parts of a server may take to learn of a new namespace; some seconds, as a rule."""

KNOWN_POLL_SECONDS: Final = 0.2


def retention_of(text: str) -> timedelta:
    """Return the time that `30d` or `72h` means, an hour to ten years. Raises InvalidInput."""
    parsed = re.fullmatch(r"([0-9]{1,5})([dh])", text)
    hours = int(parsed[1]) * (24 if parsed[2] == "d" else 1) if parsed else 0
    if not 1 <= hours <= RETENTION_DAYS_MAX * 24:
        raise InvalidInput(f"the retention {text[:40]!r} cannot be used; give days or hours, such as 30d or 72h")
    return timedelta(hours=hours)


async def create(temporal: TemporalClient, retention: timedelta) -> bool:
    """Make the connection's namespace and return when it can be used; False where it was there: it stays as it is.

    Raises ServerUnavailable, also where the server lets nobody make one.
    """
    name = temporal.namespace
    period = Duration(seconds=int(retention.total_seconds()))
    request = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=period)
    try:
        await temporal.workflow_service.register_namespace(request, timeout=ASK_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.ALREADY_EXISTS:
            return False
        text = f"the server does not create the namespace {name!r} ({rpc_message(error)})"
        raise ServerUnavailable(
            f"{text}; on Temporal Cloud create it in its UI or with `tcld namespace create`"
        ) from None
    deadline = asyncio.get_running_loop().time() + KNOWN_SECONDS_MAX
    while not await _is_known(temporal):
        if asyncio.get_running_loop().time() > deadline:
            text = f"the namespace {name!r} was created, but the server does not know it after {KNOWN_SECONDS_MAX:g} s"
            raise ServerUnavailable(f"{text}; run the same command again")
        await asyncio.sleep(KNOWN_POLL_SECONDS)  # the server has no event for it
    return True


async def retention(temporal: TemporalClient) -> timedelta:
    """Return how long the namespace keeps executions that have ended. Raises ServerUnavailable."""
    request = DescribeNamespaceRequest(namespace=temporal.namespace)
    described = await answered(temporal.workflow_service.describe_namespace(request, timeout=ASK_TIMEOUT))
    return described.config.workflow_execution_retention_ttl.ToTimedelta()


async def _is_known(temporal: TemporalClient) -> bool:
    """Return whether the parts of the server that list executions know the namespace."""
    try:
        await temporal.count_workflows("WorkflowId = ''", rpc_timeout=ASK_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise ServerUnavailable(f"the Temporal server says {error.status.name.lower()}: {rpc_message(error)}") from None
    return True
