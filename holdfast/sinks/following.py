"""Following the events of one execution for a sink: its own alone, from a place on, to its end."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from holdfast.client.closed_runs import ClosedRuns
from holdfast.client.histories import History
from holdfast.client.reading import ASK_TIMEOUT, Reader
from holdfast.core.numbered import NumberedEvent

LOGGER: Final = logging.getLogger("holdfast.sinks")

READ_SECONDS: Final = 1.0
"""How long a reading waits for more to read: a busy execution is read several steps at a time."""

BUSY_SHARE: Final = 5
"""After an answer that took its time, so many times as long: what is busy is asked less often."""

BUSY_SECONDS_MAX: Final = 3.0
"""But no longer than this."""

PAGE_SECONDS_MAX: Final = 30.0
"""How long one reading may take: one that no worker answers must not keep others from being read."""

Put = Callable[[NumberedEvent], Awaitable[None]]


class Following:
    """One execution under way to a sink."""

    def __init__(
        self,
        temporal: TemporalClient,
        closed_runs: ClosedRuns,
        reading: asyncio.Semaphore,
        execution_id: str,
        after: int,
        put: Put,
    ) -> None:
        self.execution_id: Final = execution_id
        self.touched = math.inf
        """When something was last read of it; not before the first reading has ended, or failed."""
        self._temporal, self._reading, self._put = temporal, reading, put
        self._reader = Reader(temporal, execution_id, closed_runs)
        self._place = after

    async def follow(self) -> None:
        """Put every event after the place, in order, until the execution has ended.

        Raises ExecutionNotFound, ServerUnavailable, TimeoutError; to be called again then: it goes on from where it is.
        """
        run_id: str | None = await self._reader.first_run(self._place)
        while run_id is not None:
            closed = await self._reader.is_closed(run_id)
            history = History(self._temporal, self.execution_id, run_id, closed=closed)
            await self._follow(history)
            run_id = history.next_run_id

    async def _follow(self, history: History) -> None:
        """Put all events of one run."""
        news = asyncio.create_task(history.news())
        pause = READ_SECONDS
        try:
            while True:
                await asyncio.wait([news])
                await asyncio.sleep(0.0 if history.over else pause)
                while news.done() and not history.over:  # one reading tells all that has come by now
                    news.result()
                    news = asyncio.create_task(history.news())
                    await asyncio.sleep(0)
                over, began = history.over, time.monotonic()
                await self._read(history.run_id, closed=over)
                if over:
                    return
                pause = max(READ_SECONDS, min((time.monotonic() - began) * BUSY_SHARE, BUSY_SECONDS_MAX))
        finally:
            news.cancel()
            await asyncio.gather(news, return_exceptions=True)

    async def closed(self) -> bool:
        """Return whether the execution has ended, as far as the server says."""
        try:
            handle = self._temporal.get_workflow_handle(self.execution_id)
            described = await handle.describe(rpc_timeout=ASK_TIMEOUT)
        except RPCError:
            return False
        return described.status is not WorkflowExecutionStatus.RUNNING

    async def _read(self, run_id: str, *, closed: bool) -> None:
        while True:
            async with self._reading:
                async with asyncio.timeout(PAGE_SECONDS_MAX):
                    page = await self._reader.page(run_id, self._place, closed=closed)
                if page.start > self._place:
                    lost = f"the events {self._place + 1} to {page.start} of execution {self.execution_id}"
                    LOGGER.warning("%s are not there any more: the server has forgotten the run that had them", lost)
                for sequence, event in enumerate(page.events, page.start + 1):
                    await self._put(NumberedEvent(sequence, event))
                    self._place, self.touched = sequence, time.monotonic()
            self.touched = min(self.touched, time.monotonic())
            if not page.events or self._place >= page.total:
                return
