"""What messages of sessions, and runs without tools, cost. Each has one model call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from statistics import mean
from typing import Final

from bench.scale.database import done
from bench.scale.figures import KINDS, Circumstances, Cost, Messages, Window
from bench.scale.footprint import MESSAGE_BYTES
from bench.scale.ground import Ground
from bench.scale.throughput import WINDOW_SECONDS, commits_per_second, per_step, settled, window
from bench.stage import READER, fresh_id
from bench.stop_crowd import crowd
from bench.talks import Talk, words
from bench.task import Task

SESSIONS: Final = 200
WORKERS: Final = 2
AT_ONCE: Final = 20
"""Few enough that no task times out while it waits."""

HELD_ROUNDS: Final = 3
"""Further messages of each session while a worker has it in memory."""

WOKEN_ROUNDS: Final = 2
"""Further messages of each session, each round with workers that have not seen it."""

REST_SECONDS: Final = 12.0
"""What happens after a run's end counts, too; and commits are reported up to 10 s late."""

RUNS: Final = "runs without tools"
FIRST: Final = "first messages of sessions"
HELD: Final = "further messages, the session in a worker's memory"
WOKEN: Final = "further messages, the session in no worker's memory"

Work = Callable[[], Awaitable[object]]


async def messages(ground: Ground, measured: Circumstances, report: Callable[[Cost], None]) -> Messages:
    """Return what each kind of message costs. The caller fills in `measured`."""
    await _renew(ground)  # idle workers are part of what is subtracted
    uncounted = [Talk(ground) for _ in range(AT_ONCE)]
    settling = await settled(partial(commits_per_second, ground))
    alone = (await window(ground, WINDOW_SECONDS)).model_copy(update={"settling": settling})
    await _warm(ground, uncounted)
    talks = [Talk(ground) for _ in range(SESSIONS)]
    kinds: tuple[tuple[str, Work, int], ...] = (
        (RUNS, partial(_run, ground, SESSIONS), 1),
        (FIRST, partial(_say, ground, talks), 1),
        (HELD, partial(_say, ground, talks), HELD_ROUNDS),
        (WOKEN, partial(_say, ground, talks), WOKEN_ROUNDS),
    )
    costs: list[Cost] = []
    for name, work, rounds in kinds:
        parts: list[Cost] = []
        for _ in range(rounds):
            if name == WOKEN:
                await _renew(ground)
                await _warm(ground, uncounted)
            parts.append(await _cost(ground, name, work, alone))
        costs.append(_mean(parts))
        report(costs[-1])
    return Messages(measured=measured, workers=WORKERS, costs=tuple(costs), alone=alone)


async def _cost(ground: Ground, name: str, work: Work, alone: Window) -> Cost:
    """Do `work`, which handles SESSIONS runs or messages; return what one of them costs."""
    await asyncio.sleep(REST_SECONDS)
    stored = await ground.stored()
    cpu, database, began = ground.cpu_seconds(), done(ground.cluster.postgres), time.perf_counter()
    await work()
    await asyncio.sleep(REST_SECONDS)
    seconds, used, then = time.perf_counter() - began, ground.cpu_seconds(), done(ground.cluster.postgres)
    asked = (await ground.stored()).since(stored)
    return Cost(
        name=name,
        count=SESSIONS,
        cpu_ms=per_step(cpu, used, SESSIONS, {role: cores * seconds for role, cores in alone.cores.items()}),
        commits=(then.commits - database.commits - alone.commits_per_second * seconds) / SESSIONS,
        log_bytes=(then.log_bytes - database.log_bytes - alone.log_bytes_per_second * seconds) / SESSIONS,
        requests={kind: count / SESSIONS for kind, count in asked.items()},
    )


def _mean(parts: Sequence[Cost]) -> Cost:
    """Return the mean of several rounds of the same work."""
    return Cost(
        name=parts[0].name,
        count=sum(each.count for each in parts),
        cpu_ms={role: round(mean(each.cpu_ms[role] for each in parts), 2) for role in parts[0].cpu_ms},
        commits=mean(each.commits for each in parts),
        log_bytes=mean(each.log_bytes for each in parts),
        requests={kind: mean(each.requests.get(kind, 0.0) for each in parts) for kind in KINDS},
    )


async def _renew(ground: Ground) -> None:
    """Replace the workers by new ones, which have no session in memory."""
    await ground.end_workers()
    for _ in range(WORKERS):
        await ground.add_worker()


async def _warm(ground: Ground, uncounted: Sequence[Talk]) -> None:
    """Give new workers AT_ONCE runs and as many messages: what is done for the first time is not typical."""
    await _run(ground, AT_ONCE)
    await _say(ground, uncounted)


async def _say(ground: Ground, talks: Sequence[Talk]) -> None:
    """Send each session a message, AT_ONCE at a time, and wait for the executions' ends; nobody reads the answers."""
    for place in range(0, len(talks), AT_ONCE):
        some = talks[place : place + AT_ONCE]
        closed = await ground.closed()
        await crowd((talk.send(words(MESSAGE_BYTES, 0)) for talk in some), AT_ONCE)
        await ground.until_closed(closed + len(some))


async def _run(ground: Ground, runs: int) -> None:
    task = Task(steps=0, page_bytes=0)
    for place in range(0, runs, AT_ONCE):
        closed, count = await ground.closed(), min(AT_ONCE, runs - place)
        starts = (ground.client.start(READER, task.question, execution_id=fresh_id()) for _ in range(count))
        await crowd(starts, AT_ONCE)
        await ground.until_closed(closed + count)
