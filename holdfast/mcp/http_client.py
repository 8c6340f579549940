"""The HTTP client for MCP servers: bounded answers, no compression, and a record of requests that were never sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Final

import httpx2
from typing_extensions import override

CONNECT_SECONDS: Final = 10.0
"""How long a connection, TLS included, may take."""

WRITE_SECONDS: Final = 30.0
"""How long the sending of a request may stand still."""

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest answer of a server that is read, or message of one that streams."""


REQUEST_META: Final = "holdfast.dev/request"
"""The key in a request's `_meta` of a token that is another one for each request."""


class TooLarge(httpx2.ReadError):
    """The server's answer is larger than BODY_BYTES_MAX."""


class _Counted(httpx2.AsyncByteStream):
    """A response's body that ends with an error beyond BODY_BYTES_MAX."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > BODY_BYTES_MAX:
                raise TooLarge(f"the answer has more than {BODY_BYTES_MAX:,} bytes")
            yield chunk

    @override
    async def aclose(self) -> None:
        await self._stream.aclose()


class _Transport(httpx2.AsyncHTTPTransport):
    """Bounds answers that come as a whole; a stream of events has bounded events instead (`connection`)."""

    def __init__(self, unsent: set[str]) -> None:
        super().__init__()
        self._unsent = unsent

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await super().handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout):
            if (token := _token_of(request)) is not None:
                self._unsent.add(token)
            raise
        streamed = response.headers.get("content-type", "").startswith("text/event-stream")
        if not streamed and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Counted(response.stream)
        return response


def http_client(headers: Mapping[str, str], unsent: set[str]) -> httpx2.AsyncClient:
    """Return a client that sends `headers`; a call's own time limit bounds the silence within an answer.

    `unsent` gets the tokens (REQUEST_META) of requests for which there was no connection: they had no effect.
    """
    timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS, write=WRITE_SECONDS, pool=CONNECT_SECONDS)
    # without compression, so that the bytes counted are the bytes kept
    sent = {**headers, "Accept-Encoding": "identity"}
    return httpx2.AsyncClient(headers=sent, timeout=timeout, transport=_Transport(unsent))


def _token_of(request: httpx2.Request) -> str | None:
    try:
        token: object = json.loads(request.content)["params"]["_meta"][REQUEST_META]
    except (ValueError, LookupError, TypeError, httpx2.RequestNotRead):
        return None
    return token if isinstance(token, str) else None
