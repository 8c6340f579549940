"""The doctor's look at MCP servers: whether each of `mcp.yaml` answers, and which names of agents are theirs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TextIO

from holdfast.connection.settings import Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.tool_selection import ALL
from holdfast.core.base.errors import HoldfastError, InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.display_text import on_a_line
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.mcp.pool import MISSING, McpPool
from holdfast.mcp.server_file import DEFAULT_FILE, read_servers
from holdfast.server.doctor.check_runner import Agents
from holdfast.server.doctor.findings import Finding, fine, warned, wrong
from holdfast.server.doctor.machine_facts import apart

MCP: Final = "mcp servers"

ANSWER_SECONDS: Final = 6.0
"""How long a server may take to start and to list its tools."""

CHECK_SECONDS: Final = ANSWER_SECONDS + 2
"""How long all of them may take, which are asked side by side."""

_PROBLEM_CHARS_MAX: Final = 120


def are_named(settings: Settings) -> bool:
    """Return whether there is a file that names servers, and can be read."""
    try:
        return bool(read_servers(settings.mcp_file))
    except HoldfastError:  # told by the check
        return False


async def examine_mcp(settings: Settings) -> list[Finding]:
    """Return whether the servers of this folder's `mcp.yaml` answer, with this process's variables."""
    servers = read_servers(settings.mcp_file)
    file = settings.mcp_file or DEFAULT_FILE
    if not servers:
        return [fine(MCP, f"none: there is no {file}")]
    if find_spec("mcp") is None:
        return [wrong(MCP, f"{file} names {len(servers)}; the package `mcp` is not installed", MISSING)]
    log = await apart(lambda: Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # closed below
    with log:
        asked = await asyncio.gather(*(_asked(server, log) for server in servers.values()))
    answers = dict(zip(servers, asked, strict=True))
    result = "; ".join(f"{name}: {'ok, ' if good else ''}{text}" for name, (good, text) in answers.items())
    if all(good for good, _ in answers.values()):
        return [fine(MCP, result)]
    bad = next(name for name, (good, _) in answers.items() if not good)
    return [warned(MCP, result, f"look at it with `holdfast mcp {bad}`")]


async def _asked(server: McpServer, log: TextIO) -> tuple[bool, str]:
    """Return whether the server lists its tools, and how many, or why not."""
    pool = McpPool({server.name: server}, os.environ, log)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            catalog = await pool.catalog((server.name,), "doctor")
    except TimeoutError:
        return False, f"unreachable (no answer within {ANSWER_SECONDS:g} s)"
    except HoldfastError as error:
        why = error.message.rpartition("cannot be used: ")[2]
        return False, f"unreachable ({on_a_line(why, _PROBLEM_CHARS_MAX)})"
    finally:
        await pool.close()
    return True, f"{len(catalog.tools)} tools"


def without_foreign_names(agents: Agents, settings: Settings) -> list[AgentDefinition]:
    """Return the agents without the names that their MCP servers can bring: those are known when a run begins."""
    try:
        known: Mapping[str, McpServer] = read_servers(settings.mcp_file)
    except InvalidInput:  # told by its own check
        known = {}
    return [_without_foreign_names(each, known) for each in agents.values()]


def _without_foreign_names(agent: AgentDefinition, known: Mapping[str, McpServer]) -> AgentDefinition:
    if not agent.mcp:
        return agent
    servers = [known.get(each) if isinstance(each, str) else each for each in agent.mcp]
    prefixes = tuple(
        f"{name}_" if server is None else server.tool_prefix
        for name, server in zip(agent.mcp_names, servers, strict=True)
    )

    def own(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if not name.startswith(prefixes))

    rules = tuple(rule for rule in agent.approvals if own(rule.tools) == rule.tools)
    tools = agent.tools if agent.tools == ALL else own(agent.tools)
    return replace(agent, tools=tools, tools_deny=own(agent.tools_deny), approvals=rules)
