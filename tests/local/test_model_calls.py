"""What the model is asked with, and what its answer must be (docs/spec.md, sections 5 and 7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import BaseModel

from holdfast.core.agent.answer_types import format_of, typed
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.context_view import CompilerContext, compiler
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.policies import (
    ContextPolicy,
    JsonObjectFormat,
    JsonSchemaFormat,
    ResponseFormat,
    SummaryPolicy,
    TextFormat,
)
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.messages import Message, pairing_problem
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.tools.tools import tool
from holdfast.local import LocalDriver
from holdfast.testing.script import Reply, call, say
from holdfast.testing.scripted_model import ScriptedModel

AGENT = AgentDefinition(name="local", tools="all", system_prompt="Be brief.")


class Sum(BaseModel):
    """What is asked for."""

    total: int


@tool
def add(a: int, b: int) -> str:
    """Add two numbers, in many words."""
    return f"{a + b}" + " indeed" * 100


def one_by_one(*turns: Reply) -> Callable[[object], Reply]:
    """A script across executions: a plain one begins anew with each conversation it knows."""
    left = iter(turns)
    return lambda _: next(left)


@pytest.mark.parametrize(
    "wanted",
    [
        TextFormat(),
        JsonObjectFormat(),
        JsonSchemaFormat(json_schema={"type": "object"}),
        format_of(Sum),
    ],
    ids=lambda wanted: wanted.type,
)
async def test_the_response_format_reaches_the_model(wanted: ResponseFormat) -> None:
    model = ScriptedModel([say('{"total": 3}')])
    state = await LocalDriver(replace(AGENT, response_format=wanted), model=model).execute("Answer in JSON.")
    assert model.requests[0].response_format == wanted
    assert state.status is ExecutionStatus.COMPLETED


async def test_an_answer_of_the_wrong_form_is_asked_for_again_and_the_right_one_comes_typed() -> None:
    model = ScriptedModel([say("three"), say('{"total": "many"}'), say('{"total": 3}')])
    state = await LocalDriver(replace(AGENT, response_format=format_of(Sum)), model=model).execute("Answer in JSON.")
    assert (state.status, state.step_count) == (ExecutionStatus.COMPLETED, 3)
    assert "total" in model.requests[2].messages[-1].text, "the model is told which field is wrong"
    assert typed(state.final_response, Sum) == Sum(total=3)


@pytest.mark.parametrize("reasks", [0, 1, 2])
async def test_an_answer_is_asked_for_again_only_so_often(reasks: int) -> None:
    agent = replace(AGENT, response_format=format_of(Sum), reasks_max=reasks)
    model = ScriptedModel([say("no")] * 9)
    state = await LocalDriver(agent, model=model).execute("Answer in JSON.")
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.RETRY_LIMIT)
    assert len(model.requests) == reasks + 1
    assert state.final_response == ""


async def test_the_steps_of_an_earlier_execution_are_hidden_and_those_of_this_one_are_seen() -> None:
    model = ScriptedModel(one_by_one(call("add", a=1, b=2), say("3"), call("add", a=3, b=4), say("7")))
    driver = LocalDriver(AGENT, model=model, tools=[add])
    first = await driver.execute("One?")
    await driver.execute("Two?", state=first)
    seen = [[message.role for message in request.messages] for request in model.requests]
    assert seen == [
        ["user"],
        ["user", "assistant", "tool"],
        ["user", "assistant", "user"],
        ["user", "assistant", "user", "assistant", "tool"],
    ]
    assert not any(message.metadata for request in model.requests for message in request.messages)


@compiler
def whispering(context: CompilerContext) -> list[Message]:
    """Have every message in small letters."""
    return [replace(each, content=each.text.lower()) for each in context.messages]


@pytest.mark.parametrize(
    "policy",
    [
        ContextPolicy(),
        ContextPolicy(view="all"),
        ContextPolicy(sections=("messages",)),
        ContextPolicy(tool_output_chars_max=100),
        ContextPolicy(compiler="whispering"),
    ],
    ids=["default", "all", "selected", "trimmed", "custom"],
)
async def test_what_the_model_was_sent_in_a_step_can_be_read_from_the_state(policy: ContextPolicy) -> None:
    model = ScriptedModel(one_by_one(call("add", a=1, b=2), say("3"), call("add", a=10**40, b=2), say("Done")))
    driver = LocalDriver(replace(AGENT, context=policy), model=model, tools=[add], compilers=[whispering])
    first = await driver.execute("One?")
    store = first.store.extended(Message(role="user", content="Noted before"), section="summary")
    second = await driver.execute("Two?", state=first.with_store(store))
    given = whispering if policy.compiler else None
    told = [state.input_messages(step, policy, given) for state in (first, second) for step in state.steps]
    assert told == [request.messages for request in model.requests]


async def test_all_of_it_selected_sections_or_a_function_of_ones_own_are_shown_instead() -> None:
    @compiler
    def shouting(context: CompilerContext) -> list[Message]:
        assert context.messages
        return [Message(role="user", content="HELLO?")]

    shown: dict[str, list[str]] = {}
    policies = {
        "all": ContextPolicy(view="all"),
        "selected": ContextPolicy(sections=("messages",)),
        "custom": ContextPolicy(compiler="shouting"),
    }
    for name, policy in policies.items():
        model = ScriptedModel(one_by_one(call("add", a=1, b=2), say("3"), say("done")))
        driver = LocalDriver(replace(AGENT, context=policy), model=model, tools=[add], compilers=[shouting])
        first = await driver.execute("One?")
        store = first.store.extended(Message(role="user", content="noted before"), section="summary")
        await driver.execute("Two?", state=first.with_store(store))
        shown[name] = [message.text[:12] for message in model.requests[-1].messages]
    assert shown == {
        "all": ["noted before", "One?", "", "3 indeed ind", "3", "Two?"],
        "selected": ["One?", "3", "Two?"],
        "custom": ["HELLO?"],
    }


async def test_tool_outputs_are_trimmed_for_the_model_and_kept_whole_in_the_state() -> None:
    model = ScriptedModel([call("add", a=1, b=2), say("3")])
    agent = replace(AGENT, context=ContextPolicy(tool_output_chars_max=100))
    state = await LocalDriver(agent, model=model, tools=[add]).execute("One?")
    assert len(model.requests[1].messages[-1].text) <= 100
    assert len(state.messages[2].text) == 701


async def test_old_messages_move_to_the_buffer_and_then_into_the_summary_and_no_call_loses_its_result() -> None:
    def turns(request: dict[str, object]) -> Reply:
        if not request.get("tools"):
            return say("They added a lot.")
        asked = len([each for each in model.requests if each.tools])
        return call("add", a=asked, b=1) if asked < 6 else say("done")

    model = ScriptedModel(turns)
    policy = ContextPolicy(summary=SummaryPolicy(above_input_tokens=50, keep_messages=3))
    state = await LocalDriver(replace(AGENT, context=policy), model=model, tools=[add]).execute("Add.")
    assert state.status is ExecutionStatus.COMPLETED
    assert state.running.compactions > 1
    assert ["They added a lot." in message.text for message in state.store.section("summary").messages] == [True]
    assert len(state.store.section("buffer").messages) == 0
    for request in model.requests:
        assert pairing_problem(request.messages) is None
    asked = [request.messages for request in model.requests if request.tools]
    told = [state.input_messages(step, policy) for step in state.steps]
    assert len(told) == len(asked)
    for mine, theirs in zip(told, asked, strict=True):
        assert all(message in theirs for message in mine), "nothing that was not sent"
    assert told[-1] == asked[-1]
    assert any("They added a lot." in message.text for message in model.requests[-1].messages)


async def test_an_answer_may_be_no_longer_than_the_definition_and_the_budget_allow() -> None:
    model = ScriptedModel([say("done")] * 2)
    agent = replace(AGENT, llm=LLM(max_output_tokens=500))
    await LocalDriver(agent, model=model).execute("One?")
    await LocalDriver(agent, model=model).execute("One?", budget=ExecutionBudget(max_tokens=300))
    assert [request.max_output_tokens for request in model.requests] == [500, 187], "300 less what the input can have"


async def test_a_summary_is_asked_for_in_words_also_by_an_agent_without_tools_that_answers_in_json() -> None:
    context = ContextPolicy(summary=SummaryPolicy(above_input_tokens=50, keep_messages=1))
    agent = replace(AGENT, context=context, response_format=JsonObjectFormat())
    model = ScriptedModel(one_by_one(say("no JSON"), say("A summary."), say("{}")))
    state = await LocalDriver(agent, model=model).execute("Answer in JSON.")
    assert state.final_response == "{}"
    asked = [request.response_format for request in model.requests]
    assert asked == [JsonObjectFormat(), TextFormat(), JsonObjectFormat()]
