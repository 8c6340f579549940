"""An MCP server whose tool stands until it is cancelled, and what it writes down: of `bench.stop`.

`python -m bench.mcp_stand stdio`, or `http PORT`. It appends `began|cancelled MOMENT NAME` to the file in the variable
LEDGER; the moments are of the machine's monotonic clock, which all processes share on Linux.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

from holdfast.core.tools.mcp_servers import McpServer

ROOT: Final = Path(__file__).resolve().parents[1]
STAND_SECONDS: Final = 60.0
START_SECONDS_MAX: Final = 30.0
LOOK_SECONDS: Final = 0.01


def moment(ledger: Path, what: Literal["began", "cancelled"], name: str) -> float | None:
    """Return when the call of that name began or was cancelled at the server; none if it has not."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    rows = (line.split(" ", 2) for line in lines)
    return next((float(at) for event, at, of in rows if (event, of) == (what, name)), None)


@asynccontextmanager
async def servers(ledger: Path) -> AsyncGenerator[Mapping[str, McpServer]]:
    """Run the server over HTTP, and return its entry with that of one over stdio, which a worker starts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = (sys.executable, "-m", "bench.mcp_stand")
    process = await asyncio.create_subprocess_exec(
        *(*words, "http", str(port)),
        cwd=ROOT,
        env={**os.environ, "LEDGER": str(ledger)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(START_SECONDS_MAX):
            while not await _listens(port):
                if process.returncode is not None:
                    raise RuntimeError("the MCP server has ended")
                await asyncio.sleep(LOOK_SECONDS)
        yield {
            "http": McpServer(name="http", url=f"http://127.0.0.1:{port}/mcp"),
            "stdio": McpServer(name="stdio", command=(*words, "stdio"), cwd=str(ROOT), env={"LEDGER": str(ledger)}),
        }
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def main(transport: str, port: str = "0") -> None:
    """Serve."""
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415  # the server's process alone needs it

    server = MCPServer("stand")
    ledger = Path(os.environ["LEDGER"])

    def note(what: str, name: str) -> None:
        with ledger.open("a", encoding="utf-8") as lines:
            lines.write(f"{what} {time.monotonic()} {name}\n")

    @server.tool()
    async def stand(name: str) -> str:
        """Stand until cancelled."""
        note("began", name)
        try:
            await asyncio.sleep(STAND_SECONDS)
        except asyncio.CancelledError:
            note("cancelled", name)
            raise
        return "nobody came"

    if transport == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(port))


if __name__ == "__main__":
    main(*sys.argv[1:])
