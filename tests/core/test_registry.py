"""Choosing an agent's tools from those on offer."""

from __future__ import annotations

import pytest

from holdfast.core.definition import AgentDefinition
from holdfast.core.errors import InvalidInput, UnknownTool
from holdfast.core.registry import nearest, resolve
from holdfast.core.tools import tool


@tool
def add() -> None:
    """Add."""


@tool
def echo() -> None:
    """Echo."""


@tool
def search_text() -> None:
    """Search."""


OFFERED = (add, echo, search_text)


def chosen(**fields: tuple[str, ...]) -> list[str]:
    definition = AgentDefinition.model_validate({"name": "agent", **fields})
    return [each.name for each in resolve(definition, OFFERED)]


def test_without_a_choice_an_agent_gets_every_tool_in_the_workers_order() -> None:
    assert chosen() == ["add", "echo", "search_text"]


def test_an_empty_choice_is_no_tools() -> None:
    assert chosen(tools=()) == []


def test_a_choice_is_given_in_its_own_order_and_once() -> None:
    assert chosen(tools=("echo", "add", "echo")) == ["echo", "add"]


def test_a_denied_tool_is_left_out() -> None:
    assert chosen(tools_deny=("echo",)) == ["add", "search_text"]
    assert chosen(tools=("echo", "add"), tools_deny=("echo",)) == ["add"]


@pytest.mark.parametrize("field", ["tools", "tools_deny"])
def test_an_unknown_tool_is_refused_with_the_nearest_name(field: str) -> None:
    with pytest.raises(UnknownTool) as caught:
        chosen(**{field: ("search_txt",)})
    expected = "agent 'agent' names the tool 'search_txt', which is not there; did you mean 'search_text'?"
    assert str(caught.value) == expected


def test_without_a_near_name_all_are_listed() -> None:
    assert nearest("zzz", ["echo", "add"]) == "which is not there; there are: add, echo"
    assert nearest("zzz", []) == "which is not there; there are: none"


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="two tools are called 'add'"):
        resolve(AgentDefinition(name="agent"), (add, tool(name="add")(lambda: None)))
