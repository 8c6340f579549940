"""The HTTP client for MCP servers: bounded answers, no compression, and what became of each request."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, Literal, cast

import httpx2
from mcp_types import INTERNAL_ERROR, JSONRPCError
from pydantic import ValidationError
from typing_extensions import override

from holdfast.core.base.errors import HoldfastError
from holdfast.mcp.credentials import Credentials
from holdfast.runtime.trusted_certificates import trusted_certificates

CONNECT_SECONDS: Final = 10.0
"""How long a connection, TLS included, may take."""

WRITE_SECONDS: Final = 30.0
"""How long the sending of a request may stand still."""

CALLS_MAX: Final = 1_000
"""The most requests at a time to one server: more than a worker has slots for. Further ones wait."""

IDLE_MAX: Final = 20
"""The most of its connections that are kept for later requests."""

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest answer of a server that is read, or message of one that streams."""

ERROR_BYTES_MAX: Final = 64 * 1024
"""An answer up to this size can be an error of the protocol's."""

SESSION_HEADER: Final = "mcp-session-id"

REDIRECTS: Final = 300
"""The lowest status of a redirect; from there to the server errors HTTP itself says what became of the request."""

CLIENT_ERRORS: Final = 400
"""The lowest status of a refusal. 404 has meanings of its own in the protocol."""

SERVER_ERRORS: Final = 500
"""The lowest status of a server's error, which says nothing of a call's effect: a proxy may have sent it."""

STREAM: Final = "text/event-stream"
JSON: Final = "application/json"

STATUS_TEXT: Final = "it answers HTTP "
"""What the error begins with that stands for a refusal without one of the protocol's."""

CREDENTIALS_TEXT: Final = "; check the credentials in its entry of mcp.yaml: `headers` or `oauth`"

ACCESS_REFUSED: Final = "holdfast.dev/access-refused"
"""The `data` of an error that stands for a 401 or 403, whoever has worded it."""

REFUSALS: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})

Fate = Literal["unsent", "session ended", "answered", "unclear", "broken", "too large"]
"""What became of a request: there was no connection for it; the server has forgotten our session, and refused it; it
was answered by the rules of the protocol or of HTTP; what came says nothing of its effect; nothing came to its end;
more than BODY_BYTES_MAX came."""

REQUEST_META: Final = "holdfast.dev/request"
"""The key in a request's `_meta` of a token that is another one for each request."""


class TooLarge(httpx2.ReadError):
    """The server's answer is larger than BODY_BYTES_MAX."""


class _Counted(httpx2.AsyncByteStream):
    """A response's body that ends with an error beyond BODY_BYTES_MAX; `on_end` gets a small one, whole.

    With `on_break` it ends there instead, and that gets the error.
    """

    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        on_end: Callable[[bytes], None],
        on_break: Callable[[httpx2.TransportError], None] | None,
    ) -> None:
        self._stream = stream
        self._on_end = on_end
        self._on_break = on_break

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._counted():
                yield chunk
        except httpx2.TransportError as error:
            if self._on_break is None:
                raise
            self._on_break(error)

    async def _counted(self) -> AsyncIterator[bytes]:
        size, beginning = 0, b""
        async for chunk in self._stream:
            size += len(chunk)
            if size > BODY_BYTES_MAX:
                raise TooLarge(f"the answer has more than {BODY_BYTES_MAX:,} bytes")
            if size <= ERROR_BYTES_MAX:
                beginning += chunk
            yield chunk
        self._on_end(beginning if size <= ERROR_BYTES_MAX else b"")

    @override
    async def aclose(self) -> None:
        await self._stream.aclose()


class _Transport(httpx2.AsyncHTTPTransport):
    """Bounds answers that come as a whole, and notes what became of each request that has a token.

    A stream of events has bounded events instead (`connection`). `mirrored` has headers for the requests of a token.
    """

    def __init__(
        self, fates: dict[str, Fate], mirrored: Mapping[str, Mapping[str, str]], limits: httpx2.Limits
    ) -> None:
        super().__init__(limits=limits, verify=trusted_certificates())
        self._fates = fates
        self._mirrored = mirrored

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        token = _token_of(request)
        request.headers.update(self._mirrored.get(token or "", {}))
        try:
            response = await super().handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout):
            self._note(token, "unsent")
            raise
        if request.method == "POST":
            response = await _explained(response)
        kind = response.headers.get("content-type", "")
        # the protocol's answer to a session that it does not know any more; without a session 404 is a wrong address
        if response.status_code == HTTPStatus.NOT_FOUND and SESSION_HEADER in request.headers:
            self._note(token, "session ended")
        elif response.status_code >= SERVER_ERRORS:
            self._note(token, "unclear")
        elif response.status_code >= REDIRECTS or (response.status_code == HTTPStatus.OK and kind.startswith(STREAM)):
            self._note(token, "answered")
        else:
            self._note(token, "unclear")  # until its body says more
        if not kind.startswith(STREAM) and isinstance(response.stream, httpx2.AsyncByteStream):

            def judge(body: bytes) -> None:
                if response.status_code == HTTPStatus.OK and _is_error(body):
                    self._note(token, "answered")

            def broke(error: httpx2.TransportError) -> None:
                self._note(token, "too large" if isinstance(error, TooLarge) else "broken")

            response.stream = _Counted(response.stream, judge, None if token is None else broke)
        return response

    def _note(self, token: str | None, fate: Fate) -> None:
        if token is not None:
            self._fates[token] = fate


class _Client(httpx2.AsyncClient):
    """Answers a tool's call that fails below HTTP with a 502 of its own.

    For an error the SDK would end the connection, with the calls of all other runs that share it.
    """

    def __init__(
        self,
        fates: dict[str, Fate],
        mirrored: Mapping[str, Mapping[str, str]],
        auth: ServerAuth,
        limits: httpx2.Limits,
    ) -> None:
        # without a limit for the pool: the calls' own limits count
        timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS, write=WRITE_SECONDS)
        # without compression, so that the bytes counted are the bytes kept
        sent, transport = {"Accept-Encoding": "identity"}, _Transport(fates, mirrored, limits)
        super().__init__(headers=sent, timeout=timeout, transport=transport, auth=auth)
        self._fates = fates

    @override
    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            return await super().send(request, **options)
        except httpx2.TransportError:
            token = _token_of(request)
            if token is None:
                raise
            if self._fates.get(token) != "unsent":
                self._fates[token] = "broken"
            return httpx2.Response(HTTPStatus.BAD_GATEWAY, request=request)


class ServerAuth(httpx2.Auth):
    """Gives each request its headers as they are now, and an access token of the server's grant, if it has one.

    A 401 says that nothing was done: the request is sent once more, with another access token.
    """

    def __init__(self, credentials: Credentials, fates: dict[str, Fate]) -> None:
        self._credentials = credentials
        self._fates = fates

    @override
    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        grant = self._credentials.grant
        try:
            request.headers.update(self._credentials.headers())
            access_token = "" if grant is None else await grant.token()
        except HoldfastError as error:
            if (token := _token_of(request)) is not None:
                self._fates[token] = "unsent"
            raise httpx2.ConnectError(error.message, request=request) from None
        if grant is None:
            yield request
            return
        request.headers["Authorization"] = f"Bearer {access_token}"
        response = yield request
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            with suppress(HoldfastError):
                request.headers["Authorization"] = f"Bearer {await grant.after_refusal(access_token)}"
                yield request


def _is_error(body: bytes) -> bool:
    """Return whether the body is an error in the protocol's own words."""
    try:
        message: object = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and "error" in message


async def _explained(response: httpx2.Response) -> httpx2.Response:
    """Return a refusal with an error that names its status where the server gives none in the protocol's words.

    The SDK shows such an error, and no status. Any other response, and a 404, is returned as it is.
    """
    if response.status_code < CLIENT_ERRORS or response.status_code == HTTPStatus.NOT_FOUND:
        return response
    body = b""
    async for chunk in cast("httpx2.AsyncByteStream", response.stream):
        body += chunk
        if len(body) > ERROR_BYTES_MAX:
            break
    await response.aclose()
    kind, status = response.headers.get("content-type", ""), response.status_code
    if len(body) > ERROR_BYTES_MAX or not kind.lower().startswith(JSON) or not _is_protocol_error(body):
        phrase = httpx2.codes.get_reason_phrase(status) or "unknown"
        credentials = CREDENTIALS_TEXT if status in REFUSALS else ""
        error = {"code": INTERNAL_ERROR, "message": f"{STATUS_TEXT}{status} ({phrase}){credentials}"}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    if status in REFUSALS:
        message = json.loads(body)
        message["error"]["data"] = ACCESS_REFUSED
        body = json.dumps(message).encode()
    headers = {"content-type": JSON, "content-length": str(len(body))}
    return httpx2.Response(status, headers=headers, stream=httpx2.ByteStream(body), extensions=response.extensions)


def _is_protocol_error(body: bytes) -> bool:
    try:
        JSONRPCError.model_validate_json(body, by_name=False)
    except ValidationError:
        return False
    return True


def http_client(
    credentials: Credentials, fates: dict[str, Fate], mirrored: Mapping[str, Mapping[str, str]]
) -> httpx2.AsyncClient:
    """Return a client that sends what `credentials` has; a call's own time limit bounds the silence within an answer.

    `fates` gets what became of each request with a token (REQUEST_META), and `mirrored` has headers for some of them.
    """
    limits = httpx2.Limits(max_connections=CALLS_MAX, max_keepalive_connections=IDLE_MAX)
    return _Client(fates, mirrored, ServerAuth(credentials, fates), limits)


def _token_of(request: httpx2.Request) -> str | None:
    """Return the token by which the request is known here (REQUEST_META), if it has one."""
    try:
        token: object = json.loads(request.content)["params"]["_meta"][REQUEST_META]
    except (ValueError, LookupError, TypeError, httpx2.RequestNotRead):
        return None
    return token if isinstance(token, str) else None
