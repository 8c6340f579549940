"""The doctor's look at routes with rate limits: does the server give their calls out as `models.yaml` says?"""

from __future__ import annotations

from functools import partial
from typing import Final

from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from holdfast.connection.rpc_errors import rpc_message
from holdfast.connection.settings import Settings
from holdfast.models.rate_limits.route_queues import limits_in
from holdfast.models.route_file import read_routes
from holdfast.server.doctor.findings import Finding, fine, warned
from holdfast.server.doctor.machine_facts import apart
from holdfast.server.queue_limits import queue_limits

RATE_LIMITS: Final = "rate limits"

FAIRNESS: Final = "a server does not say whether it has matching.enableFairness, by which tenants share them"


async def examine_rates(temporal: TemporalClient, settings: Settings) -> list[Finding]:
    """Return whether the server has the rates of this folder's `models.yaml`."""
    limits = limits_in(await apart(partial(read_routes, settings.models_file)))
    if not limits:
        return [fine(RATE_LIMITS, "no route has any")]
    try:
        there = await queue_limits(temporal, settings.task_queue, limits)
    except RPCError as error:
        why = f"{error.status.name.lower()}: {rpc_message(error)}"
        remedy = "until the server keeps rates, each worker keeps to the limits alone: divide them by the workers"
        return [warned(RATE_LIMITS, f"the server does not report the rates of routes ({why})", remedy)]
    result = "; ".join(each.line for each in there)
    if all(each.is_right for each in there):
        return [fine(RATE_LIMITS, f"{result} ({FAIRNESS})")]
    return [warned(RATE_LIMITS, result, "`holdfast setup` writes what models.yaml says")]
