"""Steps per second, and what a step costs each process, by shards and workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from bench.scale.database import done
from bench.scale.figures import Cell, Settling, Window
from bench.scale.ground import Ground, set_ground
from bench.scale.step_times import read, spread
from bench.stage import HoldfastRuns, fresh_id
from bench.task import Task

SHARDS: Final = (16, 64, 512)
WORKERS: Final = (1, 2, 4)
RUNS: Final = 40
STEPS: Final = 15
PAGE_BYTES: Final = 2_048
WINDOW_SECONDS: Final = 60.0
SETTLE_WINDOW_SECONDS: Final = 30.0
"""Commits without work come in bursts, and are reported up to 10 s late: of windows of 10 s one had eight times as many
as the next."""

SETTLE_WINDOWS_MAX: Final = 10
STEADY_RATIO_MAX: Final = 0.25
"""Two windows are alike where their commits differ by less than this share of the larger."""

QUIET_COMMITS_PER_SECOND: Final = 30.0
"""Below it two windows are alike, however they differ: 16 shards without work had 9 to 26 in windows of 10 s."""

WARM_UP: Final = Task(steps=2, page_bytes=PAGE_BYTES)
WARM_UP_RUNS: Final = 4
"""For each worker."""


async def clusters(
    shards: Sequence[int], workers: Sequence[int], runs: int, steps: int
) -> AsyncIterator[tuple[int, Window | Cell]]:
    """Measure every combination, with a new cluster for each number of shards, which first settles."""
    for each in shards:
        async with set_ground(each) as ground:
            settling = await settled(partial(commits_per_second, ground))
            alone = (await window(ground, WINDOW_SECONDS)).model_copy(update={"settling": settling})
            yield each, alone
            for count in sorted(workers):
                while len(ground.workers) < count:
                    await ground.add_worker()
                yield each, await cell(ground, each, runs, steps, alone)


async def settled(commits_per_second: Callable[[], Awaitable[float]]) -> Settling:
    """Measure windows of SETTLE_WINDOW_SECONDS until two in a row are alike, SETTLE_WINDOWS_MAX of them at most.

    `commits_per_second` measures one window.
    """
    rates, alike = [await commits_per_second()], False
    while not alike and len(rates) < SETTLE_WINDOWS_MAX:
        rates.append(await commits_per_second())
        alike = are_alike(rates[-2], rates[-1])
    return Settling(window_seconds=SETTLE_WINDOW_SECONDS, commits_per_second=tuple(rates), settled=alike)


def are_alike(one: float, other: float) -> bool:
    """Return whether two windows, by their commits per second, say the same."""
    low, high = sorted((one, other))
    return high < QUIET_COMMITS_PER_SECOND or high - low < STEADY_RATIO_MAX * high


async def commits_per_second(ground: Ground) -> float:
    """Return the commits a second of a cluster left alone for SETTLE_WINDOW_SECONDS."""
    return (await window(ground, SETTLE_WINDOW_SECONDS)).commits_per_second


async def window(ground: Ground, seconds: float) -> Window:
    """Leave a cluster alone for a time; return what it does meanwhile."""
    postgres = ground.cluster.postgres
    cpu, database, began = ground.cpu_seconds(), done(postgres), time.perf_counter()
    await asyncio.sleep(seconds)
    took, used, then = time.perf_counter() - began, ground.cpu_seconds(), done(postgres)
    return Window(
        seconds=round(took, 1),
        cores={role: round((now - cpu[role]) / took, 4) for role, now in used.items()},
        commits_per_second=(then.commits - database.commits) / took,
        log_bytes_per_second=(then.log_bytes - database.log_bytes) / took,
    )


async def cell(ground: Ground, shards: int, runs: int, steps: int, alone: Window) -> Cell:
    """Measure runs that start at once and go on side by side, without what the cluster does `alone`."""
    loop = HoldfastRuns(ground.client, 0)
    warm_ups = WARM_UP_RUNS * len(ground.workers)
    await asyncio.gather(*(loop.run(WARM_UP, fresh_id()) for _ in range(warm_ups)))
    ids, task = [fresh_id() for _ in range(runs)], Task(steps, PAGE_BYTES)
    cpu, database, began = ground.cpu_seconds(), done(ground.cluster.postgres), time.perf_counter()
    await asyncio.gather(*(loop.run(task, each) for each in ids))
    seconds, used, then = time.perf_counter() - began, ground.cpu_seconds(), done(ground.cluster.postgres)
    times = await read(ground.client.temporal, ids)
    total = runs * steps
    return Cell(
        shards=shards,
        workers=len(ground.workers),
        runs=runs,
        steps=total,
        seconds=seconds,
        step_ms=spread(times.steps),
        cpu_ms=per_step(cpu, used, total, {role: cores * seconds for role, cores in alone.cores.items()}),
        commits=(then.commits - database.commits - alone.commits_per_second * seconds) / total,
        log_bytes=(then.log_bytes - database.log_bytes - alone.log_bytes_per_second * seconds) / total,
    )


def per_step(
    before: Mapping[str, float], after: Mapping[str, float], steps: int, alone: Mapping[str, float]
) -> dict[str, float]:
    """Return each role's milliseconds of processor time per step, less the seconds that it takes without any."""
    used = {role: now - before.get(role, 0.0) - alone.get(role, 0.0) for role, now in after.items()}
    return {role: round(1_000 * max(0.0, seconds) / steps, 2) for role, seconds in used.items()}
