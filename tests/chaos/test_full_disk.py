"""A server whose disk is full takes nothing, says why, and goes on where it was when there is space again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.connection.full_disk import full_disk
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ServerUnavailable
from holdfast.server.embedded import EmbeddedServer
from holdfast.testing import assert_every_call_answered
from holdfast.testing.ledger import Ledger
from holdfast.testing.script import Call, calls, say
from tests.chaos.processes import READY_SECONDS_MAX
from tests.chaos.tools import note, pay
from tests.serving import served

pytestmark = [
    pytest.mark.temporal,
    pytest.mark.chaos,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root on Linux: it mounts a disk"),
]

DISK = "32m"
FULL_SECONDS = 15
"""Longer than the server keeps a workflow task for a worker (10 s)."""
RUNS = 10
AGENT = AgentDefinition(name="noter", tools=("note", "pay"))
SCRIPT = [
    calls(Call("pay", {"amount": 5}), Call("note", {"text": "one", "seconds": 3})),
    say("done", delay_seconds=0.5),
]


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A folder on a disk of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", folder], check=True)  # noqa: S607
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)  # noqa: S607


def fill(folder: Path) -> Path:
    """Leave no byte of its disk free."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(64 * 1024)):
                pass
        except OSError:
            return ballast
    raise AssertionError("the disk takes everything")


async def start_more(client: Holdfast) -> None:
    """Start runs until the server takes none: the first ones may find room in pages of the database."""
    for _ in range(RUNS):
        await client.start(AGENT, "one more " * 2_000)


async def test_runs_wait_while_the_disk_is_full_and_what_is_refused_says_so(
    settings: Settings, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "tools.jsonl")
    monkeypatch.setenv("HOLDFAST_LEDGER", str(ledger.path))
    with EmbeddedServer.start(small_disk, port=0, ui_port=0) as server:
        here = replace(settings, address=server.address.address)
        async with served(here, tmp_path / "model.jsonl", SCRIPT, Toolset(tools=(note, pay))) as serving:
            ids = await asyncio.gather(*(serving.client.start(AGENT, f"order {each}") for each in range(RUNS)))
            await serving.endpoint.until(lambda requests: len(requests) >= RUNS, READY_SECONDS_MAX)
            ballast = fill(small_disk)
            assert "is full" in (full_disk(small_disk) or "")
            with pytest.raises(ServerUnavailable, match="is its disk full") as refused:
                await start_more(serving.client)
            await asyncio.sleep(FULL_SECONDS)
            assert server.alive
            ballast.unlink()
            client = await Holdfast.connect(here)
            states = await asyncio.gather(*(client.result(execution_id) for execution_id in ids))
            after = await client.run(AGENT, "afterwards")
    assert "holdfast doctor" in str(refused.value)
    for state in (*states, after.state):
        assert (state.status, state.final_response) == (ExecutionStatus.COMPLETED, "done")
        assert_every_call_answered(state)
    paid = [entry.key for entry in ledger.entries(name="pay", phase="started")]
    assert len(paid) == len(set(paid)) > RUNS, "what may run once ran twice"
