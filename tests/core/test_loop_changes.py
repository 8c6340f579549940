"""A definition that changes while an execution runs: what is asked next goes by the new rules, what was done stays."""

from __future__ import annotations

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.policies import ApprovalRule, ContextPolicy, JsonObjectFormat, SummaryPolicy
from holdfast.core.base.usage import Prices, Usage
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import CallModel, RunHooks, StartTimer, SummariseBuffer
from holdfast.core.loop.events import MessageArrived, ModelAnswered, ToolReturned
from holdfast.core.loop.start import may_change
from tests.core.building import BOOM, COMPLETED, Run, call, hook_at, moment, stopped


def after_a_step(budget: ExecutionBudget | None = None) -> Run:
    """One step is done, the model call of the second is asked for and not begun."""
    return Run(budget).begin().answer("", call("a")).returns("a")


def test_what_is_asked_next_is_asked_of_the_new_agent() -> None:
    run = after_a_step()
    dear = LLM(model="dear", max_output_tokens=7, prices=Prices(input_usd=1, output_usd=2))
    run.becomes(system_prompt="Be long.", llm=dear, response_format=JsonObjectFormat(), metadata={"team": "blue"})
    assert run.model_call.step_number == 2
    assert run.model_call.max_output_tokens == 7
    state = run.state
    assert (state.llm, state.context.system_prompt, state.context.response_format) == (
        dear,
        "Be long.",
        JsonObjectFormat(),
    )
    assert state.metadata == {"agent": "tester", "team": "blue"}
    assert run.answer("{}").ended == COMPLETED
    assert run.state.step_count == 2
    assert run.state.cost == pytest.approx((100 * 1 + 20 * 2) / 1e6), "the second step's alone"


def test_tools_and_approval_rules_are_the_new_ones() -> None:
    run = after_a_step().becomes(tools=["echo", "pay"], approvals=(ApprovalRule(tools=("pay",)),))
    run.answer("", call("b", "pay"), call("c", "add"), call("d", "echo"))
    assert run.asked == ["b"]
    assert run.called == ["d"]
    run.decide("b").returns("b").returns("d")
    assert "add" in run.answers["c"]
    assert run.answer("done").ended == COMPLETED


def test_hooks_are_the_new_ones_where_the_old_ones_have_not_run() -> None:
    run = Run(hooks=[hook_at("before_step", "old")]).begin().hooked().answer("", call("a")).returns("a")
    assert [each.name for each in run.wanted(RunHooks)[0].hooks] == ["old"]
    run.becomes(hooks=[hook_at("before_step", "new")])
    assert [each.name for each in run.wanted(RunHooks)[0].hooks] == ["new"]
    assert run.hooked().answer("done").ended == COMPLETED


def test_a_place_without_hooks_any_more_is_passed() -> None:
    run = Run(hooks=[hook_at("before_execution"), hook_at("before_inference")]).begin()
    run.becomes(hooks=[hook_at("before_inference", "new")])
    assert run.hook_context.trigger == "before_inference"
    assert run.becomes(hooks=[]).model_call.step_number == 1
    assert run.answer("done").ended == COMPLETED


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (ExecutionBudget(max_steps=1), StopReason.STEPS_LIMIT),
        (ExecutionBudget(max_tokens=100), StopReason.TOKEN_LIMIT),
        (ExecutionBudget(max_seconds=2), StopReason.TIME_LIMIT),
        (ExecutionBudget(deadline=moment(1)), StopReason.TIME_LIMIT),
    ],
)
def test_a_budget_that_is_spent_already_ends_the_execution(budget: ExecutionBudget, reason: StopReason) -> None:
    run = after_a_step().becomes(budget)
    assert run.ended == stopped(reason)
    assert run.state.step_count == 1
    assert run.wanted(CallModel) == ()


def test_limits_count_from_the_executions_start_and_the_timer_is_a_new_one() -> None:
    run = after_a_step(ExecutionBudget(max_seconds=100, max_steps=2)).becomes(ExecutionBudget(max_seconds=50))
    assert run.wanted(StartTimer) == (StartTimer(fires_at=moment(51)),)
    assert run.state.budget == ExecutionBudget(max_seconds=50)
    run.answer("", call("b")).returns("b").answer("", call("c")).returns("c")
    assert run.timer(after=60).ended == stopped(StopReason.TIME_LIMIT)
    assert run.state.step_count == 3, "two steps are not the limit any more"


def test_a_budget_that_is_not_given_stays() -> None:
    run = after_a_step(ExecutionBudget(max_steps=2)).becomes(system_prompt="Go on.")
    assert run.answer("", call("b")).returns("b").ended == stopped(StopReason.STEPS_LIMIT)


def test_what_the_new_opening_takes_is_counted() -> None:
    run = after_a_step(ExecutionBudget(max_tokens=2_000))
    before = run.model_call.room
    assert before is not None
    after = run.becomes(system_prompt="word " * 200).model_call.room
    assert after is not None
    assert after < before - 200


def test_a_message_that_waits_is_seen_by_the_new_agent() -> None:
    run = Run(hooks=[hook_at("before_step")]).begin().hooked().answer("", call("a")).says("and this").returns("a")
    run.becomes(hooks=[], system_prompt="Be long.")
    assert run.said[-1] == "and this"
    assert run.answer("done").ended == COMPLETED


def test_a_summary_that_was_not_begun_is_asked_for_again() -> None:
    policy = ContextPolicy(summary=SummaryPolicy(above_input_tokens=50, keep_messages=0))
    run = Run(context=policy).begin().answer("", call("a"), usage=Usage(input_tokens=90)).returns("a")
    assert run.wanted(SummariseBuffer)
    assert run.becomes(system_prompt="Be long.").wanted(SummariseBuffer)
    assert run.summarises().answer("done").ended == COMPLETED


def test_where_something_is_under_way_nothing_changes() -> None:
    run = Run().begin().answer("", call("a"))
    before = run.state
    assert not may_change(before, ())
    run.becomes(ExecutionBudget(max_steps=0), system_prompt="Be long.")
    assert run.state is before
    assert run.commands == ()


def test_an_execution_that_ends_is_left_alone() -> None:
    run = Run(hooks=[hook_at("on_stop")]).begin().answer("done")
    assert not may_change(run.state, ())
    run.hooked()
    assert not may_change(run.state, ())


def test_the_end_of_what_was_asked_for_comes_first() -> None:
    state = after_a_step().state
    assert may_change(state, [MessageArrived(user_message("hello"), moment(9))])
    assert not may_change(state, [ModelAnswered(InferenceResponse(text="late"), moment(9))])
    assert not may_change(state, [ToolReturned("a", "late", moment(8), moment(9))])


def test_a_change_that_is_refused_is_told_and_nothing_else() -> None:
    run = after_a_step().change_refused()
    assert run.commands == ()
    assert run.state.warnings[-1] == f"the agent was not changed: {BOOM.message}"
    assert run.answer("done").ended == COMPLETED
