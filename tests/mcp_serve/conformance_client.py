"""What the conformance suite starts as a client: one worker lists the tools of a server, another calls each."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final, cast

import httpx2
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
)
from pydantic import JsonValue

from holdfast.core.base.errors import HoldfastError
from holdfast.core.conversation.input_requests import InputRequest, InputResponse
from holdfast.core.tools.mcp_catalog import McpTool
from holdfast.core.tools.mcp_servers import McpOAuth, McpServer
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.wire.mcp_contracts import McpInputNeeded, McpInputs
from holdfast.mcp.pool import McpPool
from holdfast.mcp.tools import call_mcp_tool

CONTEXT: Final[dict[str, Any]] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
"""What the suite tells a client: credentials, or the calls to make."""

EXAMPLES: Final[dict[str, JsonValue]] = {"number": 2, "integer": 2, "boolean": True, "string": "text"}


async def server_at(url: str) -> McpServer:
    """Return the entry of that server, with the credentials that the suite gave, as a person would write it."""
    if "client_secret" not in CONTEXT:
        return McpServer(name="suite", url=url)
    oauth = {"token_url": await token_url(url), "client_id": CONTEXT["client_id"], "client_secret": "${SECRET}"}
    return McpServer(name="suite", url=url, oauth=McpOAuth.model_validate(oauth))


async def token_url(url: str) -> str:
    """Look up where tokens for that server are given, as who writes `mcp.yaml` does: our client asks no server."""
    resource = await first_json(build_protected_resource_metadata_discovery_urls(None, url))
    issuer = str(resource["authorization_servers"][0])
    found = await first_json(build_oauth_authorization_server_metadata_discovery_urls(issuer, url))
    return str(found["token_endpoint"])


async def first_json(urls: list[str]) -> dict[str, Any]:
    """Return what the first of the addresses has."""
    async with httpx2.AsyncClient() as client:
        for each in urls:
            response = await client.get(each)
            if response.is_success:
                found: dict[str, Any] = response.json()
                return found
    raise ValueError(f"nothing at {urls}")


def calls(tools: Mapping[str, McpTool]) -> list[tuple[McpTool, dict[str, JsonValue]]]:
    """Return the calls that the suite names, else one of each tool with arguments that fit."""
    if "toolCalls" in CONTEXT:
        return [(tools[each["name"]], each["arguments"]) for each in CONTEXT["toolCalls"] if each["name"] in tools]
    return [(tool, arguments(tool, tools)) for tool in tools.values()]


def arguments(tool: McpTool, tools: Mapping[str, McpTool]) -> dict[str, JsonValue]:
    """Return arguments that fit; the tool that echoes a schema gets that of its neighbour."""
    if tool.tool == "json_schema_echo":
        return {"schema": dict(tools["json_schema_2020_12_tool"].parameters)}
    fields = cast("Mapping[str, Mapping[str, Any]]", tool.parameters.get("properties") or {})
    return {name: EXAMPLES.get(field.get("type", ""), "text") for name, field in fields.items()}


async def talk(url: str) -> None:
    """Do what a run does with a server: list its tools, call each on another connection, and answer what it asks."""
    server = await server_at(url)
    environment = {**os.environ, "SECRET": CONTEXT.get("client_secret", "")}
    listing, calling = McpPool({server.name: server}, environment), McpPool({server.name: server}, environment)
    try:
        tools = {each.tool: each for each in (await listing.catalog((server.name,), "conformance")).tools}
        for tool, given in calls(tools):
            sys.stdout.write(f"{tool.tool}: {await called(calling, server, tool, given)}\n")
    finally:
        await listing.close()
        await calling.close()


async def called(pool: McpPool, server: McpServer, tool: McpTool, given: dict[str, JsonValue]) -> str:
    """Call the tool to its end; a person fills each form in with what fits."""
    context = ToolContext(execution_id="conformance", idempotency_key=tool.tool, attempt=1)
    inputs: McpInputs | None = None
    while True:
        answer = await call_mcp_tool(pool, server, tool, given, context, inputs=inputs)
        if not isinstance(answer, McpInputNeeded):
            return answer.text
        responses = {each.key: filled(each) for each in answer.requests}
        inputs = McpInputs(round=1, responses=responses, request_state=answer.request_state)


def filled(request: InputRequest) -> InputResponse:
    """Return an answer to the form."""
    return InputResponse(action="accept", content={each.name: EXAMPLES[each.kind] for each in request.fields})


if __name__ == "__main__":
    try:
        asyncio.run(talk(sys.argv[1]))
    except HoldfastError as error:
        sys.exit(str(error))
