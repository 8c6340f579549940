"""A backup of a server that works, restored elsewhere: sessions and runs go on from the dump."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.server.embedded import EmbeddedServer
from holdfast.testing.openai_server import FakeOpenAI
from tests.chaos.processes import worker
from tests.restoring import Work, copied_database, copied_store, script

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(600)]


@pytest.mark.slow
async def test_a_backup_that_is_restored_elsewhere_goes_on(tmp_path: Path) -> None:
    ledger, backup = tmp_path / "ledger.jsonl", tmp_path / "restored"
    backup.mkdir()
    store = tmp_path / "store"
    async with FakeOpenAI(script, ledger=tmp_path / "model.jsonl") as endpoint:
        with EmbeddedServer.start(tmp_path / "server", port=0, ui_port=0) as server:
            here = Settings(address=server.address.address, task_queue="test", storage=store.as_uri())
            async with worker(here, endpoint, ledger):
                client = await Holdfast.connect(here)
                work = await Work.begin(client)
                await asyncio.to_thread(copied_database, tmp_path / "server" / "temporal.db", backup / "temporal.db")
                # the server works on: what it writes until the store is copied is too much, never too little
                assert (await client.agent(work.agent_id).ask("since")).output == "2: since"
                await asyncio.to_thread(copied_store, store, backup / "objects")
        with EmbeddedServer.start(backup, port=0, ui_port=0) as restored:
            there = replace(here, address=restored.address.address, storage=(backup / "objects").as_uri())
            async with worker(there, endpoint, ledger):
                await work.goes_on(await Holdfast.connect(there))
