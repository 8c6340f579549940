"""The checks that need the Temporal server: it is reached once, then asked for everything side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from holdfast.connection.rpc_errors import answered, rpc_message
from holdfast.connection.search_attribute_setup import attributes
from holdfast.connection.settings import Settings
from holdfast.connection.temporal_client import CREATE_NAMESPACE, codec_of, connect, target, unshared_storage
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.base.errors import HoldfastError
from holdfast.server.doctor import server_facts
from holdfast.server.doctor import server_findings as judging
from holdfast.server.doctor.check_runner import STORAGE, Agents, bounded, shared
from holdfast.server.doctor.dns_rebinding import open_doors
from holdfast.server.doctor.findings import Finding, fine, from_error, warned, wrong
from holdfast.server.doctor.machine_facts import apart
from holdfast.server.doctor.machine_findings import ACTIVITIES
from holdfast.server.doctor.mcp_servers import without_foreign_names
from holdfast.server.doctor.rate_limits import RATE_LIMITS, examine_rates
from holdfast.server.doctor.worker_versions import BUILDS, examine_builds

CONNECT_SECONDS: Final = 3.5
NAMESPACE_SECONDS: Final = 2.5

AGENTS_ASKED_MAX: Final = 20
"""For so many agents of the folder a worker is asked what it offers."""

QUEUES_ASKED_MAX: Final = 20

WORKFLOW: Final = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
ACTIVITY: Final = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY


async def examine_server(settings: Settings, agents: Awaitable[Agents]) -> list[Finding]:
    """Return what there is to say of the server and its workers; where it is not reached, nothing but that."""
    configured = await bounded(judging.CONFIGURATION, _configuration(settings))
    temporal: list[TemporalClient] = []
    reached = await bounded(judging.SERVER, _reach(settings, temporal), CONNECT_SECONDS + NAMESPACE_SECONDS)
    if not temporal:
        return [*configured, *reached]
    facts: list[judging.NamespaceFacts] = []
    namespace = await bounded(judging.NAMESPACE, _namespace(temporal[0], facts), NAMESPACE_SECONDS)
    if not facts:
        return [*configured, *reached, *namespace]
    groups = await asyncio.gather(
        bounded(judging.ATTRIBUTES, _attributes(temporal[0])),
        bounded(judging.SERVER_SETTINGS, _server_settings(facts[0])),
        bounded(judging.CLOCK, _clock(temporal[0])),
        bounded(judging.WEB_ACCESS, _web_access(temporal[0])),
        bounded(judging.WORKFLOWS, _worker(temporal[0], settings, judging.WORKFLOWS, WORKFLOW)),
        bounded(ACTIVITIES, _worker(temporal[0], settings, ACTIVITIES, ACTIVITY)),
        bounded(BUILDS, examine_builds(temporal[0], settings)),
        bounded(judging.TOOLS, _tools(temporal[0], facts[0], settings, agents)),
        bounded(RATE_LIMITS, examine_rates(temporal[0], settings)),
    )
    unshared = unshared_storage(settings, temporal[0])
    shared = [warned(STORAGE, *unshared.split("; ", 1))] if unshared else []
    return [*configured, *reached, *namespace, *(finding for group in groups for finding in group), *shared]


async def _configuration(settings: Settings) -> list[Finding]:
    chosen = await apart(lambda: target(settings))  # it reads files
    findings = [judging.configuration(chosen, settings.task_queue)]
    try:
        WorkerSettings.from_environment()
    except HoldfastError as error:
        findings.append(from_error(judging.CONFIGURATION, error))
    return findings


async def _reach(settings: Settings, reached: list[TemporalClient]) -> list[Finding]:
    """Put the connection into `reached` where there is one."""
    try:
        codec_of(settings)
    except HoldfastError:  # told by its own check; what workers offer cannot be asked for then
        settings = replace(settings, encryption_key_file=None)
    temporal = await connect(settings, namespace_there=False, seconds_max=CONNECT_SECONDS)
    there = await answered(server_facts.version(temporal))
    reached.append(temporal)
    address = temporal.service_client.config.target_host
    return [fine(judging.SERVER, f"{there.number} at {address}, {there.seconds * 1000:.0f} ms away")]


async def _namespace(temporal: TemporalClient, facts: list[judging.NamespaceFacts]) -> list[Finding]:
    """Put what is known of the namespace into `facts` where it is there."""
    try:
        facts.append(await server_facts.namespace(temporal))
    except RPCError as error:
        result = f"the server refuses {temporal.namespace!r} ({error.status.name.lower()}: {rpc_message(error)})"
        create = f", or create it: `{CREATE_NAMESPACE}`" if error.status is RPCStatusCode.NOT_FOUND else ""
        return [wrong(judging.NAMESPACE, result, f"check TEMPORAL_NAMESPACE and TEMPORAL_API_KEY{create}")]
    return [judging.namespace(facts[0])]


async def _attributes(temporal: TemporalClient) -> list[Finding]:
    return [judging.search_attributes(await attributes(temporal), temporal.namespace)]


async def _server_settings(facts: judging.NamespaceFacts) -> list[Finding]:
    return [judging.server_settings(facts)]


async def _clock(temporal: TemporalClient) -> list[Finding]:
    moment = await answered(server_facts.moment(temporal))
    return [fine(judging.CLOCK, "the server does not report its time")] if moment is None else [judging.clock(moment)]


async def _web_access(temporal: TemporalClient) -> list[Finding]:
    address = temporal.service_client.config.target_host
    return [judging.web_access(await apart(lambda: open_doors(address, temporal.namespace)))]


async def _worker(
    temporal: TemporalClient, settings: Settings, check: str, kind: TaskQueueType.ValueType
) -> list[Finding]:
    queue = settings.task_queue
    pollers, serving = await asyncio.gather(
        answered(server_facts.pollers(temporal, queue, kind)), server_facts.serving(temporal, queue)
    )
    return [judging.worker(check, queue, pollers, serving)]


async def _tools(
    temporal: TemporalClient, facts: judging.NamespaceFacts, settings: Settings, agents: Awaitable[Agents]
) -> list[Finding]:
    """Ask a worker, where there is one and the server lets us, and look at the queues that its tools name."""
    try:
        definitions = without_foreign_names(await shared(agents), settings) or [judging.ANY_AGENT]
    except HoldfastError:  # told by its own check
        definitions = [judging.ANY_AGENT]
    if not facts.starts_activities:
        return [fine(judging.TOOLS, "not checked: this server starts no activity without a run")]
    if not await answered(server_facts.pollers(temporal, settings.task_queue, ACTIVITY)):
        return []  # told by its own check
    if settings.encryption_key_file is not None and temporal.data_converter.payload_codec is None:
        return [fine(judging.TOOLS, "not checked: without the encryption keys no worker can read the request")]
    selected, left_out = definitions[:AGENTS_ASKED_MAX], len(definitions[AGENTS_ASKED_MAX:])
    *equipment, offered = await answered(
        server_facts.equipment(temporal, settings.task_queue, [*selected, judging.ANY_AGENT])
    )
    queues = judging.named_queues(equipment, settings.task_queue)
    looked_at = list(queues.items())[:QUEUES_ASKED_MAX]
    there = await asyncio.gather(*(answered(server_facts.pollers(temporal, queue, ACTIVITY)) for queue, _ in looked_at))
    asked = [
        (queue, names, min((each.silent_seconds for each in pollers), default=None))
        for (queue, names), pollers in zip(looked_at, there, strict=True)
    ]
    return [judging.tools(equipment, left_out, offered), judging.tool_queues(asked)]
