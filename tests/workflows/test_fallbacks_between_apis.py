"""A run that begins on an Anthropic route and ends on one of OpenAI's, on a real server and in-process.

In the second one the worker is killed as well: after its endpoint, and before the other one has answered.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4, uuid5

import pytest

from holdfast import LLM, AgentDefinition, tool
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.local import LocalDriver
from holdfast.models.routed_model import RoutedModel
from holdfast.models.routes import Route
from holdfast.testing import Reply, ScriptedModel, assert_same_run, call, say
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.holds import Hold
from holdfast.testing.openai_server import FakeOpenAI
from tests.chaos.processes import worker
from tests.chaos.tools import note
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


@pytest.mark.slow
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


NOTER = AGENT.model_copy(update={"name": "noter", "tools": ("note",), "model_patience_seconds": 0})


def noting(cut: Hold) -> list[Reply]:
    """What Anthropic's endpoint says; its third answer stands in the middle until the test ends it."""
    half = say("half of an answer that", piece_chars=4, pieces_max=6, hold=cut)
    return [call("note", text="one", seconds=0.01), call("note", text="two", seconds=0.01), half]


@pytest.mark.slow
async def test_a_run_that_loses_its_provider_in_an_answer_and_then_its_worker_ends_with_another_one(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, models = tmp_path / "ledger.jsonl", tmp_path / "models.yaml"
    monkeypatch.setenv("HOLDFAST_LEDGER", str(ledger))
    agent_id, execution_id = str(uuid4()), str(uuid4())
    cut, asked, claudes = Hold(), Hold(), AsyncExitStack()
    async with claudes, FakeOpenAI([*SECOND[:2], say("both are there", hold=asked)]) as gpt:
        claude = await claudes.enter_async_context(FakeAnthropic(noting(cut)))
        table = routes(claude, gpt)
        models.write_text(json.dumps({"models": table}))  # JSON is YAML, too
        told = {"HOLDFAST_MODELS": str(models)}
        client = await Holdfast.connect(settings)
        async with worker(settings, gpt, ledger, told) as first:
            await client.start(NOTER, "go", agent_id=agent_id, execution_id=execution_id)
            await _end_in_its_answer(cut, claudes)
            await asked.until_held()  # the step has fallen back, and the other endpoint is about to answer
            first.kill()
        asked.release()
        async with worker(settings, gpt, ledger, told):
            durable = await client.result(execution_id)
        await replayed(client, execution_id)
        assert isinstance(durable, AgentState)
        assert (len(claude.requests), len(gpt.requests)) == (3, 2)

        # the error texts name the address, so the second one is at the same port
        cut, port = Hold(), int(claude.base_url.rpartition(":")[2].partition("/")[0])
        await claudes.enter_async_context(FakeAnthropic(noting(cut), port=port))
        ids = chain((agent_id, execution_id), (str(uuid5(UUID(execution_id), f"child/{n}")) for n in count()))
        driver = LocalDriver(NOTER, tools=(note,), models=table, new_id=lambda: next(ids))
        running = asyncio.create_task(driver.execute("go"))
        await _end_in_its_answer(cut, claudes)
        local = await running
    for state in (durable, local):
        assert [each.route for each in answers_of(state)] == ["claude", "claude", "gpt"]
        assert [(each.route, each.to, each.error.type) for each in state.steps[2].fallbacks] == [
            ("claude", "gpt", "ProviderUnavailable")
        ]
    assert_same_run(durable, local, ignoring=UNEQUAL | {"overhead", "overhead_cost", "usage", "cost"})
    check_cost(durable, local)


async def _end_in_its_answer(cut: Hold, server: AsyncExitStack) -> None:
    """End the endpoint, with the connection over which it is answering."""
    await cut.until_held()
    cut.fail(ConnectionResetError("the endpoint was killed"))
    await server.aclose()


def answers_of(state: AgentState) -> list[InferenceResponse]:
    return [each.inference_response for each in state.steps if each.inference_response is not None]


def check_cost(durable: AgentState, local: AgentState) -> None:
    """Check what both runs cost by hand; the durable one has paid for the attempt of the killed worker, too."""
    for one, other in zip(answers_of(durable), answers_of(local), strict=True):
        assert (one.usage, one.cost) == (other.usage, other.cost)
    first, second, third = (each.usage for each in answers_of(durable))
    millionths = claude_price(first) + claude_price(second) + third.input_tokens * 2 + third.output_tokens * 8
    assert (third.input_tokens, third.output_tokens) == (100, 20)
    cut = local.steps[2].overhead  # what had come of the third answer
    assert cut.total_tokens > 0
    millionths += claude_price(cut)
    assert local.cost == pytest.approx(millionths / 1_000_000)
    both = durable.steps[2].overhead
    lost_input, lost_output = both.input_tokens - cut.input_tokens, both.output_tokens - cut.output_tokens
    assert lost_input > 0, "the other endpoint was asked, and nobody knows what it used"
    assert both.estimated_tokens - cut.estimated_tokens == lost_input + lost_output
    assert durable.cost == pytest.approx((millionths + lost_input * 2 + lost_output * 8) / 1_000_000)


def claude_price(used: Usage) -> float:
    """What that costs at the Anthropic route, in millionths of a US dollar."""
    parts = used.uncached_tokens * 3.0 + used.cached_tokens * 0.3 + used.cache_write_tokens * 3.75
    return parts + used.output_tokens * 15
