"""A backup as docs/storage.md has it: first the database, then the store; restored, work goes on where it was.

`Work` is what is begun before the backup and what must hold of it on a restored server, whatever the database is: begin
it, back up (`copied_database` for SQLite, `pg_dump` for PostgreSQL; then `copied_store`), go on with the old server or
not, restore elsewhere, and `await work.goes_on(...)` against it.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from holdfast.client import Holdfast
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.conversation.verdicts import Verdict
from holdfast.testing.script import Reply, call, say

SECONDS_MAX = 90.0
PAUSE_SECONDS = 0.2

FRIEND = AgentDefinition(name="friend", tools=())
PAYER = AgentDefinition(name="payer", tools=("note",), approvals=(ApprovalRule(tools=("note",)),))


def copied_database(source: Path, target: Path) -> None:
    """Copy an SQLite database while its server runs, with all that it has committed, as `VACUUM INTO` does."""
    with contextlib.closing(sqlite3.connect(source.as_uri() + "?mode=ro", uri=True, timeout=SECONDS_MAX)) as opened:
        opened.execute("VACUUM INTO ?", (str(target),))


def copied_store(source: Path, target: Path) -> None:
    """Copy a store's folder; what is written meanwhile may be there or not."""
    shutil.copytree(source, target)


def script(request: dict[str, Any]) -> Reply:
    """Play the model of both agents: count a friend's messages; note something, then say that it is noted."""
    said = [str(each["content"]) for each in request["messages"] if each["role"] == "user"]
    if request.get("tools"):
        is_noted = any(each["role"] == "tool" for each in request["messages"])
        return say("noted") if is_noted else call("note", text="paid")
    return say(f"{len(said)}: {said[-1]}")


@dataclass(frozen=True, slots=True)
class Work:
    """A session that has answered, a run that has ended, and one that waits for a person."""

    agent_id: str
    ended: str
    waiting: str

    @classmethod
    async def begin(cls, client: Holdfast) -> Work:
        """Begin it, and return when it is where it waits."""
        agent = client.agent(str(uuid4()), definition=FRIEND)
        assert (await agent.ask("one")).output == "1: one"
        alone = await client.run(FRIEND, "alone")
        waiting = await client.start(PAYER, "pay")
        async with asyncio.timeout(SECONDS_MAX):
            while not await _is_waiting(client, waiting):  # noqa: ASYNC110  # the server has no event for it
                await asyncio.sleep(PAUSE_SECONDS)
        return cls(agent.agent_id, alone.execution_id, waiting)

    async def goes_on(self, client: Holdfast) -> None:
        """Check that all of it is whole on the restored server, and goes on; its workers serve `note`.

        Of what was done between the dump and the copy of the store, records may be there; the session knows nothing.
        """
        agent = client.agent(self.agent_id, definition=FRIEND)
        assert (await agent.ask("two")).output == "2: two", "the session knows what was said"
        records = await agent.records()
        assert len({each.execution_id for each in records}) == len(records), "each is listed once"
        tasks = [each.task for each in records]
        assert (tasks[0], tasks[-1]) == ("two", "one"), tasks
        recorded = await client.recorded_state(await client.record(self.ended))
        assert recorded.final_response == (await client.state(self.ended)).final_response == "1: alone"
        [waiting] = [each for each in await client.waiting() if each.execution_id == self.waiting]
        assert await client.decide(self.waiting, waiting.call_id, Verdict(decision="approve"))
        result = await client.result(self.waiting)
        assert (result.status, result.final_response) == (ExecutionStatus.COMPLETED, "noted")


async def _is_waiting(client: Holdfast, execution_id: str) -> bool:
    return execution_id in [each.execution_id for each in await client.waiting()]
