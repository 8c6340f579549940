"""Summaries on a real server: what the model is really sent, and that the state stays readable across them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from activities.transcript_cache import TranscriptCache
from holdfast import AgentDefinition, ExecutionStatus, tool
from holdfast.client import Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import PAGE_BYTES_MAX
from holdfast.core.conversation.messages import BUFFER_SECTION, SUMMARY_SECTION
from holdfast.core.loop.conversation_summary import INSTRUCTION, SUMMARY_HEAD
from holdfast.core.wire.contracts import STATE_QUERY, PageRequest
from holdfast.testing.openai_server import RequestRecord
from holdfast.testing.script import Call, Reply, calls, say
from tests.serving import served
from tests.workflows.histories import history_of, replayed

pytestmark = pytest.mark.temporal

STEPS = 9
POLICY = {"above_input_tokens": 1_000, "keep_messages": 2}
AGENT = AgentDefinition.model_validate({"name": "forgetful", "tools": "all", "context": {"summary": POLICY}})


@tool
def read(size: int, seed: int) -> str:
    """Return so many characters that do not compress."""
    return f"result {seed}: " + Random(seed).randbytes(size // 2).hex()  # noqa: S311  # not a secret


def summarises(request: dict[str, Any]) -> bool:
    return bool(request["messages"][0]["content"] == INSTRUCTION)


class Reader:
    """A model that reads STEPS results, of which every third one calls for a summary."""

    def __init__(self, size: int = 100, at_once: int = 1, summary: Reply | None = None) -> None:
        self.asked = 0
        self._size, self._at_once = size, at_once
        self._summary = summary or say("SUMMARY", usage=(10, 1))

    def __call__(self, request: dict[str, Any]) -> Reply:
        if summarises(request):
            return self._summary
        self.asked += 1
        if self.asked > STEPS:
            return say("done")
        wanted = (Call("read", {"size": self._size, "seed": self.asked * 100 + n}) for n in range(self._at_once))
        return calls(*wanted, usage=(2_000 if self.asked % 3 == 0 else 10, 1))


def texts(request: RequestRecord) -> list[str]:
    return [str(each.get("content")) for each in request.body["messages"]]


@pytest.mark.slow
@pytest.mark.parametrize("cache", [TranscriptCache(), TranscriptCache(bytes_max=0)], ids=["warm", "empty"])
async def test_the_model_is_sent_the_summary_in_place_of_what_it_stands_for(
    settings: Settings, tmp_path: Path, cache: TranscriptCache
) -> None:
    async with served(settings, tmp_path / "ledger.jsonl", Reader(), Toolset(tools=(read,)), cache) as at_work:
        execution_id = await at_work.client.start(AGENT, "read on")
        state = await at_work.client.result(execution_id)
        await replayed(at_work.client, execution_id)
        requests = at_work.endpoint.requests
    summaries = [place for place, each in enumerate(requests) if summarises(each.body)]
    assert len(summaries) == 3
    for place in summaries:
        before, asked, after = texts(requests[place - 1]), texts(requests[place])[1], texts(requests[place + 1])
        gone = [text for text in before if text.startswith("result") and text not in after]
        assert gone
        assert all(text in asked for text in gone)
        assert after[0] == SUMMARY_HEAD + "SUMMARY"
        assert "read on" in after
    assert not any("result 100" in text for text in texts(requests[-1]))
    assert state.running.compactions == 3
    assert state.final_response == "done"


async def test_a_run_is_followed_and_read_across_its_summaries(settings: Settings, tmp_path: Path) -> None:
    reader = Reader(size=40_000, at_once=4)
    async with served(settings, tmp_path / "ledger.jsonl", reader, Toolset(tools=(read,))) as at_work:
        execution_id = await at_work.client.start(AGENT, "read on")
        last: AgentState | None = None
        seen: list[int] = []
        async for state in at_work.client.follow(execution_id):
            seen.append(state.step_count)
            last = state
        assert last == await at_work.client.state(execution_id) == await at_work.client.result(execution_id)
    assert last is not None
    assert seen == sorted(seen)
    assert (last.step_count, last.status) == (STEPS + 1, ExecutionStatus.COMPLETED)


@pytest.mark.slow
async def test_a_long_conversation_that_waits_for_its_summary_is_readable(settings: Settings, tmp_path: Path) -> None:
    reader = Reader(size=45_000, at_once=8, summary=say("SUMMARY", delay_seconds=600))
    late = AgentDefinition.model_validate(
        {"name": "late", "tools": "all", "context": {"summary": {**POLICY, "above_input_tokens": 9}}}
    )

    def turn(request: dict[str, Any]) -> Reply:
        answer = reader(request)
        return calls(*answer.calls, usage=(1_000 if reader.asked == STEPS else 1, 1)) if answer.calls else answer

    async with served(settings, tmp_path / "ledger.jsonl", turn, Toolset(tools=(read,))) as at_work:
        execution_id = await at_work.client.start(late, "read on")
        await at_work.endpoint.until(lambda all_: bool(all_) and summarises(all_[-1].body), seconds_max=90)
        state = await at_work.client.state(execution_id)
        handle = at_work.client.temporal.get_workflow_handle(execution_id)
        page = await handle.query(STATE_QUERY, PageRequest())
        assert len(str(page)) < PAGE_BYTES_MAX * 1.2
        assert len(state.store.section(BUFFER_SECTION).messages) > 8 * (STEPS - 1)
        followed = at_work.client.follow(execution_id)
        assert (await anext(followed)).store == state.store
        await at_work.client.stop(execution_id)
        ends = [each async for each in followed]
        assert ends[-1] == await at_work.client.result(execution_id)
    assert state.store.has(SUMMARY_SECTION)


@pytest.mark.slow
async def test_a_run_whose_summaries_fail_keeps_its_conversation(settings: Settings, tmp_path: Path) -> None:
    reader = Reader(size=45_000, at_once=8, summary=Reply(status=400))
    async with served(settings, tmp_path / "ledger.jsonl", reader, Toolset(tools=(read,))) as at_work:
        state = await at_work.client.run(AGENT, "read on")
    assert state.output == "done"
    assert any(each.startswith("older messages could not be summarised") for each in state.state.warnings)
    assert sum(len(section.messages) for section in state.state.store.sections) == 1 + STEPS * 9 + 1


@pytest.mark.slow
async def test_a_summary_that_fails_at_first_is_asked_for_again(settings: Settings, tmp_path: Path) -> None:
    forgetful = WorkerSettings(cached_runs=0)
    fleeting = Reply(status=500, headers={"retry-after": "0"})
    slow = Reader(summary=say("SUMMARY", failures=(fleeting,)))
    async with served(settings, tmp_path / "ledger.jsonl", slow, Toolset(tools=(read,)), serving=forgetful) as at_work:
        execution_id = await at_work.client.start(AGENT, "read on")
        state = await at_work.client.result(execution_id)
        events = (await history_of(at_work.client, execution_id)).events
        await replayed(at_work.client, execution_id)
    assert state.running.compactions == 3
    names = [event.activity_task_scheduled_event_attributes.activity_id for event in events]
    assert [name for name in names if "summary" in name] == [f"step-{n}-summary" for n in (4, 7, 10)]
