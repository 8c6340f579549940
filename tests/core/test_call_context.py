"""What a tool's call knows of its run, and what the tool makes of the agent's metadata."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from holdfast.core.agent.budget import LIMITS, ExecutionBudget
from holdfast.core.agent.hooks import Trigger
from holdfast.core.base.bounds import WARNING_CHARS_MAX
from holdfast.core.base.frozen import canonical
from holdfast.core.loop.commands import CallTool
from holdfast.core.loop.events import ToolReturned
from holdfast.core.loop.pending_messages import METADATA_BYTES_MAX
from holdfast.core.tools.call_context import (
    PROGRESS_TEXT_CHARS_MAX,
    BudgetLeft,
    CallContext,
    bounded_progress,
)
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_traits import ToolTraits
from tests.core.building import AGENT_ID, Run, call, hook_at, moment

TOLD = ToolTraits(name="add", context=True)


def told_run(budget: ExecutionBudget | None = None, **given: object) -> Run:
    return Run(budget, tools=[TOLD, "echo"], **given).begin()  # type: ignore[arg-type]  # as `Run` takes them


def sets(run: Run, id_: str, **metadata: JsonValue) -> Run:
    at = run.tick()
    run.feed(ToolReturned(id_, "ok", started_at=at, at=at, metadata=metadata))
    return run


def test_a_call_knows_its_agent_its_step_the_end_of_the_time_and_what_is_left() -> None:
    run = told_run(ExecutionBudget(max_steps=5, max_tokens=1_000, max_cost=2.0, max_seconds=60), metadata={"desk": 4})
    run.answer("", call("a"))
    [command] = run.wanted(CallTool)
    context = command.context
    assert context is not None
    assert (context.agent, context.agent_id, context.parent_agent_id) == ("tester", AGENT_ID, None)
    assert (context.step, context.call_id, context.metadata["desk"]) == (1, "a", 4)
    assert context.deadline == run.state.running.time_limit_at
    left = context.budget_left
    assert (left.steps, left.tokens) == (5, 1_000 - run.state.usage.total_tokens)
    assert left.cost == pytest.approx(2.0 - run.state.running.cost)
    assert left.seconds == pytest.approx(60 - (run.state.updated_at - run.state.running.started_at).total_seconds())


def test_what_is_left_has_each_limit_of_the_table() -> None:
    assert list(BudgetLeft.model_fields) == [limit.name for limit in LIMITS]


def test_a_tool_that_takes_no_context_is_told_nothing() -> None:
    run = told_run().answer("", call("a", "echo"))
    assert [each.context for each in run.wanted(CallTool)] == [None]


def test_a_context_is_written_without_what_is_as_by_default() -> None:
    assert canonical(CallContext(agent="x", step=1)) == b'{"agent":"x","step":1}'


def test_a_tools_context_has_everything_that_its_call_knows() -> None:
    known = CallContext(agent="x", step=2, deadline=moment(5), budget_left=BudgetLeft(steps=1), metadata={"a": 1})
    context = ToolContext.of(known, execution_id="e", idempotency_key="k", attempt=3)
    for name in CallContext.model_fields:
        assert getattr(context, name) == getattr(known, name)
    assert (context.execution_id, context.idempotency_key, context.attempt) == ("e", "k", 3)


def test_what_a_tool_sets_is_there_for_the_hooks_behind_it_and_for_the_next_call() -> None:
    run = told_run(hooks=[hook_at("after_tool")], metadata={"old": 1}).answer("", call("a"))
    sets(run, "a", order="o-1", old=None)
    assert run.hook_context.trigger is Trigger.AFTER_TOOL
    assert run.hook_context.metadata["order"] == "o-1"
    run.hooked().answer("", call("b"))
    [command] = run.wanted(CallTool)
    assert command.context is not None
    assert command.context.metadata["order"] == "o-1"
    assert "old" not in command.context.metadata


def test_what_a_tool_sets_after_its_call_was_given_up_changes_nothing() -> None:
    run = told_run().answer("", call("a")).stop()
    sets(run, "a", order="o-1")
    assert "order" not in run.state.metadata


@pytest.mark.parametrize(
    ("metadata", "why"),
    [({"agent": "me"}, "reserved"), ({"all": "x" * 20_000}, "the limit is 16,384")],
    ids=["ours", "too much"],
)
def test_metadata_that_a_worker_must_not_set_cost_a_warning_and_the_result_stays(
    metadata: dict[str, JsonValue], why: str
) -> None:
    run = sets(told_run().answer("", call("a")), "a", **metadata)
    [warning] = [each for each in run.state.warnings if "metadata" in each]
    assert why in warning[:WARNING_CHARS_MAX]
    assert "'add'" in warning
    assert run.state.metadata["agent"] == "tester"
    assert "all" not in run.state.metadata
    [execution] = run.state.steps[0].tool_executions
    assert execution.result == "ok"


def test_many_calls_cannot_pile_up_metadata_without_end() -> None:
    run = told_run()
    for number in range(METADATA_BYTES_MAX // 15_000 + 2):
        run.answer("", call("a"))
        sets(run, "a", **{f"note_{number}": "x" * 15_000})
    assert any("at most 262,144 are kept" in each for each in run.state.warnings)
    assert "note_0" in run.state.metadata


@pytest.mark.parametrize(
    ("given", "share"),
    [(0.5, 0.5), (7, 1.0), (-1, 0.0), (float("nan"), None), (float("inf"), 1.0), (None, None), ("half", None)],
)
def test_a_fraction_of_progress_is_between_0_and_1_whatever_a_tool_says(given: object, share: float | None) -> None:
    assert bounded_progress("x", given) == ("x", share)


def test_the_text_of_progress_is_bounded() -> None:
    text, _ = bounded_progress("x" * 10_000, None)
    assert len(text) <= PROGRESS_TEXT_CHARS_MAX


def test_a_context_that_a_test_makes_takes_every_report() -> None:
    context = ToolContext(execution_id="e", idempotency_key="k", attempt=1)
    context.progress("half", fraction=0.5)
    context.log("hello", order=1)
    context.set_metadata(order=1)
    assert context == ToolContext(execution_id="e", idempotency_key="k", attempt=1)
