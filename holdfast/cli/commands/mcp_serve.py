"""`holdfast mcp-serve`: agents as the tools of an MCP server, for editors and other agents."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from holdfast.cli.command_context import connected
from holdfast.cli.options import with_server
from holdfast.cli.screens import output
from holdfast.cli.shell_completion import agent_names
from holdfast.connection.settings import Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.errors import HoldfastError, MissingPart
from holdfast.core.base.extras import install_command

if TYPE_CHECKING:  # an extra
    from holdfast.client import Holdfast
    from holdfast.mcp_serve.agent_server import AgentServer, OnDisconnect

CUT_SECONDS_MAX: Final = 5.0
"""How long a client may take to read the last answers when the program is to end."""


@with_server("agents_dir", "modules", "task_queue")
def mcp_serve(
    agents: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[AGENT]...",
            help="The agents to offer, by name or definition file; default: all.",
            autocompletion=agent_names,
        ),
    ] = None,
    *,
    http: Annotated[
        int | None,
        typer.Option(
            help="Serve streamable HTTP on this port of 127.0.0.1 instead of standard input and output; 0 means any "
            "free one.",
            min=0,
            max=65_535,
            metavar="PORT",
        ),
    ] = None,
    on_disconnect: Annotated[
        Literal["stop", "continue"],
        typer.Option(help="What becomes of the runs that a client waits for when it vanishes."),
    ] = "stop",
    settings: Settings,
) -> None:
    """Offer agents as the tools of an MCP server, until its client ends it or Ctrl-C."""
    if find_spec("mcp") is None:
        raise MissingPart(f"mcp-serve needs the extra `mcp`: {install_command('mcp')}")
    asyncio.run(_serve(settings, _offered(agents or [], settings), http, on_disconnect))


def _offered(names: list[str], settings: Settings) -> Mapping[str, AgentDefinition]:
    from holdfast.client.definition_files import find_agent, known_agents
    from holdfast.mcp_serve.tool_listing import check_offered

    definitions = [find_agent(name, settings) for name in names]
    offered = {each.name: each for each in definitions} if definitions else known_agents(settings)
    check_offered(offered)
    return offered


async def _serve(
    settings: Settings,
    agents: Mapping[str, AgentDefinition],
    port: int | None,
    on_disconnect: OnDisconnect,
) -> None:
    from holdfast.mcp_serve.agent_server import AgentServer

    client = await connected(settings)
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await _hint_without_worker(client)
    server = AgentServer(client, agents, on_disconnect)
    try:
        if port is None:
            await _over_stdio(server, stopping)
        else:
            await _over_http(server, stopping, port)
    finally:
        await server.close()


async def _over_stdio(server: AgentServer, stopping: asyncio.Event) -> None:
    from holdfast.mcp_serve.stdio import serve_stdio
    from holdfast.runtime.process_exit import leave

    serving, stopped = asyncio.create_task(serve_stdio(server)), asyncio.create_task(stopping.wait())
    await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if serving.done():
        serving.result()
        return
    serving.cancel()
    _, stuck = await asyncio.wait({serving}, timeout=CUT_SECONDS_MAX)
    if stuck:  # it is writing to a client that reads nothing
        await server.close()
        leave(0)


async def _over_http(server: AgentServer, stopping: asyncio.Event, port: int) -> None:
    from holdfast.mcp_serve.http_server import TOKEN_VARIABLE, check_token, serving_http

    token = check_token(os.environ.get(TOKEN_VARIABLE) or None)
    async with serving_http(server, port, token) as url:
        callers = "callers with the token" if token else "every program of this machine"
        sys.stderr.write(f"MCP server {url}, for {callers}; Ctrl-C ends it\n")
        sys.stderr.flush()
        await stopping.wait()


async def _hint_without_worker(client: Holdfast) -> None:
    from holdfast.client.worker_presence import unserved

    with suppress(HoldfastError):
        if (target := await unserved(client.temporal, client.settings.task_queue)) is not None:
            output.hint(f"{target.problem} yet: calls are refused until {target.command}")
