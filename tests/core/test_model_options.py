"""Options of a model: what may be set, what is ours, and that a definition without them is what it was."""

from __future__ import annotations

import pytest
from pydantic import JsonValue, ValidationError

from holdfast.core.agent.definition import LLM, OPTIONS
from holdfast.core.agent.initial_state import first_run
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.tool_selection import check_tool_choice
from holdfast.core.base.bounds import OUTPUT_TOKENS_MAX
from holdfast.core.base.errors import UnknownTool
from holdfast.core.base.frozen import canonical, replace
from holdfast.core.base.model_options import EXTRA_BYTES_MAX, STOP_TEXTS_MAX
from holdfast.core.loop.commands import CallModel
from tests.core.building import AGENT_ID, DEFINITION, START, Run, call

EVERY = LLM(
    model="m",
    temperature=0.5,
    top_p=0.9,
    reasoning_effort="low",
    verbosity="high",
    stop=("END",),
    seed=7,
    tool_choice="add",
    parallel_tool_calls=False,
    strict=True,
    service_tier="flex",
    extra={"prompt_cache_key": "clerk", "metadata": {"team": "shop"}},
    background=False,
)


def test_every_option_is_a_field_and_comes_back_from_json() -> None:
    assert all(getattr(EVERY, name) is not None for name in OPTIONS)
    assert LLM.model_validate_json(canonical(EVERY)) == EVERY


def test_a_model_without_options_is_written_as_before() -> None:
    written = b'{"model":"m","temperature":null,"max_output_tokens":null,"stream":true,"prices":null}'
    assert canonical(LLM(model="m")) == written


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"top_p": 1.5}, "less than or equal to 1"),
        ({"reasoning_effort": "lots"}, "'medium'"),
        ({"verbosity": "chatty"}, "'high'"),
        ({"stop": []}, "at least 1"),
        ({"stop": ["a", "a"]}, "given twice"),
        ({"stop": [str(n) for n in range(STOP_TEXTS_MAX + 1)]}, "at most 16"),
        ({"seed": 2**63}, "less than"),
        ({"tool_choice": "two words"}, "match pattern"),
        ({"service_tier": "Flex!"}, "match pattern"),
        ({"extra": {"messages": []}}, "'messages' is set by the run itself"),
        ({"extra": {"n": 4}}, "'n' is set by the run itself"),
        ({"extra": {"model": "x"}}, "write `llm.model`"),
        ({"extra": {"max_completion_tokens": 5}}, "write `llm.max_output_tokens`"),
        ({"extra": {"tools": []}}, "write `tools`"),
        ({"extra": {"stream": True}}, "write `llm.stream`"),
        ({"extra": {"background": True}}, "write `llm.background`"),
        ({"extra": {"user": "x" * EXTRA_BYTES_MAX}}, "at most 16,384 are sent"),
        ({"extra": {"user": "\ud800"}}, "valid string"),
    ],
)
def test_an_option_that_no_call_could_be_made_with_is_refused(option: dict[str, JsonValue], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        LLM.model_validate(option)


def test_a_state_without_options_gets_the_definitions() -> None:
    definition = replace(DEFINITION, llm=EVERY)
    own = replace(AgentState.empty(), llm=LLM(seed=1))
    state = first_run(own, definition, agent_id=AGENT_ID, at=START)
    assert state.llm == replace(EVERY, seed=1)


@pytest.mark.parametrize("choice", ["required", "add"])
def test_a_forced_call_holds_for_the_first_step_alone(choice: str) -> None:
    llm = LLM(model="m", tool_choice=choice, seed=7)
    run = Run(llm=llm).begin()
    assert run.model_call.llm is None
    run.answer("", call("a")).returns("a", "3")
    assert run.model_call.llm == replace(llm, tool_choice=None)
    run.answer("", call("b")).returns("b", "3")
    assert run.model_call.llm == replace(llm, tool_choice=None)
    assert run.answer("42").state.final_response == "42"


def test_a_forced_call_that_the_model_does_not_make_ends_the_run_with_its_answer() -> None:
    run = Run(llm=LLM(tool_choice="required")).begin().answer("42")
    assert run.state.final_response == "42"


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_a_choice_that_forces_nothing_holds_for_every_step(choice: str | None) -> None:
    run = Run(llm=LLM(tool_choice=choice)).begin().answer("", call("a")).returns("a", "3")
    assert run.commands[0] == CallModel(step_number=2, max_output_tokens=OUTPUT_TOKENS_MAX, llm=None)


def test_a_tool_that_is_forced_and_not_there_is_refused_with_the_nearest() -> None:
    for free in (None, "auto", "none", "required", "add"):
        check_tool_choice("clerk", free, ["add", "echo"])
    with pytest.raises(UnknownTool, match=r"'clerk': llm.tool_choice names the tool 'ad'"):
        check_tool_choice("clerk", "ad", ["add", "echo"])
