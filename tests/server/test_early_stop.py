"""SIGTERM to a worker that starts, or that has just begun to serve, also where its server is silent or lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from holdfast.client import Settings
from holdfast.server.worker_process import worker_command, worker_environment
from tests.forked import WarmWorker
from tests.server.blocked_start import FOLDER, GOES_ON, NOTES, PLACE, RESOURCE, SINK, reached
from tests.tcp_proxy import Proxy

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(400)]

SECONDS_MAX: Final = 120
INTERRUPTED: Final = 130
LATE: Final = "warning: the worker has not stopped within "


class StartingWorker:
    """A worker, and what it has said."""

    def __init__(self, settings: Settings, folder: Path, place: str, sinks: tuple[str, ...] = ()) -> None:
        self.heard = list[str]()
        command = worker_command(settings, ["tests.server.blocked_start"], serving={"grace_seconds": "1"}, sinks=sinks)
        environment = {**worker_environment(), FOLDER: str(folder), PLACE: place}
        self.worker = WarmWorker(command, self.heard.append, environment)

    async def says(self, text: str) -> str:
        """Return the first line with that text."""
        async with asyncio.timeout(SECONDS_MAX):
            while not (lines := [each for each in self.heard if text in each]):  # noqa: ASYNC110  # from a thread
                await asyncio.sleep(0.05)
        return lines[0]

    async def serves(self) -> None:
        """Return when it is ready."""
        assert await asyncio.to_thread(self.worker.wait_until_ready, SECONDS_MAX), self.heard

    async def ended_by(self, number: int) -> int | None:
        """Send it the signal and return its exit code."""
        os.kill(self.worker.pid, number)
        return await asyncio.to_thread(self.worker.ended_within, SECONDS_MAX)


@asynccontextmanager
async def started(settings: Settings, folder: Path, place: str = "", *sinks: str) -> AsyncGenerator[StartingWorker]:
    starting = StartingWorker(settings, folder, place, sinks)
    try:
        yield starting
    finally:
        await asyncio.to_thread(starting.worker.stop)


def started_through(
    proxy: Proxy, settings: Settings, folder: Path, place: str = "", *sinks: str
) -> AbstractAsyncContextManager[StartingWorker]:
    """Start one that reaches the server through the proxy."""
    return started(replace(settings, address=proxy.own_address), folder, place, *sinks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "number"), [(RESOURCE, signal.SIGTERM), (RESOURCE, signal.SIGINT), (SINK, signal.SIGTERM)]
)
async def test_a_signal_ends_a_start_that_takes_its_time(
    settings: Settings, tmp_path: Path, place: str, number: int
) -> None:
    async with started(settings, tmp_path, place, f"jsonl:{tmp_path}/events") as starting:
        await starting.says(reached(place))
        assert await starting.ended_by(number) == INTERRUPTED, starting.heard
        await starting.says("worker stopping before it serves")


@pytest.mark.slow
async def test_a_signal_ends_a_worker_whose_notes_nobody_answers(settings: Settings, tmp_path: Path) -> None:
    async with started(settings, tmp_path, NOTES) as starting:
        await starting.serves()
        await starting.says(reached(NOTES))
        assert await starting.ended_by(signal.SIGTERM) == 0, starting.heard
        assert not any(LATE in each for each in starting.heard), starting.heard


async def test_an_idle_worker_does_not_wait_for_a_silent_server_nor_speak_of_calls(
    settings: Settings, tmp_path: Path
) -> None:
    async with Proxy(str(settings.address)) as proxy, started_through(proxy, settings, tmp_path) as starting:
        await starting.serves()
        assert proxy.cut("stall")
        assert await starting.ended_by(signal.SIGTERM) == 0, starting.heard
        assert "though no call runs: does the Temporal server answer?" in await starting.says(LATE)


@pytest.mark.slow
async def test_a_worker_waits_for_a_server_that_is_lost_as_it_begins_a_sink(settings: Settings, tmp_path: Path) -> None:
    sink = f"jsonl:{tmp_path}/events"
    async with (
        Proxy(str(settings.address)) as proxy,
        started_through(proxy, settings, tmp_path, SINK, sink) as starting,
    ):
        await starting.says(reached(SINK))
        assert proxy.cut("reset")
        (tmp_path / GOES_ON).touch()
        assert "no answer for the sink" in await starting.says("waiting for the Temporal server, at most ")
        proxy.heal()
        await starting.serves()
        assert await starting.ended_by(signal.SIGTERM) == 0, starting.heard
        assert not any(LATE in each for each in starting.heard), starting.heard
