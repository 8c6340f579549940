"""Signed thinking goes back in place, in a run that calls tools and loses its worker, and in-process."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.local import LocalDriver
from holdfast.models import Anthropic, ProviderSettings
from holdfast.models.model_apis import ANTHROPIC
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.anthropic_wire_format import redacted_thinking
from holdfast.testing.ledger import Ledger
from holdfast.testing.script import Call, calls, say
from tests.chaos.processes import worker
from tests.chaos.test_guardian import begun
from tests.chaos.tools import note

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(240)]

AGENT = AgentDefinition(name="noter", tools=("note",))
THOUGHT = "I shall note it. 🙂"
SCRIPT = [
    dataclasses.replace(
        calls(Call("note", {"text": "one", "seconds": 2}), text="Noting.", reasoning=THOUGHT),
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


async def test_signed_thinking_goes_back_in_place_from_another_worker(settings: Settings, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "tools.jsonl")
    async with FakeAnthropic(SCRIPT) as endpoint:
        client = await Holdfast.connect(settings)
        spoken = {"HOLDFAST_MODEL_API": "anthropic", "ANTHROPIC_BASE_URL": endpoint.base_url}
        async with (
            worker(settings, endpoint, ledger.path, spoken) as one,
            worker(settings, endpoint, ledger.path, spoken) as two,
        ):
            execution_id = await client.start(AGENT, "note")
            [first] = await begun(ledger, "note")
            os.kill(first.pid, signal.SIGKILL)
            state = await client.result(execution_id)
        assert first.pid in {one.pid, two.pid}
        assert [answers(each.body) for each in endpoint.requests] == [[], SHAPES[:1], SHAPES]
        assert {each.status for each in endpoint.requests} == {200}  # it refuses a signature that is not the text's
    assert (state.status, state.final_response) == (ExecutionStatus.COMPLETED, "noted")
    assert ledger.count(name="note", phase="started") == 3
    assert state.usage.cached_tokens > 0


async def test_the_same_in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LEDGER", str(tmp_path / "tools.jsonl"))
    async with FakeAnthropic(SCRIPT) as endpoint:
        settings = ProviderSettings(base_url=endpoint.base_url, api_key="k", model="scripted", api=ANTHROPIC)
        model = Anthropic(settings, thinking="adaptive")
        state = await LocalDriver(AGENT, model=model, tools=(note,)).execute("note")
        await model.close()
        assert [answers(each.body) for each in endpoint.requests] == [[], SHAPES[:1], SHAPES]
    assert state.final_response == "noted"
