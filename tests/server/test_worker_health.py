"""What a worker's readiness is made of: checks that are cached and bounded, and the worker's own state."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from holdfast.core.base.errors import StorageFailed
from holdfast.server import worker_health
from holdfast.server.worker_health import (
    FRESH_SECONDS,
    PROBE,
    REASON_CHARS_MAX,
    STARTING,
    WRITTEN_SECONDS,
    CachedCheck,
    StorageProbe,
    WorkerHealth,
)
from holdfast.storage.object_store import Objects


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


class Stored(Objects):
    """Objects which count what is asked of them, and refuse what they are told to refuse."""

    def __init__(self, url: str = "memory://") -> None:
        super().__init__(url)
        self.writes = self.looks = 0
        self.unseen: StorageFailed | None = None
        self.unwritable: StorageFailed | None = None

    async def replace(self, name: str, data: bytes) -> None:
        self.writes += 1
        if self.unwritable is not None:
            raise self.unwritable
        await super().replace(name, data)

    async def has(self, name: str) -> bool:
        self.looks += 1
        if self.unseen is not None:
            raise self.unseen
        return await super().has(name)


async def test_the_storage_is_written_at_the_start_then_once_a_while_and_looked_at_in_between() -> None:
    now, stored = [0.0], Stored()
    await stored.replace(PROBE, PROBE.encode())
    probe = StorageProbe(stored, clock=lambda: now[0])
    await probe.write()
    assert stored.writes == 2, "a start writes, whatever is there"
    for now[0] in (FRESH_SECONDS, 2 * FRESH_SECONDS, WRITTEN_SECONDS - 0.1):
        await probe.check()
    assert (stored.writes, stored.looks) == (2, 3)
    now[0] = WRITTEN_SECONDS
    await probe.check()
    assert stored.writes == 3
    now[0] += WRITTEN_SECONDS - 0.1
    await probe.check()
    assert stored.writes == 3


async def test_a_missing_probe_is_written_again(tmp_path: Path) -> None:
    stored = Stored(tmp_path.as_uri())
    probe = StorageProbe(stored, clock=lambda: 0.0)
    await probe.write()
    (tmp_path / PROBE).unlink()
    await probe.check()
    assert stored.writes == 2
    assert (tmp_path / PROBE).read_bytes() == PROBE.encode()


async def test_a_storage_that_is_empty_all_at_once_is_not_written_but_a_problem(tmp_path: Path) -> None:
    now, stored, registration = [0.0], Stored((tmp_path / "volume").as_uri()), "namespaces/ours"
    probe = StorageProbe(stored, clock=lambda: now[0])
    await probe.write()
    await stored.replace(registration, b"{}")
    probe.expect(registration)
    (tmp_path / "volume").rename(tmp_path / "elsewhere")
    for now[0] in (FRESH_SECONDS, 2 * WRITTEN_SECONDS):
        with pytest.raises(
            StorageFailed, match=r"volume holds neither probe nor namespaces/ours any more: is its volume mounted"
        ):
            await probe.check()
    assert not (tmp_path / "volume").exists(), "nothing was written in its place"
    (tmp_path / "elsewhere").rename(tmp_path / "volume")
    await probe.check()
    (tmp_path / "volume" / PROBE).unlink()
    await probe.check()
    assert await stored.has(PROBE), "nobody misses the probe alone"


async def test_a_look_that_is_refused_is_a_problem_only_if_the_object_cannot_be_seen_once_written() -> None:
    stored = Stored()
    probe = StorageProbe(stored, clock=lambda: 0.0)
    await probe.write()
    stored.unseen = StorageFailed("cannot read probe: denied")
    with pytest.raises(StorageFailed, match="cannot read probe: denied"):
        await probe.check()
    stored.unwritable = StorageFailed("cannot write probe: the bucket is gone")
    with pytest.raises(StorageFailed, match="cannot write probe: the bucket is gone"):
        await probe.check()
    stored.unseen = stored.unwritable = None
    await probe.check()


async def test_a_storage_that_cannot_be_written_any_more_is_noticed_at_the_next_write() -> None:
    now, stored = [0.0], Stored()
    probe = StorageProbe(stored, clock=lambda: now[0])
    await probe.write()
    stored.unwritable = StorageFailed("cannot write probe: read-only")
    await probe.check()
    now[0] = WRITTEN_SECONDS
    for _ in range(2):
        with pytest.raises(StorageFailed, match="read-only"):
            await probe.check()
    stored.unwritable = None
    await probe.check()
