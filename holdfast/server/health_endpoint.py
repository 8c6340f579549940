"""The health endpoint: a small HTTP/1.1 server for `GET /live` and `GET /ready`. It decides nothing itself.

    /live     200 as long as the event loop answers
    /ready    200 if the caller names no problem, else 503; the JSON body has the problems by name

It takes GET and HEAD, reads no body, and closes after each answer. It needs no package beyond Python's own.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from types import MappingProxyType, TracebackType
from typing import Final, Self, TypeAlias

from holdfast.core.base.errors import HoldfastError, InvalidInput, PortTaken
from holdfast.telemetry.endpoint_address import endpoint_address

Problems: TypeAlias = Callable[[], Awaitable[Mapping[str, str]]]
"""Says by name what keeps the process from being ready; empty if nothing does."""

REQUEST_BYTES_MAX: Final = 8 * 1024
"""The longest request line with its headers."""

REQUEST_SECONDS_MAX: Final = 5.0
"""How long a client may take to send its request."""

ANSWER_SECONDS_MAX: Final = 10.0
"""How long an answer may take, and then to be sent: more than the checks behind `/ready`."""

CONNECTIONS_MAX: Final = 32
"""Connections at once. A further one ends the oldest, so that silent ones keep no probe out."""

HEADERS_END: Final = b"\r\n\r\n"
REQUEST_LINE_PARTS: Final = 3

Answer: TypeAlias = tuple[HTTPStatus, Mapping[str, object]]

NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
"""The document of an answer whose status says all."""


def health_address(option: str | None = None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return HOST:PORT from `option` or HOLDFAST_HEALTH; None if there is no health endpoint.

    Raises InvalidInput for an invalid address, as `holdfast.telemetry.endpoint_address` says.
    """
    return endpoint_address("health", option or environment.get("HOLDFAST_HEALTH"), example=8086)


class HealthEndpoint:
    """Serves at `address` (HOST:PORT) around a block, which raises PortTaken or InvalidInput if it cannot listen."""

    def __init__(self, address: str, problems: Problems) -> None:
        self.address: Final = address
        self._problems = problems
        self._connections: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        host, _, port = self.address.rpartition(":")
        try:
            self._server = await asyncio.start_server(
                self._on_connection, host.strip("[]"), int(port), limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise _not_listening(self.address, error) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for each in self._connections:
            each.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            oldest = next(iter(self._connections))
            del self._connections[oldest]  # at once: the next one may come before it has ended
            oldest.cancel()
        task = asyncio.create_task(self._serve(reader, writer), name="health-request")
        self._connections[task] = None
        task.add_done_callback(partial(self._on_end, writer))

    def _on_end(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        """Close the connection, even if its task was cancelled before it began."""
        self._connections.pop(task, None)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):  # the client has gone, or is stuck
            request = await _request(reader)
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                status, document = await self._answer(request) if isinstance(request, bytes) else (request, NOTHING)
                writer.write(_response(status, document, body=not _is_head(request)))
                await writer.drain()

    async def _answer(self, request: bytes) -> Answer:
        parts = request.split(b"\r\n", 1)[0].split(b" ")
        if len(parts) != REQUEST_LINE_PARTS or not parts[2].startswith(b"HTTP/1."):
            return HTTPStatus.BAD_REQUEST, NOTHING
        if parts[0] not in (b"GET", b"HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, NOTHING
        match parts[1].partition(b"?")[0]:
            case b"/live":
                return HTTPStatus.OK, {"status": "live"}
            case b"/ready":
                problems = await self._problems()
                if problems:
                    return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "not ready", "problems": dict(problems)}
                return HTTPStatus.OK, {"status": "ready"}
            case _:
                return HTTPStatus.NOT_FOUND, {"paths": ["/live", "/ready"]}


async def _request(reader: asyncio.StreamReader) -> bytes | HTTPStatus:
    """Return the request line and the headers, or what is wrong with them. Raises IncompleteReadError, OSError."""
    try:
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            return await reader.readuntil(HEADERS_END)
    except TimeoutError:
        return HTTPStatus.REQUEST_TIMEOUT
    except asyncio.LimitOverrunError:
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


def _is_head(request: bytes | HTTPStatus) -> bool:
    return isinstance(request, bytes) and request.startswith(b"HEAD ")


def _response(status: HTTPStatus, document: Mapping[str, object], *, body: bool) -> bytes:
    content = json.dumps(dict(document) or {"error": status.phrase}).encode() + b"\n"
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(["Allow: GET, HEAD"] if status is HTTPStatus.METHOD_NOT_ALLOWED else []),
    ]
    return "\r\n".join(lines).encode() + HEADERS_END + (content if body else b"")


def _not_listening(address: str, error: OSError) -> HoldfastError:
    if error.errno == errno.EADDRINUSE:
        problem = f"the health address {address} is taken by another program"
        return PortTaken(f"{problem}; stop it or choose another one with --health or HOLDFAST_HEALTH")
    why = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in (errno.EACCES, errno.EPERM):
        remedy = "choose a port from 1024 on: those below need privileges"
        return InvalidInput(f"the health address {address} cannot be used: {why}; {remedy}")
    return InvalidInput(f"the health address {address} cannot be used: {why}; choose an address of this machine")
