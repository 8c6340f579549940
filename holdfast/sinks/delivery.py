"""`Delivery`: delivers the events of one task queue to one sink, in order, from the stored position."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeVar

from pydantic_core import to_json
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from holdfast.core.base.bounds import SINK_BATCH_BYTES_MAX, SINK_BATCH_EVENTS_MAX, SINK_FOLLOWED_MAX
from holdfast.core.base.errors import ExecutionNotFound
from holdfast.core.wire.event_envelope import NumberedEvent
from holdfast.core.wire.sink_contracts import SinkStart
from holdfast.sinks.batch_delivery import BatchDelivery, backoff, error_text
from holdfast.sinks.event_follower import EventFollower, HistoryPosition, Readers
from holdfast.sinks.event_stream import EventStream
from holdfast.sinks.position import ConsumerPosition, Superseded
from holdfast.sinks.sink import Sink
from holdfast.sinks.stream_discovery import Clock, Discovery
from holdfast.storage.records import Records

T = TypeVar("T")

SINK_WAITING_MAX: Final = 256
"""How many events wait for a sink; beyond that the reading of runs waits, and the runs do not."""

SINK_FOLLOW_TRIES_MAX: Final = 12
"""How often in a row the events of an execution that has ended are asked for before it is passed over.

Some eight minutes; a reading that succeeds, or an event, begins the row anew.
"""

LOGGER: Final = logging.getLogger("holdfast.sinks")

LOOK_SECONDS: Final = 1.0
"""How often the server is asked which executions and sessions there are."""

LINGER_SECONDS: Final = 0.1
"""How long a batch waits for more events."""

REST_SECONDS: Final = 10.0
"""Where more goes on than is followed, a stream of which nothing was heard for so long makes room for another."""

RESTED_AT_ONCE: Final = 50

ENDED_AT_ONCE: Final = 4
"""How many streams that have ended are read at a time: a worker takes each up once more for it."""

CLOSE_SECONDS_MAX: Final = 3.0
"""How long the sink may take to close, and the store to take in how far it got."""


class _Ended:
    """Comes after the last event of a stream; `at` is when that was known to be the last, not reset since."""

    def __init__(self, key: str, at: datetime) -> None:
        self.key: Final = key
        self.at: Final = at


class _Rest(NamedTuple):
    """Since when a stream rests that has made room for others, and how far it was read."""

    since: float = 0.0
    read_to: HistoryPosition | None = None


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Delivery:
    """Delivers until it is cancelled. It writes into no run's history; a slow sink makes it wait, and nobody else."""

    def __init__(
        self, temporal: TemporalClient, records: Records, start: SinkStart, sink: Sink, clock: Clock = _utc_now
    ) -> None:
        self._sink, self._clock = sink, clock
        self._consumer: Final = start.consumer
        self._place = ConsumerPosition(records, temporal.namespace, start)
        self._batches = BatchDelivery(self._place, sink, self._consumer)
        self._looking = Discovery(temporal, start.task_queue, self._place, clock)
        self._readers = Readers(temporal)
        self._waiting: asyncio.Queue[NumberedEvent | _Ended] = asyncio.Queue(SINK_WAITING_MAX)
        self._queued: dict[str, int] = {}
        """Up to which event a stream has been put into the queue."""
        self._following: dict[str, tuple[EventFollower, asyncio.Task[None]]] = {}
        self._ending: dict[str, datetime] = {}
        """Those whose end stands in the queue, and executions whose reset's does; when that was the last of them."""
        self._rested: dict[str, _Rest] = {}
        """Those that go on and have made room for others."""
        self._reset: set[str] = set()
        """The executions that are followed, or rest, as they are after a reset."""
        self._reading_ended = asyncio.Semaphore(ENDED_AT_ONCE)
        self._dirty = False

    async def run(self) -> None:
        """Deliver. Returns when another runner has taken over; raises what the server or the storage does."""
        await self._place.load(await self._looking.remembered_since())
        try:
            await self._opened()
            await self._batches.deliver_batch(again=True)
            self._rested = dict.fromkeys(self._place.told, _Rest())
            streams = map(EventStream.of_key, self._place.told)
            self._reset = {each.workflow_id for each in streams if each.after_reset}
            await _first_of(self._look(), self._deliver())
        except Superseded:
            LOGGER.warning("another worker now delivers to %s", self._consumer)
        finally:
            tasks = [task for _, task in self._following.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for last in (self._sink.close, self._place.save):  # the one whatever becomes of the other
                with suppress(Exception):
                    async with asyncio.timeout(CLOSE_SECONDS_MAX):
                        await last()

    async def _opened(self) -> None:
        """Open the sink, however often that takes."""
        tries = 0
        while True:
            try:
                await self._sink.open()
            except Exception as error:  # noqa: BLE001  # whatever it is, it is tried again and told
                if tries in (0, 10):
                    LOGGER.warning("the sink %s cannot be opened: %s; trying again", self._consumer, error_text(error))
                tries += 1
                await asyncio.sleep(backoff(tries))
            else:
                return

    # --- which streams

    async def _look(self) -> None:
        """Follow whatever there is, now and later."""
        while True:
            try:
                behind = await self._looked()
            except RPCError as error:
                LOGGER.warning("the server cannot list the runs for %s: %s", self._consumer, error.status.name)
                behind = False
            if not behind:
                await asyncio.sleep(LOOK_SECONDS)

    async def _looked(self) -> bool:
        """Follow what is new; return whether only a part of the past was covered, so that the next look is due."""
        free = self._free_places()
        if free <= 0:
            return False
        running = await self._looking.running(self._is_unseen)  # first: what ends now is then among those that ended
        ended, until = await self._looking.ended(self._is_new)
        for each in ended[:free]:
            self._begin(each, ended=True)
        if len(ended) <= free:
            self._place.looked(until)
        self._dirty = self._dirty or bool(ended)
        await self._follow_more(running)
        return not ended and (self._clock() - until).total_seconds() > LOOK_SECONDS

    async def _follow_more(self, running: list[EventStream]) -> None:
        """Follow what is new, then what has rested longest, as far as there is room."""
        free = max(0, self._free_places())
        new = [each for each in running if not (each.key in self._rested or self._is_under_way(each.key))]
        self._looking.behind = len(new) > free
        new = new[:free]
        for stream in new:
            self._begin(stream, ended=False)
        longest = sorted(self._rested, key=lambda key: self._rested[key].since)[: free - len(new)]
        checked = [key for key in longest if self._rested[key].read_to is not None][:RESTED_AT_ONCE]
        unchanged = await asyncio.gather(*map(self._is_unchanged, checked))
        quiet = {key for key, is_quiet in zip(checked, unchanged, strict=True) if is_quiet}
        for key in longest:
            if key in quiet:
                self._rested[key] = self._rested[key]._replace(since=time.monotonic())
            elif key in checked or self._rested[key].read_to is None:
                self._begin(EventStream.of_key(key), ended=False)

    async def _is_unchanged(self, key: str) -> bool:
        """Return whether nothing has happened to a stream since it rests; no worker is asked."""
        read_to = self._rested[key].read_to
        return read_to is not None and await self._readers.stands_at(EventStream.of_key(key), read_to)

    def _free_places(self) -> int:
        """Return how many more can be followed, after those of which nothing is heard have made room.

        Where the sink takes nothing, nothing is heard of anybody: all stay then.
        """
        if len(self._following) >= SINK_FOLLOWED_MAX and not self._waiting.full():
            idle = time.monotonic() - REST_SECONDS
            quiet = sorted((each.touched, key) for key, (each, _) in self._following.items() if each.touched < idle)
            for _, key in quiet[:RESTED_AT_ONCE]:
                following, task = self._following.pop(key)
                task.cancel()
                self._rested[key] = _Rest(time.monotonic(), following.read_to)
        return SINK_FOLLOWED_MAX - len(self._following)

    def _is_under_way(self, key: str) -> bool:
        return key in self._following or key in self._reset

    def _is_new(self, stream: EventStream, at: datetime) -> bool:
        """Return whether to begin with a stream, for which a Temporal run was listed that ended, or began, then."""
        if self._is_under_way(stream.key):
            return False
        done = self._ending.get(stream.key) or self._place.done.get(stream.key)
        return done is None or (not stream.of_session and at > done)  # after a reset, or by clocks that differ

    def _is_unseen(self, stream: EventStream, at: datetime) -> bool:
        return stream.key not in self._rested and self._is_new(stream, at)

    def _begin(self, stream: EventStream, *, ended: bool, after: int = 0) -> None:
        key = stream.key
        self._rested.pop(key, None)
        if stream.after_reset:
            self._reset.add(stream.workflow_id)
        is_new = key not in self._place.told
        after = max(self._queued.get(key, 0), self._place.told.setdefault(key, after))
        following = EventFollower(self._readers, stream, after, self._waiting_put)
        before = [task for each, task in self._following.values() if each.stream.workflow_id == stream.workflow_id]
        followed = self._followed(following, before, ended=ended, is_new=is_new)
        self._following[key] = following, asyncio.create_task(followed)

    async def _followed(
        self, following: EventFollower, before: list[asyncio.Task[None]], *, ended: bool, is_new: bool
    ) -> None:
        """Follow a stream to its end, however often that takes; a session's after its Temporal runs before.

        An execution that was reset goes on as another stream. Of one that `is_new`, or was told before, that is all.
        """
        if before:
            await asyncio.wait(before)
        key = following.stream.key
        is_done = key in self._place.done or key in self._ending
        reset, at = None, self._clock()
        if (is_new or is_done) and not following.stream.run_id:
            reset = await self._untired(following, following.reset)
        if reset is None and not is_done:
            async with self._reading_ended if ended else nullcontext():
                await self._untired(following, following.follow)
            at = self._clock()
            reset, is_done = await self._untired(following, following.reset), True
        if reset is not None and not (reset.stream.key in self._place.told or reset.stream.key in self._place.done):
            self._begin(reset.stream, ended=False, after=reset.kept if is_done else 0)
        await self._waiting.put(_Ended(key, at))
        self._following.pop(key, None)
        self._ending |= dict.fromkeys(_listed_by(following.stream), at)
        others = (EventStream.of_key(each) for each in (*self._following, *self._rested))
        if not any(each.after_reset and each.workflow_id == following.stream.workflow_id for each in others):
            self._reset.discard(following.stream.workflow_id)

    async def _untired(self, following: EventFollower, read: Callable[[], Awaitable[T]]) -> T | None:
        """Return what `read` does, however often that takes; none where there is nothing to read any more."""
        key = following.stream.key
        while True:
            try:
                return await read()
            except ExecutionNotFound:
                LOGGER.warning("the server deleted %s before all of it was delivered", key)
                return None
            except Exception as error:  # noqa: BLE001  # one stream must not keep the others from being told
                following.failures += 1
                if following.failures >= SINK_FOLLOW_TRIES_MAX and await following.closed():
                    where = await self._place.put_aside(key, error_text(error))
                    LOGGER.warning("the events of %s cannot be read: %s; see %s", key, error, where)
                    return None
                following.touched = time.monotonic()
                await asyncio.sleep(backoff(following.failures))

    async def _waiting_put(self, event: NumberedEvent) -> None:
        await self._waiting.put(event)
        self._queued[EventStream.of(event).key] = event.sequence

    # --- what is delivered

    async def _deliver(self) -> None:
        """Deliver what comes."""
        while True:
            events, ended = await self._next()
            if events:
                self._place.begin(events)
                await self._batches.deliver_batch()
            for each in ended:
                self._end(each)
            self._dirty = self._dirty or bool(events or ended)
            if self._dirty and self._waiting.empty():
                await self._place.save()
                self._dirty = False

    def _end(self, ended: _Ended) -> None:
        """Take note that all of a stream was delivered."""
        self._queued.pop(ended.key, None)
        for key in _listed_by(EventStream.of_key(ended.key)):
            self._place.end(key, ended.at)
            if self._ending.get(key) == ended.at:
                del self._ending[key]

    async def _next(self) -> tuple[list[NumberedEvent], list[_Ended]]:
        """Return the next batch, and the ends that come with it; neither when nothing has come for a while."""
        events: list[NumberedEvent] = []
        ended: list[_Ended] = []
        size, until = 0, time.monotonic() + LOOK_SECONDS
        while len(events) < SINK_BATCH_EVENTS_MAX and size < SINK_BATCH_BYTES_MAX:
            try:
                async with asyncio.timeout(max(0.0, until - time.monotonic())):
                    each = await self._waiting.get()
            except TimeoutError:
                break
            if isinstance(each, _Ended):
                ended.append(each)
                continue
            if not events:
                until = time.monotonic() + LINGER_SECONDS
            events.append(each)
            size += len(to_json(each.event))
        return events, ended


def _listed_by(stream: EventStream) -> set[str]:
    """Return by which keys a stream's end is remembered: the server lists a reset as its execution."""
    return {stream.key, stream.workflow_id} if stream.after_reset else {stream.key}


async def _first_of(*works: Coroutine[object, object, None]) -> None:
    """Await all of `works` until one of them ends, and raise what that one did."""
    tasks = [asyncio.create_task(each) for each in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
