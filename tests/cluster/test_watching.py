"""Who follows a run lives through what its server loses: PostgreSQL killed, then each frontend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.wire.execution_events import Observed
from holdfast.testing.openai_server import FakeOpenAI, RequestRecord
from holdfast.testing.script import call, say
from tests.chaos.processes import worker
from tests.cluster.cluster import Cluster
from tests.cluster.talks import CALLS_SECONDS_MAX, TELLER
from tests.cluster.test_faults import losing, losing_the_database

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

STEPS = 12


async def test_a_run_is_followed_through_lost_databases(running: Cluster, settings: Settings, tmp_path: Path) -> None:
    script = [call("note", text=f"{step}", seconds=1.0) for step in range(STEPS)]
    async with (
        FakeOpenAI([*script, say("done")]) as endpoint,
        worker(settings, endpoint, tmp_path / "tools.jsonl"),
    ):
        client = await Holdfast.connect(settings)
        execution_id = await client.start(TELLER, "note much")
        ended = asyncio.create_task(client.result(execution_id))
        watching = asyncio.create_task(_watched(client, execution_id))
        asked = 0
        for harm in (losing_the_database, losing("frontend"), losing_the_database):
            await endpoint.until(partial(_more_than, asked + 1), CALLS_SECONDS_MAX)
            await asyncio.to_thread(harm, running)
            asked = len(endpoint.requests)
        assert not ended.done()
        state = await ended
        told = await watching
        assert told == await _watched(client, execution_id)
    assert state.final_response == "done"


def _more_than(number: int, requests: Sequence[RequestRecord]) -> bool:
    return len(requests) > number


async def _watched(client: Holdfast, execution_id: str) -> list[Observed]:
    return [each async for each in client.watch(execution_id) if isinstance(each, Observed)]
