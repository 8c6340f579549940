"""Models without a known price: said in one way, warned of once each up to the root, refused where that is wanted."""

from __future__ import annotations

from holdfast.client.events_from_state import reconstructed
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition, FallbackRoute
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Changes
from holdfast.core.base.usage import Prices, Usage
from holdfast.core.conversation.amounts import (
    WORKERS_MODEL,
    dollars,
    no_price,
    refused_price,
    short_dollars,
    token_count,
    tokens_in_and_out,
    tokens_used,
)
from holdfast.core.conversation.markdown_escaping import code
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.model_call_changes import ModelCallChanges
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.wire.execution_events import SubagentCompleted, TokenUsageReported
from tests.core.building import Run, call, hook_at

PRICED = LLM(model="known", prices=Prices(input_usd=1, output_usd=1))


def test_a_cost_with_an_unpriced_part_names_the_models() -> None:
    assert dollars(0.0003) == "0.0003 USD"
    assert dollars(0.0003, ("model-x",)) == "> 0.0003 USD (unpriced: model-x)"
    assert dollars(0, tuple("abcde")) == "cost unknown (unpriced: a, b, c and 2 more)"


def test_a_models_name_that_a_provider_chose_steers_nothing() -> None:
    assert dollars(0, ("a\n\x1b[2Jb\u202e",)) == "cost unknown (unpriced: a \\x1b[2Jb\\u202e)"
    assert dollars(0, ("a|b",), written=lambda name: code(name, 20)) == "cost unknown (unpriced: `a¦b`)"


def test_where_there_is_room_for_the_figure_alone_the_names_are_left_out() -> None:
    assert short_dollars(0.0003) == "0.0003"
    assert short_dollars(0.0003, ("model-x",)) == "> 0.0003"


def test_tokens_that_are_in_part_a_bound_are_marked() -> None:
    used = Usage(input_tokens=3_000, output_tokens=120)
    assert (token_count(used), tokens_in_and_out(used)) == ("3,120", "3,000 in, 120 out")
    assert tokens_in_and_out(used.with_parts(cached=2_100)) == "3,000 in (2,100 cached), 120 out"
    assert tokens_used(used.with_parts(cached=2_100)) == "3,120 tokens (2,100 cached)"
    used += Usage(output_tokens=1, estimated_tokens=1)
    assert (token_count(used), tokens_in_and_out(used)) == ("≈ 3,121", "≈ 3,000 in, 121 out")


def test_each_model_without_a_price_is_warned_of_once() -> None:
    run = Run(ExecutionBudget(max_cost=1), llm=LLM(model="model-x")).begin()
    run.answer("", call("a")).returns("a").answer("done")
    assert run.state.running.unpriced == ("model-x",)
    assert run.state.warnings == (no_price("model-x"),)


def test_what_a_subagent_used_without_a_price_is_warned_of_at_the_root() -> None:
    run = Run(ExecutionBudget(max_cost=1), llm=PRICED, subagents=(AgentDefinition(name="helper"),)).begin()
    run.answer("", *(ToolCall(id=id_, name="spawn", arguments={"agent": "helper", "task": "look"}) for id_ in "ab"))
    run.child("a", unpriced=("model-x",)).child("b", unpriced=("model-x", "model-y")).answer("done")
    assert run.state.running.unpriced == ("model-x", "model-y")
    assert run.state.warnings == (no_price("model-x"), no_price("model-y"))
    first, last = run.state.steps
    assert [each.unpriced for each in first.tool_executions] == [("model-x",), ("model-x", "model-y")]
    assert (first.unpriced, last.unpriced) == (("model-x", "model-y"), ())


def test_what_a_cancelled_subagent_used_without_a_price_is_warned_of_at_the_root() -> None:
    run = Run(ExecutionBudget(max_cost=1), llm=PRICED, subagents=(AgentDefinition(name="helper"),)).begin()
    run.grace = True
    run.answer("", ToolCall(id="a", name="spawn", arguments={"agent": "helper", "task": "look"}))
    run.stop().child("a", status=ExecutionStatus.STOPPED, unpriced=("model-x",))
    assert (run.state.running.unpriced, run.state.warnings) == (("model-x",), (no_price("model-x"),))
    (step,) = run.state.steps
    assert (step.unpriced, step.tool_executions[0].unpriced) == (("model-x",), ("model-x",))


def test_listeners_are_told_of_each_step_and_of_all_of_them() -> None:
    helpers = (AgentDefinition(name="helper"),)
    run = Run(ExecutionBudget(max_cost=1), llm=PRICED, subagents=helpers, observed=True).begin()
    run.answer("", ToolCall(id="a", name="spawn", arguments={"agent": "helper", "task": "look"}))
    run.child("a", unpriced=("model-x",), cost=0.5).answer("done")
    ended, first, last = (each for each in run.events if isinstance(each, SubagentCompleted | TokenUsageReported))
    assert isinstance(ended, SubagentCompleted)
    assert (ended.cost, ended.unpriced) == (0.5, ("model-x",))
    assert isinstance(first, TokenUsageReported)
    assert (first.unpriced, first.total_unpriced) == (("model-x",), ("model-x",))
    assert isinstance(last, TokenUsageReported)
    assert (last.unpriced, last.total_unpriced) == ((), ("model-x",))
    again = [each for each in reconstructed(run.state, "tester") if isinstance(each, TokenUsageReported)]
    assert [(each.unpriced, each.total_unpriced) for each in again] == [
        (("model-x",), ("model-x",)),
        ((), ("model-x",)),
    ]


def test_a_hook_is_told_what_the_cost_is_without() -> None:
    run = Run(llm=LLM(model="model-x"), hooks=[hook_at("after_step")]).begin().answer("done")
    (asked,) = run.hooks_asked
    assert (asked.context.cost, asked.context.unpriced) == (0, ("model-x",))


def test_a_budget_that_refuses_them_fails_before_a_token_is_spent() -> None:
    run = Run(ExecutionBudget(max_cost=1, unpriced="refuse"), llm=LLM(model="model-x")).begin()
    state = run.state
    assert (state.status, state.step_count, state.usage) == (ExecutionStatus.FAILED, 0, Usage())
    (error,) = state.errors
    assert error.type == "PriceUnknown"
    assert "model 'model-x'" in error.message
    assert error.message.endswith("; set llm.prices, HOLDFAST_PRICES, or its route's prices in models.yaml")
    assert Run(ExecutionBudget(unpriced="refuse"), llm=PRICED).begin().answer("done").state.status == "completed"


def test_the_refusal_holds_for_subagents_within_the_budget() -> None:
    parent, own = ExecutionBudget(max_cost=1, unpriced="refuse"), ExecutionBudget(max_steps=3)
    assert own.for_child(parent, "inherit").unpriced == "refuse"
    assert own.for_child(parent, "own").unpriced is None
    assert parent.remaining(cost_used=0.5).unpriced == "refuse"
    assert ExecutionBudget(unpriced="warn").capped_by(own).unpriced == "warn"
    assert ExecutionBudget(unpriced="refuse").is_empty


def test_the_warning_names_the_place_where_the_price_of_that_model_belongs() -> None:
    away = ErrorRecord(type="ProviderUnavailable", message="away", source="model")
    routes = LLM(model="known", prices=PRICED.prices, fallback=(FallbackRoute(model="spare"),))
    (fell_back,) = Run(llm=routes).begin().model_fails(away).answer("done").state.warnings
    assert fell_back == no_price("spare", "fallback")
    assert "; set its prices in llm.fallback, HOLDFAST_PRICES, or its route's prices in models.yaml" in fell_back
    changed = Run(llm=PRICED, hooks=[hook_at("before_inference")]).begin()
    changed.hooked(Changes(model_call=ModelCallChanges(model="other"))).answer("done")
    assert changed.state.warnings == (no_price("other", "hook"),)
    assert "set prices in the hook's ModelCallChanges, HOLDFAST_PRICES, or" in changed.state.warnings[0]
    refused = Run(ExecutionBudget(unpriced="refuse"), llm=routes).begin().model_fails(away).state
    assert refused.errors[0].message == refused_price("spare", "fallback")
    assert no_price(WORKERS_MODEL).endswith("; set llm.prices or HOLDFAST_PRICES")
