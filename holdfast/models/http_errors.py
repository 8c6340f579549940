"""Reads error responses in a hook of the transport, bounded: the provider's client reads bodies of any size."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final, Protocol, cast

ERROR_BYTES_MAX: Final = 1024 * 1024
"""The largest error body that is read: some quote the whole request; an error shows 500 characters at most."""


class Response(Protocol):
    """The part of the transport's response that we use, whichever package it is from."""

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
