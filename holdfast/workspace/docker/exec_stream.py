"""`ExecStream`: the input and output of one command in a container, as Docker carries them over one connection."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

HEADER: Final = struct.Struct(">BxxxI")
"""What comes before each piece of output: the stream (1 stdout, 2 stderr) and the piece's size in bytes."""

STDOUT: Final = 1
STDERR: Final = 2

PIECE_BYTES_MAX: Final = 1024**2
"""More than Docker has ever put into a piece (32 KB): a larger size is no header."""

CLOSE_SECONDS_MAX: Final = 1.0


class ExecStream:
    """A command that has been started. `close` ends the connection, which the command sees as the end of its input."""

    def __init__(self, identity: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.identity: Final = identity
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, identity: str, connection: socket.socket) -> ExecStream:
        """Return the stream over an open connection, which belongs to it from now on."""
        connection.setblocking(False)  # noqa: FBT003
        try:
            reader, writer = await asyncio.open_connection(sock=connection)
        except BaseException:
            connection.close()
            raise
        return cls(identity, reader, writer)

    async def write(self, data: bytes) -> None:
        """Write to the command's input. Raises OSError."""
        self._writer.write(data)
        await self._writer.drain()

    async def pieces(self) -> AsyncGenerator[tuple[int, bytes]]:
        """Yield what the command writes, with the number of its stream, until it ends.

        Raises OSError where the connection breaks, also in the middle of a piece.
        """
        while True:
            try:
                stream, size = HEADER.unpack(await self._reader.readexactly(HEADER.size))
                if size > PIECE_BYTES_MAX:
                    raise ConnectionError(f"Docker announces a piece of {size:,} bytes")
                data = await self._reader.readexactly(size)
            except asyncio.IncompleteReadError as error:
                if error.partial:
                    raise ConnectionError("the connection to Docker broke within a piece of output") from None
                return
            yield stream, data

    async def close(self) -> None:
        """End the connection, in bounded time."""
        connection = self._writer.get_extra_info("socket")
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await self._writer.wait_closed()
