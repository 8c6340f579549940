"""`mcp.yaml`: the MCP servers that a process knows. Read and checked here; nothing is connected."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.bounds import DEFINITION_BYTES_MAX
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import InvalidInput
from holdfast.core.tools.mcp_servers import SERVERS_MAX, InlineServer, McpServer
from holdfast.mcp.credentials import not_set
from holdfast.runtime.entry_file import SHOWN_CHARS_MAX, EntryFile, fields_of

DEFAULT_FILE: Final = Path("mcp.yaml")

START_PROBLEMS_MAX: Final = 10
"""The most problems that a starting worker warns of."""

VARIABLE_OF_FILE: Final = "HOLDFAST_MCP"
"""The environment variable that names the file."""

McpServers: TypeAlias = str | Path | Mapping[str, McpServer | Mapping[str, Any]]
"""What lists MCP servers: such a file, or the servers by name, each as an entry of one."""

FORM: Final = "write `servers:` and below it a name, a colon, and the server's `url` or `command`"


def read_servers(file: Path | None) -> dict[str, McpServer]:
    """Return the servers of the file by name; without a file, those of DEFAULT_FILE, if that exists.

    Raises InvalidInput with every problem in one line.
    """
    return SERVER_FILE.read(file)


def servers_from(given: McpServers | None, environment: Mapping[str, str]) -> dict[str, McpServer]:
    """Return the servers that a program gives; by default those of the file of HOLDFAST_MCP, else of DEFAULT_FILE.

    Raises InvalidInput with every problem in one line.
    """
    return SERVER_FILE.given(given, "mcp", environment)


def servers_of(text: str | bytes, where: str) -> dict[str, McpServer]:
    """Return the servers that the text of a file called `where` describes. Raises InvalidInput."""
    return SERVER_FILE.parsed(text, where)


def _server(name: str, fields: object) -> McpServer:
    if isinstance(fields, McpServer):
        fields = {field: getattr(fields, field) for field in fields.model_fields_set - {"name"}}
    values = fields_of(fields)
    if values is None:
        raise InvalidInput("is not a mapping; give it a `url` or a `command`")
    if isinstance(command := values.get("command"), str):
        raise InvalidInput(f"`command` is a list of its words: [{', '.join(command.split())}]")
    fields_known = [each for each in McpServer.model_fields if each != "name"]
    for unknown in (each for each in values if each not in fields_known):
        raise InvalidInput(f"unknown field {unknown[:SHOWN_CHARS_MAX]!r}, {suggestion(unknown, fields_known)}")
    return McpServer.model_validate({"name": name, **values})


SERVER_FILE: Final = EntryFile(
    "servers", VARIABLE_OF_FILE, DEFAULT_FILE, FORM, DEFINITION_BYTES_MAX, SERVERS_MAX, _server, checked=McpServer
)


def unknown_server(agent: str, server: str, known: Collection[str]) -> str:
    """Return what is wrong where `agent` names a server that is none of those `known` there."""
    problem = (
        f"agent {agent!r} names the MCP server {server!r}, which its worker (in-process, its driver) does not know"
    )
    return f"{problem} (from mcp.yaml or `mcp=`); {suggestion(server, known)}"


def start_problems(
    servers: Mapping[str, McpServer],
    agents: Iterable[AgentDefinition],
    environment: Mapping[str, str],
    *,
    inline: bool,
) -> tuple[str, ...]:
    """Return what would fail a run later: variables that are not set, and servers of agents that are not here.

    A line each, at most START_PROBLEMS_MAX, and one that counts the rest.
    """
    problems: list[str] = []
    for server in servers.values():
        problems += [not_set(name, server.name) for name in server.variables if name not in environment]
    for agent in agents:
        for each in agent.mcp:
            if isinstance(each, InlineServer):
                if not inline:
                    problems.append(f"agent {agent.name!r} describes the MCP server {each.name!r}; give --mcp-inline")
            elif each not in servers:
                problems.append(unknown_server(agent.name, each, servers))
    if len(problems) <= START_PROBLEMS_MAX:
        return tuple(problems)
    more = f"and {len(problems) - START_PROBLEMS_MAX} more problems with MCP servers"
    return (*problems[:START_PROBLEMS_MAX], more)
