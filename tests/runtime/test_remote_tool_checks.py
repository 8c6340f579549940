"""What our side does for tools that are served elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.bounds import MALFORMED_CHARS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.tools.remote_tools import RemoteTool, remote_tool
from holdfast.core.tools.tools import tool
from holdfast.local import LocalDriver
from holdfast.runtime.remote_tool_checks import check_schemas, checked_calls
from holdfast.testing.script import say
from holdfast.testing.scripted_model import ScriptedModel


def far(**properties: Any) -> RemoteTool:  # noqa: ANN401  # JSON Schema
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": list(properties)}
    return remote_tool(name="far", description="d", parameters=schema, task_queue="gpu")


@tool
def near(n: int) -> int:
    """Return it."""
    return n


def asked(*calls: ToolCall) -> InferenceResponse:
    return InferenceResponse(text="", tool_calls=calls, finish_reason="tool_calls", model="m")


def test_the_in_process_driver_refuses_a_tool_that_it_cannot_call() -> None:
    agent = AgentDefinition(name="local", tools=("far",))
    with pytest.raises(InvalidInput, match="'far' is served by another worker, on the task queue 'gpu'; here give"):
        LocalDriver(agent, model=ScriptedModel([say("-")]), tools=[far(), near])
    LocalDriver(AgentDefinition(name="local", tools=("near",)), model=ScriptedModel([say("-")]), tools=[far(), near])


def test_a_schema_that_nothing_could_be_checked_against_is_refused_before_anything_starts() -> None:
    check_schemas([near, far(n={"type": "integer"})])
    with pytest.raises(InvalidInput, match=r"tool 'far': its JSON Schema: .*'number of days' is not valid"):
        check_schemas([far(n={"type": "number of days"})])


def test_calls_that_do_not_fit_are_marked_and_others_are_left_alone() -> None:
    tools = [near, far(n={"type": "integer"})]
    fits, misfit = ToolCall(id="1", name="far", arguments={"n": 1}), ToolCall(id="2", name="far", arguments={"n": "x"})
    other, broken = ToolCall(id="3", name="near", arguments={"n": "x"}), ToolCall(id="4", name="far", malformed="cut")
    marked = checked_calls(asked(fits, misfit, other, broken), tools).tool_calls
    assert [call.malformed for call in marked] == [None, "$.n: 'x' is not of type 'integer'", None, "cut"]
    assert marked[1].arguments == {"n": "x"}
    plain = asked(other)
    assert checked_calls(plain, tools) is plain


def test_what_is_said_about_a_misfit_is_bounded() -> None:
    call = ToolCall(id="1", name="far", arguments={f"n{i}": "x" * 1_000 for i in range(10)})
    tools = [far(**{f"n{i}": {"type": "integer"} for i in range(10)})]
    (marked,) = checked_calls(asked(call), tools).tool_calls
    assert marked.malformed is not None
    assert len(marked.malformed) <= MALFORMED_CHARS_MAX
