"""A real small model that is asked in words: what it does of typed answers and tools (docs/routes.md, as measured)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from holdfast import LLM, AgentDefinition, ExecutionStatus, StopReason
from holdfast.core.agent.model import Model, ModelRequest
from holdfast.core.agent.policies import ContextPolicy, JsonSchemaFormat, TextFormat
from holdfast.core.agent.token_bounds import MESSAGE_OVERHEAD, TOOL_OVERHEAD, request_tokens
from holdfast.core.conversation.messages import user_message
from holdfast.local import LocalDriver
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.models.prompted.model import PromptedModel
from holdfast.models.prompted.prompted_tools import FORM, SEVERAL, TOOLS_HEADING
from holdfast.testing import ScriptedModel, assert_completed, assert_every_call_answered, call, say
from tests.engines.engine import Llama
from tests.engines.forecast import weather

pytestmark = [pytest.mark.temporal, pytest.mark.engines]

STEADY = LLM(temperature=0, max_output_tokens=60)
TOWN = JsonSchemaFormat(
    json_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
)
QUESTION = "Name a city."
RAIN = "rain in Rome"


@pytest.fixture
async def raw(engine: Llama) -> AsyncGenerator[OpenAIChat]:
    model = OpenAIChat(ProviderSettings(base_url=engine.base_url, model="smollm2"))
    yield model
    await model.close()


@pytest.mark.slow
async def test_a_tool_is_called_in_words_where_the_conversation_shows_how(raw: OpenAIChat) -> None:
    """A model of 135 million parameters follows examples, not descriptions."""
    agent = AgentDefinition(name="forecaster", llm=STEADY, tools=("weather",), context=ContextPolicy(view="all"))
    script = [
        turn
        for city in ("Rome", "Oslo")
        for turn in (call("weather", city=city), say(f"The weather in {city} is snow."))
    ]
    state = None
    for city in ("Rome", "Oslo"):
        shown = LocalDriver(agent, model=ScriptedModel(script), tools=[weather])
        state = await shown.execute(f"What is the weather in {city}?", state=state)
    driver = LocalDriver(agent, model=PromptedModel(raw, ["stream"]), tools=[weather])
    state = await driver.execute("What is the weather in Paris?", state=state)
    assert_completed(state)
    assert_every_call_answered(state)
    called = state.step_executions[0].step.tool_executions[0]
    assert (called.call.name, called.call.arguments, called.result) == ("weather", {"city": "Paris"}, "snow in Paris")
    assert "snow" in state.final_response


@pytest.mark.slow
async def test_json_mode_gives_json_and_the_schema_of_the_prompt_is_checked(raw: OpenAIChat) -> None:
    for capability in ("json_schema", "json_object"):
        response = await PromptedModel(raw, ["stream", capability])(_asked())
        assert isinstance(json.loads(response.text), dict)


@pytest.mark.slow
async def test_what_it_cannot_write_is_asked_for_only_so_often(raw: OpenAIChat) -> None:
    agent = AgentDefinition(name="namer", llm=STEADY, tools=(), response_format=TOWN)
    state = await LocalDriver(agent, model=PromptedModel(raw, ["stream"])).execute(QUESTION)
    if state.status is ExecutionStatus.COMPLETED:
        assert "city" in json.loads(state.final_response)
    else:
        assert state.stop_reason in {StopReason.RETRY_LIMIT, StopReason.FINISH_REASON}
        assert state.final_response == ""


@pytest.mark.slow
async def test_the_form_takes_no_more_tokens_than_a_budget_reserves(raw: OpenAIChat) -> None:
    words = f"{TOOLS_HEADING}\n\n{FORM} {SEVERAL}\n\nCall a tool now."
    plain = await _input_tokens(raw, replace(_asked(), response_format=TextFormat()))
    told = await _input_tokens(raw, replace(_asked(), response_format=TextFormat(), system_prompt=words))
    assert told - plain <= TOOL_OVERHEAD + MESSAGE_OVERHEAD
    for tools in ((), (weather.schema,)):
        asked = replace(_asked(), tools=tools)
        assert await _input_tokens(PromptedModel(raw, ["stream"]), asked) <= request_tokens(asked)


async def _input_tokens(model: Model, request: ModelRequest) -> int:
    return (await model(replace(request, max_output_tokens=1))).usage.input_tokens


def _asked() -> ModelRequest:
    return ModelRequest(
        llm=STEADY,
        system_prompt="",
        messages=(user_message(QUESTION),),
        tools=(),
        max_output_tokens=60,
        response_format=TOWN,
    )
