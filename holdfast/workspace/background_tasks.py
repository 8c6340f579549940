"""`BackgroundTasks`: work that its caller does not wait for, on whichever event loop it began."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any


class BackgroundTasks:
    """What is under way, so that a worker can wait for it before it exits. Safe to use from any event loop.

    A worker runs async tools on loops of their own, which end with the process, whatever they are at.
    """

    def __init__(self) -> None:
        self._pending = set[Future[Any]]()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin `work` on the running loop."""
        self._add(asyncio.run_coroutine_threadsafe(work, asyncio.get_running_loop()))

    @contextmanager
    def counted(self) -> Generator[None]:
        """Count the block as work under way: it may be cancelled, and start what ends it."""
        block = Future[Any]()
        self._add(block)
        try:
            yield
        finally:
            block.set_result(None)

    async def settle(self, seconds_max: float) -> None:
        """Wait until nothing is under way, at most so long."""
        until = time.monotonic() + seconds_max
        while self._pending and (left := until - time.monotonic()) > 0:
            await asyncio.wait([asyncio.wrap_future(each) for each in tuple(self._pending)], timeout=left)

    def _add(self, work: Future[Any]) -> None:
        self._pending.add(work)
        work.add_done_callback(self._pending.discard)
