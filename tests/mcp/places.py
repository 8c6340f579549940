"""MCP servers as tests start them: over stdio, and over HTTP on a free port.

Those made with the protocol's SDK, which takes two seconds to import, are forked (see `tests/forked.py`); the ones
written by hand are real processes, without the site's packages.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.core.tools.mcp_servers import McpServer
from holdfast.mcp.connection import McpConnection
from tests.forked import KEPT, ForkedProcess, fork_request, forks

HERE = Path(__file__).parent


def command(program: str, *arguments: str) -> list[str]:
    """What starts a `program` of this folder."""
    python = fork_request(str(HERE / program)) if sys.platform == "linux" else [sys.executable, str(HERE / program)]
    return [*python, *arguments]


def _plain(program: str, *arguments: str) -> list[str]:
    """What starts a `program` of this folder that imports nothing but the standard library."""
    return [sys.executable, "-I", "-S", str(HERE / program), *arguments]


def trial(ledger: Path, **fields: object) -> McpServer:
    """The well-behaved server, over stdio."""
    start = command("servers.py", "stdio")
    return McpServer.model_validate({"name": "till", "command": start, "env": {"LEDGER": str(ledger)}, **fields})


def asking(ledger: Path, **fields: object) -> McpServer:
    """The one that asks people, over stdio."""
    start = command("asking_server.py", "stdio")
    return McpServer.model_validate({"name": "theatre", "command": start, "env": {"LEDGER": str(ledger)}, **fields})


def odd(mode: str, **fields: object) -> McpServer:
    """The one that misbehaves as `mode` says."""
    start = _plain("odd_server.py", mode)
    return McpServer.model_validate({"name": "odd", "command": start, **fields})


def oven(folder: Path, **fields: object) -> McpServer:
    """The server that makes tasks of its calls, over stdio; `folder` is `oven_environment`'s."""
    start = command("task_server.py", "stdio")
    environment = oven_environment(folder)
    return McpServer.model_validate({"name": "oven", "command": start, "env": environment, **fields})


def oven_environment(folder: Path) -> dict[str, str]:
    """What that server is told: `folder` gets its ledger, and its tasks end when it has a file `gate`."""
    (folder / "tasks").mkdir(exist_ok=True)
    return {"LEDGER": str(folder / "ledger"), "TASKS": str(folder / "tasks"), "GATE": str(folder / "gate")}


@asynccontextmanager
async def oven_over_http(
    folder: Path, port: int = 0, environment: Mapping[str, str] | None = None, **fields: object
) -> AsyncGenerator[tuple[McpServer, HttpProcess]]:
    """The same over HTTP, and its process."""
    told = {**oven_environment(folder), **(environment or {})}
    async with _over_http("task_server.py", told, port) as (url, process):
        yield McpServer.model_validate({"name": "oven", "url": url, **fields}), process


@asynccontextmanager
async def over_http(
    ledger: Path, program: str = "servers.py", *arguments: str
) -> AsyncGenerator[tuple[McpServer, HttpProcess]]:
    """The well-behaved server over HTTP, or another `program` of this folder, and its process."""
    async with _over_http(program, {"LEDGER": str(ledger)}, 0, *arguments) as (url, process):
        yield McpServer(name="till", url=url), process


@asynccontextmanager
async def _over_http(
    program: str, environment: Mapping[str, str], port: int = 0, *arguments: str
) -> AsyncGenerator[tuple[str, HttpProcess]]:
    port = port or _free_port()
    process = HttpProcess(HERE / program, ["http", str(port), *arguments], environment)
    try:
        while not await _listens(port):
            assert process.runs(), "the server has ended"
            await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        if process.runs():
            process.kill()
            await process.wait()


class HttpProcess:
    """The process of a server over HTTP."""

    def __init__(self, program: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it; what it prints is nobody's."""
        told = {name: os.environ[name] for name in KEPT if name in os.environ} | dict(environment)
        self._process: subprocess.Popen[bytes] | ForkedProcess
        with Path(os.devnull).open("r+b") as nobody:
            if forks(told):
                streams = (nobody.fileno(), nobody.fileno(), nobody.fileno())
                self._process = ForkedProcess(str(program), arguments, told, Path.cwd(), streams)
            else:
                command = [sys.executable, str(program), *arguments]
                self._process = subprocess.Popen(command, env=told, stdin=nobody, stdout=nobody, stderr=nobody)

    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill it; it is gone once `wait` returns."""
        self._process.kill()

    async def wait(self) -> None:
        """Wait for its end."""
        await asyncio.to_thread(self._process.wait)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def connection(server: McpServer, **environment: str) -> McpConnection:
    """A connection to `server`, not yet opened."""
    return McpConnection(server, environment, sys.stderr)


async def until_noted(ledger: Path, line: str) -> None:
    """Wait until the server has written the line."""
    while line not in noted(ledger):  # noqa: ASYNC110  # a file calls nobody
        await asyncio.sleep(0.02)


def noted(ledger: Path) -> list[str]:
    """What the server has written."""
    return ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []


def catalog(folder: Path, tools: Sequence[Mapping[str, object]], **fields: object) -> McpServer:
    """A server with these tools; write them again with `offer` to change them. Its calls are noted in `ledger`."""
    offer(folder, tools)
    start = _plain("catalog_server.py", str(folder / "tools.json"), str(folder / "ledger"))
    return McpServer.model_validate({"name": "shop", "command": start, **fields})


def offer(folder: Path, tools: Sequence[Mapping[str, object]]) -> None:
    """Give the server of that folder other tools."""
    schema = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
    whole = [{"inputSchema": schema, "description": f"tool {each['name']}", **each} for each in tools]
    (folder / "tools.json").write_text(json.dumps(whole), encoding="utf-8")
