"""Following the events of one stream for a sink: from a position to the stream's end."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from holdfast.connection.event_page_cache import ClosedRuns
from holdfast.connection.event_page_reader import Reader
from holdfast.connection.executions import OPEN
from holdfast.connection.history_poll import History
from holdfast.core.base.errors import ExecutionNotFound
from holdfast.core.wire.contracts import EventsPage
from holdfast.core.wire.event_envelope import NumberedEvent
from holdfast.core.wire.session_events import SessionEventsPage
from holdfast.sinks.event_stream import EventStream

LOGGER: Final = logging.getLogger("holdfast.sinks")

READ_SECONDS: Final = 1.0
"""How long a reading waits for more to read: a busy execution is read several steps at a time."""

BUSY_SHARE: Final = 5
"""After an answer that took its time, so many times as long: what is busy is asked less often."""

BUSY_SECONDS_MAX: Final = 3.0
"""But no longer than this."""

PAGE_SECONDS_MAX: Final = 10.0
"""How long one reading may take: one that no worker answers must not keep others from being read."""

AGAIN_SECONDS_MAX: Final = 30.0
"""How long a reading may take where the one before was not answered: it keeps none but such from being read."""

READ_AT_ONCE: Final = 8
"""How many streams are read at a time."""

AGAIN_AT_ONCE: Final = 4
"""How many besides, whose last reading was not answered: runs that are pinned to a build without workers, or paused."""

Put = Callable[[NumberedEvent], Awaitable[None]]


class HistoryPosition(NamedTuple):
    """A length of the history of a Temporal run."""

    run_id: str
    length: int


class Reset(NamedTuple):
    """An operator's reset of an execution: what it does after that, and how many events before it are kept."""

    stream: EventStream
    kept: int


class Readers:
    """The server that streams are read from, and what is read for all of them."""

    def __init__(self, temporal: TemporalClient) -> None:
        self.temporal: Final = temporal
        self._reading, self._again = asyncio.Semaphore(READ_AT_ONCE), asyncio.Semaphore(AGAIN_AT_ONCE)
        self._closed, self._closed_sessions = ClosedRuns[EventsPage](), ClosedRuns[SessionEventsPage]()

    def reader(self, stream: EventStream) -> Reader[EventsPage] | Reader[SessionEventsPage]:
        """Return what reads its events."""
        if stream.of_session:
            return Reader(self.temporal, stream.workflow_id, self._closed_sessions, SessionEventsPage)
        return Reader(self.temporal, stream.workflow_id, self._closed, EventsPage)

    def place(self, *, answered: bool) -> tuple[asyncio.Semaphore, float]:
        """Return where a reading waits for its turn, and for how many seconds it may go on.

        One whose last was not answered has places of its own: others need not wait for it.
        """
        return (self._reading, PAGE_SECONDS_MAX) if answered else (self._again, AGAIN_SECONDS_MAX)

    async def stands_at(self, stream: EventStream, mark: HistoryPosition) -> bool:
        """Return whether nothing has happened since its history was so long; asks no worker."""
        return await self.reader(stream).stands_at(*mark)


class EventFollower:
    """One stream under way to a sink."""

    def __init__(self, readers: Readers, stream: EventStream, after: int, put: Put) -> None:
        self.stream: Final = stream
        self.touched = math.inf
        """When something was last read of it; not before the first reading has ended, or failed."""
        self.read_to: HistoryPosition | None = None
        """How far its history was when all of its events were last read."""
        self.failures = 0
        """How often in a row it could not be read: whoever calls `follow` again counts, a reading begins anew."""
        self._readers, self._put = readers, put
        self._reader = readers.reader(stream)
        self._place = after
        self._run_id = stream.run_id
        """The Temporal run that it reads."""
        self._answered = True
        """Whether its last reading was."""

    async def follow(self) -> None:
        """Put every event after the place, in order, until the stream has ended.

        Raises ExecutionNotFound, ServerUnavailable, TimeoutError; to be called again then: it goes on from where it is.
        """
        run_id: str | None = await self._first_run()
        while run_id is not None:
            self._run_id = run_id
            closed = await self._reader.is_closed(run_id)
            history = History(self._readers.temporal, self.stream.workflow_id, run_id, closed=closed)
            await self._follow(history)
            run_id = None if self.stream.of_session else history.next_run_id

    async def _first_run(self) -> str:
        """Return the Temporal run to begin with.

        Where the server has deleted the one that a reset began, it is a later one of those that continue it as new.
        """
        run_id = self.stream.run_id
        if run_id is None:
            return await self._reader.first_run(self._place, before_resets=True)
        if self.stream.after_reset:
            try:
                await self._reader.info(run_id)
            except ExecutionNotFound:
                if await self._reader.latest_reset(run_id):  # those that are there are of another reset
                    raise
                return await self._reader.first_run(max(self._place, 1))
        return run_id

    async def reset(self) -> Reset | None:
        """Return the latest reset of the execution, where there was one after what was followed. Raises as `follow`."""
        with suppress(ExecutionNotFound):
            if not self.stream.of_session and (run_id := await self._reader.latest_reset(self._run_id)):
                return Reset(EventStream(self.stream.workflow_id, run_id), await self._reader.kept(run_id))
        return None

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
                over, mark, began = history.over, HistoryPosition(history.run_id, history.length), time.monotonic()
                await self._read(history, closed=over)
                self.read_to = mark
                if over:
                    return
                self.failures = 0
                pause = max(READ_SECONDS, min((time.monotonic() - began) * BUSY_SHARE, BUSY_SECONDS_MAX))
        finally:
            news.cancel()
            await asyncio.gather(news, return_exceptions=True)

    async def closed(self) -> bool:
        """Return whether the stream has ended, as far as the server says."""
        with suppress(RPCError):
            described = await self._reader.described(self._run_id or "")
            return described.workflow_execution_info.status not in OPEN
        return False

    async def _read(self, history: History, *, closed: bool) -> None:
        reset_run_id = None if self.stream.of_session else self.stream.run_id
        while True:
            reading, seconds = self._readers.place(answered=self._answered)
            async with reading:
                self._answered = False
                async with asyncio.timeout(seconds):
                    page = await self._reader.page(
                        history.run_id, self._place, closed=closed, recorded=history.recorded
                    )
                self._answered = True
                expected = max(self._place, page.before) if isinstance(page, SessionEventsPage) else self._place
                if page.start > expected:
                    lost = f"the events {expected + 1} to {page.start} of {self.stream.key}"
                    LOGGER.warning("%s are gone: the server has deleted the Temporal run that held them", lost)
                for sequence, event in enumerate(page.events, page.start + 1):
                    await self._put(NumberedEvent(sequence, event, reset_run_id))
                    self._place, self.touched, self.failures = sequence, time.monotonic(), 0
            self.touched = min(self.touched, time.monotonic())
            if not page.events or self._place >= page.total:
                return
