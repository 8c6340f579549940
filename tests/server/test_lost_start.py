"""A real server that goes away after a starting worker has connected, before the worker has asked it anything else."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from holdfast.client import Settings
from holdfast.core.base.errors import ServerUnavailable
from holdfast.server.worker_process import worker_command, worker_environment
from tests.forked import WarmWorker
from tests.server.held_start import CONNECTED, FOLDER, GOES_ON
from tests.tcp_proxy import Cut, Proxy

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(400)]

SECONDS_MAX: Final = 120
PAUSE_SECONDS: Final = 0.05
INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Cutoff:
    """A starting worker that is cut off from its server."""

    worker: WarmWorker
    proxy: Proxy
    heard: list[str]

    async def says(self, text: str) -> str:
        """Return the first line of the worker's with that text."""
        async with asyncio.timeout(SECONDS_MAX):
            while not (lines := [each for each in self.heard if text in each]):  # noqa: ASYNC110  # from a thread
                await asyncio.sleep(PAUSE_SECONDS)
        return lines[0]

    async def exit_code(self) -> int | None:
        """Return how the worker has ended."""
        return await asyncio.to_thread(self.worker.ended_within, SECONDS_MAX)


@asynccontextmanager
async def cut_off(settings: Settings, folder: Path, kind: Cut, patience: float = 300) -> AsyncGenerator[Cutoff]:
    """Start a worker, and cut it off once it has connected."""
    heard = list[str]()
    environment = {**worker_environment(), FOLDER: str(folder)}
    async with Proxy(str(settings.address)) as proxy:
        here = replace(settings, address=proxy.own_address)
        serving = {"server_wait_seconds": str(patience)}
        command = worker_command(here, ["tests.server.held_start"], serving=serving)
        worker = WarmWorker(command, heard.append, environment)
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while not await asyncio.to_thread((folder / CONNECTED).exists):  # noqa: ASYNC110  # another process
                    await asyncio.sleep(PAUSE_SECONDS)
            assert proxy.cut(kind), "the worker had no connection"
            (folder / GOES_ON).touch()
            yield Cutoff(worker, proxy, heard)
        finally:
            await asyncio.to_thread(worker.stop)


@pytest.mark.parametrize("kind", ["reset", pytest.param("stall", marks=pytest.mark.slow)])
async def test_a_worker_whose_server_dies_after_it_has_connected_waits_for_it(
    settings: Settings, tmp_path: Path, kind: Cut
) -> None:
    async with cut_off(settings, tmp_path, kind) as cut:
        line = await cut.says("waiting for the Temporal server, at most ")
        assert f"no answer from {cut.proxy.own_address} (" in line
        cut.proxy.heal()
        assert await asyncio.to_thread(cut.worker.wait_until_ready, SECONDS_MAX), cut.heard


@pytest.mark.slow
async def test_it_does_not_wait_for_ever(settings: Settings, tmp_path: Path) -> None:
    async with cut_off(settings, tmp_path, "reset", patience=1) as cut:
        assert await cut.exit_code() == ServerUnavailable.exit_code, cut.heard
        assert (await cut.says("error: ")).startswith(f"error: no answer from {cut.proxy.own_address} (")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_wait(settings: Settings, tmp_path: Path, number: int) -> None:
    async with cut_off(settings, tmp_path, "reset") as cut:
        await cut.says("waiting for the Temporal server, ")
        os.kill(cut.worker.pid, number)
        assert await cut.exit_code() == INTERRUPTED, cut.heard
