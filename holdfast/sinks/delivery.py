"""`Delivery`: everything of one task queue's executions to one sink, in order, from where it was."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from pydantic_core import to_json
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from holdfast.client.closed_runs import ClosedRuns
from holdfast.core.errors import ExecutionNotFound
from holdfast.core.limits import (
    SINK_BATCH_BYTES_MAX,
    SINK_BATCH_EVENTS_MAX,
    SINK_FOLLOW_TRIES_MAX,
    SINK_FOLLOWED_MAX,
    SINK_WAITING_MAX,
)
from holdfast.core.numbered import NumberedEvent
from holdfast.core.sink_contracts import SinkStart
from holdfast.sinks.batches import Sink
from holdfast.sinks.following import Following
from holdfast.sinks.looking import Looking
from holdfast.sinks.offering import Offering, backoff, said
from holdfast.sinks.place import Place, Superseded
from holdfast.storage.records import Records

LOGGER: Final = logging.getLogger("holdfast.sinks")

LOOK_SECONDS: Final = 1.0
"""How often the server is asked which executions there are."""

LINGER_SECONDS: Final = 0.1
"""How long a batch waits for more events."""

REST_SECONDS: Final = 10.0
"""Where more executions run than are followed, one of which nothing was heard for so long makes room for another."""

RESTED_AT_ONCE: Final = 50

ENDED_AT_ONCE: Final = 4
"""How many executions that have ended are read at a time: a worker takes each up once more for it."""

READ_AT_ONCE: Final = 8
"""How many are read at a time in all."""

CLOSE_SECONDS_MAX: Final = 3.0
"""How long the sink may take to close, and the store to take in how far it got."""


class _Ended:
    """Comes after the last event of an execution."""

    def __init__(self, execution_id: str) -> None:
        self.execution_id: Final = execution_id


class Delivery:
    """Delivers until it is cancelled. It writes into no run's history; a slow sink makes it wait, and nobody else."""

    def __init__(self, temporal: TemporalClient, records: Records, start: SinkStart, sink: Sink) -> None:
        self._temporal, self._sink = temporal, sink
        self._consumer: Final = start.consumer
        self._place = Place(records, temporal.namespace, start)
        self._offering = Offering(self._place, sink, self._consumer)
        self._looking = Looking(temporal, start.task_queue, self._place)
        self._closed_runs = ClosedRuns()
        self._waiting: asyncio.Queue[NumberedEvent | _Ended] = asyncio.Queue(SINK_WAITING_MAX)
        self._taken: dict[str, int] = {}
        """How many events of an execution have been put into the queue."""
        self._following: dict[str, tuple[Following, asyncio.Task[None]]] = {}
        self._ending: set[str] = set()
        """Those whose end stands in the queue."""
        self._rested: dict[str, float] = {}
        """Those under way that have made room for others, and since when."""
        self._reading, self._reading_ended = asyncio.Semaphore(READ_AT_ONCE), asyncio.Semaphore(ENDED_AT_ONCE)
        self._dirty = False

    async def run(self) -> None:
        """Deliver. Returns when another runner has taken over; raises what the server or the storage does."""
        await self._place.load(await self._looking.remembered_since())
        try:
            await self._opened()
            await self._offering.offer(again=True)
            self._rested = dict.fromkeys(self._place.told, 0.0)
            await _first_of(self._look(), self._deliver())
        except Superseded:
            LOGGER.warning("another worker delivers to %s now", self._consumer)
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
                    LOGGER.warning("the sink %s cannot be opened: %s; trying again", self._consumer, said(error))
                tries += 1
                await asyncio.sleep(backoff(tries))
            else:
                return

    # --- which executions

    async def _look(self) -> None:
        """Follow whatever there is, now and later."""
        while True:
            try:
                behind = await self._looked()
            except RPCError as error:
                LOGGER.warning("the server does not list executions for %s: %s", self._consumer, error.status.name)
                behind = False
            if not behind:
                await asyncio.sleep(LOOK_SECONDS)

    async def _looked(self) -> bool:
        """Follow what is new; return whether to look on at once, at a later time that is past already."""
        room = self._room()
        if room <= 0:
            return False
        ended, until = await self._looking.ended(self._is_new)
        for each in ended[:room]:
            self._begin(each, ended=True)
        if len(ended) <= room:
            self._place.looked(until)
        self._dirty = self._dirty or bool(ended)
        running = await self._looking.running(self._is_new)
        for each in sorted({*running, *self._rested}, key=lambda each: self._rested.get(each, -1.0))[: self._room()]:
            self._begin(each, ended=False)
        return not ended and (datetime.now(UTC) - until).total_seconds() > LOOK_SECONDS

    def _room(self) -> int:
        """Return how many more can be followed, after those of which nothing is heard have made room.

        Where the sink takes nothing, nothing is heard of anybody: all stay then.
        """
        if len(self._following) >= SINK_FOLLOWED_MAX and not self._waiting.full():
            idle = time.monotonic() - REST_SECONDS
            quiet = sorted((each.touched, id_) for id_, (each, _) in self._following.items() if each.touched < idle)
            for _, execution_id in quiet[:RESTED_AT_ONCE]:
                self._following.pop(execution_id)[1].cancel()
                self._rested[execution_id] = time.monotonic()
        return SINK_FOLLOWED_MAX - len(self._following)

    def _is_new(self, execution_id: str) -> bool:
        return not (execution_id in self._following or execution_id in self._ending or execution_id in self._place.done)

    def _begin(self, execution_id: str, *, ended: bool) -> None:
        self._rested.pop(execution_id, None)
        after = max(self._taken.get(execution_id, 0), self._place.told.setdefault(execution_id, 0))
        following = Following(self._temporal, self._closed_runs, self._reading, execution_id, after, self._waiting_put)
        task = asyncio.create_task(self._followed(following, ended=ended))
        self._following[execution_id] = following, task

    async def _followed(self, following: Following, *, ended: bool) -> None:
        """Follow an execution to its end, however often that takes."""
        if ended:
            async with self._reading_ended:
                await self._read_through(following)
        else:
            await self._read_through(following)
        await self._waiting.put(_Ended(following.execution_id))
        self._ending.add(following.execution_id)
        self._following.pop(following.execution_id, None)

    async def _read_through(self, following: Following) -> None:
        tries, execution_id = 0, following.execution_id
        while True:
            try:
                await following.follow()
            except ExecutionNotFound:
                LOGGER.warning("the server has forgotten execution %s before all of it was delivered", execution_id)
                return
            except Exception as error:  # noqa: BLE001  # one execution must not keep the others from being told
                tries += 1
                if tries >= SINK_FOLLOW_TRIES_MAX and await following.closed():
                    where = await self._place.put_aside(execution_id, said(error))
                    LOGGER.warning("the events of execution %s cannot be read: %s; see %s", execution_id, error, where)
                    return
                following.touched = time.monotonic()
                await asyncio.sleep(backoff(tries))
            else:
                return

    async def _waiting_put(self, event: NumberedEvent) -> None:
        await self._waiting.put(event)
        self._taken[event.event.execution_id] = event.sequence

    # --- what is delivered

    async def _deliver(self) -> None:
        """Deliver what comes."""
        while True:
            events, ended = await self._next()
            if events:
                self._place.begin(events)
                await self._offering.offer()
            for execution_id in ended:
                self._place.end(execution_id, datetime.now(UTC))
                self._taken.pop(execution_id, None)
                self._ending.discard(execution_id)
            self._dirty = self._dirty or bool(events or ended)
            if self._dirty and self._waiting.empty():
                await self._place.save()
                self._dirty = False

    async def _next(self) -> tuple[list[NumberedEvent], list[str]]:
        """Return the next batch, and whose end comes with it; neither when nothing has come for a while."""
        events: list[NumberedEvent] = []
        ended: list[str] = []
        size, until = 0, time.monotonic() + LOOK_SECONDS
        while len(events) < SINK_BATCH_EVENTS_MAX and size < SINK_BATCH_BYTES_MAX:
            try:
                async with asyncio.timeout(max(0.0, until - time.monotonic())):
                    each = await self._waiting.get()
            except TimeoutError:
                break
            if isinstance(each, _Ended):
                ended.append(each.execution_id)
                continue
            if not events:
                until = time.monotonic() + LINGER_SECONDS
            events.append(each)
            size += len(to_json(each.event))
        return events, ended


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
