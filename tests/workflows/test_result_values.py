"""What tools return keeps its type: on a real server as in-process, from Python and from any other language."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel, JsonValue
from temporalio import activity
from temporalio.worker import Worker

from holdfast import AgentDefinition, AgentState, StopRun, remote_tool, tool
from holdfast.core.tools.tools import AnyTool
from holdfast.local import LocalDriver
from holdfast.testing import Call, ScriptedModel, calls, say
from tests.serving import Serve

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="teller", tools="all")


class Order(BaseModel):
    """An order."""

    number: int
    paid: bool = False


OURS: dict[str, JsonValue] = {"kind": "holdfast.reply"}
VALUES: tuple[JsonValue, ...] = ({"a": [1, None]}, [], 2.0, True, None, "words", '{"a": 1}', OURS, 1e400)


@tool
def tell(number: int) -> object:
    """Return a value."""
    return VALUES[number]


@tool(local=True, idempotent=True)
def tell_here(number: int) -> object:
    """Return a value within the workflow task."""
    return VALUES[number]


@tool
def find(number: int) -> Order:
    """Find an order."""
    return Order(number=number) if number else {"number": "none"}  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


@tool
def last() -> Order | StopRun:
    """Return an order, and end the run."""
    return StopRun({"number": 7, "paid": "yes"}, "found")


TURNS = [
    calls(*(Call("tell", {"number": number}) for number in range(len(VALUES)))),
    calls(*(Call("tell_here", {"number": number}) for number in range(len(VALUES)))),
    calls(Call("find", {"number": 5}), Call("find", {"number": 0})),
    calls(Call("last")),
    say("never said"),
]
TOOLS: tuple[AnyTool, ...] = (tell, tell_here, find, last)
READ: tuple[JsonValue, ...] = (*VALUES[:-1], "Infinity")


def told(state: AgentState) -> list[list[tuple[JsonValue, str | None, str]]]:
    return [[(each.value, each.result, each.result_type) for each in step.tool_executions] for step in state.steps]


@pytest.mark.slow
async def test_a_value_is_the_same_on_a_server_and_in_process(serve: Serve) -> None:
    here = await LocalDriver(AGENT, model=ScriptedModel(TURNS), tools=TOOLS).execute("tell")
    async with serve(TURNS, TOOLS) as served:
        there = (await served.client.run(AGENT, "tell")).state
    assert told(there) == told(here)
    for step in there.steps[:2]:
        values = [each.value for each in step.tool_executions]
        assert values == [*READ]
        assert [type(each) for each in values] == [type(each) for each in READ]
    found, misfit = there.steps[2].tool_executions
    assert (found.value, found.result) == ({"number": 5, "paid": False}, '{"number":5,"paid":false}')
    assert misfit.error is not None
    assert misfit.error.type == "InvalidResult"
    assert "the tool has run and had its effect" in misfit.error.message
    assert misfit.ran
    assert there.steps[3].tool_executions[0].value == {"number": 7, "paid": True}
    assert there.stop_signal is not None
    assert there.stop_signal.message == "found"


async def test_a_worker_of_another_language_returns_values_or_their_json_as_it_likes(serve: Serve) -> None:
    sent: tuple[Any, ...] = (
        {"n": 1},
        [1, "a"],
        None,
        "words",
        {"kind": "holdfast.reply", "type": "json", "text": '{"n": 1.0}'},
        {"kind": "holdfast.reply", "type": "json", "text": "no json"},
        {"kind": "holdfast.reply", "text": {"n": 1}},
    )
    queue = f"foreign-{uuid4()}"

    @activity.defn(name="far")
    async def far(arguments: dict[str, Any]) -> Any:  # noqa: ANN401  # any JSON
        return sent[arguments["n"]]

    declared = remote_tool(name="far", description="Far.", parameters={"type": "object"}, task_queue=queue)
    script = [calls(*(Call("far", {"n": number}) for number in range(len(sent)))), say("done")]
    async with serve(script, [declared]) as served, Worker(served.client.temporal, task_queue=queue, activities=[far]):
        state = (await served.client.run(AGENT, "far")).state
    assert told(state)[0] == [
        ({"n": 1}, '{"n":1}', "json"),
        ([1, "a"], '[1,"a"]', "json"),
        (None, "null", "json"),
        ("words", "words", "text"),
        ({"n": 1.0}, '{"n": 1.0}', "json"),
        ("no json", "no json", "text"),
        ({"n": 1}, '{"n":1}', "json"),
    ]
