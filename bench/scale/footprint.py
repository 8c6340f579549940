"""What runs and sessions leave in PostgreSQL and in the store, and what they ask the store for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from bench.scale.database import grown, held, settle
from bench.scale.figures import Left
from bench.scale.ground import Ground
from bench.stage import READER, fresh_id
from bench.stop_crowd import crowd
from bench.talks import Talk, words
from bench.task import Task
from holdfast.core.wire.session_contracts import SessionSettings

AT_ONCE: Final = 20
WARM_UP: Final = 20
"""Runs and sessions before the first that count: what has no rows yet has no pages."""

RUNS: Final = 60
LONG_COUNT: Final = 20
LARGE_COUNT: Final = 10
SHORT: Final = 10
LONG: Final = 50
RESULT_BYTES: Final = 2_048
LARGE_BYTES: Final = 100_000
SESSIONS: Final = 40
MESSAGES: Final = 4
"""Of each session, after its first one."""

MESSAGE_BYTES: Final = 1_024
IDLE_SECONDS: Final = 1.0

SHORT_RUNS: Final = "runs of 10 steps"
LONG_RUNS: Final = "runs of 50 steps"
LARGE_RESULTS: Final = "runs of 10 steps, 100 KB results"
NEW_SESSIONS: Final = "sessions, their first message"
FURTHER: Final = "further messages of sessions"
LEFT_SERVER: Final = "sessions that have left the server"


async def left_by(
    ground: Ground, name: str, work: Callable[[], Awaitable[object]], count: int, *, steps: int = 0, result: int = 0
) -> Left:
    """Do some work and return what it has left, with the tables rewritten before and after."""
    postgres = ground.cluster.postgres
    await asyncio.to_thread(settle, postgres)
    tables, stored = await asyncio.to_thread(held, postgres, compact=True), await ground.stored()
    await work()
    await asyncio.to_thread(settle, postgres)
    now = await ground.stored()
    none = (0, 0)
    objects = {
        folder: (objects - stored.folders.get(folder, none)[0], size - stored.folders.get(folder, none)[1])
        for folder, (objects, size) in now.folders.items()
    }
    return Left(
        name=name,
        count=count,
        steps=steps,
        result_bytes=result,
        tables=grown(tables, await asyncio.to_thread(held, postgres, compact=True)),
        objects={folder: each for folder, each in objects.items() if each != none},
        requests=now.since(stored),
    )


async def footprints(ground: Ground) -> AsyncIterator[Left]:
    """Measure runs and sessions, one kind after the other."""
    await _run(ground, Task(SHORT, RESULT_BYTES), WARM_UP)
    await _say(ground, [Talk(ground) for _ in range(WARM_UP)], 1)
    for name, runs, steps, size in (
        (SHORT_RUNS, RUNS, SHORT, RESULT_BYTES),
        (LONG_RUNS, LONG_COUNT, LONG, RESULT_BYTES),
        (LARGE_RESULTS, LARGE_COUNT, SHORT, LARGE_BYTES),
    ):
        task = Task(steps, size)
        yield await left_by(ground, name, lambda: _run(ground, task, runs), runs, steps=steps, result=size)  # noqa: B023  # awaited at once
    talks = [Talk(ground) for _ in range(SESSIONS)]
    yield await left_by(ground, NEW_SESSIONS, lambda: _say(ground, talks, 1), SESSIONS, result=MESSAGE_BYTES)
    count = SESSIONS * MESSAGES
    yield await left_by(ground, FURTHER, lambda: _say(ground, talks, MESSAGES), count, result=MESSAGE_BYTES)
    brief = [Talk(ground, settings=SessionSettings(idle_seconds=IDLE_SECONDS)) for _ in range(SESSIONS)]
    yield await left_by(ground, LEFT_SERVER, lambda: _leave(ground, brief), SESSIONS, result=MESSAGE_BYTES)


async def _run(ground: Ground, task: Task, runs: int) -> None:
    """Run the task so often; nobody reads the results, so that the store is asked by workers alone."""
    closed = await ground.closed()
    starts = (ground.client.start(READER, task.question, execution_id=fresh_id()) for _ in range(runs))
    await crowd(starts, AT_ONCE)
    await ground.until_closed(closed + runs)


async def _say(ground: Ground, talks: list[Talk], messages: int) -> None:
    for number in range(messages):
        closed = await ground.closed()
        await crowd((talk.send(words(MESSAGE_BYTES, number)) for talk in talks), AT_ONCE)
        await ground.until_closed(closed + len(talks))


async def _leave(ground: Ground, talks: list[Talk]) -> None:
    closed = await ground.closed()
    await crowd((talk.send(words(MESSAGE_BYTES, 0)) for talk in talks), AT_ONCE)
    await ground.until_closed(closed + 2 * len(talks))  # the executions, and the sessions themselves
