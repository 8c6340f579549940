"""Which calls an agent's rules ask about: by tool, arguments and cost, the first rule that is about a call; which rules
mean nothing and are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import JsonValue, ValidationError

from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.hooks import Changes
from holdfast.core.agent.policies import APPROVALS_MAX, ApprovalRule
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import InvalidInput, UnknownTool
from holdfast.core.base.usage import NOTHING_USED, Prices, Usage
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.tools.tools import tool
from tests.core.building import Run, call, hook_at, spawn

PRICED = LLM(prices=Prices(input_usd=10, output_usd=10))
"""A call of the model's as `Run` answers it, with its 120 tokens, costs 0.0012 US dollars."""


def pay(id_: str, **arguments: JsonValue) -> ToolCall:
    return ToolCall(id=id_, name="pay", arguments=arguments)


def asked(rules: list[dict[str, Any]], *calls: ToolCall) -> list[str]:
    """The calls of one step that a person is asked about."""
    approvals = tuple(ApprovalRule.model_validate(rule) for rule in rules)
    tools = ("pay", "pay_back", "look")
    return Run(tools=tools, approvals=approvals).begin().answer("", *calls).asked


def test_a_rule_asks_about_calls_whose_arguments_match() -> None:
    rule = {"tools": ["pay"], "arguments": {"to": "*@evil.test", "order.kind": "gift"}}
    gift: JsonValue = {"kind": "gift"}
    assert asked(
        [rule],
        pay("a", to="eve@evil.test", order=gift),
        pay("b", to="ann@example.org", order=gift),
        pay("c", to="eve@evil.test"),
        pay("d", to=["ann@example.org", "eve@evil.test"], order=[gift, {"kind": "sale"}]),
        ToolCall(id="e", name="look", arguments={"to": "eve@evil.test", "order": gift}),
    ) == ["a", "d"]


def test_the_first_rule_that_is_about_a_call_decides() -> None:
    rules: list[dict[str, Any]] = [
        {"tools": ["pay"], "arguments": {"to": "*@example.org"}, "when": "never"},
        {"tools": ["pay*"]},
    ]
    calls = (pay("a", to="ann@example.org"), pay("b", to="eve@evil.test"), call("c", "pay_back"), call("d", "look"))
    assert asked(rules, *calls) == ["b", "c"]
    rules = [{"tools": ["pay*"], "arguments": {"to": "*"}}, *rules]
    assert asked(rules, *calls) == ["a", "b", "c"], "before the exemption"


def test_an_exemption_needs_every_value_to_match() -> None:
    exempt: dict[str, Any] = {"tools": ["pay"], "arguments": {"to": "*@example.org"}, "when": "never"}
    rules = [exempt, {"tools": ["*"]}]
    assert asked(rules, pay("a", to=["ann@example.org", "eve@evil.test"]), pay("b", to=[]), pay("c")) == ["a", "b", "c"]


def test_arguments_are_looked_at_as_hooks_left_them() -> None:
    rule = ApprovalRule(tools=("add",), arguments={"a": "7"})
    run = Run(approvals=(rule,), hooks=[hook_at("before_tool")]).begin().answer("", call("a"), call("b"))
    run.hooked(Changes(arguments={"a": 7}))
    assert run.asked == ["a"]
    assert run.hooked().called == ["b"]


def test_a_subagent_can_be_asked_about_by_its_name_and_task() -> None:
    rule = ApprovalRule(tools=("spawn",), arguments={"agent": "helper", "task": "*delete*"})
    run = Run(approvals=(rule,), subagents=[AgentDefinition(name="helper")]).begin()
    run.answer("", spawn("a", task="delete it all"), spawn("b", task="look it up"))
    assert (run.asked, [command.call_id for command in run.spawned]) == (["a"], ["b"])


def above(dollars: float, **given: Any) -> Run:  # noqa: ANN401  # fields of any type
    return Run(approvals=(ApprovalRule(tools=("add",), cost_above=dollars),), **given).begin()


def test_above_a_cost_is_asked_only_once_that_much_is_spent() -> None:
    run = above(0.002, llm=PRICED).answer("", call("a"))
    assert run.called == ["a"]
    run.returns("a").answer("", call("b"))
    assert run.asked == ["b"]
    assert run.state.running.cost == pytest.approx(0.0024)


def test_a_cost_that_is_just_reached_is_not_above() -> None:
    assert above(0.0012, llm=PRICED).answer("", call("a")).called == ["a"]
    assert above(0, llm=PRICED).answer("", call("a")).asked == ["a"]


def test_where_a_price_is_missing_a_person_is_asked() -> None:
    assert above(1_000).answer("", call("a")).asked == ["a"]
    assert above(1_000).answer("", call("a"), cost=0.5).called == ["a"], "the provider told what it costs"
    assert above(1_000, llm=PRICED).answer("", call("a"), usage=NOTHING_USED).asked == ["a"], "nobody told the tokens"


def test_a_price_that_was_missing_once_is_not_forgotten() -> None:
    run = above(1_000).answer("", call("a", "echo"), wasted=Usage(input_tokens=5)).returns("a")
    assert run.resume().answer("", call("b"), cost=0.5).asked == ["b"]
    assert run.state.running.unpriced


def test_what_subagents_cost_counts_too() -> None:
    def after(cost: float) -> Run:
        run = above(1, llm=PRICED, subagents=[AgentDefinition(name="helper")]).answer("", spawn("s"))
        return run.child("s", cost=cost).answer("", call("a"))

    assert after(0.5).called == ["a"]
    assert after(1.5).asked == ["a"]


def test_a_subagent_without_a_price_makes_its_parent_ask() -> None:
    run = above(1_000, llm=PRICED, subagents=[AgentDefinition(name="helper")]).answer("", spawn("s"), spawn("t"))
    run.child("s", unpriced=("m",)).child("t").answer("", call("a"))
    assert run.asked == ["a"]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({}, "tools"),
        ({"tools": []}, "tools"),
        ({"tools": ["pay", "pay"]}, "'pay' is given twice"),
        ({"tools": ["p y"]}, "tools"),
        ({"tools": ["pay"], "when": "sometimes"}, "when"),
        (
            {"tools": ["pay"], "when": "never", "expires_seconds": 5},
            "`never` requests no approval, so nothing can expire",
        ),
        ({"tools": ["pay"], "when": "never", "cost_above": 5}, "give `cost_above` to the rule that asks"),
        ({"tools": ["pay"], "cost_above": -1}, "cost_above"),
        ({"tools": ["pay"], "cost_above": float("inf")}, "cost_above"),
        ({"tools": ["pay"], "cost_above": float("nan")}, "cost_above"),
        ({"tools": ["pay"], "arguments": {"a..b": "x"}}, "'a..b' is not a place"),
        ({"tools": ["pay"], "arguments": {"a": 5}}, "arguments"),
        ({"tools": ["pay"], "argument": {"a": "x"}}, "argument"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(rule: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ApprovalRule.model_validate(rule)


NEVER: dict[str, Any] = {"tools": ["look"], "when": "never"}


@tool
def refund(order: int, to: str) -> None:
    """Pay back."""


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"tools": ["refund"], "arguments": {"ordr": "5"}}, "has the argument 'ordr'; did you mean 'order'?"),
        ({"tools": ["ref*"], "arguments": {"To.x": "5"}}, "has the argument 'To.x'; there are: order, to"),
        ({"tools": ["refund", "spawn"], "arguments": {"tasks": "5"}}, "did you mean 'task'?"),
        ({"tools": ["refnd"], "arguments": {"order": "5"}}, "did you mean 'refund'?"),
    ],
)
def test_a_slip_of_the_pen_in_a_rule_is_refused_before_anything_runs(rule: dict[str, Any], said: str) -> None:
    agent = AgentDefinition.model_validate({"name": "agent", "approvals": [rule]})
    with pytest.raises((InvalidInput, UnknownTool), match=re.escape(said)):
        Toolset(tools=(refund,)).equip(agent)


def test_a_rule_that_names_what_there_is_is_fine() -> None:
    rules = [
        {"tools": ["refund"], "arguments": {"order": "5", "to.name": "*"}},
        {"tools": ["refund", "spawn"], "arguments": {"agent": "*"}},
        {"tools": ["not_offered_*"], "arguments": {"anything": "*"}},
    ]
    agent = AgentDefinition.model_validate({"name": "agent", "approvals": rules})
    assert Toolset(tools=(refund,)).equip(agent).definition == agent


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([{"tools": ["*"]}, {"tools": ["pay"], "arguments": {"a": "x"}}], "rule 1 never decides: rule 0 comes first"),
        ([{"tools": ["pay", "look"]}, {"tools": ["pay"]}], "rule 1 never decides"),
        ([{"tools": ["pa?"]}, NEVER, {"tools": ["pay"]}], "rule 2 never decides: rule 0"),
        ([NEVER], "the last rule is `never`"),
        ([{"tools": ["pay"]}, NEVER], "the last rule is `never`"),
        ([{"tools": [f"t{n}"]} for n in range(APPROVALS_MAX + 1)], "at most 64 items"),
    ],
)
def test_rules_that_could_never_decide_are_refused(rules: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        AgentDefinition.model_validate({"name": "agent", "approvals": rules})


@pytest.mark.parametrize(
    "rules",
    [
        [{"tools": ["p*"]}, {"tools": ["pa*"]}, {"tools": ["*"]}],
        [{"tools": ["pay"], "cost_above": 1}, {"tools": ["pay"], "arguments": {"to": "x"}}, {"tools": ["pay"]}],
        [NEVER, {"tools": ["*"]}],
    ],
)
def test_rules_that_overlap_are_fine(rules: list[dict[str, Any]]) -> None:
    approvals = AgentDefinition.model_validate({"name": "agent", "approvals": rules}).approvals
    assert len(approvals) == len(rules)
