"""The tools that the server lists."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, JsonValue

from holdfast import AgentDefinition
from holdfast.core.agent.answer_types import format_of
from holdfast.core.base.errors import InvalidInput
from holdfast.mcp_serve.tool_listing import AGENTS_OFFERED_MAX, check_offered, listed_tools
from holdfast.runtime.json_schema import schema_problems


class Line(BaseModel):
    """A line of a bill."""

    what: str
    below: list[Line] = []


class Bill(BaseModel):
    """A bill."""

    lines: list[Line]


def test_an_agents_form_and_a_handle_both_fit_its_schema_and_nothing_else_does() -> None:
    [tool, *_] = listed_tools([AgentDefinition(name="biller", response_format=format_of(Bill))])
    assert tool.output_schema is not None
    Draft202012Validator.check_schema(tool.output_schema)
    schema = tool.output_schema

    def fits(value: JsonValue) -> bool:
        return not schema_problems(value, schema, foreign=True)

    assert fits({"lines": [{"what": "tea", "below": [{"what": "milk", "below": []}]}]})
    assert fits({"run_id": "x", "status": "running", "step": 1, "waiting": []})
    assert not fits({"lines": [{"what": 5, "below": []}]})
    assert not fits({"run_id": "x"})


def test_an_agent_without_a_form_promises_none() -> None:
    [tool, get_run, stop_run] = listed_tools([AgentDefinition(name="clerk")])
    assert tool.output_schema is None
    assert tool.description == "Ask the agent clerk."
    assert get_run.annotations is not None
    assert get_run.annotations.read_only_hint
    assert stop_run.annotations is not None
    assert stop_run.annotations.destructive_hint
    for each in (tool, get_run, stop_run):
        Draft202012Validator.check_schema(each.input_schema)
        assert each.input_schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ([], "there are no agents to offer"),
        (["stop_run"], "an agent is called 'stop_run'"),
        ([f"a{number}" for number in range(AGENTS_OFFERED_MAX + 1)], "101 agents are offered, at most 100"),
    ],
)
def test_what_cannot_be_offered_is_refused(names: list[str], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        check_offered(names)
