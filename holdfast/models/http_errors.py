"""Hooks of the transport: one reads error responses, bounded, as clients do not; two keep redirects within bounds.

The clients follow redirects, and of what a request carries they take off the key alone: a route's own headers and the
conversation would reach whatever host a redirect names. They read a redirect's body, too, however large it is.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, Protocol, cast

ERROR_BYTES_MAX: Final = 1024 * 1024
"""The largest error body that is read: some quote the whole request; an error shows 500 characters at most."""


REDIRECTS_MAX: Final = 5
"""How many redirects one request follows: each sends the whole conversation again."""


class Body(Protocol):
    """The part of a response's body that we use."""

    async def aclose(self) -> None:
        """Read no more of it."""
        ...


class Response(Protocol):
    """The part of the transport's response that we use, whichever package it is from."""

    stream: Any
    """The body, before it is read."""

    @property
    def status_code(self) -> int:
        """The status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The response headers."""
        ...

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        ...

    @property
    def has_redirect_location(self) -> bool:
        """Whether the client will follow a redirect."""
        ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Return the body as it arrives."""
        ...


class Url(Protocol):
    """The part of the transport's address that we use; a port that its scheme implies is none."""

    @property
    def scheme(self) -> str:
        """The scheme, in lower case."""
        ...

    @property
    def raw_host(self) -> bytes:
        """The host as it is resolved, in lower case."""
        ...

    @property
    def netloc(self) -> bytes:
        """Host and port, without user and password."""
        ...

    @property
    def port(self) -> int | None:
        """The port."""
        ...


class Request(Protocol):
    """The part of the transport's request that we use, whichever package it is from."""

    @property
    def url(self) -> Url:
        """Where it goes."""
        ...


class RedirectedAway(Exception):
    """The endpoint named another place for a request, which was not sent there.

    `origin` is that place's scheme, host and port.
    """

    def __init__(self, origin: str) -> None:
        super().__init__(f"the endpoint redirects to {origin}")
        self.origin = origin


def staying_at(address: Url) -> Callable[[Request], Awaitable[None]]:
    """Return a hook that lets requests go to the endpoint at `address` alone, and raises RedirectedAway for others.

    The same host by TLS, where both ports are the usual ones, is the same endpoint.
    """

    async def stay(request: Request) -> None:  # the transport awaits it, before redirected requests as well
        url = request.url
        secured = address.scheme == "http" and url.scheme == "https" and address.port is url.port is None
        if url.raw_host != address.raw_host or not (secured or _service(url) == _service(address)):
            raise RedirectedAway(f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}")

    return stay


def _service(url: Url) -> tuple[str, int | None]:
    return url.scheme, url.port


class ErrorStatus(Exception):
    """The endpoint answered with an error status; `words` is the text of its body, at most ERROR_BYTES_MAX.

    `error` is the body's error object, any JSON value; none where it has none.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"the endpoint answered {status}")
        self.status = status
        # HTTP/2 sends names in lower case, HTTP/1.1 servers as they like
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.words, self.error = _words(body)


async def refuse_errors(response: Response) -> None:
    """Raise ErrorStatus for an error response; let successes pass, and redirects that can be followed."""
    # a redirect without a location would be returned as an answer otherwise
    if response.is_success or response.has_redirect_location:
        return
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > ERROR_BYTES_MAX:
            # cut JSON could hide a secret behind its escapes, so none of it is shown
            text = f"(an error body of more than {ERROR_BYTES_MAX:,} bytes)"
            raise ErrorStatus(response.status_code, response.headers, text.encode())
    raise ErrorStatus(response.status_code, response.headers, bytes(body))


def leaving_redirects_unread(nothing: Body) -> Callable[[Response], Awaitable[None]]:
    """Return a hook that has the client follow redirects without their bodies: it gets `nothing` in their place."""

    async def leave(response: Response) -> None:
        if response.has_redirect_location:
            await cast("Body", response.stream).aclose()
            response.stream = nothing

    return leave


def _words(body: bytes) -> tuple[str, object]:
    text = body.decode("utf-8", "replace")
    try:
        # the forms differ: {error: {message}}, {detail: [...]}, {message}, plain text; the words alone are kept
        parsed: object = json.loads(text)
        words = words_of(parsed)
    except (ValueError, RecursionError):
        return text, None
    return words, cast("dict[str, object]", parsed).get("error") if isinstance(parsed, dict) else None


def words_of(error: object) -> str:
    """Return the texts and numbers of an endpoint's error object, without the JSON around them."""
    return ", ".join(_leaves(error))


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for each in cast("dict[str, object]", value).values():
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from _leaves(each)
    elif value is not None and not isinstance(value, bool):
        yield str(value)
