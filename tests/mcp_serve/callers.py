"""`holdfast mcp-serve` as a process, over stdio and HTTP, and the SDK's own client that calls it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from holdfast.client import Settings
from holdfast.client.definition_files import to_yaml
from holdfast.core.agent.definition import AgentDefinition
from tests.forked import fork_request, forks
from tests.server_credentials import CREDENTIALS

HOLDFAST = Path(sys.executable).with_name("holdfast")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server is to offer which agents."""

    settings: Settings
    folder: Path
    options: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict[str, str])
    warm: bool = True
    """Whether the program is forked; see `tests/forked.py`."""

    @classmethod
    def of(cls, settings: Settings, folder: Path, agents: Iterable[AgentDefinition], *options: str) -> Place:
        """Return a place whose agents folder has these agents."""
        (folder / "agents").mkdir(exist_ok=True)
        for agent in agents:
            (folder / "agents" / f"{agent.name}.yaml").write_text(to_yaml(agent), encoding="utf-8")
        return cls(settings, folder, options)

    @property
    def command(self) -> list[str]:
        """The words that start it."""
        where = ["--address", str(self.settings.address), "--task-queue", self.settings.task_queue]
        return [*self.program, "mcp-serve", *self.options, "--agents", str(self.folder / "agents"), *where]

    @property
    def program(self) -> list[str]:
        """The words that start `holdfast`."""
        return fork_request("holdfast") if self.warm and forks(self.environment) else [str(HOLDFAST)]

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its process."""
        ours = {"HOLDFAST_STORAGE": str(self.settings.storage), "HOLDFAST_DATA_DIR": str(self.folder / "data")}
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        if self.settings.encryption_key_file is not None:
            ours["HOLDFAST_ENCRYPTION_KEY_FILE"] = str(self.settings.encryption_key_file)
        return {**kept, **CREDENTIALS, **ours, **self.env}


class Reports:
    """Takes progress; `lines` has its texts."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.numbers: list[float] = []

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        assert total is None, "nobody knows how long an agent takes"
        self.numbers.append(progress)
        self.lines.append(message or "")

    async def until(self, words: str) -> str:
        """Wait for a line that has these words."""
        while not (found := [line for line in self.lines if words in line]):  # noqa: ASYNC110  # a server calls it
            await asyncio.sleep(0.02)
        return found[0]


@asynccontextmanager
async def over_stdio(place: Place, mode: str = "auto") -> AsyncGenerator[Client]:
    """A client of a server that it has started."""
    command, *words = place.command
    parameters = StdioServerParameters(command=command, args=words, env=place.environment, cwd=place.folder)
    async with Client(stdio_client(parameters), mode=mode) as client:
        yield client


@asynccontextmanager
async def http_server(place: Place) -> AsyncGenerator[tuple[str, asyncio.subprocess.Process]]:
    """A server over HTTP on a free port: its URL and its process, which is to be gone at the end."""
    process = await asyncio.create_subprocess_exec(
        *(*place.command, "--http", "0"),
        env=place.environment,
        cwd=place.folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        while b"MCP server http" not in (line := await process.stderr.readline()):
            assert line, "it has ended"
        yield line.decode().split()[2].rstrip(","), process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.communicate()


@asynccontextmanager
async def over_http(url: str, mode: str = "auto") -> AsyncGenerator[Client]:
    """A client of the server at a URL."""
    async with Client(streamable_http_client(url), mode=mode) as client:
        yield client


async def call(
    client: Client, tool: str, key: str = "", reports: Reports | None = None, **arguments: object
) -> CallToolResult:
    """Call a tool, and return its result."""
    meta: Any = {"holdfast.dev/idempotency-key": key} if key else None
    result = await client.call_tool(tool, arguments, meta=meta, progress_callback=reports)
    assert isinstance(result, CallToolResult)
    return result


def text(result: CallToolResult) -> str:
    """The text of a result that has one."""
    [part] = result.content
    assert isinstance(part, TextContent)
    return part.text


def run_id(result: CallToolResult) -> str:
    """The id of the run that a result is about."""
    assert result.meta is not None
    return str(result.meta["holdfast.dev/run-id"])
