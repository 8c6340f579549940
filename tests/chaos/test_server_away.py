"""A server that is away when its worker starts, or whose database is taken away from under it."""

from __future__ import annotations

import asyncio
import queue
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.base.errors import ServerUnavailable
from holdfast.server.embedded import EmbeddedServer
from holdfast.server.ports import choose_ports
from holdfast.server.worker_process import WorkerProcess, worker_command, worker_environment

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(150)]

SECONDS_MAX = 100


@pytest.mark.slow
def test_a_worker_that_starts_while_the_server_is_away_waits_for_it_and_says_so(tmp_path: Path) -> None:
    ports, storage = choose_ports(0, 0), (tmp_path / "objects").as_uri()
    here = Settings(address=f"127.0.0.1:{ports.grpc}", task_queue="test", storage=storage, data_dir=tmp_path / "data")
    heard: queue.Queue[str] = queue.Queue()
    process = WorkerProcess(worker_command(here, ["tests.chaos.tools"]), heard.put, worker_environment())
    try:
        while "waiting for the Temporal server, " not in (line := heard.get(timeout=SECONDS_MAX)):
            pass
        assert f"no Temporal server at 127.0.0.1:{ports.grpc}" in line
        with EmbeddedServer.start(tmp_path / "data", port=ports.grpc, ui_port=0):
            assert process.wait_until_ready(SECONDS_MAX)
    finally:
        process.stop()


@pytest.mark.slow
def test_a_worker_does_not_wait_for_ever(settings: Settings) -> None:
    here = replace(settings, address="127.0.0.1:1")
    heard: queue.Queue[str] = queue.Queue()
    command = worker_command(here, ["tests.chaos.tools"], serving={"server_wait_seconds": "1"})
    process = WorkerProcess(command, heard.put, worker_environment())
    try:
        assert process.ended_within(SECONDS_MAX) == ServerUnavailable.exit_code
    finally:
        process.stop()


@pytest.mark.slow
@pytest.mark.parametrize("became", ["removed", "replaced"])
async def test_a_server_whose_database_is_taken_away_ends_and_says_why(tmp_path: Path, became: str) -> None:
    with EmbeddedServer.start(tmp_path, port=0, ui_port=0) as server:
        client = await Holdfast.connect(Settings(address=server.address.address))
        database, other = tmp_path / "temporal.db", tmp_path / "other.db"
        if became == "replaced":
            other.write_bytes(database.read_bytes())
            other.replace(database)
        else:
            database.rename(other)
        assert await asyncio.to_thread(server.wait, SECONDS_MAX)
        assert server.fault is not None
        assert f"{database} was {became} while the server was running" in server.fault
        with pytest.raises(ServerUnavailable):
            await Holdfast.connect(client.settings)
