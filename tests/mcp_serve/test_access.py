"""Who reaches the server over HTTP, what it refuses before it serves, and how it ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from holdfast import AgentDefinition
from holdfast.client import Settings
from holdfast.core.base.errors import InvalidInput, PortTaken, ServerUnavailable
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.mcp.errors import McpUnavailable
from tests.mcp.places import connection
from tests.mcp_serve.callers import Place, call, http_server, over_http, over_stdio, text

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]

CLERK = AgentDefinition(name="clerk")
HEADERS: Sequence[tuple[dict[str, str], int]] = (
    ({}, 200),
    ({"Origin": "https://example.com"}, 403),
    ({"Origin": "null"}, 403),
    ({"Host": "example.com"}, 421),
    ({"Content-Type": "text/plain"}, 400),
)
"""Headers of a request, and the status that they get: the first are a client's."""

TOKEN = "a-token-of-some-length"  # noqa: S105  # nobody's


async def test_a_web_page_does_not_reach_the_server(settings: Settings, tmp_path: Path) -> None:
    body = (
        '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", '
        '"capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}}'
    )
    fixed = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    async with (
        http_server(Place.of(settings, tmp_path, [CLERK])) as (url, _),
        aiohttp.ClientSession() as session,
    ):
        for headers, status in HEADERS:
            async with session.post(url, data=body, headers={**fixed, **headers}) as response:
                assert response.status == status, headers


async def test_a_request_over_four_megabytes_is_refused_before_it_is_read(settings: Settings, tmp_path: Path) -> None:
    async with http_server(Place.of(settings, tmp_path, [CLERK])) as (url, _):
        port = urlsplit(url).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {4 * 1024 * 1024 + 1}\r\n\r\n".encode())
        assert b" 413 " in await reader.readline()
        writer.close()


async def test_with_a_token_only_those_who_send_it_are_served(settings: Settings, tmp_path: Path) -> None:
    place = replace(Place.of(settings, tmp_path, [CLERK]), env={"HOLDFAST_MCP_SERVE_TOKEN": TOKEN})
    async with http_server(place) as (url, _):
        async with aiohttp.ClientSession() as session, session.post(url, data="{}") as response:
            assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
        with pytest.raises(McpUnavailable):
            async with connection(McpServer(name="wrong", url=url, headers={"Authorization": "Bearer x"})):
                pass
        ours = McpServer(name="ours", url=url, headers={"Authorization": "Bearer ${T}"})
        async with connection(ours, T=TOKEN) as client:
            assert client.open


async def test_without_a_worker_a_call_is_refused_and_nothing_begins(settings: Settings, tmp_path: Path) -> None:
    async with over_stdio(Place.of(settings, tmp_path, [CLERK])) as client:
        refused = await call(client, "clerk", message="hi")
    assert refused.is_error
    assert "holdfast.dev/run-id" not in (refused.meta or {})
    assert text(refused).startswith(f"no worker serves the task queue {settings.task_queue!r}, so nothing was begun")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "message: Field required"),
        ({"message": " "}, "the message is empty"),
        ({"message": "hi", "massage": 1}, "massage: Extra inputs are not permitted"),
        ({"message": "hi", "wait_seconds": 1e9}, "wait_seconds: Input should be less than or equal to 3600"),
        ({"message": "hi", "metadata": {"mcp_serve": 1}}, "the metadata key 'mcp_serve' is the server's own"),
        ({"message": "x" * 200_000}, "at most 131,072 are allowed"),
    ],
)
async def test_bad_arguments_are_an_error_that_a_model_can_read(
    settings: Settings, tmp_path: Path, arguments: dict[str, Any], problem: str
) -> None:
    async with over_stdio(Place.of(settings, tmp_path, [CLERK])) as client:
        refused = await call(client, "clerk", **arguments)
    assert refused.is_error
    assert problem in text(refused)


async def test_an_unknown_tool_is_told_with_the_nearest(settings: Settings, tmp_path: Path) -> None:
    async with over_stdio(Place.of(settings, tmp_path, [CLERK])) as client:
        with pytest.raises(Exception, match="no tool is called 'clark'; did you mean 'clerk'"):
            await call(client, "clark", message="hi")
        unknown = await call(client, "get_run", run_id="00000000-0000-4000-8000-000000000000")
        mistyped = await call(client, "get_run", run_id="clerk")
    assert "no run 00000000-0000-4000-8000-000000000000 of this server's agents" in text(unknown)
    assert "'clerk' is not a UUID" in text(mistyped)


@pytest.mark.parametrize(
    ("words", "error", "problem"),
    [
        (("clark",), InvalidInput, "no agent is called 'clark' in"),
        (("--address", "127.0.0.1:1"), ServerUnavailable, "127.0.0.1:1"),
        (("get_run",), InvalidInput, "an agent is called 'get_run', as one of the server's own tools"),
        (("--http", "TAKEN"), PortTaken, "is taken by another program; choose another with --http"),
        (("--http", "0", "SHORT"), InvalidInput, "HOLDFAST_MCP_SERVE_TOKEN has 5 characters"),
    ],
)
async def test_what_cannot_be_served_is_told_in_a_line(
    settings: Settings, tmp_path: Path, words: tuple[str, ...], error: type, problem: str
) -> None:
    place = Place.of(settings, tmp_path, [CLERK, AgentDefinition(name="get_run")])
    async with await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0) as taken:
        port = str(taken.sockets[0].getsockname()[1])
        command = [*place.command, *(port if word == "TAKEN" else word for word in words if word != "SHORT")]
        if not set(words) & {"clark", "get_run"}:
            command.insert(command.index("mcp-serve") + 1, "clerk")
        token = {"HOLDFAST_MCP_SERVE_TOKEN": "short"} if "SHORT" in words else {}
        code, out, err = await _ended(command, {**place.environment, **token})
    assert code == error.exit_code  # type: ignore[attr-defined]
    assert problem in err
    assert out == ""


@pytest.mark.slow
async def test_an_interrupt_ends_the_server_and_leaves_nothing(settings: Settings, tmp_path: Path) -> None:
    place = replace(Place.of(settings, tmp_path, [CLERK]), warm=False)
    async with http_server(place) as (url, process), over_http(url) as client:
        await client.list_tools()
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    over_pipes = await asyncio.create_subprocess_exec(
        *place.command,
        env=place.environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert over_pipes.stderr is not None
    assert b"no worker serves the task queue" in await over_pipes.stderr.readline()
    over_pipes.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(over_pipes.wait(), 60) == 0


async def _ended(command: list[str], environment: dict[str, str]) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()
