"""Tools that the provider runs: what the loop counts and pays for them, when it refuses them (docs/spec.md, 5.17)."""

from __future__ import annotations

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.hooks import Changes, problem_with_model_call
from holdfast.core.agent.policies import ContextPolicy, SummaryPolicy
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.tool_selection import check_server_tools
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.server_tools import calls_cost
from holdfast.core.base.usage import Prices, Usage
from holdfast.core.conversation.amounts import no_price, refused_price, server_calls_note
from holdfast.core.conversation.model_call_changes import ModelCallChanges
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.loop.commands import CallModel, SummariseBuffer
from holdfast.core.loop.events import ModelAnswered
from tests.core.building import COMPLETED, FAILED, Run, call, hook_at

PRICES = Prices(input_usd=1.0, output_usd=10.0)
SEARCHING = LLM.model_validate(
    {"model": "m", "prices": PRICES, "server_tools": [{"type": "web_search_20250305", "usd_per_call": 0.01}]}
)
UNPRICED = LLM.model_validate({"model": "m", "prices": PRICES, "server_tools": ["web_search"]})
ALLOWED = ExecutionBudget(max_tokens=100_000, max_cost=1.0, server_tools="allow")
USED = Usage(input_tokens=300, output_tokens=20)


def answered(run: Run, text: str = "found", usage: Usage = USED, cost: float | None = None, **calls: int) -> Run:
    """Have the model answer after so many calls of its provider's tools."""
    response = InferenceResponse(text=text, usage=usage, cost=cost, server_tool_calls=calls, finish_reason="stop")
    run.feed(ModelAnswered(response, run.tick()))
    return run


def test_calls_are_counted_in_their_step_and_cost_what_the_definition_says() -> None:
    run = answered(Run(llm=SEARCHING).begin(), web_search=3)
    assert run.ended == COMPLETED
    (step,) = run.state.steps
    assert step.server_tool_calls == {"web_search": 3}
    assert run.state.cost == pytest.approx(PRICES.cost(USED) + 0.03)
    assert step.cost == run.state.cost
    assert (run.state.warnings, run.state.running.unpriced) == ((), ())
    assert AgentState.from_json(run.state.to_json()) == run.state
    assert b"server_tool_calls" not in Run().begin().answer("x").state.to_json(), "a state without any reads as before"


def test_a_cost_that_the_provider_tells_has_them_in_it() -> None:
    run = answered(Run(llm=SEARCHING).begin(), cost=0.5, web_search=3)
    assert run.state.cost == 0.5


def test_calls_without_a_price_are_warned_of_and_left_out_of_the_cost() -> None:
    run = answered(Run(llm=UNPRICED).begin(), web_search=2)
    assert run.state.cost == pytest.approx(PRICES.cost(USED))
    assert run.state.running.unpriced == ("calls of web_search",)
    assert run.state.warnings == (no_price("calls of web_search"),)
    assert no_price("calls of web_search") == (
        "no price is known for calls of web_search: their cost counts as 0 and max_cost is not enforced for them; set "
        "usd_per_call of that tool in llm.server_tools"
    )


def test_a_call_that_the_definition_does_not_name_is_warned_of() -> None:
    run = answered(Run(llm=LLM(model="m", prices=PRICES)).begin(), web_search=1)
    assert "the model's provider ran its tool 'web_search', which llm.server_tools does not name" in run.state.warnings
    assert run.state.running.unpriced == ("calls of web_search",)


@pytest.mark.parametrize("budget", [ExecutionBudget(max_tokens=100_000), ExecutionBudget(max_cost=1.0)])
def test_under_a_limit_that_they_could_pass_no_call_is_made(budget: ExecutionBudget) -> None:
    run = Run(budget, llm=SEARCHING).begin()
    assert run.ended == FAILED
    (error,) = run.state.errors
    assert (error.type, error.source) == ("ServerToolsUnbounded", "budget")
    assert "(web_search)" in error.message
    assert "set budget.server_tools to `allow`" in error.message
    assert run.state.usage.total_tokens == 0
    assert not any(isinstance(each, CallModel) for each in run.commands)


def test_where_the_budget_allows_them_a_limit_that_they_pass_ends_the_run_after_the_call() -> None:
    run = Run(ALLOWED, llm=SEARCHING).begin()
    response = InferenceResponse(
        tool_calls=(call("a"),), usage=Usage(input_tokens=150_000), server_tool_calls={"web_search": 9}
    )
    run.feed(ModelAnswered(response, run.tick()))
    assert run.state.stop_reason == "token_limit"
    assert run.called == []


def test_limits_of_steps_and_time_take_them() -> None:
    assert answered(Run(ExecutionBudget(max_steps=3, max_seconds=60), llm=SEARCHING).begin()).ended == COMPLETED


def test_a_budget_that_refuses_what_has_no_price_refuses_calls_without_one() -> None:
    run = Run(ExecutionBudget(unpriced="refuse"), llm=UNPRICED).begin()
    assert run.ended == FAILED
    assert [each.message for each in run.state.errors] == [refused_price("calls of web_search")]
    assert answered(Run(ExecutionBudget(unpriced="refuse"), llm=SEARCHING).begin()).ended == COMPLETED


NONE, REFUSE, ALLOW = (ExecutionBudget(server_tools=policy) for policy in (None, "refuse", "allow"))
LIMITED = ExecutionBudget(max_cost=1.0)


@pytest.mark.parametrize(
    ("one", "other", "policy"),
    [
        (NONE, ALLOW, "allow"),
        (LIMITED, ALLOW, None),
        (ALLOWED, LIMITED, None),
        (ALLOWED, ALLOW, "allow"),
        (ALLOWED, NONE, "allow"),
        (ALLOWED, REFUSE, "refuse"),
        (NONE, LIMITED, None),
    ],
)
def test_both_budgets_have_to_allow_what_could_pass_them(
    one: ExecutionBudget, other: ExecutionBudget, policy: str | None
) -> None:
    assert one.capped_by(other).server_tools == other.capped_by(one).server_tools == policy


def test_a_policy_alone_limits_nothing_and_is_written_only_where_it_is_set() -> None:
    assert ALLOW.is_empty
    assert "server_tools" not in LIMITED.model_dump(mode="json")


def test_the_next_call_reserves_what_it_sends_and_not_what_the_provider_read_again() -> None:
    run = Run(ALLOWED, llm=SEARCHING).begin()
    first = run.model_call.input_max
    assert first is not None
    response = InferenceResponse(
        tool_calls=(call("a"),),
        usage=Usage(input_tokens=60_000, output_tokens=20),
        server_tool_calls={"web_search": 5},
    )
    run.feed(ModelAnswered(response, run.tick()))
    run.returns("a")
    second = run.model_call.input_max
    assert second is not None
    assert first < second < first + 1_000


def test_a_summary_is_due_by_the_conversation_and_not_by_what_the_provider_read_again() -> None:
    policy = ContextPolicy(summary=SummaryPolicy(above_input_tokens=1_000, keep_messages=1))
    run = Run(llm=SEARCHING, context=policy).begin()
    response = InferenceResponse(
        tool_calls=(call("a"),), usage=Usage(input_tokens=3_000), server_tool_calls={"web_search": 3}
    )
    run.feed(ModelAnswered(response, run.tick()))
    run.returns("a")
    assert not any(isinstance(each, SummariseBuffer) for each in run.commands)


def test_a_hook_leaves_out_tools_of_the_provider_as_any_other_for_one_call() -> None:
    run = Run(llm=SEARCHING, hooks=(hook_at("before_inference"),)).begin()
    run.hooked(Changes(model_call=ModelCallChanges(tools=("add",))))
    asked = run.model_call
    assert asked.llm is not None
    assert (asked.llm.server_tools, asked.offered) == ((), ("add",))
    run.answer("", call("a")).returns("a").hooked(Changes(model_call=ModelCallChanges(tools=("web_search",))))
    assert (run.model_call.llm, run.model_call.offered) == (None, ("web_search",))


def test_a_call_without_them_travels_as_the_difference_from_the_definition() -> None:
    without = LLM.model_validate({"model": "m", "prices": PRICES})
    assert SEARCHING.with_difference(SEARCHING.difference(without)) == without
    assert without.with_difference(without.difference(SEARCHING)) == SEARCHING


def test_a_hook_can_name_tools_of_the_provider_for_one_call() -> None:
    run = Run(llm=LLM(model="m"), hooks=(hook_at("before_inference"),)).begin()
    run.hooked(Changes(model_call=ModelCallChanges(options={"server_tools": ["web_search"]})))
    asked = run.model_call.llm
    assert asked is not None
    assert [tool.name for tool in asked.server_tools] == ["web_search"]
    limited = Run(LIMITED, llm=LLM(model="m", prices=PRICES), hooks=(hook_at("before_inference"),)).begin()
    limited.hooked(Changes(model_call=ModelCallChanges(options={"server_tools": ["web_search"]})))
    assert [each.type for each in limited.state.errors] == ["ServerToolsUnbounded"]


def test_a_name_that_neither_the_agent_nor_the_provider_has_is_refused_with_the_nearest() -> None:
    text = problem_with_model_call(SEARCHING, ("add",), ModelCallChanges(tools=("web_serch",)))
    assert text is not None
    assert "did you mean 'web_search'?" in text
    assert problem_with_model_call(SEARCHING, ("add",), ModelCallChanges(tools=("web_search", "add"))) is None
    named = ModelCallChanges(options={"server_tools": ["web_fetch"]}, tools=("web_fetch",))
    assert problem_with_model_call(LLM(), ("add",), named) is None
    assert "has a tool 'web_fetch' of its own" in (problem_with_model_call(LLM(), ("web_fetch",), named) or "")


def test_no_tool_of_the_agent_has_the_name_of_one_of_the_provider() -> None:
    check_server_tools("clerk", SEARCHING.server_tools, ("add",))
    with pytest.raises(InvalidInput, match="both have 'web_search'; keep one of them"):
        check_server_tools("clerk", SEARCHING.server_tools, ("add", "web_search"))


def test_calls_are_written_by_name_and_number() -> None:
    assert server_calls_note({"web_search": 2, "a\nb": 1}) == "web_search (2 calls), a b (1 call)"
    assert server_calls_note({}) == ""
    assert calls_cost({"web_search": 2, "odd": 1}, SEARCHING.server_tools) == (0.02, ("odd",))
