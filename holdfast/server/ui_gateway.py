"""`UiGateway`: the Web UI's port, which admits a browser only under this machine's own names.

The Web UI's server answers under any Host, and any page of the same name can read its cookie against forged requests.
So a page of `http://elsewhere.example:8233` whose name is made to resolve to 127.0.0.1 (DNS rebinding) could start and
approve runs. The server's own port is therefore one that no page can find (on Linux; elsewhere it is a random port of
127.0.0.1), and this one checks each request's head before it passes it on. It reads no bodies, and each connection
carries one request.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from holdfast.core.base.errors import InvalidInput
from holdfast.server.ports import HOST, port_taken

HEAD_BYTES_MAX: Final = 64 * 1024
HEAD_SECONDS_MAX: Final = 30.0
CONNECTIONS_MAX: Final = 256
"""Connections served at once; whoever comes beyond them is refused."""
PIECE_BYTES: Final = 64 * 1024
STOP_SECONDS_MAX: Final = 2.0

NAMES: Final = frozenset({HOST, "localhost", "::1"})
"""What this machine is called in the address line. The port is not compared: a tunnel has another one."""

HOP_HEADERS: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"upgrade"})
"""What concerns one connection alone; ours end with the answer."""


def hidden_host() -> str:
    """Return a loopback address that a page cannot guess, where the system has more than one."""
    if sys.platform != "linux":
        return HOST
    return "127." + ".".join(str(1 + secrets.randbelow(254)) for _ in range(3))


class Refusal(Exception):
    """Why a request is not passed on."""

    def __init__(self, status: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


def admitted(head: bytes) -> bytes:
    """Return the head of a request as it is passed on. Raises Refusal.

    The one Host names this machine, and an Origin is that very host's.
    """
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    parts = first.split(b" ")
    if len(parts) != len(("method", "target", "version")) or not parts[1].startswith(b"/"):
        raise Refusal(HTTPStatus.BAD_REQUEST, "the request names no path")
    fields = [_field(line) for line in lines]
    hosts = _values(fields, b"host")
    if len(hosts) != 1 or _name(hosts[0]) not in NAMES:
        problem = f"the Web UI answers only to http://{HOST}:PORT and http://localhost:PORT"
        raise Refusal(HTTPStatus.FORBIDDEN, f"{problem}; a proxy in front of it must send one of these as Host")
    if any(origin not in (f"http://{hosts[0]}", f"https://{hosts[0]}") for origin in _values(fields, b"origin")):
        raise Refusal(HTTPStatus.FORBIDDEN, "requests from pages of other origins are not allowed")
    passed = [line for line, (name, _) in zip(lines, fields, strict=True) if name not in HOP_HEADERS]
    return b"\r\n".join((first, *passed, b"Connection: close", b"", b""))


class UiGateway:
    """A listening port of this machine, from `bind` on; it answers from `serve` until `close`."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread: threading.Thread | None = None
        self._upstream = ("", 0)
        self.port = int(listener.getsockname()[1])

    @classmethod
    def bind(cls, port: int) -> UiGateway:
        """Take the port, 0 for any free one. Raises PortTaken, InvalidInput."""
        try:
            return cls(socket.create_server((HOST, port)))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise port_taken(port, "--ui-port") from error
            raise InvalidInput(f"--ui-port {port} cannot be used: {error.strerror}") from error

    def serve(self, host: str, port: int) -> None:
        """Pass requests on to the Web UI's server there, in a thread of our own."""
        self._upstream = (host, port)
        self._thread = threading.Thread(target=self._run, name="holdfast-ui-gateway", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give the port back; connections under way are cut."""
        if self._thread is None:
            self._loop.close()
        else:
            with suppress(RuntimeError):  # its loop has ended already
                self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join(STOP_SECONDS_MAX)
        self._listener.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serving())
        finally:
            self._loop.close()

    async def _serving(self) -> None:
        self._slots = asyncio.Semaphore(CONNECTIONS_MAX)
        server = await asyncio.start_server(self._connected, sock=self._listener, limit=HEAD_BYTES_MAX, backlog=128)
        await self._closing.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self._refuse_beyond_slots()
            async with self._slots:
                await self._answer(reader, writer)
        except Refusal as refusal:
            writer.write(_response(refusal))
            with suppress(OSError):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # whoever asked, or the server, has gone
        finally:
            writer.close()

    def _refuse_beyond_slots(self) -> None:
        if self._slots.locked():
            busy = f"{CONNECTIONS_MAX} connections to the Web UI are open; close some, then try again"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, busy)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = admitted(await _head(reader))
        try:
            inner_reader, inner_writer = await asyncio.open_connection(*self._upstream)
        except OSError as error:
            raise Refusal(HTTPStatus.BAD_GATEWAY, f"the Web UI's server does not answer ({error})") from error
        inner_writer.write(head)
        ways = [asyncio.create_task(_copy(*way)) for way in ((reader, inner_writer), (inner_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)  # one side has left, or all is answered
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            inner_writer.close()


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(HEAD_SECONDS_MAX):
            return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        problem = f"the request's head has more than {HEAD_BYTES_MAX:,} bytes"
        raise Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, problem) from error
    except TimeoutError as error:
        raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "the request's head did not arrive in time") from error


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(PIECE_BYTES):
        target.write(piece)
        await target.drain()


def _field(line: bytes) -> tuple[bytes, str]:
    """Return a header's name in small letters, and its value."""
    name, colon, value = line.partition(b":")
    if not colon or not name or name != name.strip():  # also a line that goes on with the one before it
        raise Refusal(HTTPStatus.BAD_REQUEST, "the request has a header without a valid name")
    return name.lower(), value.decode("latin-1").strip().lower()


def _values(fields: Iterable[tuple[bytes, str]], name: bytes) -> list[str]:
    return [value for each, value in fields if each == name]


def _name(host: str) -> str | None:
    with suppress(ValueError):
        parts = urlsplit(f"//{host}")
        if parts.netloc == host and "@" not in host and parts.port != 0:
            return parts.hostname
    return None


def _response(refusal: Refusal) -> bytes:
    body = f"{refusal.words}\n".encode()
    lines = (
        f"HTTP/1.1 {refusal.status.value} {refusal.status.phrase}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + body
