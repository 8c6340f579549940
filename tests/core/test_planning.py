"""Plans of another agent: who makes one, what becomes of it, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.agent.assistants import PLAN_FORMAT, PLANNER
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.definition_errors import definition_of
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.policies import Plan
from holdfast.core.base.errors import DefinitionInvalid
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import Outcome
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.conversation.todos import Todo
from holdfast.core.loop.commands import SpawnSubagent
from holdfast.core.loop.events import ScriptAdvanced
from holdfast.core.tools.code_mode import CodeMode
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.wire.branch_points import cut
from holdfast.core.wire.carry_over import SealedHistory, whole
from holdfast.core.wire.script_contracts import ScriptCall
from tests.core.building import COMPLETED, USAGE, Run, spawn, stopped

PLANS = ToolTraits(name="make_plan", loop="plan", required=("task",))
PLAN = '{"items": ["look", "tell"]}'


def planning(id_: str = "a", task: str = "Move house.") -> ToolCall:
    return ToolCall(id=id_, name="make_plan", arguments={"task": task})


def planned(**rules: Any) -> Run:  # noqa: ANN401  # Run's
    return Run(tools=(PLANS,), capabilities=("plan",), **rules).begin().answer("", planning())


def test_the_plan_becomes_the_list_and_what_it_took_counts() -> None:
    run = planned()
    [command] = run.wanted(SpawnSubagent)
    assert command.definition is not None
    assert (command.agent, command.task, command.definition.response_format) == (PLANNER, "Move house.", PLAN_FORMAT)
    run.child("a", PLAN, steps=1)
    assert run.state.todos == (Todo(text="look"), Todo(text="tell"))
    assert run.answers == {"a": "the list is now:\n[ ] look\n[ ] tell"}
    assert (run.state.usage, run.state.steps_used) == (USAGE + USAGE, 2)
    assert run.answer("done").ended == COMPLETED


def test_a_branch_has_the_plan_of_its_point() -> None:
    run = planned().child("a", PLAN).answer("", planning("b")).child("b", '{"items": ["other"]}').answer("done")
    snapshot = SealedHistory().snapshot(run.state)
    assert whole(cut(snapshot, run.state, 1), ()).todos == (Todo(text="look"), Todo(text="tell"))
    assert whole(cut(snapshot, run.state, 0), ()).todos == ()


def test_a_named_agent_plans_with_its_own_prompt() -> None:
    strategist = AgentDefinition(name="strategist", system_prompt="You think ahead.")
    [command] = planned(plan=Plan(agent="strategist"), assistants=(strategist,)).wanted(SpawnSubagent)
    assert command.definition is not None
    assert (command.agent, command.definition.system_prompt) == ("strategist", "You think ahead.")


@pytest.mark.parametrize("answer", ["", "look, then tell", '{"items": []}', '{"items": [" "]}'])
def test_a_plan_that_cannot_be_read_leaves_the_list(answer: str) -> None:
    run = planned().child("a", PLAN).answer("", planning("b")).child("b", answer)
    assert len(run.state.todos) == 2
    assert "PlanUnreadable" in run.answers["b"]


def test_a_planner_that_fails_is_told() -> None:
    run = planned().child("a", status=ExecutionStatus.FAILED, why="it broke")
    assert "the agent 'planner' failed: it broke" in run.answers["a"]
    assert run.state.todos == ()


def test_a_planner_that_is_stopped_has_made_no_plan() -> None:
    run = planned().child("a", "half a plan", ExecutionStatus.STOPPED, why="max_steps_exceeded")
    [done] = run.state.steps[0].tool_executions
    assert done.error is not None
    assert (done.outcome, done.error.type) == (Outcome.FAILED, "PlannerStopped")
    assert (
        "the agent 'planner' was stopped before its end (max_steps_exceeded); it had come to: half a plan; the list"
        in (done.error.message)
    )
    assert run.state.todos == ()


def test_a_stop_is_heard_while_it_plans_and_the_use_counts() -> None:
    run = planned()
    run.grace = True
    run.stop()
    assert run.state.running.cancelling
    run.child("a", PLAN, ExecutionStatus.STOPPED)
    assert run.ended == stopped(StopReason.USER_REQUESTED)
    assert run.state.usage == USAGE + USAGE


def test_each_planner_counts_once_toward_what_a_run_may_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.core.agent.subagents.SUBAGENTS_STARTED_MAX", 5)
    ids = [f"a{number}" for number in range(6)]
    run = Run(tools=(PLANS,)).begin().answer("", *map(planning, ids))
    assert [each.call_id for each in run.spawned] == ids[:5]
    run.resume()
    assert [each.call_id for each in run.spawned] == ids[:5], "those under way are made again"
    for each in ids[:5]:
        run.child(each, PLAN)
    assert "one run starts at most 5 subagents" in run.answers["a5"]
    assert run.state.running.subagents_started == 5


def test_a_planner_leaves_room_for_subagents_that_were_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.core.agent.subagents.SUBAGENTS_STARTED_MAX", 2)
    helper = AgentDefinition(name="helper")
    run = Run(tools=(PLANS,), subagents=[helper]).begin().answer("", planning("a"), planning("b"), spawn("c"))
    assert [each.call_id for each in run.spawned] == ["a", "c"]
    assert run.state.running.subagents_started == 2


def test_where_nothing_may_nest_and_without_a_task_nobody_plans() -> None:
    assert "nest any deeper" in planned(depth_left=0).answers["a"]
    run = Run(tools=(PLANS,)).begin().answer("", planning(task=" "))
    assert "InvalidArguments" in run.answers["a"]
    assert run.wanted(SpawnSubagent) == ()


def test_a_resumed_state_has_the_plan_made_again() -> None:
    run = planned().resume()
    assert len(run.wanted(SpawnSubagent)) == 1
    assert run.child("a", PLAN).state.todos == (Todo(text="look"), Todo(text="tell"))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"plan": {"agent": "a"}}, "nobody plans without the capability 'plan'"),
        ({"plan": {"agent": "tester"}, "capabilities": ["plan"]}, "is the agent itself"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionInvalid, match=problem):
        definition_of({"name": "tester", **fields})


def test_the_planners_of_a_script_share_what_is_left() -> None:
    scripted = ToolTraits(name="run_code", sequential=True, required=("code",))
    rules: dict[str, Any] = {"capabilities": ("plan",), "code": CodeMode()}
    run = Run(ExecutionBudget(max_tokens=1_000_000), tools=(PLANS, scripted), **rules).begin()
    run.answer("", ToolCall(id="s", name="run_code", arguments={"code": "..."}))
    left = run.state.budget_remaining.max_tokens
    assert left is not None
    asked = tuple(ScriptCall(tool="make_plan", arguments={"task": str(number)}) for number in range(4))
    run.feed(ScriptAdvanced("s", asked, at=run.tick()))
    assert [each.budget.max_tokens for each in run.wanted(SpawnSubagent)] == [left // 4] * 4
