"""Workers killed in the middle of a delivery: another goes on, and every event is in the file exactly once."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Scripts, call, say
from tests.chaos.processes import worker
from tests.sinks.delivering import CHILD, LEAD, end_sink, events_in, expected_of, until
from tests.sinks.dying import FOLDER

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]

SCRIPT: Scripts = {
    "scripted": [call("spawn", agent="child", task="A part."), call("clock"), call("clock"), say("all done")],
    "kid": [say("a part")],
}


@pytest.mark.slow
async def test_what_a_killed_worker_was_delivering_comes_once(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "whole").touch()  # one death will do
    [(pid, events, size)] = await survived(settings, tmp_path, ["half"])
    told = (tmp_path / "events.jsonl").read_bytes()[:size].count(b"\n")
    assert 0 < told < events, f"the process {pid} was killed within its batch"


@pytest.mark.chaos
async def test_what_workers_killed_one_after_another_were_delivering_comes_once(
    settings: Settings, tmp_path: Path
) -> None:
    first, second = await survived(settings, tmp_path, ["half", "whole"])
    assert first[0] != second[0]


async def survived(settings: Settings, folder: Path, marks: list[str]) -> list[tuple[int, ...]]:
    """Have workers die of their sink; everything must be in the file once. Return what the dying left behind."""
    restless, path = replace(settings, continue_events=1), folder / "events.jsonl"
    told = {"HOLDFAST_SINKS": "audit=python:tests.sinks.dying:Dying", FOLDER: str(folder)}
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(FakeOpenAI(SCRIPT))
        client = await Holdfast.connect(restless)
        runs = [await client.start(LEAD, "Do it.", subagents=[CHILD]) for _ in range(2)]
        workers = [worker(restless, endpoint, folder / "ledger.jsonl", told) for _ in range(1 + len(marks))]
        await asyncio.gather(*(stack.enter_async_context(each) for each in workers))
        await until((folder / marks[-1]).exists, lambda: [each.name for each in folder.iterdir()])
        ids: set[str] = set()
        for each in runs:
            async for event in client.watch(each):
                ids.add(event.execution_id)
        expected = await expected_of(client, sorted(ids))
        await until(lambda: len(events_in(path)) >= len(expected), lambda: len(events_in(path)))
    assert sorted(json.loads(line)["id"] for line in path.read_bytes().splitlines()) == sorted(expected)
    assert len(ids) == 4
    assert len(expected) > 60
    await end_sink(client.temporal, settings, "audit")
    return [tuple(map(int, (folder / mark).read_text().split())) for mark in marks]
