"""When a request leaves for the model's endpoint: told by the transport, which alone knows. Sends nothing itself.

Until then nothing can be billed: a name that does not resolve, a refused connection, a broken TLS handshake. The
provider's client offers no word on it; its transport has a trace (an httpcore extension of every request).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

SENDS: Final = "send_request_headers.started"
"""How the names of the events end that say so, under HTTP/1.1 as under HTTP/2."""

_SENT: ContextVar[Callable[[], None] | None] = ContextVar("sent", default=None)


class Request(Protocol):
    """What we need of the transport's request, whichever package it is from."""

    @property
    def extensions(self) -> dict[str, Any]:
        """What the transport is asked besides the request itself."""
        ...


@contextmanager
def telling_when_sent(sent: Callable[[], None]) -> Generator[None]:
    """Call `sent` when the request that is made within goes out over a connection that stands."""
    token = _SENT.set(sent)
    try:
        yield
    finally:
        _SENT.reset(token)


async def trace_sending(request: Request) -> None:
    """Have the transport tell when it sends `request`; a hook of the provider's client."""
    sent = _SENT.get()
    if sent is None:
        return

    async def trace(event: str, _: object) -> None:  # the transport awaits it
        # once the headers go out the endpoint may work and bill, whatever becomes of the connection
        if event.endswith(SENDS):
            sent()

    request.extensions["trace"] = trace
