"""The builder: reads like a sentence, changes nothing, tells every problem at the end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import pytest
from hypothesis import given
from pydantic import BaseModel

from holdfast.core.agent.agent_builder import AgentBuilder
from holdfast.core.agent.answer_types import format_of
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.capabilities import Capability
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.policies import ApprovalRule, ContextPolicy, JsonObjectFormat, JsonSchemaFormat, TextFormat
from holdfast.core.agent.tools import tool
from holdfast.core.base.errors import DefinitionInvalid, InvalidInput
from holdfast.core.base.usage import Prices
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


def told(agent: AgentBuilder) -> str:
    with pytest.raises(DefinitionInvalid) as caught:
        agent.build()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_name_is_all_it_needs() -> None:
    assert AgentBuilder.named("a").build() == AgentDefinition(name="a")


def test_every_call_sets_what_it_says() -> None:
    deadline = datetime(2030, 1, 1, tzinfo=UTC)
    built = (
        AgentBuilder.named("clerk")
        .describe("knows orders", label="The clerk")
        .prompt("You help.")
        .model("gpt-x", temperature=0.2, max_output_tokens=500, prices=Prices(input_usd=1, output_usd=2))
        .tools(find_order, "add")
        .deny("drop")
        .hooks("guard")
        .capabilities(Capability(name="mail"))
        .subagents(AgentDefinition(name="writer"), "reader")
        .approve("pay_*", find_order, expires_seconds=60)
        .approve("add")
        .limit(max_steps=20, max_tokens=9_000, max_seconds=60, max_cost=1.5, deadline=deadline)
        .answers(Verdict, strict=True)
        .with_(errors="fatal", context=ContextPolicy(view="all"))
        .build()
    )
    assert built == AgentDefinition(
        name="clerk",
        label="The clerk",
        description="knows orders",
        system_prompt="You help.",
        llm=LLM(model="gpt-x", temperature=0.2, max_output_tokens=500, prices=Prices(input_usd=1, output_usd=2)),
        tools=("find_order", "add"),
        tools_deny=("drop",),
        hooks=("guard",),
        capabilities=("mail",),
        subagents=("writer", "reader"),
        approvals=(ApprovalRule(tools=("pay_*", "find_order"), expires_seconds=60), ApprovalRule(tools=("add",))),
        budget=ExecutionBudget(max_steps=20, max_tokens=9_000, max_seconds=60, max_cost=1.5, deadline=deadline),
        response_format=format_of(Verdict, strict=True),
        errors="fatal",
        context=ContextPolicy(view="all"),
    )


def test_a_builder_can_be_the_base_of_several_agents() -> None:
    base = AgentBuilder.named("base").tools("add").limit(max_steps=3)
    other = base.with_(name="other").tools("echo").limit(max_cost=1)
    assert base.build() == AgentDefinition(name="base", tools=("add",), budget=ExecutionBudget(max_steps=3))
    both = ExecutionBudget(max_steps=3, max_cost=1)
    assert other.build() == AgentDefinition(name="other", tools=("add", "echo"), budget=both)


def test_the_model_and_the_limits_are_added_to() -> None:
    first = AgentBuilder.named("a").with_(llm=LLM(model="m"), budget=ExecutionBudget(max_steps=1))
    built = first.model(temperature=0).limit(max_tokens=5).build()
    assert built.llm == LLM(model="m", temperature=0)
    assert built.budget == ExecutionBudget(max_steps=1, max_tokens=5)


def test_a_zero_is_a_limit() -> None:
    assert AgentBuilder.named("a").limit(max_steps=0).build().budget == ExecutionBudget(max_steps=0)


def test_an_agent_takes_no_tool_and_no_hook_unless_it_names_them_or_takes_all() -> None:
    nothing = AgentBuilder.named("a").build()
    assert (nothing.tools, nothing.hooks) == ((), ())
    everything = AgentBuilder.named("a").tools("all").hooks("all").build()
    assert (everything.tools, everything.hooks) == ("all", "all")
    nothing_again = AgentBuilder.like(everything).no_tools().no_hooks().build()
    assert (nothing_again.tools, nothing_again.hooks) == ((), ())


@pytest.mark.parametrize("names", [("b", "all"), ("all", "b")])
def test_names_beside_all_are_refused(names: tuple[str, str]) -> None:
    builder = AgentBuilder.named("a").tools(names[0]).tools(names[1])
    with pytest.raises(DefinitionInvalid, match=r"tools: 'all' cannot be an item of a list; write `tools: all`"):
        builder.build()


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("text", TextFormat()),
        ("json_object", JsonObjectFormat()),
        ({"type": "array"}, JsonSchemaFormat(json_schema={"type": "array"})),
        (Box[int], JsonSchemaFormat(name="Box_int_", json_schema=Box[int].model_json_schema())),
    ],
)
def test_the_answer_s_form_is_a_word_a_schema_or_a_model(form: Any, expected: object) -> None:  # noqa: ANN401  # its types
    assert AgentBuilder.named("a").answers(form).build().response_format == expected


def test_a_model_without_a_schema_is_refused_by_its_name() -> None:
    with pytest.raises(DefinitionInvalid, match="Loose has no JSON Schema"):
        AgentBuilder.named("a").answers(Loose)


@given(definitions)
def test_a_builder_begun_with_a_definition_gives_it_back(definition: AgentDefinition) -> None:
    assert AgentBuilder.like(definition).build() == definition
    assert AgentBuilder.named("x").with_(**definition.model_dump()).build() == definition


def test_every_problem_is_told_at_once() -> None:
    wrong: Any = "jsn_object"
    message = told(
        AgentBuilder.named("two words")
        .tools("add", "add")
        .limit(max_steps=-1)
        .answers(wrong)
        .with_(bugdet=1, errors="recver")
    )
    assert message.startswith("agent 'two words': ")
    for words in (
        "name: String should match pattern",
        "tools: 'add' is given twice; keep one",
        "budget.max_steps: Input should be greater than or equal to 0 (it is '-1')",
        "response_format.type: 'jsn_object' is not a value of it, did you mean 'json_object'?",
        "unknown field 'bugdet', did you mean 'budget'?",
        "errors: 'recver' is not a value of it, did you mean 'recover'?",
    ):
        assert words in message


def test_what_has_no_name_is_refused_where_it_stands() -> None:
    names: Any = ["add", "echo"]
    with pytest.raises(InvalidInput, match=r"\['add', 'echo'\] is no name"):
        AgentBuilder.named("a").tools(names)
