"""Sessions that have said one message each and wait: what they take, and how soon they wake."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from aiohttp import ClientSession
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError

from bench.scale.database import TRANSIENT, events, grown, held, settle, timers_due
from bench.scale.figures import Circumstances, Idle, Left, Memory
from bench.scale.footprint import MESSAGE_BYTES
from bench.scale.ground import Ground
from bench.scale.step_times import spread
from bench.scale.throughput import window
from bench.talks import Talk, words
from holdfast.connection.worker_settings import WorkerSettings

SESSIONS: Final = 10_000
WORKERS: Final = 2
IN_FLIGHT_MAX: Final = 40
"""Sessions whose first message is not answered yet. With 60, under a load of 60, the first tasks of all of them failed
again and again; on a quiet machine none of 40 did."""

LOOK_SECONDS: Final = 0.25
WAKE_LOOK_SECONDS: Final = 0.01
LOOKS: Final = 20
"""How often the workers' memory is read while sessions come."""

SEND_TRIES_MAX: Final = 20
SEND_PAUSE_SECONDS: Final = 2.0
WOKEN: Final = 200
WAKE_SECONDS_MAX: Final = 180.0
"""Then no further session is woken."""

REST_SECONDS_MAX: Final = 120.0
"""How long the last sessions may take to be answered when no further ones come."""

WINDOW_SECONDS: Final = 30.0
SEED: Final = 1


@dataclass
class Arrivals:
    """Sessions that come, as many at a time as are answered."""

    ground: Ground
    talks: list[Talk]
    memory: list[Memory] = field(default_factory=list[Memory])
    refused: int = 0
    """Messages that were said again."""

    async def all(self, report: Callable[[str], None], seconds_max: float) -> int:
        """Have them come, until all are there or time is up; return how many are there."""
        closed, began, sent = await self.ground.closed(), time.monotonic(), 0
        tasks: set[asyncio.Task[object]] = set()
        answered, every = 0, max(1, len(self.talks) // LOOKS)
        while answered < sent or sent < len(self.talks):
            seconds = time.monotonic() - began
            late = seconds > seconds_max
            if late and (answered >= sent or seconds > seconds_max + REST_SECONDS_MAX):
                break
            more = 0 if late else min(IN_FLIGHT_MAX - (sent - answered), len(self.talks) - sent)
            for talk in self.talks[sent : sent + max(0, more)]:
                tasks.add(asyncio.create_task(self._send(talk)))
            sent += max(0, more)
            await asyncio.sleep(LOOK_SECONDS)
            for task in [task for task in tasks if task.done()]:
                task.result()
                tasks.remove(task)
            answered = await self.ground.closed() - closed
            if answered >= every * (len(self.memory) + 1):
                self.memory.append(Memory(sessions=answered, workers=tuple(self.ground.resident())))
                report(f"{answered:,} sessions after {time.monotonic() - began:,.0f} s: {self.memory[-1].workers}")
        return answered

    async def _send(self, talk: Talk) -> None:
        """Say the first message; on a machine that is too busy tasks of the workflow fail, and it is said again."""
        for _ in range(SEND_TRIES_MAX - 1):
            with suppress(RPCError, WorkflowUpdateRPCTimeoutOrCancelledError):
                await talk.send(words(MESSAGE_BYTES, 0))
                return
            self.refused += 1
            await asyncio.sleep(SEND_PAUSE_SECONDS)
        await talk.send(words(MESSAGE_BYTES, 0))


async def waiting(
    ground: Ground, sessions: int, seconds_max: float, measured: Circumstances, report: Callable[[str], None]
) -> Idle:
    """Measure. `measured` is completed by the caller."""
    postgres = ground.cluster.postgres
    while len(ground.workers) < WORKERS:
        await ground.add_worker()
    fresh, alone = max(ground.resident()), await window(ground, WINDOW_SECONDS)
    await asyncio.to_thread(settle, postgres)
    tables, stored = await asyncio.to_thread(held, postgres, compact=True), await ground.stored()
    arrivals, began = Arrivals(ground, [Talk(ground) for _ in range(sessions)]), time.perf_counter()
    there = await arrivals.all(report, seconds_max)
    seconds = time.perf_counter() - began
    report(f"{there:,} sessions are there; {arrivals.refused} messages were said again")
    await asyncio.to_thread(settle, postgres)
    timers, before = timers_due(postgres), events(postgres)
    waited, after = await window(ground, WINDOW_SECONDS), events(postgres)
    found, now = await asyncio.to_thread(held, postgres), await ground.stored()
    compact = await asyncio.to_thread(held, postgres, compact=True)
    left = Left(
        name="sessions",
        count=there,
        steps=0,
        result_bytes=MESSAGE_BYTES,
        tables=grown(tables, compact),
        objects=dict(now.folders),
        requests=now.since(stored),
    )
    report("waking some of them, with workers that know none")
    await ground.end_workers()
    for _ in range(WORKERS):
        await ground.add_worker()
    woken = await wake(ground, random.Random(SEED).sample(arrivals.talks[:there], min(WOKEN, there)))  # noqa: S311  # no secret
    kept = grown(tables, found)
    return Idle(
        measured=measured,
        left=left,
        found_bytes=sum(each.bytes for name, each in kept.items() if name not in TRANSIENT) / there,
        seconds=seconds,
        cached_runs=WorkerSettings().cached_runs,
        memory=tuple(arrivals.memory),
        fresh_bytes=fresh,
        timers=timers,
        alone=alone,
        waiting=waited,
        events_before=before,
        events_after=after,
        woken=len(woken),
        wake_ms=spread(woken),
    )


async def wake(ground: Ground, talks: list[Talk]) -> list[float]:
    """Send each session a message, one after the other; return the seconds until the model was asked."""
    took: list[float] = []
    until = time.monotonic() + WAKE_SECONDS_MAX
    async with ClientSession() as http:
        count = len(await _asked(ground, http, 0))
        for talk in talks:
            if time.monotonic() > until:
                break
            closed = await ground.closed()
            sent_at = time.monotonic()
            await talk.send(words(MESSAGE_BYTES, 1))
            while not (moments := await _asked(ground, http, count)):  # noqa: ASYNC110  # in another process
                await asyncio.sleep(WAKE_LOOK_SECONDS)
            took.append(moments[0] - sent_at)
            count += len(moments)
            await ground.until_closed(closed + 1)
    return took


async def _asked(ground: Ground, http: ClientSession, start: int) -> list[float]:
    """Return when the model was asked, from a number of requests on; all processes share the clock."""
    async with http.get(ground.endpoint.removesuffix("/v1") + f"/seen?start={start}") as answer:
        seen: dict[str, list[float]] = await answer.json()
    return seen["times"]
