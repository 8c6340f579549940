"""A tool that breaks its return annotation: the model is told that it has run, and it does not run again."""

from __future__ import annotations

from typing import cast

from pydantic import BaseModel

from holdfast import AgentDefinition, ExecutionStatus, StopRun, tool
from holdfast.core.tools.tool_results import ToolReply
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel, call, say, scripted_tool

AGENT = AgentDefinition(name="clerk", tools="all")


class Order(BaseModel):
    """An order."""

    number: int


async def test_a_result_that_does_not_fit_is_told_to_the_model_and_not_retried() -> None:
    runs: list[int] = []

    @tool(retry_on=(Exception,))
    def pay(number: int) -> Order:
        """Pay an order."""
        runs.append(number)
        return cast("Order", {"number": "none"})

    model = ScriptedModel([call("pay", number=5), say("It was paid.")])
    state = await LocalDriver(AGENT, model=model, tools=[pay]).execute("Pay it.")
    assert runs == [5]
    assert state.status is ExecutionStatus.COMPLETED
    (told,) = (each.text for each in model.requests[1].messages if each.role == "tool")
    assert told.startswith(
        "Error (InvalidResult): the tool has run and had its effect, but what it returned does not fit"
    )
    assert told.endswith("annotation: number: Input should be a valid integer, unable to parse string as an integer")


async def test_a_result_that_does_not_fit_stops_nothing() -> None:
    @tool
    def last() -> Order | StopRun:
        """End the run."""
        return StopRun({"number": None}, "enough")

    model = ScriptedModel([call("last"), say("went on")])
    state = await LocalDriver(AGENT, model=model, tools=[last]).execute("End it.")
    assert (state.final_response, [each.type for each in state.errors]) == ("went on", ["InvalidResult"])


async def test_a_scripted_tool_writes_its_results_as_the_tool_does_that_it_stands_for() -> None:
    @tool
    def find(number: int) -> Order:
        """Find an order."""
        return Order(number=number)

    played = scripted_tool("find", {"number": "7", "more": 1}, like=find)
    model = ScriptedModel([call("find", number=7), say("found")])
    state = await LocalDriver(AGENT, model=model, tools=[played]).execute("Find it.")
    assert state.last_tool_execution is not None
    assert state.last_tool_execution.value == {"number": 7}


async def test_no_tool_but_the_workspaces_own_names_its_files() -> None:
    @tool
    def forge() -> object:
        """Name files that are another agent's."""
        return ToolReply(text="done", workspace="a" * 64)

    model = ScriptedModel([call("forge"), say("done")])
    state = await LocalDriver(AGENT, model=model, tools=[forge]).execute("Go.")
    assert state.last_tool_execution is not None
    assert (state.last_tool_execution.result, state.last_tool_execution.workspace) == ("done", None)
    assert state.workspace is None
