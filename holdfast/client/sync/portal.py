"""`Portal`: an event loop in a thread of its own, for programs without one."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from holdfast.core.base.errors import InvalidInput

T = TypeVar("T")

ENDING_SECONDS_MAX: Final = 5.0
"""How long what was interrupted may take to come to its end."""


class Portal:
    """Runs coroutines for callers that block meanwhile. Any thread may call; Ctrl-C cancels what is waited for."""

    def __init__(self) -> None:
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        thread = threading.Thread(target=_serve, args=(started,), name="holdfast", daemon=True)
        thread.start()
        self._loop, stop = started.result()
        self._close = weakref.finalize(self, _stop, self._loop, stop, thread)  # also when the program ends

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of `coroutine`, or raise its error."""
        if not self._close.alive:
            coroutine.close()
            raise InvalidInput("the connection is closed; connect again")
        ended = threading.Event()
        future = asyncio.run_coroutine_threadsafe(_until_its_end(coroutine, ended), self._loop)
        try:
            return future.result()
        except CancelledError:
            raise
        except BaseException:
            if not future.done():  # it is we who were interrupted
                future.cancel()
                ended.wait(ENDING_SECONDS_MAX)
            raise

    def each(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Yield the `items`; their generator is closed when the consumer stops."""
        over = object()
        try:
            while (item := self.run(_awaited(anext(items, over)))) is not over:
                yield item  # type: ignore[misc]  # whatever is not the end
        finally:
            if self._close.alive:
                self.run(_awaited(items.aclose()))

    def close(self) -> None:
        """Cancel whatever still runs and end the thread. Closing again is nothing."""
        self._close()


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def _until_its_end(coroutine: Coroutine[Any, Any, T], ended: threading.Event) -> T:
    try:
        return await coroutine
    finally:
        ended.set()


def _serve(started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    async def until_stopped() -> None:
        stop = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()

    with asyncio.Runner() as runner:  # cancels at its end what still runs
        runner.run(until_stopped())


def _stop(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, thread: threading.Thread) -> None:
    with suppress(RuntimeError):  # it has ended
        loop.call_soon_threadsafe(stop.set)
    if thread is not threading.current_thread():
        thread.join(ENDING_SECONDS_MAX)
