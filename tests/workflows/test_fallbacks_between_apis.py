"""A run that begins on an Anthropic route and ends on one of OpenAI's, on a real server and in-process."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import chain, count
from typing import Any
from uuid import UUID, uuid4, uuid5

import pytest

from holdfast import LLM, AgentDefinition, tool
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.local import LocalDriver
from holdfast.models.routed_model import RoutedModel
from holdfast.models.routes import Route
from holdfast.testing import ScriptedModel, assert_same_run, call, say
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.openai_server import FakeOpenAI
from tests.scenarios.driving import UNEQUAL
from tests.workflows.histories import replayed
from workers import make_worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

THOUGHT = "I have to look twice."
FIRST = [
    replace(call("look", at="1"), reasoning=THOUGHT),
    replace(call("look", at="2"), reasoning="Once more."),
    say("nobody hears this"),
]
SECOND = [say("nor this"), say("nor that"), say("both are there")]
AGENT = AgentDefinition(
    name="clerk",
    llm=LLM.model_validate({"model": "claude", "fallback": ["gpt"]}),
    tools=("look",),
    model_patience_seconds=1,
)
CLAUDE_USD = {"input_usd": 3.0, "output_usd": 15.0, "cached_usd": 0.3, "cache_write_usd": 3.75}
GPT_USD = {"input_usd": 2.0, "output_usd": 8.0}


def routes(claude: FakeAnthropic, gpt: FakeOpenAI) -> dict[str, dict[str, Any]]:
    return {
        "claude": {"api": "anthropic", "model": "claude-1", "base_url": claude.base_url, "prices": CLAUDE_USD},
        "gpt": {"api": "openai_chat", "model": "gpt-1", "base_url": gpt.base_url, "prices": GPT_USD},
    }


def check(state: AgentState, gpt: FakeOpenAI) -> None:
    """Check which routes answered, what the second one was sent, and what it cost."""
    answers = [each.inference_response for each in state.steps]
    assert [each and each.route for each in answers] == ["claude", "claude", "gpt"]
    assert state.final_response == "both are there"
    ids = [each.tool_calls[0].id for each in answers[:2] if each is not None]
    sent = gpt.requests[-1].body["messages"]
    assert [each["tool_calls"][0]["id"] for each in sent if each["role"] == "assistant"] == ids
    assert [each["tool_call_id"] for each in sent if each["role"] == "tool"] == ids
    assert THOUGHT not in json.dumps(sent)
    assert "signature" not in json.dumps(sent)
    one, two, three = (each.usage for each in answers if each is not None)
    assert (one.cache_write_tokens, one.cached_tokens, one.output_tokens) == (100, 0, 20)
    assert two.cached_tokens > 0
    assert (two.input_tokens, two.uncached_tokens, two.output_tokens) == (100, 0, 20)
    dollars = 100 * 3.75 + 20 * 15  # the first step: all of its input is written to the cache
    dollars += two.cached_tokens * 0.3 + two.cache_write_tokens * 3.75 + 20 * 15
    dollars += 100 * 2 + 20 * 8  # the third one, at the other route
    assert (three.input_tokens, three.output_tokens) == (100, 20)
    assert state.cost == pytest.approx(dollars / 1_000_000)


async def test_a_run_that_loses_its_provider_ends_with_another_one(settings: Settings) -> None:
    agent_id, execution_id = str(uuid4()), str(uuid4())
    claudes, serving = AsyncExitStack(), asyncio.get_running_loop()

    @tool
    async def look(at: str) -> str:
        """Look at a place."""
        if at == "2":  # the third call of the model finds nobody there
            # tools run in a loop of their own
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(claudes.aclose(), serving))
        return "there"

    async with claudes, FakeOpenAI(SECOND) as gpt:
        claude = await claudes.enter_async_context(FakeAnthropic(FIRST))
        table = routes(claude, gpt)
        known = {name: Route.model_validate(each) for name, each in table.items()}
        model = RoutedModel(ScriptedModel([say("own")]), known, {})
        client = await Holdfast.connect(settings)
        async with make_worker(client.temporal, settings, Toolset(tools=(look,)), model):
            await client.start(AGENT, "go", agent_id=agent_id, execution_id=execution_id)
            durable = await client.result(execution_id)
            await replayed(client, execution_id)
        await model.close()
        assert isinstance(durable, AgentState)
        check(durable, gpt)
        assert len(claude.requests) == 2

        # the error texts name the address, so the second one is at the same port
        port = int(claude.base_url.rpartition(":")[2].partition("/")[0])
        await claudes.enter_async_context(FakeAnthropic(FIRST, port=port))
        ids = chain((agent_id, execution_id), (str(uuid5(UUID(execution_id), f"child/{n}")) for n in count()))
        local = await LocalDriver(AGENT, tools=(look,), models=table, new_id=lambda: next(ids)).execute("go")
        check(local, gpt)
    assert_same_run(durable, local, ignoring=UNEQUAL)
