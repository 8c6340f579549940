"""What an agent is, as a value: what it accepts and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.core.budget import ExecutionBudget
from holdfast.core.definition import LLM, AgentDefinition
from holdfast.core.frozen import canonical
from tests.core.strategies import budgets, json_maps, texts

names = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
definitions = st.builds(
    AgentDefinition,
    name=names,
    description=texts,
    system_prompt=texts,
    llm=st.builds(LLM, model=st.none() | st.just("m"), max_output_tokens=st.none() | st.integers(1, 10**6)),
    tools=st.none() | st.lists(names, max_size=3).map(tuple),
    tools_deny=st.lists(names, max_size=3).map(tuple),
    budget=budgets,
    metadata=json_maps,
)


@given(definitions)
def test_a_definition_survives_json(definition: AgentDefinition) -> None:
    assert AgentDefinition.model_validate_json(canonical(definition)) == definition


def test_a_name_is_all_it_needs() -> None:
    definition = AgentDefinition(name="helper")
    assert definition.tools is None
    assert definition.budget == ExecutionBudget()
    assert definition.llm == LLM()


def test_no_tools_and_all_tools_are_told_apart() -> None:
    assert AgentDefinition.model_validate({"name": "a", "tools": []}).tools == ()
    assert AgentDefinition.model_validate({"name": "a"}).tools is None


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "two words"}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": "größe"}, "name"),
        ({"name": "a", "tool": ["add"]}, "tool"),
        ({"name": "a", "tools": ["no good"]}, r"tools\.0"),
        ({"name": "a", "tools_deny": ["no/good"]}, r"tools_deny\.0"),
        ({"name": "a", "description": "x" * 2_001}, "description"),
        ({"name": "a", "llm": {"temperature": 2.1}}, r"llm\.temperature"),
        ({"name": "a", "llm": {"temperature": float("nan")}}, r"llm\.temperature"),
        ({"name": "a", "llm": {"max_output_tokens": 0}}, r"llm\.max_output_tokens"),
        ({"name": "a", "llm": {"model": ""}}, r"llm\.model"),
        ({"name": "a", "llm": {"api_key": "sk-1"}}, r"llm\.api_key"),
        ({"name": "a", "llm": {"base_url": "http://x"}}, r"llm\.base_url"),
        ({"name": "a", "budget": {"max_steps": -1}}, r"budget\.max_steps"),
        ({"name": "a", "metadata": {"a": float("inf")}}, r"metadata\.a"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_its_path(data: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError, match=rf"(?m)^{field}"):
        AgentDefinition.model_validate(data)


def test_a_definition_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(AgentDefinition(name="a"), "name", "b")  # noqa: B010  # the type checkers would refuse the plain form
