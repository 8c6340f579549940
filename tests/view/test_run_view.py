"""One run is the same, whoever tells of it: its state, its record, and the events that led to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast import AgentDefinition, Changes, ExecutionBudget, Hook, HookContext, hook, tool
from holdfast.cli.screens import output
from holdfast.core.agent.state import AgentState
from holdfast.core.wire.execution_events import AgentStepStarted, ApprovalRequested
from holdfast.core.wire.records import ExecutionRecord
from holdfast.local import LocalDriver
from holdfast.testing import a_state
from holdfast.testing.script import Call, calls, say
from holdfast.testing.scripted_model import ScriptedModel
from holdfast.view.budget_use import Share
from holdfast.view.run_view import (
    RECORDED,
    CallView,
    RunView,
    StepView,
    completed_step,
    current_step,
    recorded_run,
    run_view,
    step_views,
)
from tests.view.stories import BEGAN, Story, asked, moment, seen


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def ran(budget: ExecutionBudget, *hooks: Hook) -> tuple[AgentState, RunView]:
    """Run an agent; return its state at the end, and what who watched has seen."""
    told: list[Any] = []
    model = ScriptedModel([calls(Call("add", {"a": 1, "b": 2}), Call("add", {"a": 1}), text="let me see"), say("3")])
    definition = AgentDefinition(name="adder", tools="all", hooks="all", budget=budget)
    driver = LocalDriver(definition, model=model, tools=[add], hooks=hooks).wiretap(told.append)
    state = await driver.execute("what is one and two?")
    watched = seen(told).root
    assert watched is not None
    return state, watched


def essence(step: StepView) -> tuple[object, ...]:
    shown = tuple((each.id, each.tool, each.arguments, each.outcome, each.answer) for each in step.calls)
    return (step.number, step.kind, step.text, step.completed_at, step.seconds, step.usage, step.cost, shown)


@pytest.mark.parametrize("budget", [ExecutionBudget(), ExecutionBudget(max_steps=1)], ids=["completed", "stopped"])
async def test_a_run_is_the_same_by_its_state_and_by_its_events(budget: ExecutionBudget) -> None:
    state, watched = await ran(budget)
    told = run_view(state, "adder")
    assert told.status == ("stopped" if budget.max_steps else "completed")
    for name in ("execution_id", "agent", "status", "answer", "completed_at", "step_count", "usage", "cost", "why"):
        assert getattr(watched, name) == getattr(told, name), name
    assert [essence(each) for each in watched.steps] == [essence(each) for each in step_views(state)]


@hook("after_inference")
def censor(context: HookContext) -> Changes | None:
    """Say nothing of the answer."""
    return Changes(answer="[*****]") if context.response and not context.response.tool_calls else None


async def test_an_answer_that_a_hook_changed_is_seen_with_the_hook(capsys: pytest.CaptureFixture[str]) -> None:
    state, watched = await ran(ExecutionBudget(), censor)
    views = [*step_views(state)]
    assert [(each.text, each.revised_by) for each in views] == [("let me see", ""), ("[*****]", "censor")]
    assert [(each.text, each.revised_by) for each in watched.steps] == [(each.text, each.revised_by) for each in views]
    assert watched.answer == "[*****]"
    output.whole(state, None)
    assert "the hook censor changed the answer: [*****]" in capsys.readouterr().out


def test_a_run_is_the_same_by_its_record() -> None:
    state = a_state(steps=2)
    told = run_view(state, "clerk")
    record = ExecutionRecord(**{name: getattr(told, name) for name in RECORDED}, number=1, snapshot="0" * 64)
    assert recorded_run(record) == replace(told, budget=ExecutionBudget(), warnings=())


def test_a_step_under_way_has_the_calls_that_wait_and_those_that_ended() -> None:
    state = a_state(steps=1)
    assert current_step(state) is None
    [done] = map(completed_step, state.step_executions)
    assert (done.number, [each.is_open for each in done.calls]) == (1, [False] * len(done.calls))
    story = Story().begins().asks().answers("", asked("c1", "refund", amount=30))
    story.tell(ApprovalRequested, call=asked("c1", "refund", amount=30), expires_at=moment(60), digest="0" * 64)
    root = seen(story.told).root
    assert root is not None
    [call] = root.steps[-1].calls
    assert (call.outcome, call.expires_at, call.digest) == (
        "approval",
        moment(60),
        asked("x", "refund", amount=30).digest,
    )


def test_documents_have_nothing_of_what_is_for_who_watches() -> None:
    call = CallView(id="c1", tool="look", arguments={}, outcome="approval", expires_at=BEGAN, execution_id="x")
    assert not {"expires_at", "execution_id"} & call.model_dump().keys()
    story = Story().begins()
    story.tell(AgentStepStarted)
    root = seen(story.told).root
    assert root is not None
    assert not {"asking", "attempt", "retry", "retry_at"} & root.steps[0].model_dump().keys()
    assert not {"asking", "expires_at"} & set(StepView.model_json_schema()["properties"])


def test_shares_are_those_of_the_moment_without_pauses() -> None:
    run = RunView(execution_id="x", budget=ExecutionBudget(max_steps=4, max_seconds=100), step_count=1, steps_used=3)
    assert run.shares(moment(50)) == (), "it has not begun"
    begun = replace(run, started_at=BEGAN, paused_seconds=10)
    assert begun.shares(moment(50)) == (Share("steps", 3, 4), Share("seconds", 40, 100))
    assert replace(begun, paused_at=moment(30)).seconds_used(moment(50)) == 20
    assert replace(begun, completed_at=moment(20)).seconds_used(moment(50)) == 10
