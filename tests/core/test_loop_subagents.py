"""Subagents: their budgets, what flows up from them, and what cannot be called (docs/spec.md, sections 5 and 8)."""

from __future__ import annotations

import pytest

from holdfast.core.agent import subagents
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.bounds import CALLS_KEPT_MAX, DEPTH_MAX, SUBAGENTS_AT_ONCE_MAX
from holdfast.core.base.usage import Prices, Usage
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import CallTool, SpawnSubagent
from tests.core.building import BOOM, COMPLETED, Run, call, moment, spawn, stopped

HELPER = AgentDefinition(name="helper", budget=ExecutionBudget(max_steps=10, max_tokens=5_000))
OWN = AgentDefinition(name="own", budget=ExecutionBudget(max_tokens=5_000), budget_policy="own")
FREE = AgentDefinition(name="free")


def test_a_call_of_spawn_starts_the_subagent_with_its_task() -> None:
    run = Run(subagents=[HELPER]).begin().answer("", spawn("a", task="find it"))
    assert run.commands == (
        SpawnSubagent(
            step_number=1,
            index=0,
            call_id="a",
            agent="helper",
            task="find it",
            budget=HELPER.budget,
            depth_left=2,
        ),
    )


def test_its_answer_is_the_result_and_its_usage_and_cost_flow_up() -> None:
    run = Run(subagents=[HELPER], llm=LLM(prices=Prices(input_usd=1, output_usd=1))).begin().answer("", spawn("a"))
    run.child("a", "found it", usage=Usage(input_tokens=1_000, output_tokens=50), cost=0.25)
    assert run.answers == {"a": "found it"}
    assert run.state.usage == Usage(input_tokens=1_100, output_tokens=70)
    assert run.state.cost == pytest.approx(0.25 + 0.000120)
    (execution,) = run.state.last_step_tool_executions
    assert (execution.usage.total_tokens, execution.cost) == (1_050, 0.25)
    assert run.state.last_step_usage == run.state.usage
    assert run.answer("done").ended == COMPLETED


def test_by_default_a_childs_budget_is_capped_by_what_its_parent_has_left() -> None:
    budget = ExecutionBudget(max_steps=4, max_tokens=1_000, max_seconds=60, max_cost=2.0, deadline=moment(90))
    run = Run(budget, subagents=[HELPER]).begin().answer("", call("a")).returns("a").answer("", spawn("b"))
    assert run.spawned[0].budget == ExecutionBudget(
        max_steps=2, max_tokens=760, max_seconds=57, max_cost=2.0, deadline=moment(90)
    )


def test_a_child_that_declares_nothing_has_what_its_parent_has_left() -> None:
    run = Run(ExecutionBudget(max_tokens=1_000), subagents=[FREE]).begin().answer("", spawn("a", "free"))
    assert run.spawned[0].budget == ExecutionBudget(max_tokens=880)


def test_a_child_with_a_budget_of_its_own_has_that_one_alone() -> None:
    run = Run(ExecutionBudget(max_tokens=1_000, max_steps=2), subagents=[OWN]).begin().answer("", spawn("a", "own"))
    assert run.spawned[0].budget == OWN.budget


def test_children_of_one_step_share_what_is_left_so_that_together_they_cannot_pass_it() -> None:
    run = Run(ExecutionBudget(max_tokens=1_020, max_cost=3.0), subagents=[HELPER, FREE]).begin()
    run.answer("", spawn("a"), spawn("b", "free"), spawn("c"))
    assert [command.budget.max_tokens for command in run.spawned] == [300, 300, 300]
    assert [command.budget.max_cost for command in run.spawned] == [1.0, 1.0, 1.0]


def test_children_that_run_one_after_another_never_pass_the_budget_either() -> None:
    run = Run(ExecutionBudget(max_tokens=1_020), subagents=[FREE], sequential=True).begin()
    run.answer("", spawn("a", "free"), spawn("b", "free"))
    used = 0
    for id_ in ("a", "b"):
        (command,) = run.spawned
        share = command.budget.max_tokens or 0
        used += share
        run.child(id_, usage=Usage(input_tokens=share))
    assert used <= 900
    assert run.state.usage.total_tokens <= 1_020


def test_what_a_child_used_can_end_its_parent() -> None:
    run = Run(ExecutionBudget(max_tokens=500), subagents=[FREE]).begin().answer("", spawn("a", "free"))
    run.child("a", usage=Usage(input_tokens=380))
    assert run.ended == stopped(StopReason.TOKEN_LIMIT)
    assert run.outcomes == [("a", "succeeded")]


def test_an_unknown_agent_is_told_with_the_nearest_name() -> None:
    run = Run(subagents=[HELPER]).begin().answer("", spawn("a", "helpr"))
    told = "the model asked for the agent 'helpr', which is not there; did you mean 'helper'?"
    assert run.answers == {"a": f"Error (UnknownSubagent): {told}"}
    assert run.model_call.step_number == 2


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"agent": "helper"},
        {"agent": "helper", "task": ""},
        {"agent": "helper", "task": " \n"},
        {"agent": "helper", "task": 5},
        {"agent": ["helper"], "task": "x"},
        {"agent": "helper", "task": "x", "budget": {"max_tokens": 10**9}},
    ],
)
def test_bad_arguments_are_told_and_start_nothing(arguments: dict[str, object]) -> None:
    asked = ToolCall.model_validate({"id": "a", "name": "spawn", "arguments": arguments})
    run = Run(subagents=[HELPER]).begin().answer("", asked)
    assert run.spawned == []
    assert run.answers["a"].startswith("Error (InvalidArguments): give `agent` and `task`")


@pytest.mark.parametrize(("own", "left", "below"), [(3, None, 2), (3, 1, 0), (1, 5, 0), (DEPTH_MAX, 4, 3)])
def test_agents_nest_as_deep_as_the_root_and_the_definition_allow(own: int, left: int | None, below: int) -> None:
    run = Run(subagents=[HELPER], max_depth=own, depth_left=left).begin().answer("", spawn("a"))
    assert run.spawned[0].depth_left == below


@pytest.mark.parametrize(("own", "left"), [(0, None), (3, 0)])
def test_agents_that_would_nest_too_deep_are_not_started_and_the_model_is_told(own: int, left: int | None) -> None:
    run = Run(subagents=[HELPER], max_depth=own, depth_left=left).begin().answer("", spawn("a"))
    assert run.spawned == []
    assert run.answers["a"].startswith("Error (SubagentTooDeep)")


def test_a_child_that_failed_is_an_error_that_the_parent_can_recover_from() -> None:
    run = Run(subagents=[HELPER]).begin().answer("", spawn("a"))
    run.child("a", "", ExecutionStatus.FAILED, why="the model is gone", usage=Usage(input_tokens=7))
    assert run.answers == {"a": "Error (SubagentFailed): the agent 'helper' failed: the model is gone"}
    assert run.outcomes == [("a", "failed")]
    assert run.state.usage.input_tokens == 107
    assert run.answer("I know it myself").ended == COMPLETED


def test_a_child_that_was_stopped_is_a_result_that_says_so_with_what_it_had_found() -> None:
    run = Run(subagents=[HELPER]).begin().answer("", spawn("a"), spawn("b"), spawn("c"))
    run.child("a", "half of it", ExecutionStatus.STOPPED, why="max_steps 2 reached")
    run.child("b", "", ExecutionStatus.STOPPED, why="max_steps 2 reached")
    run.child("c", "", ExecutionStatus.STOPPED, why="")
    assert run.answers == {
        "a": "[the agent 'helper' was stopped before its end (max_steps 2 reached); it had come to: half of it]",
        "b": "[the agent 'helper' was stopped before its end (max_steps 2 reached); it had not answered yet]",
        "c": "[the agent 'helper' was stopped before its end; it had not answered yet]",
    }
    assert run.outcomes == [("a", "succeeded"), ("b", "succeeded"), ("c", "succeeded")]
    assert not run.state.has_errors


def test_a_stop_cancels_the_children_and_keeps_what_others_said() -> None:
    run = Run(subagents=[HELPER]).begin().answer("", spawn("a"), spawn("b")).child("b").stop()
    assert run.outcomes == [("a", "cancelled"), ("b", "succeeded")]
    ended = run.state
    assert run.child("a", "too late").state is ended


def test_children_and_tools_run_side_by_side() -> None:
    run = Run(subagents=[HELPER]).begin().answer("", call("a"), spawn("b"))
    assert (len(run.wanted(CallTool)), len(run.spawned)) == (1, 1)
    assert run.child("b").commands == ()
    assert run.fails("a", BOOM).model_call.step_number == 2


def test_without_subagents_spawn_is_a_tool_like_any_other() -> None:
    run = Run(tools=["add", "spawn"]).begin().answer("", spawn("a"))
    assert run.called == ["a"]
    run = Run().begin().answer("", spawn("a"))
    assert run.answers["a"].startswith("Error (UnknownTool)")


def test_a_tree_takes_no_more_steps_than_its_root_may() -> None:
    run = Run(ExecutionBudget(max_steps=6), subagents=[FREE]).begin()
    run.answer("", spawn("a", "free"), spawn("b", "free"))
    assert [command.budget.max_steps for command in run.spawned] == [2, 2], "five are left after this one"
    run.child("a", steps=2).child("b", steps=2)
    assert (run.state.steps_used, run.state.budget_remaining.max_steps) == (5, 1)
    run.answer("", call("c")).returns("c")
    assert run.ended == stopped(StopReason.STEPS_LIMIT)


def test_the_steps_of_one_child_after_another_count_and_the_next_has_what_is_left() -> None:
    run = Run(ExecutionBudget(max_steps=6), subagents=[FREE], sequential=True).begin()
    run.answer("", spawn("a", "free")).child("a", steps=3)
    run.answer("", spawn("b", "free"))
    assert run.spawned[0].budget.max_steps == 1, "four are used, and the step that asks is the fifth"
    assert run.child("b", steps=1).ended == stopped(StopReason.STEPS_LIMIT)
    assert (run.state.step_count, run.state.steps_used) == (2, 6)


def test_the_steps_of_children_that_failed_or_were_stopped_count_too() -> None:
    run = Run(ExecutionBudget(max_steps=5), subagents=[HELPER]).begin().answer("", spawn("a"), spawn("b"))
    run.child("a", status=ExecutionStatus.FAILED, steps=2).child("b", status=ExecutionStatus.STOPPED, steps=2)
    assert run.ended == stopped(StopReason.STEPS_LIMIT)
    assert run.state.running.budget.max_steps == run.state.steps_used


def test_a_child_for_whom_no_step_is_left_may_take_none() -> None:
    run = Run(ExecutionBudget(max_steps=2), subagents=[FREE]).begin()
    run.answer("", spawn("a", "free"), spawn("b", "free"))
    assert [command.budget.max_steps for command in run.spawned] == [0, 0], "one step is left for two"


def test_the_next_execution_counts_its_subagents_steps_afresh() -> None:
    run = Run(ExecutionBudget(max_steps=9), subagents=[FREE]).begin().answer("", spawn("a", "free"))
    run.child("a", steps=4).answer("done").begin()
    assert (run.state.steps_used, run.state.budget_remaining.max_steps) == (0, 9)


def test_a_step_starts_only_so_many_subagents_and_the_model_is_told_of_the_rest() -> None:
    run = Run(ExecutionBudget(max_tokens=100_000), subagents=[FREE]).begin()
    run.answer("", *(spawn(f"c{place}", "free") for place in range(SUBAGENTS_AT_ONCE_MAX + 3)))
    assert len(run.spawned) == SUBAGENTS_AT_ONCE_MAX
    shares = {command.budget.max_tokens for command in run.spawned}
    assert shares == {(100_000 - 120) // SUBAGENTS_AT_ONCE_MAX}, "those that are not started have no share"
    for place in range(SUBAGENTS_AT_ONCE_MAX):
        run.child(f"c{place}")
    assert len(run.state.steps[0].executed_tool_calls) == SUBAGENTS_AT_ONCE_MAX, "the others did not run"
    told = run.answers[f"c{SUBAGENTS_AT_ONCE_MAX}"]
    assert told.startswith("Error (TooManySubagents): not started: at most 32 subagents run side by side")
    assert run.answer("", spawn("again", "free")).spawned, "the next step may start more"


def test_two_thousand_subagents_wanted_in_one_step_are_not_started() -> None:
    run = Run(subagents=[FREE]).begin()
    run.answer("", *(spawn(f"c{place}", "free") for place in range(2_000)))
    assert len(run.spawned) == SUBAGENTS_AT_ONCE_MAX
    step = run.state.running.current_step
    assert step is not None
    assert len(step.requested_tool_calls) == CALLS_KEPT_MAX


def test_an_execution_starts_only_so_many_subagents_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subagents, "SUBAGENTS_STARTED_MAX", 5)
    run = Run(subagents=[FREE]).begin()
    for step in range(2):
        run.answer("", spawn(f"{step}a", "free"), spawn(f"{step}b", "free"))
        run.child(f"{step}a").child(f"{step}b")
    run.answer("", spawn("e", "free"), spawn("f", "free"))
    assert [each.call_id for each in run.spawned] == ["e"]
    assert run.child("e").state.running.subagents_started == 5
    assert run.answers["f"] == (
        "Error (TooManySubagents): not started: one run starts at most 5 subagents; go on without this one"
    )
    assert run.answer("", spawn("g", "free")).spawned == []


def test_a_subagent_that_is_started_again_after_an_interruption_counts_once() -> None:
    run = Run(subagents=[FREE]).begin().answer("", spawn("a", "free")).resume()
    assert len(run.spawned) == 1
    assert run.state.running.subagents_started == 1
