"""What each of llama.cpp's addresses is asked alike: a run with a tool, and an answer in a schema."""

from __future__ import annotations

from holdfast import AgentDefinition, tool
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.policies import JsonSchemaFormat
from holdfast.core.agent.state import AgentState
from holdfast.local import LocalDriver
from holdfast.models import Model
from holdfast.testing import assert_every_call_answered

FORECASTER = AgentDefinition(name="forecaster", llm=LLM(temperature=0, max_output_tokens=60), tools=("weather",))

TOWN = JsonSchemaFormat(
    name="town",
    json_schema={
        "type": "object",
        "properties": {"city": {"const": "Paris"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    strict=True,
)


@tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"snow in {city}"


async def forecast_by(model: Model) -> AgentState:
    """Return the run in which the model asks for the weather in Paris and answers with it; else AssertionError."""
    state = await LocalDriver(FORECASTER, tools=[weather], model=model).execute("What is the weather in Paris?")
    first = state.step_executions[0].step.tool_executions[0]
    assert (first.call.arguments, first.result) == ({"city": "Paris"}, "snow in Paris")
    assert_every_call_answered(state)
    assert "snow" in state.final_response
    return state
