"""`examine`: all checks of the doctor, side by side; each has a time limit of its own, so that none blocks another."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from holdfast.client.definition_files import known_agents
from holdfast.connection.settings import Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.errors import InvalidInput, StorageFailed
from holdfast.core.base.extras import install_command
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.model_apis import ModelApi
from holdfast.models.model_choice import chosen_api
from holdfast.server.doctor import endpoint_facts, machine_facts, machine_findings, mcp_servers, routes, workspaces
from holdfast.server.doctor.check_runner import STORAGE, Agents, bounded, shared
from holdfast.server.doctor.findings import Finding, Level, fine, warned, wrong
from holdfast.server.worker_process import PARTS, worker_parts
from holdfast.storage.keys import KeyRing
from holdfast.storage.storage_url import MEMORY, folder_of

PROBE: Final = "probe"
"""What is written to the storage and stays there: the very object that every worker writes when it starts."""

IMPORT_SECONDS_MAX: Final = 60.0
"""How long to wait for the checks' own parts to be imported: a second, and more on a busy machine."""


async def examine(settings: Settings) -> list[Finding]:
    """Return what there is to say of everything an agent needs, within some ten seconds; raises nothing of ours."""
    with suppress(TimeoutError):
        async with asyncio.timeout(IMPORT_SECONDS_MAX):
            await machine_facts.apart(partial(_import_parts, settings))
    agents = asyncio.create_task(machine_facts.apart(partial(known_agents, settings)))
    groups = await asyncio.gather(
        bounded(machine_findings.VERSIONS, _versions()),
        _server(settings, agents),
        bounded(machine_findings.AGENTS, _agents(settings, agents)),
        bounded(mcp_servers.MCP, mcp_servers.examine_mcp(settings), mcp_servers.CHECK_SECONDS),
        bounded(workspaces.WORKSPACES, workspaces.examine_workspaces(settings, agents)),
        bounded(machine_findings.MODEL, _model()),
        bounded(routes.ROUTES, routes.examine_routes(settings)),
        bounded(machine_findings.DATA, _data(settings)),
        bounded(STORAGE, _storage(settings)),
        bounded(machine_findings.ENCRYPTION, _encryption(settings)),
    )
    agents.cancel()
    findings = [finding for group in groups for finding in group]
    served = any(each.check == machine_findings.ACTIVITIES and each.level is Level.OK for each in findings)
    return [machine_findings.served(each) for each in findings] if served else findings


def _import_parts(settings: Settings) -> None:
    """Import what the checks use, before their time begins: an import would stop the clocks of all others."""
    needed = {"temporalio": "holdfast.server.doctor.server_checks", "obstore": "holdfast.storage.object_store"}
    if mcp_servers.are_named(settings):
        needed["mcp"] = "holdfast.mcp.listing"
    for part, module in needed.items():
        with suppress(Exception):  # its check says what is wrong
            if find_spec(part) is not None:
                import_module(module)


async def _server(settings: Settings, agents: asyncio.Task[dict[str, AgentDefinition]]) -> list[Finding]:
    if find_spec("temporalio") is None or find_spec("obstore") is None:  # told as missing
        return []
    from holdfast.server.doctor.server_checks import examine_server  # noqa: PLC0415  # an extra of its own

    return await examine_server(settings, agents)


async def _versions() -> list[Finding]:
    try:
        needed = worker_parts()
    except InvalidInput:  # told of the model
        needed = dict(PARTS)
    return [machine_findings.versions(await machine_facts.apart(partial(machine_facts.parts, needed)), needed)]


async def _agents(settings: Settings, agents: Awaitable[Agents]) -> list[Finding]:
    names = sorted(await shared(agents))
    await machine_facts.apart(partial(machine_facts.check_resources, settings.modules))
    return [machine_findings.agents(str(settings.agents_dir), settings.modules, names)]


async def _model() -> list[Finding]:
    api = chosen_api()
    if not isinstance(api, ModelApi):
        return [machine_findings.own_model(api)]
    settings = await machine_facts.apart(
        partial(ProviderSettings.from_environment, api=api)
    )  # the key can be in a file
    if api.finds_access:
        return [machine_findings.own_model(settings.model or api.name)]
    if settings.has_no_access:
        return [machine_findings.no_endpoint(api)]
    return [machine_findings.model_endpoint(await machine_facts.apart(partial(endpoint_facts.ask, settings)))]


async def _data(settings: Settings) -> list[Finding]:
    facts = await machine_facts.apart(partial(machine_facts.data_facts, settings.data_dir))
    elsewhere = settings.address is not None or "TEMPORAL_ADDRESS" in os.environ
    findings = [machine_findings.data_directory(replace(facts, needed=settings.storage is None or not elsewhere))]
    return [*findings, machine_findings.embedded_server(facts)] if facts.there and facts.unusable is None else findings


async def _storage(settings: Settings) -> list[Finding]:
    place = settings.storage_place
    if place.startswith(f"{MEMORY}:"):
        return [warned(STORAGE, f"{place} is lost with its process", "only for tests: set HOLDFAST_STORAGE")]
    folder = folder_of(place)
    if folder is not None and not await machine_facts.apart(partial(os.path.lexists, folder)):
        problem = await machine_facts.apart(partial(machine_facts.creation_problem, folder))
        if problem is not None:
            return [wrong(STORAGE, f"{place} is not there and cannot be created: {problem}", "set HOLDFAST_STORAGE")]
        return [fine(STORAGE, f"{place}, not there yet: the first write creates it")]
    if find_spec("obstore") is None:  # told as missing
        return []
    from holdfast.storage.object_store import Objects  # noqa: PLC0415  # an extra of its own

    objects = Objects(place)
    await objects.replace(PROBE, PROBE.encode())
    if await objects.read(PROBE) != PROBE.encode():
        raise StorageFailed(f"{place} returned other data than was written; does another program write there?")
    return [fine(STORAGE, f"{place}: written and read")]


async def _encryption(settings: Settings) -> list[Finding]:
    path = settings.encryption_key_file
    if path is None:
        return [fine(machine_findings.ENCRYPTION, "off: Temporal and the storage hold conversations in plain text")]
    if find_spec("cryptography") is None:
        return [wrong(machine_findings.ENCRYPTION, "cryptography is not installed", install_command("encryption"))]
    ring, mode = await machine_facts.apart(lambda: (KeyRing.read(path), Path(path).stat().st_mode))
    open_to_others = bool(mode & (stat.S_IRWXG | stat.S_IRWXO))
    return [machine_findings.keys(str(path), [key.id for key in ring.keys], open_to_others=open_to_others)]
