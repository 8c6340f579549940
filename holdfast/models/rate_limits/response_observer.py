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
    show(response.status_code, response.headers)


def show(status: int, headers: Mapping[str, str]) -> None:
    """Show a response's status and headers to the observer, if there is one; the same response may be shown twice."""
    observer = _OBSERVER.get()
    if observer is not None:
        observer(status, headers)
