"""What an agent is, as a value: what it accepts and what it refuses."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import CAPABILITIES_MAX, LLM, SUBAGENTS_MAX, AgentDefinition, name_of
from holdfast.core.agent.policies import Critique, Plan
from holdfast.core.base.bounds import HOOKS_MAX, TOOLS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import canonical
from holdfast.core.base.json_values import JSON_DEPTH_MAX
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.tools.tools import tool
from tests.core.defining import definitions

BY_RUBRIC = Critique(rubric="It is short.")

NESTED: Any = json.loads(JSON_DEPTH_MAX * "[" + JSON_DEPTH_MAX * "]")


@given(definitions)
def test_a_definition_survives_json(definition: AgentDefinition) -> None:
    assert AgentDefinition.model_validate_json(canonical(definition)) == definition


NEWER = {"answer_seconds": 604_800.0, "critique": None, "plan": None}


def test_newer_fields_that_are_as_by_default_take_no_room_and_are_read_where_they_stand() -> None:
    definition = AgentDefinition(name="helper")
    written = json.loads(canonical(definition))
    assert not NEWER.keys() & written.keys()
    assert AgentDefinition.model_validate(written) == definition
    assert AgentDefinition.model_validate({**written, **NEWER}) == definition
    other = AgentDefinition(name="helper", answer_seconds=60, capabilities=("plan",), plan=Plan(), critique=BY_RUBRIC)
    assert NEWER.keys() <= json.loads(canonical(other)).keys()
    assert AgentDefinition.model_validate_json(canonical(other)) == other


def test_a_name_is_all_it_needs() -> None:
    definition = AgentDefinition(name="helper")
    assert (definition.tools, definition.hooks) == ((), ())
    assert definition.budget == ExecutionBudget()
    assert definition.llm == LLM()


@pytest.mark.parametrize("field", ["tools", "hooks"])
def test_none_is_the_default_and_all_is_a_word(field: str) -> None:
    none = AgentDefinition.model_validate({"name": "a", field: []})
    every = AgentDefinition.model_validate({"name": "a", field: "all"})
    assert AgentDefinition.model_validate({"name": "a"}) == none
    assert getattr(every, field) == "all"
    assert AgentDefinition.model_validate_json(canonical(every)) == every
    assert AgentDefinition.model_validate(every.model_dump()) == every


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "name"),
    ({"name": ""}, "name"),
    ({"name": "two words"}, "name"),
    ({"name": "a\n"}, "name"),
    ({"name": "x" * 65}, "name"),
    ({"name": "größe"}, "name"),
    ({"name": "a", "tool": ["add"]}, "tool"),
    ({"name": "a", "tools": ["no good"]}, r"tools\.0"),
    ({"name": "a", "tools": None}, r"tools\n.* write \[\] for none, or `tools: all`"),
    ({"name": "a", "tools": "add"}, r"tools\n.*'add' is not a list of names; write `tools: \[add\]`"),
    ({"name": "a", "tools": ["all"]}, r"tools\n.*'all' cannot be an item"),
    ({"name": "a", "hooks": "every"}, r"hooks\n.*or `hooks: all` for every one"),
    ({"name": "a", "tools_deny": ["no/good"]}, r"tools_deny\.0"),
    ({"name": "a", "description": "x" * 2_001}, "description"),
    ({"name": "a", "llm": {"temperature": 2.1}}, r"llm\.temperature"),
    ({"name": "a", "llm": {"temperature": float("nan")}}, r"llm\.temperature"),
    ({"name": "a", "llm": {"max_output_tokens": 0}}, r"llm\.max_output_tokens"),
    ({"name": "a", "llm": {"model": ""}}, r"llm\.model"),
    ({"name": "a", "llm": {"api_key": "sk-1"}}, r"llm\.api_key"),
    ({"name": "a", "llm": {"base_url": "http://x"}}, r"llm\.base_url"),
    ({"name": "a", "budget": {"max_steps": -1}}, r"budget\.max_steps"),
    ({"name": "a", "budget": {"max_cost": -0.01}}, r"budget\.max_cost"),
    ({"name": "a", "budget": {"max_cost": float("nan")}}, r"budget\.max_cost"),
    ({"name": "a", "budget": {"max_seconds": float("inf")}}, r"budget\.max_seconds"),
    ({"name": "a", "llm": {"prices": {"input_usd": -1, "output_usd": 1}}}, r"llm\.prices\.input_usd"),
    ({"name": "a", "llm": {"prices": {"input_usd": 1, "output_usd": float("nan")}}}, r"llm\.prices\.output_usd"),
    ({"name": "a", "llm": {"prices": {"input_usd": 1}}}, r"llm\.prices\.output_usd"),
    ({"name": "a", "tools": ["b", "c", "b"]}, "tools"),
    ({"name": "a", "tools": [f"t{n}" for n in range(TOOLS_MAX + 1)]}, "tools"),
    ({"name": "a", "tools_deny": ["b", "b"]}, "tools_deny"),
    ({"name": "a", "tools": ["b", "c"], "tools_deny": ["c"]}, "tools_deny"),
    ({"name": "a", "hooks": ["b", "b"]}, "hooks"),
    ({"name": "a", "hooks": [f"h{n}" for n in range(HOOKS_MAX + 1)]}, "hooks"),
    ({"name": "a", "capabilities": ["b", "b"]}, "capabilities"),
    ({"name": "a", "capabilities": [f"c{n}" for n in range(CAPABILITIES_MAX + 1)]}, "capabilities"),
    ({"name": "a", "subagents": ["b", "b"]}, "subagents"),
    ({"name": "a", "subagents": ["b", "a"]}, "subagents"),
    ({"name": "a", "subagents": [f"s{n}" for n in range(SUBAGENTS_MAX + 1)]}, "subagents"),
    ({"name": "a", "overridable": ["error", "error"]}, "overridable"),
    ({"name": "a", "overridable": ["never"]}, r"overridable\.0"),
    ({"name": "a", "finish_reasons": ["length", "length"]}, "finish_reasons"),
    ({"name": "a", "context": {"sections": ["summary", "summary"]}}, r"context\.sections"),
    ({"name": "a", "approvals": [{"tools": []}]}, r"approvals\.0\.tools"),
    ({"name": "a", "approvals": [{"tools": ["pay", "pay"]}]}, r"approvals\.0\.tools"),
    ({"name": "a", "approvals": [{"tools": ["pay out"]}]}, r"approvals\.0\.tools\.0"),
    ({"name": "a", "metadata": {"a": float("inf")}}, r"metadata\.a"),
    ({"name": "a", "metadata": {"a": object()}}, r"metadata\.a"),
    ({"name": "a", "metadata": {1: "a"}}, r"metadata\.1"),
    ({"name": "a", "metadata": {"a": "\ud800"}}, "metadata"),
    ({"name": "a", "metadata": {"\ud800": "a"}}, "metadata"),
    ({"name": "a", "metadata": {"a": NESTED}}, "metadata"),
    ({"name": "a", "response_format": {"type": "json_schema", "json_schema": []}}, r"response_format\.json_schema"),
    ({"name": "a", "response_format": {"type": "json_schema", "json_schema": {"a": NESTED}}}, "response_format"),
]


@pytest.mark.parametrize(("data", "field"), REFUSED)
def test_what_breaks_a_rule_is_refused_by_its_path(data: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError, match=rf"(?m)^{field}"):
        AgentDefinition.model_validate(data)


def test_a_definition_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(AgentDefinition(name="a"), "name", "b")  # noqa: B010  # the type checkers would refuse the plain form


def test_any_reason_may_be_overridable_and_none_too() -> None:
    assert AgentDefinition(name="a", overridable=tuple(StopReason)).overridable == tuple(StopReason)
    assert AgentDefinition(name="a", overridable=()).overridable == ()


def test_metadata_may_nest_as_deep_as_the_limit_says() -> None:
    metadata = {"a": NESTED[0]}
    definition = AgentDefinition(name="a", metadata=metadata)
    assert AgentDefinition.model_validate_json(canonical(definition)).metadata == metadata


def test_a_tool_stands_for_its_name() -> None:
    assert name_of(tool(name="find")(lambda: None)) == "find"
    assert name_of("find") == "find"


@pytest.mark.parametrize("value", [["find"], print, None])
def test_what_has_no_name_is_refused(value: Any) -> None:  # noqa: ANN401  # what a program may pass by mistake
    with pytest.raises(InvalidInput, match="has no name"):
        name_of(value)


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ({"trusted": True, "command": ["x"]}, "only a worker's mcp.yaml can say that a server is `trusted`"),
        ({"url": "http://x/", "headers": {"Authorization": "Bearer 1"}}, "`headers` would stand in histories"),
        ({"url": "http://ann:secret@x/"}, "holds a name or password"),
        ({"command": ["x", "${TOKEN}"]}, "refers to what only the worker may read"),
        ({"command": ["x"], "env": {"KEY": "${TOKEN}"}}, "refers to what only the worker may read"),
        ({"command": ["x"], "url": "http://x/"}, "give one of them"),
        ({"comand": ["x"]}, "comand"),
    ],
)
def test_a_described_server_says_no_more_than_a_client_may(server: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(problem)):
        AgentDefinition.model_validate({"name": "clerk", "mcp": ["till", {"name": "files", **server}]})
    sound = AgentDefinition.model_validate({"name": "clerk", "mcp": ["till", {"name": "files", "command": ["x"]}]})
    assert sound.mcp_names == ("till", "files")
    assert AgentDefinition.model_validate_json(sound.model_dump_json()) == sound
