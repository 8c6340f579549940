"""Signed thinking goes back in place, in a run that calls tools and changes its worker, and in-process."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from activities.transcript_cache import TranscriptCache
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.toolset import Toolset
from holdfast.local import LocalDriver
from holdfast.models import Anthropic, ProviderSettings
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.anthropic_wire_format import redacted_thinking
from holdfast.testing.holds import Hold
from holdfast.testing.script import Call, Reply, calls, say
from tests.chaos.tools import note
from workers import make_worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(240)]

AGENT = AgentDefinition(name="noter", tools=("note",))
THOUGHT = "I shall note it. 🙂"
SCRIPT = [
    dataclasses.replace(
        calls(Call("note", {"text": "one", "seconds": 0}), text="Noting.", reasoning=THOUGHT),
        blocks=(redacted_thinking(),),
    ),
    calls(Call("note", {"text": "two", "seconds": 0}), reasoning="One more."),
    say("noted"),
]
SHAPES = [["thinking", "redacted_thinking", "text", "tool_use"], ["thinking", "tool_use"]]


def answers(body: dict[str, Any]) -> list[list[str]]:
    """Return the types of the blocks of each answer that a request holds."""
    turns = [turn["content"] for turn in body["messages"] if turn["role"] == "assistant"]
    return [[block["type"] for block in blocks] for blocks in turns]


@pytest.mark.slow
async def test_signed_thinking_goes_back_in_place_from_a_worker_that_has_seen_none_of_it(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LEDGER", str(tmp_path / "tools.jsonl"))
    hold = Hold()
    script = [SCRIPT[0], dataclasses.replace(SCRIPT[1], failures=(Reply(hold=hold, status=529),)), SCRIPT[2]]
    async with FakeAnthropic(script) as endpoint:
        client = await Holdfast.connect(settings)
        provider = ProviderSettings(base_url=endpoint.base_url, api_key="k", model="scripted")
        first, second = Anthropic(provider), Anthropic(provider)
        tools = Toolset(tools=(note,))
        async with make_worker(client.temporal, settings, tools, first, TranscriptCache()):
            execution_id = await client.start(AGENT, "note")
            await endpoint.until(lambda records: len(records) == 2)
        # the first worker has ended in the middle of its second call
        async with make_worker(client.temporal, settings, tools, second, TranscriptCache()):
            state = await client.result(execution_id)
        for model in (first, second):
            await model.close()
        assert [answers(each.body) for each in endpoint.requests] == [[], SHAPES[:1], SHAPES[:1], SHAPES]
        assert endpoint.requests[-1].status == endpoint.requests[-2].status == 200  # no signature was refused
    assert (state.status, state.final_response) == (ExecutionStatus.COMPLETED, "noted")
    assert state.usage.cached_tokens > 0


async def test_the_same_in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LEDGER", str(tmp_path / "tools.jsonl"))
    async with FakeAnthropic(SCRIPT) as endpoint:
        settings = ProviderSettings(base_url=endpoint.base_url, api_key="k", model="scripted")
        model = Anthropic(settings, thinking="adaptive")
        state = await LocalDriver(AGENT, model=model, tools=(note,)).execute("note")
        await model.close()
        assert [answers(each.body) for each in endpoint.requests] == [[], SHAPES[:1], SHAPES]
    assert state.final_response == "noted"
