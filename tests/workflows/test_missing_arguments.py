"""A call that lacks an argument is refused before anything of it is scheduled, and the model is told."""

from __future__ import annotations

import pytest

from holdfast import AgentDefinition, AgentState, tool
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.steps import Outcome
from holdfast.core.tools.remote_tools import remote_tool
from holdfast.core.tools.tool_traits import REQUIRED_ARGUMENTS_MAX, missing_arguments
from holdfast.local import LocalDriver
from holdfast.testing.script import Call, calls, say
from holdfast.testing.scripted_model import ScriptedModel
from tests.serving import Serve
from tests.workflows.histories import history_of

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition.model_validate({"name": "clerk", "tools": "all", "approvals": [{"tools": ["pay"]}]})
SCRIPT = [calls(Call("pay", {"cents": 5}), Call("look", {}), Call("elsewhere", {})), say("done")]


@tool
def pay(to: str, cents: int, note: str = "") -> str:
    """Pay."""
    return f"{to} {cents} {note}"


@tool
def look(what: str) -> str:
    """Look."""
    return what


ELSEWHERE = remote_tool(
    name="elsewhere",
    description="Elsewhere.",
    parameters={"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
    task_queue="nobody-serves-it",
)


def answers(state: AgentState) -> list[tuple[str, str]]:
    return [(each.outcome.value, each.error.message if each.error else "") for each in state.steps[0].tool_executions]


async def test_a_call_without_a_required_argument_is_no_activity_and_waits_for_nobody(serve: Serve) -> None:
    model = ScriptedModel([calls(Call("pay", {"cents": 5}), Call("look", {})), say("done")])
    local = await LocalDriver(AGENT, model=model, tools=[pay, look]).execute("pay")
    async with serve(SCRIPT, offer=Toolset(tools=(pay, look, ELSEWHERE))) as served:
        execution_id = await served.client.start(AGENT, "pay")
        durable = await served.client.result(execution_id)
        events = (await history_of(served.client, execution_id)).events
    scheduled = [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
    assert set(scheduled) <= {"inference", "record_execution"}, "no call was scheduled"
    refused = [(Outcome.FAILED.value, "to: Field required"), (Outcome.FAILED.value, "what: Field required")]
    assert answers(local) == refused
    assert answers(durable)[:2] == refused
    told = [
        message["content"] for message in served.endpoint.requests[-1].body["messages"] if message["role"] == "tool"
    ]
    assert told[:2] == [
        "Error (InvalidArguments): to: Field required",
        "Error (InvalidArguments): what: Field required",
    ]


def test_a_tool_tells_which_arguments_it_requires_within_a_bound() -> None:
    assert (pay.traits.required, look.traits.required, ELSEWHERE.traits.required) == (
        ("to", "cents"),
        ("what",),
        ("x",),
    )
    many = remote_tool(
        name="many",
        description="Many.",
        parameters={"type": "object", "required": [f"a{n}" for n in range(REQUIRED_ARGUMENTS_MAX + 1)]},
        task_queue="q",
    )
    assert many.traits.required == ()
    assert missing_arguments(pay.traits, {"to": None, "cents": 1}) is None, "what a value must be, the tool says"
    assert missing_arguments(pay.traits, {}) == "to: Field required; cents: Field required"
