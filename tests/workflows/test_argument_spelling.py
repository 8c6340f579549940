"""What a model wrote comes back to it byte for byte: in the next Temporal run, the next execution, and a fork."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentDefinition, tool
from holdfast.client import Settings
from holdfast.core.agent.policies import ContextPolicy
from holdfast.core.agent.toolset import Toolset
from holdfast.testing.openai_server import RequestRecord
from holdfast.testing.script import Call, Reply, calls, say
from tests.serving import served
from tests.workflows.chains import chain_of

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="clerk", tools="all", context=ContextPolicy(view="all"))
TEXTS = ('{"place": "\\u00fc", "depth": 2}', '{\n  "place": "a b",\n  "depth": 1e1\n}', '{"place":"c","depth":3}')
IDS = ("call_" + "i" * 59, "functions.look:1", "x")


@tool
def look(place: str, depth: float) -> str:
    """Look at a place."""
    return f"{place} at {depth}"


def turns(request: dict[str, Any]) -> Reply:
    """Look three times, one after another, then answer every question."""
    number = sum(each["role"] == "assistant" for each in request["messages"])
    return calls(Call("look", TEXTS[number], IDS[number])) if number < len(TEXTS) else say("done")


def shown(request: RequestRecord) -> list[tuple[str, str]]:
    requested = [call for each in request.body["messages"] for call in each.get("tool_calls", ())]
    return [(each["id"], each["function"]["arguments"]) for each in requested]


@pytest.mark.slow
async def test_a_models_text_comes_back_after_a_continue_as_new_in_a_later_execution_and_in_a_fork(
    settings: Settings, tmp_path: Path
) -> None:
    restless = dataclasses.replace(settings, continue_events=1)
    async with served(restless, tmp_path / "ledger.jsonl", turns, Toolset(tools=(look,))) as at_work:
        agent = at_work.client.agent(definition=AGENT)
        first = await agent.ask("Go.")
        runs = await chain_of(at_work.client, first.state.running.execution_id)
        await agent.ask("And now?")
        await (await agent.fork()).ask("And here?")
    wrote = list(zip(IDS, TEXTS, strict=True))
    assert len(runs) > len(TEXTS), "each step had a Temporal run of its own"
    assert [shown(each) for each in at_work.endpoint.requests] == [[], wrote[:1], wrote[:2], wrote, wrote, wrote]
