"""Calls that run one after another, because the definition or their tool says so."""

from __future__ import annotations

from holdfast.core.agent.hooks import Changes
from holdfast.core.tools.tool_traits import ToolTraits
from tests.core.building import COMPLETED, Run, call, hook_at

LIFT = ToolTraits(name="lift", sequential=True)


def test_a_sequential_definition_runs_one_call_at_a_time_in_the_order_asked() -> None:
    run = Run(sequential=True).begin().answer("", call("a"), call("b", "echo"), call("c"))
    for id_, following in [("a", ["b"]), ("b", ["c"])]:
        assert run.returns(id_).called == following
    assert run.returns("c").model_call.step_number == 2
    assert run.answer("done").ended == COMPLETED


def test_a_call_that_fails_lets_the_next_one_run() -> None:
    run = Run(sequential=True).begin().answer("", call("a"), call("b"))
    assert run.fails("a").called == ["b"]


def test_calls_that_cannot_run_hold_up_nothing() -> None:
    run = Run(sequential=True).begin().answer("", call("x", "nope"), call("a"), call("y", malformed="cut"), call("b"))
    assert run.called == ["a"]
    assert run.returns("a").called == ["b"]


def test_a_sequential_tool_waits_for_the_calls_before_it_and_holds_those_behind_it() -> None:
    run = Run(tools=["add", LIFT]).begin().answer("", call("a"), call("b"), call("c", "lift"), call("d"), call("e"))
    assert run.called == ["a", "b"]
    assert run.returns("b").called == []
    assert run.returns("a").called == ["c"]
    assert run.returns("c").called == ["d", "e"]


def test_a_sequential_tool_that_is_asked_for_first_runs_first() -> None:
    run = Run(tools=["add", LIFT]).begin().answer("", call("a", "lift"), call("b", "lift"), call("c"))
    assert run.called == ["a"]
    assert run.returns("a").called == ["b"]
    assert run.returns("b").called == ["c"]


def test_a_result_for_a_call_that_has_not_begun_changes_nothing() -> None:
    run = Run(sequential=True).begin().answer("", call("a"), call("b"))
    before = run.state
    assert run.returns("b").state is before


def test_a_stop_cancels_the_calls_that_have_not_begun() -> None:
    run = Run(sequential=True).begin().answer("", call("a"), call("b"), call("c")).returns("a").stop()
    assert run.outcomes == [("a", "succeeded"), ("b", "cancelled"), ("c", "cancelled")]


def test_hooks_before_a_tool_run_only_when_its_turn_has_come() -> None:
    run = Run(sequential=True, hooks=[hook_at("before_tool"), hook_at("after_tool")]).begin()
    run.answer("", call("a"), call("b"))
    assert len(run.hooks_asked) == 1
    assert run.hooked(Changes(block="no")).hook_context.call == call("b")
    assert run.hooked().called == ["b"]
    assert run.returns("b").hook_context.tool_execution is not None
    assert run.hooked().model_call.step_number == 2
