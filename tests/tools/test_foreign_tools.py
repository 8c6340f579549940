"""Tools of OpenAI Agents, Pydantic AI and LangChain, called by agents of ours: schemas, results, errors, refusals."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Annotated, Any

import pytest

from holdfast import Toolset
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.errors import InvalidInput
from holdfast.core.conversation.steps import ToolExecution
from holdfast.core.tools.tools import AnyTool
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel, call, say
from holdfast.tools import from_langchain, from_openai_agents, from_pydantic_ai
from tests.serving import Serve

agents = pytest.importorskip("agents", reason="openai-agents is not installed")
pydantic_ai = pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim is not installed")
langchain = pytest.importorskip("langchain_core.tools", reason="langchain-core is not installed")

DEFINITION = AgentDefinition(name="caller", tools="all")


def the(toolset: Toolset, name: str = "weather") -> AnyTool:
    return next(each for each in toolset.tools if each.name == name)


async def called(toolset: Toolset, name: str = "weather", **arguments: Any) -> ToolExecution:  # noqa: ANN401  # JSON
    model = ScriptedModel([call(name, **arguments), say("done")])
    state = await LocalDriver(DEFINITION, model=model, tools=toolset.tools).execute("Do it.")
    assert state.status is ExecutionStatus.COMPLETED
    return state.steps[0].tool_executions[0]


def weather(city: str, days: int = 1) -> dict[str, Any]:
    """Tell the weather of a city."""
    if city == "Atlantis":
        raise ValueError("there is no Atlantis")
    return {"city": city, "days": days, "thread": threading.current_thread() is threading.main_thread()}


async def async_weather(city: str, days: int = 1) -> dict[str, Any]:
    """Tell the weather of a city."""
    await asyncio.sleep(0)
    return weather(city, days)


def openai_agents_tools(function: Callable[..., Any]) -> Toolset:
    made = agents.function_tool(function, name_override="weather", failure_error_function=None)
    return from_openai_agents([made])


def pydantic_ai_tools(function: Callable[..., Any]) -> Toolset:
    return from_pydantic_ai([pydantic_ai.Tool(function, name="weather")])


def langchain_tools(function: Callable[..., Any]) -> Toolset:
    return from_langchain([langchain.tool("weather")(function)])


each_framework = pytest.mark.parametrize("made", [openai_agents_tools, pydantic_ai_tools, langchain_tools])
each_kind = pytest.mark.parametrize("function", [weather, async_weather])


@each_framework
@each_kind
async def test_a_tool_keeps_its_name_description_schema_and_result(
    made: Callable[[Callable[..., Any]], Toolset], function: Callable[..., Any]
) -> None:
    toolset = made(function)
    schema = the(toolset).schema
    assert schema.description == "Tell the weather of a city."
    assert isinstance(properties := schema.parameters["properties"], dict)
    assert list(properties) == ["city", "days"]
    assert isinstance(required := schema.parameters["required"], list)
    assert "city" in required
    execution = await called(toolset, city="Oslo", days=3)
    assert isinstance(value := execution.value, dict)
    assert (value["city"], value["days"]) == ("Oslo", 3)
    assert value["thread"] is (function is async_weather)  # a plain function runs in a thread


@each_framework
async def test_an_exception_is_an_error_for_the_model(made: Callable[[Callable[..., Any]], Toolset]) -> None:
    execution = await called(made(weather), city="Atlantis", days=1)
    assert execution.error is not None
    assert "there is no Atlantis" in execution.answer.text


@each_framework
async def test_arguments_that_break_the_schema_are_an_error_and_the_tool_is_not_called(
    made: Callable[[Callable[..., Any]], Toolset],
) -> None:
    seen: list[object] = []

    def weather(city: str, days: int = 1) -> str:
        """Tell the weather of a city."""
        seen.append((city, days))
        return city

    execution = await called(made(weather), city="Oslo", days="many")
    assert execution.error is not None
    assert execution.error.type == "InvalidArguments"
    assert "days" in execution.error.message
    assert seen == []


# --- OpenAI Agents


def described(_: object, error: object) -> str:
    return f"no luck: {error}"


async def test_the_text_of_a_failure_function_is_the_error() -> None:
    own = agents.function_tool(weather, failure_error_function=described)
    execution = await called(from_openai_agents([own]), city="Atlantis", days=1)
    assert execution.error is not None
    assert (execution.error.type, execution.error.message) == ("ToolFailed", "no luck: there is no Atlantis")
    usual = await called(from_openai_agents([agents.function_tool(weather)]), city="Atlantis", days=1)
    assert usual.error is not None
    assert usual.error.message.startswith("An error occurred while running the tool.")


async def test_a_tool_of_openai_agents_gets_its_context_and_the_id_of_the_call() -> None:
    def whose(context: Any) -> list[str]:  # noqa: ANN401  # a ToolContext
        """Tell whose call it is."""
        return [context.context, context.tool_call_id]

    whose.__annotations__["context"] = import_module("agents.tool_context").ToolContext[Any]
    toolset = from_openai_agents([agents.function_tool(whose)], context="mine")
    execution = await called(toolset, "whose")
    assert execution.value == ["mine", execution.call.id]


def test_tools_that_need_the_runner_of_openai_are_refused() -> None:
    with pytest.raises(InvalidInput, match="WebSearchTool is no function tool"):
        from_openai_agents([agents.WebSearchTool()])
    asking = agents.function_tool(weather, needs_approval=True)
    with pytest.raises(InvalidInput, match="'weather' asks for approval"):
        from_openai_agents([asking])
    assert the(from_openai_agents([asking], approved_by_rules=True))
    with pytest.raises(InvalidInput, match="a function as is_enabled"):
        from_openai_agents([agents.function_tool(weather, is_enabled=described)])
    assert from_openai_agents([agents.function_tool(weather, is_enabled=False)]).tools == ()


# --- Pydantic AI


async def test_a_model_retry_of_pydantic_ai_has_the_model_try_again_as_ours_does() -> None:
    def guess(number: int) -> str:
        if number < 5:
            raise pydantic_ai.ModelRetry("too small")
        return "right"

    model = ScriptedModel([call("guess", number=1), call("guess", number=7), say("done")])
    toolset = from_pydantic_ai([guess])
    state = await LocalDriver(DEFINITION, model=model, tools=toolset.tools).execute("Do it.")
    first, second = (step.tool_executions[0] for step in state.steps[:2])
    assert first.error is not None
    assert (first.error.type, first.answer.text) == ("ModelRetry", "too small")
    assert second.answer.text == "right"


async def test_toolsets_of_pydantic_ai_come_with_their_prefixes_dependencies_and_prepare_functions() -> None:
    inner = pydantic_ai.FunctionToolset()

    def who(context: Any, greeting: str) -> str:  # noqa: ANN401  # a RunContext
        return f"{greeting} {context.deps} {context.tool_call_id}"

    who.__annotations__["context"] = pydantic_ai.RunContext[str]
    inner.tool(who)
    toolset = from_pydantic_ai(inner.prefixed("my"), deps="Ann")
    assert [each.name for each in toolset.tools] == ["my_who"]
    execution = await called(toolset, "my_who", greeting="Hello")
    assert execution.answer.text == f"Hello Ann {execution.call.id}"


async def test_a_tool_return_of_pydantic_ai_gives_its_value_and_what_it_adds() -> None:
    def plain() -> Any:  # noqa: ANN401  # any
        return pydantic_ai.ToolReturn(return_value={"a": 1}, metadata={"hidden": True})

    def more() -> Any:  # noqa: ANN401  # any
        return pydantic_ai.ToolReturn(return_value={"a": 1}, content="look")

    toolset = from_pydantic_ai([plain, more])
    assert (await called(toolset, "plain")).value == {"a": 1}
    assert (await called(toolset, "more")).value == {"result": {"a": 1}, "content": "look"}


def test_tools_that_pydantic_ai_leaves_to_others_are_refused() -> None:
    asking = pydantic_ai.Tool(weather, requires_approval=True)
    with pytest.raises(InvalidInput, match="'weather' asks for approval"):
        from_pydantic_ai([asking])
    assert the(from_pydantic_ai([asking], approved_by_rules=True))
    outside = pydantic_ai.ExternalToolset([pydantic_ai.ToolDefinition(name="away")])
    with pytest.raises(InvalidInput, match="'away' of Pydantic AI runs outside"):
        from_pydantic_ai(outside)
    with pytest.raises(InvalidInput, match="int is no tool of Pydantic AI"):
        from_pydantic_ai([3])


def test_a_toolset_that_cannot_list_its_tools_is_refused_with_the_cause() -> None:
    class Away(pydantic_ai.FunctionToolset):  # type: ignore[misc, name-defined]
        async def get_tools(self, ctx: object) -> Any:  # noqa: ANN401, ARG002  # of Pydantic AI
            raise ConnectionError("the server is away")

    with pytest.raises(InvalidInput, match=r"cannot be listed \(ConnectionError: the server is away\)"):
        from_pydantic_ai(Away())


# --- LangChain


@pytest.mark.parametrize(("handling", "text"), [(True, "no such city"), ("ask another", "ask another")])
async def test_a_tool_exception_of_langchain_is_an_error_however_it_is_handled(handling: object, text: str) -> None:
    def weather(city: str) -> str:
        """Tell the weather of a city."""
        raise langchain.ToolException(f"no such city: {city}")

    made = langchain.StructuredTool.from_function(weather, handle_tool_error=handling)
    execution = await called(from_langchain([made]), city="Atlantis")
    assert execution.error is not None
    assert execution.error.type == "ToolFailed"
    assert execution.error.message.startswith(text)


async def test_a_tool_of_langchain_gets_what_is_injected_and_its_artifact_is_dropped() -> None:
    def weather(city: str, call_id: Annotated[str, langchain.InjectedToolCallId]) -> tuple[str, object]:
        """Tell the weather of a city."""
        return f"{city} {call_id}", object()

    made = langchain.StructuredTool.from_function(weather, response_format="content_and_artifact")
    toolset = from_langchain([made])
    assert isinstance(properties := the(toolset).schema.parameters["properties"], dict)
    assert list(properties) == ["city"]
    execution = await called(toolset, city="Oslo")
    assert execution.answer.text == f"Oslo {execution.call.id}"


async def test_a_model_can_not_give_a_tool_of_langchain_what_is_injected() -> None:
    def weather(city: str, user: Annotated[str, langchain.InjectedToolArg] = "nobody") -> str:
        """Tell the weather of a city."""
        return f"{city} for {user}"

    toolset = from_langchain([langchain.StructuredTool.from_function(weather)])
    assert (await called(toolset, city="Oslo")).result == "Oslo for nobody"
    execution = await called(toolset, city="Oslo", user="admin")
    assert execution.error is not None
    assert (execution.error.type, execution.error.message) == ("InvalidArguments", "weather has no argument 'user'")


async def test_a_long_result_of_langchain_is_cut_as_any_other() -> None:
    def weather(city: str) -> str:
        """Tell the weather of a city."""
        return city * 500_000

    execution = await called(from_langchain([langchain.StructuredTool.from_function(weather)]), city="Oslo")
    assert str(execution.result).endswith("[cut: the beginning of 2,000,000 characters]")


async def test_a_toolkit_of_langchain_is_taken_whole() -> None:
    class Kit(langchain.BaseToolkit):  # type: ignore[misc, name-defined]
        def get_tools(self) -> list[Any]:
            return [langchain.tool("weather")(weather)]

    assert (await called(from_langchain(Kit()), city="Oslo")).error is None
    with pytest.raises(InvalidInput, match="int is no tool of LangChain"):
        from_langchain([3])


# --- all of them


def _two(tools: Iterable[object]) -> Toolset:
    return from_pydantic_ai([*tools, pydantic_ai.FunctionToolset([weather])])


def test_two_tools_of_one_name_and_a_name_that_no_tool_can_have_are_refused() -> None:
    with pytest.raises(InvalidInput, match="two tools are called 'weather'"):
        _two([weather])
    with pytest.raises(InvalidInput, match=r"the tool 'a b' of LangChain: 'a b' cannot name a tool"):
        from_langchain([langchain.tool("a b")(weather)])


def test_options_hold_for_every_tool() -> None:
    toolset = from_langchain([langchain.tool("weather")(weather)], at_most_once=True, timeout_seconds=7)
    traits = the(toolset).traits
    assert (traits.at_most_once, traits.attempts_max, traits.timeout_seconds) == (True, 1, 7)


@pytest.mark.temporal
@each_framework
async def test_on_temporal_they_are_activities_as_any_tool(
    serve: Serve, made: Callable[[Callable[..., Any]], Toolset]
) -> None:
    script = [call("weather", city="Oslo", days=2), call("weather", city="Atlantis", days=1), say("done")]
    async with serve(script, made(weather).tools) as served:
        result = await served.client.run(DEFINITION, "Do it.")
    first, second = (step.tool_executions[0] for step in result.state.steps[:2])
    assert isinstance(first.value, dict)
    assert first.value["city"] == "Oslo"
    assert second.error is not None
    assert "there is no Atlantis" in second.answer.text
