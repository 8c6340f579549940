"""`mcp.yaml`: the MCP servers that a process knows. Read and checked here; nothing is connected."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import yaml
from pydantic import ValidationError

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.bounds import DEFINITION_BYTES_MAX, REPORT_CHARS_MAX
from holdfast.core.base.did_you_mean import nearest, suggestion
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.safe_text import clamped
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.tools.mcp_servers import SERVERS_MAX, InlineServer, McpServer
from holdfast.mcp.credentials import not_set
from holdfast.runtime.plain_yaml import PlainLoader

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
    path = file or DEFAULT_FILE
    if file is None and not path.exists():
        return {}
    try:
        with path.open("rb") as opened:
            text = opened.read(DEFINITION_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}; {FORM}") from None
    if len(text) > DEFINITION_BYTES_MAX:
        raise InvalidInput(f"{path}: is larger than {DEFINITION_BYTES_MAX:,} bytes; no list of servers is")
    return servers_of(text, str(path))


def servers_from(given: McpServers | None, environment: Mapping[str, str]) -> dict[str, McpServer]:
    """Return the servers that a program gives; by default those of the file of HOLDFAST_MCP, else of DEFAULT_FILE.

    Raises InvalidInput with every problem in one line.
    """
    if given is None:
        given = environment.get(VARIABLE_OF_FILE) or None
    if given is None or isinstance(given, str | Path):
        return read_servers(None if given is None else Path(given))
    return _servers(given, "mcp")


def servers_of(text: str | bytes, where: str) -> dict[str, McpServer]:
    """Return the servers that the text of a file called `where` describes. Raises InvalidInput."""
    try:
        data: object = yaml.load(text, PlainLoader)  # noqa: S506  # a SafeLoader without aliases
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{where}: the YAML cannot be read: {' '.join(str(error).split())[:300]}") from None
    whole = _mapping(data) or {}
    for unknown in (each for each in whole if each != "servers"):
        raise InvalidInput(f"{where}: unknown field {unknown[:80]!r}, {nearest(unknown, ['servers'])}")
    named = _mapping(whole.get("servers"))
    if not named:
        raise InvalidInput(f"{where}: names no servers; {FORM}")
    return _servers(named, where)


def _servers(named: Mapping[str, object], where: str) -> dict[str, McpServer]:
    if len(named) > SERVERS_MAX:
        raise InvalidInput(f"{where}: names {len(named)} servers, at most {SERVERS_MAX} are allowed")
    servers: dict[str, McpServer] = {}
    problems: list[str] = []
    for name, fields in named.items():
        try:
            servers[name] = _server(name, fields)
        except ValidationError as error:
            problems.append(f"servers.{name[:80]}: {problems_text(error)}")
        except InvalidInput as error:
            problems.append(f"servers.{name[:80]}: {error.message}")
    if problems:
        raise InvalidInput(f"{where}: {' '.join(clamped('; '.join(problems), REPORT_CHARS_MAX).split())}")
    return servers


def _server(name: str, fields: object) -> McpServer:
    if isinstance(fields, McpServer):
        fields = {field: getattr(fields, field) for field in fields.model_fields_set - {"name"}}
    values = _mapping(fields)
    if values is None:
        raise InvalidInput("is not a mapping; give it a `url` or a `command`")
    if isinstance(command := values.get("command"), str):
        raise InvalidInput(f"`command` is a list of its words: [{', '.join(command.split())}]")
    fields_known = [each for each in McpServer.model_fields if each != "name"]
    for unknown in (each for each in values if each not in fields_known):
        raise InvalidInput(f"unknown field {unknown[:80]!r}, {nearest(unknown, fields_known)}")
    return McpServer.model_validate({"name": name, **values})


def _mapping(value: object) -> dict[str, object] | None:
    """Return a YAML mapping with its names as texts; none for anything else."""
    if not isinstance(value, dict):
        return None
    return {str(name): each for name, each in cast("dict[object, object]", value).items()}


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
