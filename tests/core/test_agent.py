"""`Agent`: a definition and the functions it names, in one object."""

from __future__ import annotations

from datetime import UTC, datetime
from types import ModuleType
from typing import Any, Generic, TypeVar

import pytest
from hypothesis import given
from pydantic import BaseModel

from holdfast.core.agent.agent import Agent, agents_in, with_subagents
from holdfast.core.agent.answer_types import format_of
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.context_view import CompilerContext, compiler
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.hooks import Changes, HookContext, hook
from holdfast.core.agent.policies import ApprovalRule, ContextPolicy, JsonObjectFormat, JsonSchemaFormat, TextFormat
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import DefinitionInvalid, InvalidInput
from holdfast.core.base.usage import Prices
from holdfast.core.conversation.messages import Message
from holdfast.core.tools.tools import tool
from tests.core.defining import definitions

ItemT = TypeVar("ItemT")


class Verdict(BaseModel):
    good: bool
    why: str = ""


class Box(BaseModel, Generic[ItemT]):
    item: ItemT


class Loose(BaseModel):
    call: type[Any]


@tool
def find_order(number: int) -> str:
    """Find an order."""
    return str(number)


def cancel_order(number: int) -> str:
    """Cancel an order."""
    return str(number)


@hook("before_step")
def guard(context: HookContext) -> Changes | None:
    """Look on."""


@compiler
def shortened(context: CompilerContext) -> list[Message]:
    """Send the latest message alone."""
    return list(context.messages[-1:])


def problem_with(**fields: Any) -> str:  # noqa: ANN401  # wrong ones
    with pytest.raises(DefinitionInvalid) as caught:
        Agent(**fields)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_name_is_all_it_needs() -> None:
    agent = Agent("a")
    assert (agent.definition, agent.toolset, agent.subagents) == (AgentDefinition(name="a"), Toolset(), ())


def test_every_argument_sets_what_it_says() -> None:
    budget = ExecutionBudget(max_steps=20, max_cost=1.5, deadline=datetime(2030, 1, 1, tzinfo=UTC))
    llm = LLM(model="gpt-x", temperature=0.2, prices=Prices(input_usd=1, output_usd=2))
    mail = Capability(name="mail")
    agent = Agent(
        name="clerk",
        prompt="You help.",
        description="knows orders",
        tools=[find_order, cancel_order, "add"],
        tools_deny=["drop"],
        hooks=[guard, "offered"],
        capabilities=[mail, "chat"],
        subagents=[AgentDefinition(name="writer"), "reader"],
        approvals=[ApprovalRule(tools=("pay_*",), expires_seconds=60), find_order, cancel_order, "add"],
        answers=Verdict,
        strict=True,
        model=llm,
        budget=budget,
        compiler=shortened,
        context=ContextPolicy(view="all"),
        label="The clerk",
        errors="fatal",
    )
    assert agent.definition == AgentDefinition(
        name="clerk",
        label="The clerk",
        description="knows orders",
        system_prompt="You help.",
        llm=llm,
        tools=("find_order", "cancel_order", "add"),
        tools_deny=("drop",),
        hooks=("guard", "offered"),
        capabilities=("mail", "chat"),
        subagents=("writer", "reader"),
        approvals=(
            ApprovalRule(tools=("pay_*",), expires_seconds=60),
            *(ApprovalRule(tools=(name,)) for name in ("find_order", "cancel_order", "add")),
        ),
        budget=budget,
        response_format=format_of(Verdict, strict=True),
        errors="fatal",
        context=ContextPolicy(view="all", compiler="shortened"),
    )
    assert [each.name for each in agent.toolset.tools] == ["find_order", "cancel_order"]
    assert (agent.toolset.hooks, agent.toolset.capabilities) == ((guard,), (mail,))
    assert agent.toolset.compilers == (shortened,)
    assert agent.answers is Verdict
    assert agent.subagents == (AgentDefinition(name="writer"),)


def test_a_compiler_can_be_named() -> None:
    agent = Agent("a", compiler="shortened")
    assert (agent.definition.context.compiler, agent.toolset.compilers) == ("shortened", ())


def test_a_model_can_be_named_alone() -> None:
    assert Agent("a", model="gpt-x").definition.llm == LLM(model="gpt-x")


def test_all_takes_every_tool_and_hook_that_is_offered() -> None:
    agent = Agent("a", tools="all", hooks="all")
    assert (agent.definition.tools, agent.definition.hooks) == ("all", "all")
    assert "tools: 'all' cannot be an item of a list" in problem_with(name="a", tools=["b", "all"])


def test_an_agent_brings_what_its_subagents_name() -> None:
    writer = Agent("writer", tools=[cancel_order], subagents=[Agent("reader", tools=[find_order])])
    boss = Agent("boss", tools=[cancel_order], subagents=[writer])
    assert [each.name for each in boss.toolset.tools] == ["cancel_order", "find_order"]
    assert [each.name for each in boss.subagents] == ["writer", "reader"]
    definition, others = with_subagents(boss, [Agent("other"), writer])
    assert [definition.name, *(each.name for each in others)] == ["boss", "writer", "reader", "other"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"prompt": "a", "system_prompt": "b"}, "prompt and system_prompt are both given"),
        ({"model": "a", "llm": {"model": "b"}}, "model and llm are both given"),
        ({"answers": "text", "response_format": {"type": "text"}}, "answers and response_format are both given"),
        ({"strict": True}, "strict needs a type or a JSON Schema"),
        ({"strict": True, "answers": "json_object"}, "strict needs a type or a JSON Schema"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionInvalid, match=problem):
        Agent("clerk", **arguments)


def test_two_different_agents_of_one_name_are_refused() -> None:
    with pytest.raises(DefinitionInvalid, match="two different agents are called 'writer'; rename one"):
        with_subagents(Agent("boss", subagents=[Agent("writer")]), [Agent("writer", prompt="other")])


def test_a_module_s_agents_are_found_each_once() -> None:
    module = ModuleType("module")
    clerk = Agent("clerk")
    vars(module).update(one=clerk, same=clerk, other=Agent("other"), no_agent=3)
    assert [each.name for each in agents_in([module])] == ["clerk", "other"]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (None, TextFormat()),
        ("text", TextFormat()),
        ("json_object", JsonObjectFormat()),
        ({"type": "array"}, JsonSchemaFormat(json_schema={"type": "array"})),
        (Box[int], JsonSchemaFormat(name="Box_int_", json_schema=Box[int].model_json_schema())),
    ],
)
def test_the_answer_s_form_is_a_word_a_schema_or_a_model(answers: Any, expected: object) -> None:  # noqa: ANN401  # its types
    assert Agent("a", answers=answers).definition.response_format == expected


@given(definitions)
def test_every_field_of_a_definition_can_be_given_by_its_name(definition: AgentDefinition) -> None:
    assert Agent(**dict(definition)).definition == definition


def test_every_problem_is_told_at_once() -> None:
    message = problem_with(
        name="two words", tools=["add", "add"], budget={"max_steps": -1}, answers="jsn", bugdet=1, errors="recver"
    )
    assert message.startswith("agent 'two words': ")
    for words in (
        "name: String should match pattern",
        "tools: 'add' is given twice; keep one",
        "budget.max_steps: Input should be greater than or equal to 0 (it is '-1')",
        "response_format.type: 'jsn' is not a value of it",
        "unknown field 'bugdet', did you mean 'budget'?",
        "errors: 'recver' is not a value of it, did you mean 'recover'?",
    ):
        assert words in message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tools": "find_order"}, "agent 'a': tools is the text 'find_order'; write a list: tools=['find_order']"),
        ({"subagents": "writer"}, "agent 'a': subagents is the text 'writer'; write a list: subagents=['writer']"),
        ({"subagents": "all"}, "agent 'a': subagents cannot be 'all'; name each of them"),
        ({"tools": [3]}, "agent 'a': 3 is not a tool; give a function, a tool or a tool's name"),
        ({"tools": [[find_order]]}, "is not a tool; give a function, a tool or a tool's name"),
        ({"hooks": [3]}, "agent 'a': 3 has no name"),
        ({"answers": Loose}, "agent 'a': Loose has no JSON Schema"),
        ({"answers": 3}, "agent 'a': a value of type int is no type of answers"),
        ({"tools": [lambda: 3]}, "agent 'a': '<lambda>' cannot name a tool"),
    ],
)
def test_what_cannot_stand_where_it_does_is_refused(fields: dict[str, Any], words: str) -> None:
    assert words in problem_with(name="a", **fields)


@pytest.mark.parametrize("agent", ["clerk", None, 3, {"name": "clerk"}])
def test_what_is_no_agent_is_refused_and_no_other_takes_its_place(agent: Any) -> None:  # noqa: ANN401  # anything
    helper = Agent("helper")
    with pytest.raises(InvalidInput, match="is no agent"):
        with_subagents(agent, [helper])
    with pytest.raises(InvalidInput, match="is no agent"):
        with_subagents(helper, [agent])
