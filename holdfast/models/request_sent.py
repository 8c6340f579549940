"""Detects when a request is sent to the model's endpoint, by the transport's trace. Sends nothing itself.

Before that nothing can be billed: a name that does not resolve, a refused connection, a broken TLS handshake. The
provider's client does not report it; its transport does (the trace is an httpcore extension of every request).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

SENDS: Final = "send_request_headers.started"
"""The end of the trace events' names for it, under HTTP/1.1 and HTTP/2 alike."""

_ON_SENT: ContextVar[Callable[[], None] | None] = ContextVar("sent", default=None)


class Request(Protocol):
    """The part of the transport's request that we use, whichever package it is from."""

    @property
    def extensions(self) -> dict[str, Any]:
        """The transport's options for the request."""
        ...


@contextmanager
def calling_when_sent(on_sent: Callable[[], None]) -> Generator[None]:
    """Call `on_sent` when the request made in the block is sent over an established connection."""
    token = _ON_SENT.set(on_sent)
    try:
        yield
    finally:
        _ON_SENT.reset(token)


async def trace_sending(request: Request) -> None:
    """Have the transport report when it sends `request`; a hook of the provider's client."""
    on_sent = _ON_SENT.get()
    if on_sent is None:
        return

    async def trace(event: str, _: object) -> None:  # the transport awaits it
        # once the headers go out the endpoint may work and bill, whatever becomes of the connection
        if event.endswith(SENDS):
            on_sent()

    request.extensions["trace"] = trace
