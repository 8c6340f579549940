"""Lets a caller see the status and headers of every response to the requests that it makes. Reads no body."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from holdfast.models.http_errors import Response

ResponseObserver = Callable[[int, Mapping[str, str]], None]

_OBSERVER: ContextVar[ResponseObserver | None] = ContextVar("observer", default=None)


@contextmanager
def observing_responses(observer: ResponseObserver) -> Generator[None]:
    """Call `observer` with the status and headers of each response that arrives in the block."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


async def show_response(response: Response) -> None:
    """Show a response to the observer; a hook of the provider's client."""
    observer = _OBSERVER.get()
    if observer is not None:
        observer(response.status_code, response.headers)
