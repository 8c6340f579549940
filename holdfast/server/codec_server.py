"""The codec server: Temporal's remote codec over HTTP, so that the Web UI shows encrypted and stored data.

    POST [/TOKEN][/NAMESPACE]/decode      encrypted payloads as they were before
    POST [/TOKEN][/NAMESPACE]/encode      the other way, for what the UI sends
    POST [/TOKEN][/NAMESPACE]/download    what a reference to the storage stands for, decoded

Whoever asks has the token, in the header `Authorization: Bearer TOKEN` or as the path's first part; a browser also
comes from an origin that was named. Nothing of what is asked or answered is logged.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import re
import secrets
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.common import RawValue
from temporalio.converter import DataConverter

from holdfast.core.base.bounds import CODEC_TOKEN_CHARS_MAX, CODEC_TOKEN_CHARS_MIN
from holdfast.core.base.errors import HoldfastError, InvalidInput, PayloadRefused, ServerUnavailable
from holdfast.server.ports import port_taken
from holdfast.storage.bound_codec import SEALED_ENCODING

CODEC_BODY_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest request to the codec server: the Web UI sends one event's payloads, 4 MB at the most, as base64."""

CODEC_PAYLOADS_MAX: Final = 1_000
"""The most payloads in one of its requests."""

ACTIONS: Final = ("decode", "encode", "download")

_TOKEN: Final = re.compile(rf"[A-Za-z0-9._~-]{{{CODEC_TOKEN_CHARS_MIN},{CODEC_TOKEN_CHARS_MAX}}}")
"""What needs no escape in a URL's path."""

READ_SECONDS_MAX: Final = 30.0
AT_ONCE_MAX: Final = 8
"""Requests at work at the same time; each holds its body and its answer in memory."""

SHUTDOWN_SECONDS: Final = 2.0
PREFLIGHT_SECONDS: Final = "600"

ALLOWED_HEADERS: Final = "Content-Type, X-Namespace, Authorization, Authorization-Extras"
"""What the Web UI sends."""

REFERENCE_ENCODING: Final = b"json/external-storage-reference"
REFERENCE_TYPE: Final = b"temporal.api.sdk.v1.ExternalStorageReference"
"""How the SDK marks a reference to a storage driver: its older form, and the message type of the newer one."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask: whoever knows `token`; from a browser, pages of `origins` only."""

    token: str = field(repr=False)
    origins: frozenset[str]

    @classmethod
    def checked(cls, token: str | None, origins: Iterable[str]) -> Access:
        """Return the access for a token (none: a new one is drawn) and origins. Raises InvalidInput."""
        if token is not None and _TOKEN.fullmatch(token) is None:
            allowed = f"{CODEC_TOKEN_CHARS_MIN} to {CODEC_TOKEN_CHARS_MAX} letters, digits and . _ ~ -"
            raise InvalidInput(f"the codec server's token has {len(token)} characters and must be {allowed}")
        return cls(token or secrets.token_urlsafe(24), frozenset(map(_origin, origins)))

    def admits(self, header: str, path: Sequence[str]) -> bool:
        """Return whether a request with this Authorization and these parts of its path knows the token."""
        kind, _, token = header.partition(" ")
        bearer = kind.lower() == "bearer" and self._is_token(token.strip())
        return self._is_token(path[0] if len(path) > 1 else "") or bearer

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(errors="replace"), self.token.encode())


class CodecServer:
    """What answers the requests; `serving` puts it on a port."""

    def __init__(self, data_converter: DataConverter, access: Access) -> None:
        self._converter = data_converter
        self._access = access
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)

    @asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncGenerator[int]:
        """Serve around the block, which gets the port. Raises PortTaken, ServerUnavailable."""
        application = web.Application(client_max_size=CODEC_BODY_BYTES_MAX)
        application.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, host, port).start()
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise port_taken(port, "--port") from None
                raise ServerUnavailable(f"cannot listen on {host}:{port}: {error.strerror}; choose --host") from None
            yield int(runner.addresses[0][1])
        finally:
            await runner.cleanup()

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one request, whatever it is."""
        origin = request.headers.get("Origin")
        if origin is not None and origin not in self._access.origins:
            return _error_response(HTTPStatus.FORBIDDEN, "this page is not allowed; add its origin with --ui-origin")
        if request.method == "OPTIONS":
            response = web.Response(status=HTTPStatus.NO_CONTENT)
        else:
            try:
                async with self._at_once:
                    response = await self._answered(request)
            except _Refused as refused:
                response = _error_response(refused.status, refused.words)
            except Exception as error:  # noqa: BLE001  # the server would log it with all that it says
                response = _error_response(HTTPStatus.INTERNAL_SERVER_ERROR, f"internal error ({type(error).__name__})")
        response.headers.update({"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Vary": "Origin"})
        if origin is not None:
            response.headers.update(_shared_with(origin, request))
        return response

    async def _answered(self, request: web.Request) -> web.Response:
        path = [part for part in request.match_info["path"].split("/") if part]
        if not self._access.admits(request.headers.get("Authorization", ""), path):
            raise _Refused(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
        if not path or path[-1] not in ACTIONS:
            raise _Refused(HTTPStatus.NOT_FOUND, f"unknown path; there are {', '.join(ACTIONS)}")
        if request.method != "POST":
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "use POST")
        payloads = await _read(request)
        try:
            done = await self._done(path[-1], payloads, keep="preserveStorageRefs" in request.query)
        except PayloadRefused as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, str(error)) from None
        except HoldfastError as error:  # the storage; the UI asks again after this status
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
        return web.Response(text=MessageToJson(Payloads(payloads=done)), content_type="application/json")

    async def _done(self, action: str, payloads: Sequence[Payload], *, keep: bool) -> list[Payload]:
        if action == "encode":
            codec = self._converter.payload_codec
            return list(payloads) if codec is None else await codec.encode(payloads)
        resolved = action == "download" or not keep
        return [await self._decoded(each) if _is_ours(each, resolved=resolved) else each for each in payloads]

    async def _decoded(self, payload: Payload) -> Payload:
        try:
            [value] = await self._converter.decode([payload], [RawValue])
        except (RuntimeError, ValueError):  # the SDK's own, for a reference that it cannot follow
            raise PayloadRefused("a reference to the storage cannot be followed; was another driver used?") from None
        decoded: Payload = value.payload
        return decoded


def _is_ours(payload: Payload, *, resolved: bool) -> bool:
    """Return whether there is anything to decode; search attributes, which the UI sends along, are plain."""
    encoding = payload.metadata.get("encoding", b"")
    reference = encoding == REFERENCE_ENCODING or payload.metadata.get("messageType") == REFERENCE_TYPE
    return encoding == SEALED_ENCODING or (reference and resolved)


class _Refused(Exception):
    """What is answered in the place of payloads."""

    def __init__(self, status: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


async def _read(request: web.Request) -> Sequence[Payload]:
    try:
        async with asyncio.timeout(READ_SECONDS_MAX):
            body = json.loads(await request.read())
        # without payloads, Temporal's command sends an empty object: that is how the format writes an empty list
        listed: list[object] = [] if body == {} else body["payloads"]
        payloads = ParseDict({"payloads": listed}, Payloads(), ignore_unknown_fields=True).payloads
    except TimeoutError:
        raise _Refused(HTTPStatus.REQUEST_TIMEOUT, f"the body did not arrive within {READ_SECONDS_MAX:g} s") from None
    except web.HTTPRequestEntityTooLarge:
        problem = f"the body has more than {CODEC_BODY_BYTES_MAX:,} bytes"
        raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, problem) from None
    except (ParseError, ValueError, LookupError, TypeError, RecursionError):  # whose words would repeat content
        problem = 'the body is not JSON of the form {"payloads": [{"metadata": ..., "data": ...}]}'
        raise _Refused(HTTPStatus.BAD_REQUEST, problem) from None
    if len(payloads) > CODEC_PAYLOADS_MAX:
        problem = f"there are {len(payloads):,} payloads; at most {CODEC_PAYLOADS_MAX:,} are allowed"
        raise _Refused(HTTPStatus.BAD_REQUEST, problem)
    return payloads


def _error_response(status: HTTPStatus, words: str) -> web.Response:
    return web.json_response({"message": words}, status=status)


def _shared_with(origin: str, request: web.Request) -> dict[str, str]:
    """Return the headers by which a browser hands the answer to a page of `origin`."""
    headers = {"Access-Control-Allow-Origin": origin, "Access-Control-Allow-Credentials": "true"}
    if request.method == "OPTIONS":
        headers["Access-Control-Allow-Methods"] = "POST"
        headers["Access-Control-Allow-Headers"] = ALLOWED_HEADERS
        headers["Access-Control-Max-Age"] = PREFLIGHT_SECONDS
        if "Access-Control-Request-Private-Network" in request.headers:  # a page from elsewhere asks this machine
            headers["Access-Control-Allow-Private-Network"] = "true"
    return headers


def _origin(text: str) -> str:
    """Return an origin as browsers write it: SCHEME://HOST[:PORT]."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        good = False
        parts = urlsplit("")
    if not good or parts.path.strip("/") or parts.query or parts.fragment:
        raise InvalidInput(f"{text[:200]!r} is not an origin; give the Web UI's as http://HOST:PORT")
    return f"{parts.scheme}://{parts.netloc.lower()}"
