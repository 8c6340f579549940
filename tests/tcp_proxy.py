"""A TCP proxy of a test's own that can be cut, slowed and turned elsewhere. Knows nothing of what it carries."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, Literal, Self

HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 64 * 1024
CONNECT_SECONDS_MAX: Final = 5.0

Cut = Literal["stall", "reset"]
"""`stall` lets nothing through, as a network that drops packets; `reset` closes and refuses connections."""


class Proxy:
    """Carries bytes between whoever connects and the next of `targets` (HOST:PORT) that takes a connection.

    Enter it to have it listen at `own_address`. All methods are for its event loop; `tests/cluster/balancer.py` is one
    in a thread of its own.
    """

    def __init__(self, *targets: str) -> None:
        self.targets = list(targets)
        self.delay_seconds = 0.0
        """Holds back whatever those who connect send."""
        self._next = 0
        self._through = asyncio.Event()
        self._through.set()
        self._refuses = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._carries = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.drop()

    @property
    def own_address(self) -> str:
        """Where it listens."""
        assert self._server is not None
        return f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def connected(self) -> None:
        """Return once there is a connection through it."""
        while not self._writers:
            self._carries.clear()
            await self._carries.wait()

    def cut(self, kind: Cut) -> int:
        """Cut the connection; return how many connections that meets."""
        met = len(self._writers) // 2
        if kind == "reset":
            self._refuses = True
            self.drop()
        else:
            self._through.clear()
        return met

    def heal(self) -> None:
        """Let everything through again."""
        self._refuses = False
        self._through.set()

    def drop(self) -> None:
        """End every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with suppress(OSError, asyncio.CancelledError):
            await self._carried(reader, writer)
        writer.transport.abort()

    async def _carried(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._through.wait()
        there = None if self._refuses else await self._connected()
        if there is None:
            return
        their_reader, their_writer = there
        pair = (writer, their_writer)
        self._writers.update(pair)
        self._carries.set()
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, their_writer, delayed=True))
                both.create_task(self._pump(their_reader, writer, delayed=False))
        except* OSError:
            pass
        finally:
            self._writers.difference_update(pair)
            their_writer.transport.abort()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self.targets:
            host, _, port = self.targets[self._next % len(self.targets)].rpartition(":")
            self._next += 1
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS_MAX):
                    return await asyncio.open_connection(host, int(port))
        return None

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, delayed: bool) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if delayed and self.delay_seconds:
                await asyncio.sleep(self.delay_seconds)
            await self._through.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError("one side has ended")  # and so the other
