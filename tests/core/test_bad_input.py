"""What is no value of ours is refused where it comes in, in Python or from a file, by the path of the bad field."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import StateInvalid
from holdfast.core.conversation.messages import Message, MessageStore, Section, user_message
from holdfast.core.conversation.steps import InferenceResponse
from tests.core.building import Run, call

STATE = Run(ExecutionBudget(max_steps=3)).begin().answer("", call("a")).returns("a").state
TEN_MEGABYTES = "x" * 10_000_000
SECTION = ("context", "store", "sections", 2)
FOREIGN_ANSWER = {"role": "tool", "content": "42", "tool_call_id": "nobody"}

CONSTRUCTED: dict[str, tuple[Callable[[], object], str]] = {
    "a negative budget": (lambda: ExecutionBudget(max_steps=-1), "max_steps"),
    "a negative budget in a definition": (
        lambda: AgentDefinition.model_validate({"name": "a", "budget": {"max_tokens": -1}}),
        "budget.max_tokens",
    ),
    "a cost that is no number": (lambda: ExecutionBudget(max_cost=float("nan")), "max_cost"),
    "a cost that was told and is no number": (lambda: InferenceResponse(cost=float("nan")), "cost"),
    "an unknown role": (lambda: Message.model_validate({"role": "robot", "content": ""}), "role"),
    "a duplicate section": (
        lambda: MessageStore(sections=(Section(name="messages"), Section(name="messages"))),
        "sections",
    ),
    "a tool's result without its call": (
        lambda: MessageStore.model_validate({"sections": [{"name": "messages", "messages": [FOREIGN_ANSWER]}]}),
        "sections.0.messages.0",
    ),
    "a string of ten megabytes": (lambda: user_message(TEN_MEGABYTES), "content"),
    "a prompt of ten megabytes": (lambda: AgentDefinition(name="a", system_prompt=TEN_MEGABYTES), "system_prompt"),
}


@pytest.mark.parametrize("name", CONSTRUCTED)
def test_bad_input_is_refused_at_construction_by_its_path(name: str) -> None:
    construct, path = CONSTRUCTED[name]
    with pytest.raises(ValidationError) as caught:
        construct()
    places = {".".join(map(str, problem["loc"])) for problem in caught.value.errors()}
    assert any(place == path or place.startswith(f"{path}.") for place in places), places
    assert len(str(caught.value)) < 5_000


LOADED: dict[str, tuple[tuple[str | int, ...], object]] = {
    "a negative budget": (("execution", "budget", "max_steps"), -1),
    "a cost that is no number": (("execution", "cost"), float("nan")),
    "an unknown role": ((*SECTION, "messages", 0, "role"), "robot"),
    "a duplicate section": (("context", "store", "sections", 0, "name"), "messages"),
    "a tool's result without its call": ((*SECTION, "messages", 0), FOREIGN_ANSWER),
    "a string of ten megabytes": ((*SECTION, "messages", 0, "content"), TEN_MEGABYTES),
    "a foreign format version": (("format",), 999),
}


@pytest.mark.parametrize("name", LOADED)
def test_bad_input_is_refused_at_loading_by_its_path(name: str) -> None:
    path, value = LOADED[name]
    data: Any = json.loads(STATE.to_json())
    inner = data
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    with pytest.raises(StateInvalid) as caught:
        AgentState.from_json(json.dumps(data))
    told = str(caught.value)
    expected = path[:3] if name == "a duplicate section" else path  # two are the same: neither alone is wrong
    assert ".".join(map(str, expected)) in told
    assert len(told) < 2_000


@pytest.mark.parametrize("text", ["", "{", '{"format": 1,', "nonsense", "[]", "null", "\x00", '{"format": 1}'])
def test_corrupt_json_is_refused_at_loading(text: str) -> None:
    with pytest.raises(StateInvalid, match="this is not a saved agent state"):
        AgentState.from_json(text)
    with pytest.raises(StateInvalid, match="this is not a saved agent state"):
        AgentState.from_json(STATE.to_json()[: len(STATE.to_json()) // 2])
