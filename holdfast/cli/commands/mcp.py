"""`holdfast mcp`: the MCP servers that agents may name, what each offers, and a call to try."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer
from pydantic import JsonValue
from rich.markup import escape
from rich.table import Table

from holdfast.cli.busy_indicator import busy
from holdfast.cli.command_context import ask_server
from holdfast.cli.options import AsJson, McpFile, Tenant, with_server
from holdfast.cli.screens import input_forms, mcp_changes, output
from holdfast.connection.settings import Settings
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.safe_text import printable
from holdfast.core.conversation.display_text import on_a_line
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.core.tools.tool_context import NO_REPORTER
from holdfast.mcp.pool import McpPool, check_installed
from holdfast.mcp.server_file import DEFAULT_FILE, FORM, read_servers
from holdfast.mcp.task_keeper import NO_KEEPER

if TYPE_CHECKING:  # an extra
    from holdfast.core.tools.mcp_catalog import McpCatalog, McpTool
    from holdfast.mcp.answers import McpAnswer
    from holdfast.mcp.connection import McpConnection
    from holdfast.mcp.listing import Offer
    from holdfast.mcp.task_messages import CreatedTask

ABOUT_CHARS_MAX: Final = 200
"""How much of a description, or of a tool's name with its parameters, is shown in a table."""

PARAMETERS_MAX: Final = 8
"""How many parameters of a tool are shown in a table."""


@with_server()
def mcp(
    server: Annotated[
        str | None, typer.Argument(metavar="SERVER", help="A server of the file; without one: all.")
    ] = None,
    call: Annotated[
        str | None, typer.Option(help="Call this tool, by the server's name for it or the model's.", metavar="TOOL")
    ] = None,
    args: Annotated[str, typer.Option(help="The call's arguments, a JSON object.", metavar="JSON")] = "{}",
    *,
    since: Annotated[
        str | None,
        typer.Option(help="Show how its tools differ from those that this run has pinned.", metavar="RUN"),
    ] = None,
    tenant: Tenant = "",
    mcp_file: McpFile = None,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """List the MCP servers that agents may name; of one, its tools, resources and prompts; or try a call."""
    file = mcp_file or settings.mcp_file
    servers = read_servers(file)
    if server is None:
        if call is not None:
            raise InvalidInput("name the server whose tool is to be called: holdfast mcp SERVER --call TOOL")
        if since is not None:
            raise InvalidInput("name the server whose tools are to be compared: holdfast mcp SERVER --since RUN")
        _servers(servers, file or DEFAULT_FILE, as_json=as_json)
        return
    if server not in servers:
        where = f"the MCP servers of {file or DEFAULT_FILE}"
        raise InvalidInput(f"{server[:80]!r} is none of {where}; {suggestion(server, servers)}")
    check_installed()
    asking = busy(f"asking the MCP server {server}")
    if since is not None:
        from holdfast.client.mcp_catalogs import pinned_catalog

        older = ask_server(settings, lambda holdfast: pinned_catalog(holdfast, since))
        with asking:
            catalog, _ = asyncio.run(_looked_at(servers[server], tenant))
        mcp_changes.show(server, catalog.changes_since(older.of(server)), as_json=as_json)
    elif call is None:
        with asking:
            catalog, offer = asyncio.run(_looked_at(servers[server], tenant))
        _offer(servers[server], catalog, offer, as_json=as_json)
    else:
        with asking:
            answer = asyncio.run(_called(servers[server], call, _arguments(args), tenant))
        _answer(answer, as_json=as_json)


def _arguments(text: str) -> dict[str, JsonValue]:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--args is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput('--args is not a JSON object; write for example --args \'{"query": "news"}\'')
    return cast("dict[str, JsonValue]", value)


async def _looked_at(server: McpServer, tenant: str) -> tuple[McpCatalog, Offer]:
    from holdfast.mcp.listing import catalog_of, offer_of

    pool = McpPool({server.name: server}, os.environ)
    try:
        async with pool.connection(server, tenant=tenant) as connection:
            return await catalog_of([connection]), await offer_of(connection)
    finally:
        await pool.close()


async def _called(server: McpServer, tool: str, arguments: dict[str, JsonValue], tenant: str) -> McpAnswer:
    from holdfast.mcp.tasks import task_of

    pool = McpPool({server.name: server}, os.environ)

    async def on_task(created: CreatedTask) -> McpAnswer:
        task = task_of(pool, server, created.task_id, tenant=tenant)
        answer = await task.begun(created, NO_KEEPER, NO_REPORTER)
        if answer.questions is not None:
            await task.cancel()  # nobody goes on with it
        return answer

    try:
        async with pool.connection(server, tenant=tenant) as connection:
            return await connection.call(await _own_name(connection, tool), arguments, on_task=on_task)
    finally:
        await pool.close()


async def _own_name(connection: McpConnection, name: str) -> str:
    """Return the server's name of the tool that is called so by it, or by models; InvalidInput where agents get none.

    The list that this takes also tells the SDK which arguments the server wants in headers.
    """
    from holdfast.mcp.listing import catalog_of

    catalog = await catalog_of([connection])
    if any(each.tool == name for each in catalog.tools):
        return name
    for each in catalog.tools:
        if each.name == name:
            return each.tool
    why = next((f" ({line})" for line in catalog.left_out if repr(name[:80]) in line), "")
    problem = f"the server {connection.server.name!r} offers agents no tool {name[:80]!r}{why}"
    raise InvalidInput(f"{problem}; {suggestion(name, [each.tool for each in catalog.tools])}")


def _servers(servers: dict[str, McpServer], file: Path, *, as_json: bool) -> None:
    if as_json:
        output.as_json([each.model_dump(mode="json", exclude_defaults=True) for each in servers.values()])
        return
    if not servers:
        output.console().print(escape(f"no MCP servers: there is no {file}; {FORM}"))
        return
    table = Table("server", "where", "trusted", box=None, pad_edge=False)
    for each in servers.values():
        table.add_row(each.name, escape(printable(each.place)), "yes" if each.trusted else "no")
    output.tables().print(table)


def _offer(server: McpServer, catalog: McpCatalog, offer: Offer, *, as_json: bool) -> None:
    if as_json:
        output.as_json(
            {
                "server": server.name,
                "protocol": offer.protocol,
                "title": offer.title,
                "digest": catalog.digest,
                "tools": [tool.model_dump(mode="json") for tool in catalog.tools],
                "left_out": list(catalog.left_out),
                "resources": [each.model_dump(mode="json", exclude_none=True) for each in offer.resources],
                "prompts": [each.model_dump(mode="json", exclude_none=True) for each in offer.prompts],
            }
        )
        return
    screen = output.console()
    screen.print(escape(printable(f"{offer.title or server.name}, protocol {offer.protocol}")))
    for title, rows in (
        ("tools", [(_signature(tool), _hints(tool, server), tool.description) for tool in catalog.tools]),
        ("resources", [(_uri(each), "", each.description or each.name) for each in offer.resources]),
        ("prompts", [(each.name, "", each.description or "") for each in offer.prompts]),
    ):
        if rows:
            table = Table(title, "", "", box=None, pad_edge=False)
            for name, hint, about in rows:
                table.add_row(escape(printable(name)), hint, escape(on_a_line(about, ABOUT_CHARS_MAX)))
            output.tables().print(table)
    for line in catalog.left_out:
        screen.print(escape(printable(f"left out: {line}")))


def _uri(resource: Any) -> str:  # noqa: ANN401  # the SDK's two kinds of resource
    return str(getattr(resource, "uri", None) or resource.uri_template)


def _signature(tool: McpTool) -> str:
    """Return `till_pay(amount: integer, note?: string)`: the name for models, and its parameters briefly."""
    properties, required = tool.parameters.get("properties"), tool.parameters.get("required")
    if not isinstance(properties, dict):
        return f"{tool.name}()"
    needed = required if isinstance(required, list) else []
    shown = [f"{name}{'' if name in needed else '?'}: {_type(schema)}" for name, schema in properties.items()]
    more = ["..."] if len(shown) > PARAMETERS_MAX else []
    return on_a_line(f"{tool.name}({', '.join([*shown[:PARAMETERS_MAX], *more])})", ABOUT_CHARS_MAX)


def _type(schema: JsonValue) -> str:
    """Return the type that a schema names, or `any`."""
    named = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(named, list):
        return "|".join(map(str, named))
    return named if isinstance(named, str) else "any"


def _hints(tool: McpTool, server: McpServer) -> str:
    """Return what the server says of the tool, in a word or two; unless it is trusted that is a claim."""
    hints = tool.annotations
    words = (("read-only", hints.read_only), ("idempotent", hints.idempotent), ("destructive", hints.destructive))
    shown = ", ".join(word for word, holds in words if holds)
    return f"claims: {shown}" if shown and not server.trusted else shown


def _answer(answer: McpAnswer, *, as_json: bool) -> None:
    requests = answer.questions.requests if answer.questions else ()
    if as_json:
        asks = {"asks": [each.model_dump(mode="json") for each in requests]} if requests else {}
        output.as_json({"text": answer.text, "value": answer.value, "is_error": answer.is_error, **asks})
    else:
        shown = "\n".join(map(input_forms.question, requests)) or answer.text
        output.console().print(escape(printable(shown)))
    if requests:
        output.hint("the server asks a person before it goes on, and a tried call cannot wait; ask an agent to call it")
    if requests or answer.is_error:
        raise typer.Exit(4)
