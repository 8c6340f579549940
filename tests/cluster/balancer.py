"""A TCP load balancer of a test's own, before the frontends or the database; it can cut and slow connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Self

HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 64 * 1024
CONNECT_SECONDS_MAX: Final = 5.0
START_SECONDS_MAX: Final = 10.0


class Balancer:
    """Forwards each connection to the next of `targets` (HOST:PORT) that takes it, from a thread of its own.

    `delay_seconds` holds back whatever a client sends; `cut` ends every connection and takes no other until `heal`.
    """

    def __init__(self, targets: Sequence[str], port: int = 0) -> None:
        self.targets = list(targets)
        self.delay_seconds = 0.0
        self.connections = 0
        """How many it has forwarded so far."""
        self._cut = False
        self._next = 0
        self._port = port
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="balancer", daemon=True)

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{HOST}:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(START_SECONDS_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(START_SECONDS_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS_MAX)
        self._loop.close()

    def cut(self) -> None:
        """End every connection, and refuse others until `heal`."""
        self._cut = True
        self.drop()

    def heal(self) -> None:
        """Take connections again."""
        self._cut = False

    def drop(self) -> None:
        """End every connection."""
        self._loop.call_soon_threadsafe(self._drop)

    def _drop(self) -> None:
        for each in self._open:
            each.transport.abort()

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, HOST, self._port)
        self._port = server.sockets[0].getsockname()[1]
        return server

    async def _close(self) -> None:
        self._server.close()
        self._drop()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            there = None if self._cut else await self._connected()
            if there is None:
                return
            self.connections += 1
            self._open.add(there[1])
            forward = asyncio.create_task(self._copy(reader, there[1], delayed=True))
            back = asyncio.create_task(self._copy(there[0], writer, delayed=False))
            try:
                await asyncio.wait((forward, back), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in (forward, back):
                    each.cancel()
                await asyncio.gather(forward, back, return_exceptions=True)
                self._open.discard(there[1])
                there[1].transport.abort()
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self.targets:
            host, _, port = self.targets[self._next % len(self.targets)].rpartition(":")
            self._next += 1
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS_MAX):
                    return await asyncio.open_connection(host, int(port))
        return None

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, delayed: bool) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                if delayed and self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                writer.write(chunk)
                await writer.drain()
