"""A real engine: llama.cpp with a model of 135 million parameters, which answers in its own words and shapes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from pydantic import JsonValue

from holdfast import AgentDefinition, ExecutionBudget, ExecutionStatus, StopReason
from holdfast.client import Settings
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import ModelRequest
from holdfast.core.agent.policies import JsonSchemaFormat
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ExecutionFailed
from holdfast.core.conversation.messages import Message
from holdfast.core.tools.tools import AnyTool
from holdfast.local import LocalDriver
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.testing import Call, ScriptedModel, assert_every_call_answered, calls, say
from tests.engines.engine import Llama, working
from tests.engines.forecast import weather

pytestmark = [pytest.mark.temporal, pytest.mark.engines]

STEADY = LLM(temperature=0, max_output_tokens=60)
WORDS = AgentDefinition(name="talker", llm=STEADY, tools=())
UNUSUAL = 'Grüße 😀 aus 東京, "نعم" 👩‍👩‍👧 \\ 𝄞'
GOES_ON = 1_000
"""Tokens that take the engine far longer than it takes us to stop it."""


@pytest.mark.slow
async def test_an_agent_answers_in_words_and_counts_what_the_engine_counts(settings: Settings, engine: Llama) -> None:
    made, read = engine.tokens_made, engine.tokens_read
    async with working(settings, engine.base_url) as client:
        state = await client.run(WORDS, "Say hello to the world.")
    assert state.status is ExecutionStatus.COMPLETED
    assert state.state.final_response.strip()
    assert state.usage.output_tokens == engine.tokens_made - made > 0
    assert state.usage.input_tokens == engine.tokens_read - read > 0


@pytest.mark.slow
async def test_a_tool_call_of_the_engine_runs_and_its_result_is_told(settings: Settings, engine: Llama) -> None:
    agent = AgentDefinition(name="forecaster", llm=STEADY, tools=("weather",))
    async with working(settings, engine.base_url, [weather]) as client:
        state = await client.run(agent, "What is the weather in Paris?", budget=ExecutionBudget(max_steps=4))
    first = state.state.step_executions[0].step.tool_executions[0]
    assert (first.call.name, first.call.arguments) == ("weather", {"city": "Paris"})
    assert first.result == "snow in Paris"
    assert_every_call_answered(state.state)
    assert state.status is ExecutionStatus.COMPLETED
    assert "snow" in state.state.final_response


@pytest.mark.slow
async def test_an_answer_in_a_schema_holds_to_it_whatever_characters_it_has(settings: Settings, engine: Llama) -> None:
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"city": {"const": UNUSUAL}, "people": {"type": "integer"}},
        "required": ["city", "people"],
        "additionalProperties": False,
    }
    form = JsonSchemaFormat(name="town", json_schema=schema, strict=True)
    agent = AgentDefinition(name="namer", llm=LLM(temperature=0, max_output_tokens=200), tools=(), response_format=form)
    async with working(settings, engine.base_url) as client:
        state = await client.run(agent, "Name a city and how many people live there.")
    assert state.status is ExecutionStatus.COMPLETED
    answer = json.loads(state.state.final_response)
    assert answer["city"] == UNUSUAL
    assert isinstance(answer["people"], int)


@pytest.mark.slow
async def test_a_conversation_beyond_the_engines_context_fails_once_and_says_so(
    settings: Settings, engine: Llama
) -> None:
    made = engine.tokens_made
    async with working(settings, engine.base_url) as client:
        with pytest.raises(ExecutionFailed, match=r"exceed_context_size|exceeds the available context") as failed:
            await client.run(WORDS, "word " * 3_000)
    assert failed.value.state is not None
    assert [error.type for error in AgentState.from_dict(failed.value.state).errors] == ["ContextTooLong"]
    assert engine.tokens_made == made


@pytest.mark.slow
async def test_an_answer_never_gets_longer_than_the_budget_leaves_room_for(
    settings: Settings, endless_engine: Llama
) -> None:
    made = endless_engine.tokens_made
    async with working(settings, endless_engine.base_url) as client:
        state = await client.run(
            AgentDefinition(name="endless", tools=()), "Count.", budget=ExecutionBudget(max_tokens=90)
        )
    assert 0 < endless_engine.tokens_made - made == state.usage.output_tokens
    assert state.usage.total_tokens <= 90


@pytest.mark.slow
async def test_a_stop_ends_the_generation_in_the_engine(settings: Settings, endless_engine: Llama) -> None:
    made = endless_engine.tokens_made
    agent = AgentDefinition(name="endless", llm=LLM(max_output_tokens=GOES_ON), tools=())
    async with working(settings, endless_engine.base_url) as client:
        execution_id = await client.start(agent, "Tell a long story.")
        await asyncio.to_thread(endless_engine.wait_until, lambda engine: engine.busy == 1)
        await client.stop(execution_id, "enough")
        state = await client.result(execution_id)
        await asyncio.to_thread(endless_engine.wait_until, lambda engine: engine.busy == 0)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
    assert endless_engine.tokens_made - made < GOES_ON


@pytest.mark.slow
async def test_a_time_limit_ends_the_generation_in_the_engine(settings: Settings, endless_engine: Llama) -> None:
    made = endless_engine.tokens_made
    agent = AgentDefinition(name="endless", llm=LLM(max_output_tokens=GOES_ON), tools=())
    async with working(settings, endless_engine.base_url) as client:
        state = await client.run(agent, "Tell a long story.", budget=ExecutionBudget(max_seconds=4))
        await asyncio.to_thread(endless_engine.wait_until, lambda engine: engine.busy == 0)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)
    assert endless_engine.tokens_made - made < GOES_ON


@pytest.mark.slow
async def test_more_agents_than_the_engine_answers_at_a_time_wait_their_turn(settings: Settings, engine: Llama) -> None:
    short = AgentDefinition(name="brief", llm=LLM(temperature=0, max_output_tokens=5), tools=())
    async with working(settings, engine.base_url) as client:
        states = await asyncio.gather(*(client.run(short, f"Say {number}.") for number in range(8)))
    assert {state.status for state in states} == {ExecutionStatus.COMPLETED}


@pytest.mark.slow
async def test_a_conversation_with_a_broken_tool_call_is_one_that_the_engine_takes(engine: Llama) -> None:
    """As it came, llama.cpp refuses it for ever with status 500."""
    script = ScriptedModel([calls(Call("weather", '{"city": "Par')), say("sorry")])
    driver = LocalDriver(AgentDefinition(name="cut", tools="all"), model=script, tools=[weather])
    state = await driver.execute("What is the weather in Paris?")
    assert_every_call_answered(state)
    model = OpenAIChat(ProviderSettings(base_url=engine.base_url, model="smollm2"))
    try:
        response = await model(_asked(state.messages[:-1], [weather]))
    finally:
        await model.close()
    assert response.usage.output_tokens > 0


def _asked(messages: Sequence[Message], tools: Sequence[AnyTool]) -> ModelRequest:
    return ModelRequest(
        llm=STEADY,
        system_prompt="",
        messages=messages,
        tools=tuple(each.schema for each in tools),
        max_output_tokens=20,
    )
