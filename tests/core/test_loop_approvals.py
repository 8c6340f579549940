"""Calls that wait for a person: every decision, none in time, stops and limits meanwhile, time that does not count."""

from __future__ import annotations

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.hooks import Changes
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.loop.commands import CallTool, CancelInFlight, Finish, RequestApproval, RunHooks, StartTimer
from holdfast.core.loop.events import ApprovalDecided, DecisionUnreadable
from holdfast.core.tools.tool_traits import ToolTraits
from tests.core.building import COMPLETED, Run, call, hook_at, moment, spawn, stopped

ASK = (ApprovalRule(tools=("add",)),)
ASK_ALL_SOON = (ApprovalRule(tools=("*",), expires_seconds=10),)


HELPER = AgentDefinition(name="helper")


def waiting(*ids: str, budget: ExecutionBudget | None = None, pause: bool = False) -> Run:
    return (
        Run(budget, approvals=ASK, pause_while_waiting=pause).begin().answer("", *(call(id_) for id_ in ids or ("a",)))
    )


def refused_in(run: Run) -> tuple[str, ...]:
    return tuple(each for each in run.state.running.warnings if each.startswith("a decision"))


def test_a_call_that_matches_a_rule_waits_and_the_others_run() -> None:
    run = Run(approvals=ASK).begin().answer("", call("a"), call("b", "echo"))
    assert run.commands == (
        RequestApproval(step_number=1, index=0, call=call("a"), expires_at=None, call_count=2),
        CallTool(step_number=1, index=1, call=call("b", "echo")),
    )
    assert run.returns("b").commands == ()


def test_of_several_rules_the_first_that_matches_counts() -> None:
    rules = (ApprovalRule(tools=("ad?",), expires_seconds=5), ApprovalRule(tools=("*",)))
    run = Run(approvals=rules).begin().answer("", call("a"), call("b", "echo"))
    assert [command.expires_at for command in run.wanted(RequestApproval)] == [moment(7), None]


def test_a_call_that_cannot_run_is_not_asked_about() -> None:
    run = Run(approvals=ASK_ALL_SOON).begin().answer("", call("a", "nope"), call("b", malformed="cut off"))
    assert run.asked == []
    assert run.model_call.step_number == 2


def test_an_approved_call_runs_from_then_on() -> None:
    run = waiting().decide("a", after=10)
    assert run.called == ["a"]
    run.returns("a", after=2)
    (execution,) = run.state.last_step_tool_executions
    assert (execution.started_at, execution.completed_at) == (moment(12), moment(14))
    assert run.answer("done").ended == COMPLETED


def test_a_denied_call_does_not_run_and_the_model_is_told_who_and_why() -> None:
    run = waiting().decide("a", "deny", reason="too dear")
    assert run.wanted(CallTool) == ()
    assert run.answers == {"a": "Error (ToolExecutionBlocked): the call was not run: denied by ann: too dear"}
    assert run.outcomes == [("a", "denied")]
    assert run.state.last_step_tool_executions[0].was_blocked
    assert run.state.last_step is not None
    assert run.state.last_step.executed_tool_calls == ()
    assert not run.state.has_errors
    assert run.model_call.step_number == 2


def test_an_edited_call_runs_with_the_persons_arguments() -> None:
    run = waiting().decide("a", "edit", arguments={"a": 7})
    (command,) = run.wanted(CallTool)
    assert command.call.arguments == {"a": 7}
    run.returns("a")
    assert run.state.last_step_tool_executions[0].call.arguments == {"a": 7}
    assert [m.tool_calls for m in run.state.messages if m.tool_calls] == [(call("a"),)], "what the model said stays"


def test_an_edit_larger_than_its_share_of_the_step_is_not_taken_and_the_call_waits_on() -> None:
    """All calls of a step can begin in one task of a workflow, and the server terminates one whose task brings 4 MB."""
    ids = [f"c{number}" for number in range(64)]
    run = waiting(*ids).decide("c0", "edit", arguments={"a": "x" * 12_000})
    assert len(run.wanted(CallTool)) == 1
    run.decide("c1", "edit", arguments={"a": "x" * 13_000})
    assert run.wanted(CallTool) == ()
    assert "c1" in {each.call.id for each in run.state.waiting_calls}
    (warning,) = refused_in(run)
    large = "the edited arguments are 13,008 bytes of JSON; a call in this step may have at most 12,288"
    assert warning == f"a decision about c1 (add) was not accepted: {large}"
    run.decide("c1", "edit", arguments={"a": 1})
    assert [command.call.arguments for command in run.wanted(CallTool)] == [{"a": 1}]


def test_an_edit_that_breaks_the_tools_schema_is_not_taken_and_the_call_waits_on() -> None:
    run = waiting()
    verdict = Verdict(decision="edit", arguments={"a": "much"})
    run.feed(ApprovalDecided("a", verdict, run.tick(), problem="a: it is no number"))
    run.feed(ApprovalDecided("a", verdict, run.tick(), problem="a: it is no number"))
    assert [each.call.id for each in run.state.waiting_calls] == ["a"]
    assert refused_in(run) == ("a decision about a (add) was not accepted: a: it is no number",)
    assert run.decide("a").wanted(CallTool)


def test_what_is_no_decision_is_warned_of() -> None:
    run = waiting()
    run.feed(DecisionUnreadable("the arguments are no JSON object", run.tick()))
    assert [each.call.id for each in run.state.waiting_calls] == ["a"]
    assert refused_in(run) == ("a decision was not accepted: the arguments are no JSON object",)


def test_a_subagents_task_can_be_approved_and_edited_and_is_looked_at_again() -> None:
    run = Run(approvals=ASK_ALL_SOON, subagents=[HELPER]).begin().answer("", spawn("a"), spawn("b"))
    run.decide("a", "edit", arguments={"agent": "helper", "task": "something else"})
    assert [command.task for command in run.spawned] == ["something else"]
    run.decide("b", "edit", arguments={"agent": "nobody", "task": "x"})
    assert run.spawned == []
    assert [each.call.id for each in run.state.waiting_calls] == ["b"]
    assert "not accepted: the agent 'nobody', which is not there" in refused_in(run)[0]


def test_without_a_decision_in_time_the_call_counts_as_denied() -> None:
    run = Run(approvals=ASK_ALL_SOON).begin().answer("", call("a"))
    assert run.wanted(RequestApproval)[0].expires_at == moment(12)
    run.expires("a", after=10)
    assert run.answers == {"a": "Error (ToolExecutionBlocked): the call was not run: nobody decided about it in time"}
    assert run.outcomes == [("a", "denied")]


def test_several_calls_wait_at_once_and_each_gets_its_own_decision() -> None:
    run = waiting("a", "b", "c", "d")
    assert run.asked == ["a", "b", "c", "d"]
    assert run.decide("c", "deny").commands == ()
    assert run.decide("b").called == ["b"]
    run.expires("d").returns("b").decide("a").returns("a")
    assert run.outcomes == [("a", "succeeded"), ("b", "succeeded"), ("c", "denied"), ("d", "denied")]
    assert run.model_call.step_number == 2


@pytest.mark.parametrize("late", ["decide", "expires", "returns"])
def test_what_comes_for_a_call_that_does_not_wait_for_it_changes_nothing(late: str) -> None:
    run = waiting("a", "b")
    if late != "returns":
        run.decide("a")
    before = run.state
    getattr(run, late)("a")
    assert run.state is before


def test_the_first_decision_holds() -> None:
    run = waiting("a", "b").decide("a", "deny", reason="no")
    before = run.state
    run.decide("a")
    assert run.state is before


def test_a_stop_during_a_wait_cancels_the_call() -> None:
    run = waiting().stop()
    assert run.commands == (CancelInFlight(), Finish())
    assert run.ended == stopped(StopReason.USER_REQUESTED)
    assert run.outcomes == [("a", "cancelled")]


def test_a_stop_after_the_step_waits_for_the_person() -> None:
    run = waiting().stop(mode="after_step")
    assert run.commands == ()
    assert run.decide("a").returns("a").ended == stopped(StopReason.USER_REQUESTED)
    assert run.outcomes == [("a", "succeeded")]


def test_the_time_limit_strikes_during_a_wait() -> None:
    run = waiting(budget=ExecutionBudget(max_seconds=5)).timer(5)
    assert run.ended == stopped(StopReason.TIME_LIMIT)
    assert run.outcomes == [("a", "cancelled")]


def test_a_wait_does_not_count_where_the_definition_says_so_and_the_timer_is_set_anew() -> None:
    run = waiting(budget=ExecutionBudget(max_seconds=5), pause=True)
    paused = run.state
    assert run.timer(4).state is paused, "it was set before the pause"
    run.decide("a", after=100)
    assert run.commands[0] == StartTimer(fires_at=moment(1 + 5 + 104))
    assert run.called == ["a"]
    assert run.state.running.paused_seconds == 104
    assert run.state.budget_remaining.max_seconds == 4
    assert run.timer(4).ended == stopped(StopReason.TIME_LIMIT)


def test_a_subagent_that_is_approved_after_a_pause_has_the_time_that_its_parent_has_left() -> None:
    asks = (ApprovalRule(tools=("*",)),)
    run = Run(ExecutionBudget(max_seconds=50), approvals=asks, pause_while_waiting=True, subagents=[HELPER])
    run.begin().answer("", spawn("a"), after=4).decide("a", after=100)
    assert run.spawned[0].budget.max_seconds == 46
    assert run.state.budget_remaining.max_seconds == 46


def test_what_is_left_of_the_time_stays_the_same_during_a_pause() -> None:
    run = waiting(budget=ExecutionBudget(max_seconds=50), pause=True)
    run.tick(30)
    assert run.says("still there?").state.budget_remaining.max_seconds == 49


def test_two_waits_add_up() -> None:
    run = waiting(budget=ExecutionBudget(max_seconds=50), pause=True).decide("a", after=10).returns("a")
    run.answer("", call("b")).decide("b", after=20)
    assert run.state.running.paused_seconds == 30
    assert run.wanted(StartTimer) == (StartTimer(moment(1 + 50 + 30)),)


def test_only_time_in_which_nothing_else_runs_is_not_counted() -> None:
    run = Run(ExecutionBudget(max_seconds=50), approvals=ASK, pause_while_waiting=True).begin()
    run.answer("", call("a"), call("b", "echo"))
    assert run.state.running.paused_at is None
    run.returns("b", after=10)
    assert run.state.running.paused_at == moment(12)
    run.decide("a", after=7)
    assert run.state.running.paused_seconds == 7


def test_a_call_that_is_queued_behind_the_one_that_waits_does_not_keep_the_clock_running() -> None:
    run = Run(ExecutionBudget(max_seconds=50), approvals=ASK, pause_while_waiting=True, sequential=True).begin()
    run.answer("", call("a"), call("b", "echo"))
    assert run.state.running.paused_at == moment(2)
    run.decide("a", after=30).returns("a")
    assert run.called == ["b"]
    assert run.state.running.paused_seconds == 30


def test_a_pause_does_not_move_a_deadline() -> None:
    run = waiting(budget=ExecutionBudget(max_seconds=50, deadline=moment(20)), pause=True)
    assert run.timer(18).ended == stopped(StopReason.TIME_LIMIT)
    assert run.state.stop_signal is not None
    assert "deadline" in run.state.stop_signal.message


def test_by_default_waiting_counts() -> None:
    run = waiting(budget=ExecutionBudget(max_seconds=50)).decide("a", after=10)
    assert run.state.running.paused_seconds == 0
    assert run.wanted(StartTimer) == ()


def test_a_stop_ends_a_pause_and_its_time_is_known() -> None:
    run = Run(approvals=ASK, pause_while_waiting=True).begin().answer("", call("a"))
    run.tick(9)
    run.stop()
    assert run.state.running.paused_seconds == 10


def test_hooks_look_at_a_call_before_the_person_does() -> None:
    run = Run(approvals=ASK, hooks=[hook_at("before_tool"), hook_at("after_tool")]).begin()
    run.answer("", call("a"), call("b")).hooked(Changes(arguments={"a": 2})).hooked(Changes(block="no"))
    assert run.asked == []
    assert run.outcomes == []
    run.decide("a")
    assert run.wanted(CallTool)[0].call.arguments == {"a": 2}
    assert run.returns("a").wanted(RunHooks)[0].context.trigger == "after_tool"


def test_a_call_that_runs_alone_waits_alone() -> None:
    run = Run(approvals=ASK, tools=[ToolTraits(name="add", sequential=True), "echo"]).begin()
    run.answer("", call("a"), call("b", "echo"))
    assert run.asked == ["a"]
    assert run.called == []
    assert run.decide("a", "deny").called == ["b"]


def test_a_deadline_strikes_during_a_wait_that_does_not_count_toward_the_seconds() -> None:
    budget = ExecutionBudget(max_seconds=5, deadline=moment(60))
    run = waiting(budget=budget, pause=True)
    assert run.wanted(StartTimer) == (StartTimer(fires_at=moment(60)),), "the one there was stands at second six"
    paused = run.state
    assert run.timer(10).state is paused, "the seconds that would have been over are held"
    run.timer(60 - run.seconds)
    assert run.commands == (CancelInFlight(), Finish())
    assert run.ended == stopped(StopReason.TIME_LIMIT)
    assert run.outcomes == [("a", "cancelled")]
    assert "deadline" in (run.state.stop_signal.message if run.state.stop_signal else "")


def test_a_wait_without_a_deadline_holds_the_seconds_and_sets_no_timer() -> None:
    assert waiting(budget=ExecutionBudget(max_seconds=5), pause=True).wanted(StartTimer) == ()


def test_the_calls_that_wait_are_told_and_those_that_run_are_not() -> None:
    run = Run(approvals=ASK).begin().answer("", call("a"), call("b", "echo"), call("c"))
    assert [each.call.id for each in run.state.waiting_calls] == ["a", "c"]
    run.decide("a")
    assert [each.call.id for each in run.state.waiting_calls] == ["c"]
    assert run.decide("c", "deny").state.waiting_calls == ()
    assert Run().state.waiting_calls == ()
