"""A backup of PostgreSQL and of the store while sessions talk, restored into another PostgreSQL and another cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client import Holdfast, Settings
from holdfast.testing.openai_server import FakeOpenAI
from tests.chaos.processes import worker
from tests.cluster.cluster import Cluster, cluster, free_port
from tests.cluster.postgres import DATABASES, Postgres
from tests.restoring import FRIEND, Work, copied_store, script

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

SPEAKERS: Final = 6
ANSWERED_BEFORE: Final = 2
"""How many answers each of them has before the backup begins."""

SAID_MAX: Final = 200
RUNNING: Final = "ExecutionStatus = 'Running'"
LISTED_SECONDS_MAX: Final = 300.0
POLL_SECONDS: Final = 0.2


@dataclass
class Speaker:
    """Somebody who talks to a session, one message after the other."""

    agent_id: str = field(default_factory=lambda: str(uuid4()))
    said: list[str] = field(default_factory=list[str])
    answered: int = 0

    async def talk(self, client: Holdfast) -> None:
        """Talk until cancelled."""
        agent = client.agent(self.agent_id, definition=FRIEND)
        for number in range(SAID_MAX):
            self.said.append(f"message {number}")
            assert (await agent.ask(self.said[-1])).output == f"{len(self.said)}: {self.said[-1]}"
            self.answered += 1

    async def goes_on(self, client: Holdfast, answered: int) -> None:
        """Check that the session knows the first `answered` messages at least, and goes on behind what it knows."""
        agent = client.agent(self.agent_id, definition=FRIEND)
        assert (await agent.ask("again")).status == "completed"
        *known, last = [each.text for each in await agent.messages() if each.role == "user"]
        assert (known, last) == (self.said[: len(known)], "again")
        assert len(known) >= answered, "what was answered before the backup is in it"


async def by_dumps(source: Postgres, folder: Path, between: Callable[[], Awaitable[None]]) -> Postgres:
    """Dump the runs, then what is listed of them; restore both into a new PostgreSQL, as docs/storage.md has it."""
    runs, listed = DATABASES
    await asyncio.to_thread(source.dump, runs, folder / runs)
    await between()
    await asyncio.to_thread(source.dump, listed, folder / listed)
    target = Postgres(free_port())
    for database in DATABASES:
        await asyncio.to_thread(target.restore, database, folder / database)
    known = folder / "runs.txt"
    known.write_text(target.psql(runs, "COPY (SELECT encode(run_id, 'hex')::uuid FROM executions) TO STDOUT"))
    target.psql(
        listed,
        "CREATE TEMP TABLE runs (run_id char(64))",
        f"\\copy runs FROM {known}",
        "DELETE FROM executions_visibility WHERE run_id NOT IN (SELECT run_id FROM runs)",
    )
    return target


async def by_copy(source: Postgres, _: Path, between: Callable[[], Awaitable[None]]) -> Postgres:
    """Copy the whole of PostgreSQL, as it is at one moment."""
    target = await asyncio.to_thread(Postgres, free_port(), source=source)
    await between()
    return target


BACKUPS: Final = {"pg_dump": by_dumps, "pg_basebackup": by_copy}


async def listed(client: Holdfast, query: str | None = None) -> set[str]:
    """Return the workflow ids of all runs that are listed."""
    return {each.id async for each in client.temporal.list_workflows(query)}


async def is_there(client: Holdfast, workflow_id: str) -> bool:
    try:
        await client.temporal.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


@pytest.mark.parametrize("way", BACKUPS)
async def test_a_backup_that_is_restored_into_another_cluster_goes_on(
    way: str, settings: Settings, running: Cluster, tmp_path: Path
) -> None:
    speakers = [Speaker() for _ in range(SPEAKERS)]
    lost: list[str] = []
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(FakeOpenAI(script, ledger=tmp_path / "model.jsonl"))
        async with worker(settings, endpoint, tmp_path / "ledger.jsonl"):
            client = await Holdfast.connect(settings)
            work = await Work.begin(client)
            talks = [asyncio.create_task(each.talk(client)) for each in speakers]
            async with asyncio.timeout(LISTED_SECONDS_MAX):
                while min(each.answered for each in speakers) < ANSWERED_BEFORE:  # noqa: ASYNC110  # the talks go on
                    await asyncio.sleep(POLL_SECONDS)

            async def begin_another() -> None:
                lost.append(await client.start(FRIEND, "lost"))
                async with asyncio.timeout(LISTED_SECONDS_MAX):
                    while lost[0] not in await listed(client):  # noqa: ASYNC110  # the server has no event for it
                        await asyncio.sleep(POLL_SECONDS)

            answered = [each.answered for each in speakers]
            copy = await BACKUPS[way](running.postgres, tmp_path, begin_another)
            await asyncio.to_thread(copied_store, tmp_path / "objects", tmp_path / "restored")
            for talk in talks:
                assert not talk.done(), "they talked all the time"
                talk.cancel()
            await asyncio.gather(*talks, return_exceptions=True)
        # else the new processes would look for the old ones, and find them where these still run
        copy.query("DELETE FROM cluster_membership")
        (tmp_path / "cluster").mkdir()
        restored = stack.enter_context(cluster(tmp_path / "cluster", restored=copy))
        await restored.until_ready()
        there = replace(settings, address=restored.address, storage=(tmp_path / "restored").as_uri())
        async with worker(there, endpoint, tmp_path / "ledger.jsonl"):
            client = await Holdfast.connect(there)
            await work.goes_on(client)
            await asyncio.gather(*(each.goes_on(client, n) for each, n in zip(speakers, answered, strict=True)))
            assert not await is_there(client, lost[0])
            assert [each for each in await listed(client, RUNNING) if not await is_there(client, each)] == []
