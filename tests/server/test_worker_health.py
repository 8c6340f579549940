"""What a worker's readiness is made of: checks that are cached and bounded, and the worker's own state."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast.core.base.errors import StorageFailed
from holdfast.server import worker_health
from holdfast.server.worker_health import FRESH_SECONDS, REASON_CHARS_MAX, STARTING, CachedCheck, WorkerHealth


class Outside:
    """Something that is checked: in order or not, and slow if it is told to be."""

    def __init__(self) -> None:
        self.checks = 0
        self.error: Exception | None = None
        self.begun = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def check(self) -> None:
        self.checks += 1
        self.begun.set()
        await self.goes_on.wait()
        if self.error is not None:
            raise self.error


async def test_an_outcome_counts_for_a_while_and_probes_at_once_share_a_check() -> None:
    now, outside = [0.0], Outside()
    check = CachedCheck(outside.check, clock=lambda: now[0])
    assert await asyncio.gather(*(check.problem() for _ in range(10))) == [None] * 10
    outside.error = StorageFailed("the bucket is gone")
    now[0] = FRESH_SECONDS - 0.1
    assert (await check.problem(), outside.checks) == (None, 1)
    now[0] = FRESH_SECONDS
    assert (await check.problem(), outside.checks) == ("the bucket is gone", 2)


async def test_a_check_that_hangs_is_told_in_time_and_not_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_health, "CHECK_SECONDS_MAX", 0.05)
    outside = Outside()
    outside.goes_on.clear()
    check = CachedCheck(outside.check)
    assert await check.problem() == "no answer within 0.05 s"
    assert await check.problem() == "no answer within 0.05 s"
    assert outside.checks == 1
    outside.goes_on.set()
    monkeypatch.setattr(worker_health, "CHECK_SECONDS_MAX", 60.0)
    assert await check.problem() is None
    assert outside.checks == 1


async def test_an_error_of_any_kind_is_a_problem_and_short() -> None:
    outside = Outside()
    outside.error = ValueError("x" * 10_000)
    problem = await CachedCheck(outside.check).problem()
    assert problem is not None
    assert problem.startswith("ValueError: xxx")
    assert len(problem) == REASON_CHARS_MAX


async def test_nothing_is_checked_before_the_worker_polls_nor_once_it_stops(caplog: pytest.LogCaptureFixture) -> None:
    health, server, storage = WorkerHealth(), Outside(), Outside()
    assert await health.problems() == {"worker": STARTING}
    state: list[str | None] = ["it does not poll the task queue 'a'"]
    health.watch(lambda: state[0], server=server.check, storage=storage.check)
    assert await health.problems() == {"worker": "it does not poll the task queue 'a'"}
    assert (server.checks, storage.checks) == (0, 0)
    state[0], storage.error = None, StorageFailed("the bucket is gone")
    with caplog.at_level(logging.WARNING, "holdfast.worker"):
        assert await health.problems() == {"storage": "the bucket is gone"}
        assert await health.problems() == {"storage": "the bucket is gone"}
    assert [record.message for record in caplog.records] == ["not ready: storage: the bucket is gone"]
    state[0] = "stopping"
    assert await health.problems() == {"worker": "stopping"}
    assert (server.checks, storage.checks) == (1, 1)


async def test_a_worker_that_begins_to_stop_while_it_is_checked_is_not_ready() -> None:
    health, server, storage = WorkerHealth(), Outside(), Outside()
    state: list[str | None] = [None]
    health.watch(lambda: state[0], server=server.check, storage=storage.check)
    server.goes_on.clear()
    probe = asyncio.create_task(health.problems())
    await server.begun.wait()
    state[0] = "stopping"
    server.goes_on.set()
    assert await probe == {"worker": "stopping"}
