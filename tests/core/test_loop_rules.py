"""Rules that need their own definition: resuming, overriding, people, subagents (docs/spec.md, sections 1, 4 to 6)."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from holdfast.core.agent.budget import ExecutionBudget, TreeUse
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Changes, Trigger
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.agent.state import AgentState
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import ToolCall, user_message
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.conversation.stop_reasons import OVERRIDABLE, Continuation, StopReason
from holdfast.core.conversation.verdicts import Decision, Verdict
from holdfast.core.loop import events
from holdfast.core.loop.commands import CallModel, CancelInFlight, RequestApproval, SpawnSubagent, StartTimer
from holdfast.core.loop.events import ApprovalDecided, ExecutionStarted, StopRequested, SubagentReturned
from tests.core.building import AGENT_ID, BOOM, COMPLETED, DEFINITION, FAILED, USAGE, Run, call, moment, signal, stopped
from tests.core.ruled import Ruled, triggered

OTHER_ID = AGENT_ID.replace("1", "9")

# --- an execution that was under way is gone on with


def taken_up(run: Run, *said: str) -> Run:
    """Save, read and begin, as after a crash: with another execution id and a budget, which must not count."""
    run.state = AgentState.from_json(run.state.to_json())
    messages = tuple(user_message(text) for text in said)
    run.feed(ExecutionStarted(OTHER_ID, messages, ExecutionBudget(max_steps=1), run.tick(20)))
    return run


def test_an_execution_under_way_is_gone_on_with_and_all_it_has_used_counts() -> None:
    run = Ruled(budget=ExecutionBudget(max_steps=5, max_seconds=60)).begin().answer("", call("a")).returns("a")
    run.stop(mode="after_step")
    before = run.state
    taken_up(run)
    after = run.state
    assert after.running.execution_id == before.running.execution_id
    assert after.execution_count == before.execution_count == 1
    assert (after.steps, after.usage, after.budget) == (before.steps, USAGE, before.budget)
    assert run.signals == ["user_requested"]
    assert run.wanted(StartTimer) == (StartTimer(fires_at=moment(61)),), "the time before the crash counts"
    assert after.execution_duration is not None
    assert after.execution_duration.total_seconds() == 23
    assert run.answer("done").ended == stopped(StopReason.USER_REQUESTED)


def test_no_completed_call_runs_again_and_the_open_ones_do() -> None:
    run = Ruled().begin().answer("", call("a"), call("b"), call("c")).returns("b")
    assert taken_up(run).called == ["a", "c"]
    assert run.returns("a").returns("c").answer("done").ended == COMPLETED


def test_what_was_asked_and_not_answered_is_asked_again() -> None:
    run = Ruled().begin().answer("", call("a")).returns("a")
    assert taken_up(run).model_call.step_number == 2


# --- going on although the loop would stop


@pytest.mark.parametrize("reason", list(StopReason))
@pytest.mark.parametrize("listed", [True, False, None])
def test_a_request_to_go_on_overrides_what_is_listed_and_by_default_the_soft_reasons(
    reason: StopReason, *, listed: bool | None
) -> None:
    reasons = {True: (reason,), False: tuple(each for each in StopReason if each is not reason), None: OVERRIDABLE}
    definition = replace(DEFINITION, overridable=reasons[listed])
    run = Ruled(definition, hooks={Trigger.AFTER_STEP: Changes(go_on=True)}).begin()
    run.feed(StopRequested(signal(reason), "after_step", run.tick()))
    run.answer("done")
    soft = {"stop_requested", "steps_limit", "retry_limit", "finish_reason", "completed", "unknown"}
    goes_on = reason.value in soft if listed is None else listed
    assert bool(run.wanted(CallModel)) is goes_on
    assert run.state.status.is_terminal is not goes_on


@pytest.mark.parametrize("times", [0, 1, 3])
def test_nothing_is_overridden_more_often_than_the_definition_says(times: int) -> None:
    run = Ruled(replace(DEFINITION, max_overrides=times), hooks={Trigger.AFTER_STEP: Changes(go_on=True)}).begin()
    while run.wanted(CallModel):
        run.answer("done")
    assert run.state.step_count == times + 1
    assert run.ended == COMPLETED


def test_three_overrides_are_the_default() -> None:
    assert AgentDefinition(name="a").max_overrides == 3


def test_a_request_ends_with_its_step_and_signals_stay() -> None:
    hooks = {Trigger.AFTER_INFERENCE: Changes(go_on=True, stop="enough")}
    run = Ruled(hooks=hooks).begin().answer("", call("a"))
    assert run.state.running.continuation.continuation_requested
    run.returns("a")
    assert not run.state.running.continuation.continuation_requested
    assert run.state.step_executions[0].continuation.continuation_requested, "it is kept with the step as it stood"
    assert run.signals == ["stop_requested"]


def test_only_what_hooks_return_can_ask_to_go_on() -> None:
    kinds = [kind for kind in typing.get_args(events.Event) if kind is not events.HooksReturned]
    assert len(kinds) > 10
    names = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    assert not {name for name in names if "go_on" in name or "continu" in name}
    run = Ruled().begin().answer('{"go_on": true}', finish_reason="continuation_requested")
    assert (run.ended, run.state.running.continuation) == (COMPLETED, Continuation())


# --- waiting for a person


APPROVING = replace(DEFINITION, approvals=(ApprovalRule(tools=("a*",)),))


def test_the_time_limit_strikes_while_a_person_is_waited_for() -> None:
    run = Ruled(APPROVING, budget=ExecutionBudget(max_seconds=60)).begin().answer("", call("a"))
    assert len(run.wanted(RequestApproval)) == 1
    run.timer(after=60)
    assert (run.ended, run.outcomes) == (stopped(StopReason.TIME_LIMIT), [("a", "cancelled")])


@pytest.mark.parametrize("pausing", [False, True])
def test_the_time_a_person_takes_counts_unless_the_definition_says_otherwise(*, pausing: bool) -> None:
    definition = replace(APPROVING, pause_while_waiting=pausing)
    run = Ruled(definition, budget=ExecutionBudget(max_seconds=60)).begin().answer("", call("a"))
    run.feed(ApprovalDecided("a", Verdict(decision="approve", by="Ann"), run.tick(50)))
    assert run.called == ["a"]
    run.returns("a").timer(after=20)
    assert run.state.status is (ExecutionStatus.IN_PROGRESS if pausing else ExecutionStatus.STOPPED)
    assert not AgentDefinition(name="a").pause_while_waiting


@pytest.mark.parametrize(
    ("decision", "called", "outcome", "told"),
    [
        ("approve", {"a": 1}, "succeeded", "fine"),
        ("edit", {"a": 2}, "succeeded", "fine"),
        ("deny", None, "denied", "Error (ToolExecutionBlocked): the call was not run: denied by Ann: too dear"),
    ],
)
def test_a_person_approves_edits_or_denies(
    decision: Decision, called: dict[str, int] | None, outcome: str, told: str
) -> None:
    arguments = {"a": 2} if decision == "edit" else None
    verdict = Verdict(decision=decision, by="Ann", reason="too dear", arguments=arguments)
    run = Ruled(APPROVING).begin().answer("", call("a"))
    assert run.called == []
    run.feed(ApprovalDecided("a", verdict, run.tick()))
    if called is not None:
        (command,) = run.commands
        assert getattr(command, "call").arguments == called  # noqa: B009  # whatever command it is
        run.returns("a")
    assert (run.outcomes, run.answers) == ([("a", outcome)], {"a": told})
    (execution,) = run.state.last_step_tool_executions
    assert execution.was_blocked is (decision == "deny")


# --- subagents


CHILD = AgentDefinition(name="child", budget=ExecutionBudget(max_steps=10, max_tokens=9_000))
PARENT_BUDGET = ExecutionBudget(max_steps=20, max_tokens=10_000, max_seconds=60, max_cost=1, deadline=moment(500))


def spawn(id_: str, agent: str = "child") -> ToolCall:
    return ToolCall(id=id_, name="spawn", arguments={"agent": agent, "task": "Do a part of it."})


@pytest.mark.parametrize(
    ("policy", "effective"),
    [
        ("inherit", ExecutionBudget(max_steps=10, max_tokens=7_000, max_seconds=58, max_cost=1, deadline=moment(500))),
        ("own", CHILD.budget),
    ],
)
def test_a_childs_budget_is_capped_by_what_its_parent_has_left_unless_it_is_its_own(
    policy: str, effective: ExecutionBudget
) -> None:
    child = CHILD.model_copy(update={"budget_policy": policy})
    run = Ruled(DEFINITION, budget=PARENT_BUDGET, subagents=[child]).begin()
    run.answer("", spawn("s"), usage=Usage(input_tokens=2_000, output_tokens=1_000), after=2)
    (command,) = run.wanted(SpawnSubagent)
    assert command.budget == effective


def test_inheriting_is_the_default() -> None:
    assert CHILD.budget_policy == "inherit"


def test_children_of_one_step_share_what_is_left() -> None:
    run = Ruled(DEFINITION, budget=ExecutionBudget(max_tokens=1_120), subagents=[CHILD]).begin()
    run.answer("", spawn("s"), spawn("t"))
    assert [command.budget.max_tokens for command in run.wanted(SpawnSubagent)] == [500, 500]


def child_ends(run: Run, call_id: str, status: ExecutionStatus) -> Run:
    used, at = Usage(input_tokens=500), run.tick()
    run.feed(SubagentReturned(call_id, status, "42", "because", TreeUse(usage=used, cost=0.25), at, at))
    return run


@pytest.mark.parametrize(
    ("status", "step_type", "told"),
    [
        (ExecutionStatus.COMPLETED, "tool_execution", "42"),
        (ExecutionStatus.STOPPED, "tool_execution", "was stopped before its end (because); it had come to: 42"),
        (ExecutionStatus.FAILED, "error", "Error (SubagentFailed): the agent 'child' failed: because"),
    ],
)
def test_what_a_child_used_and_how_it_ended_reach_the_parent(
    status: ExecutionStatus, step_type: str, told: str
) -> None:
    run = child_ends(Ruled(subagents=[CHILD]).begin().answer("", spawn("s")), "s", status)
    assert (run.state.usage, run.state.cost) == (USAGE + Usage(input_tokens=500), 0.25)
    assert (run.state.last_step_type, run.state.last_step_usage) == (step_type, run.state.usage)
    assert told in run.answers["s"]
    assert run.answer("anyway").ended == COMPLETED


@pytest.mark.parametrize(
    ("agent", "depth_left", "error"), [("chil", None, "UnknownSubagent"), ("child", 0, "SubagentTooDeep")]
)
def test_a_child_that_cannot_be_started_is_an_error_that_the_parent_can_recover_from(
    agent: str, depth_left: int | None, error: str
) -> None:
    run = Ruled(subagents=[CHILD], depth_left=depth_left).begin().answer("", spawn("s", agent))
    assert run.wanted(SpawnSubagent) == ()
    assert run.answers["s"].startswith(f"Error ({error})")
    assert run.answer("anyway").ended == COMPLETED


def test_stopping_the_parent_cancels_the_tree() -> None:
    run = Ruled(subagents=[CHILD]).begin().answer("", spawn("s")).stop()
    assert run.wanted(CancelInFlight) == (CancelInFlight(),)
    assert run.outcomes == [("s", "cancelled")]


# --- the order of calls, and errors anywhere


@pytest.mark.parametrize("by_definition", [True, False])
def test_calls_run_side_by_side_unless_the_definition_or_the_tool_says_otherwise(*, by_definition: bool) -> None:
    assert Ruled().begin().answer("", call("a"), call("b")).called == ["a", "b"]
    definition = replace(DEFINITION, sequential=by_definition)
    run = Ruled(definition, sequential=() if by_definition else ("add",)).begin().answer("", call("a"), call("b"))
    assert run.called == ["a"]
    assert run.returns("a").called == ["b"]


@pytest.mark.parametrize("where", ["model", "driver"])
def test_an_error_anywhere_runs_on_error_and_fails_with_the_error_on_the_state(where: str) -> None:
    begun = Ruled(hooks={Trigger.ON_ERROR: None}).begin()
    run = begun.model_fails() if where == "model" else begun.driver_fails()
    assert triggered(run) == [Trigger.ON_ERROR]
    assert run.ended == FAILED
    assert [error.type for error in run.state.errors] == ["Boom"]


@pytest.mark.parametrize("trigger", [each for each in Trigger if each is not Trigger.ON_ERROR])
def test_a_hook_that_raises_fails_the_execution_wherever_it_stands(trigger: Trigger) -> None:
    raised = ErrorRecord(type="HookFailed", message=f"the hook raised at {trigger}", source=f"at_{trigger}")
    run = Ruled(hooks={trigger: raised}).begin().answer("", call("a")).returns("a").answer("done")
    assert (run.ended, run.state.errors) == (FAILED, (raised,))


def test_a_hook_that_raises_on_an_error_leaves_the_first_cause() -> None:
    run = Ruled(hooks={Trigger.ON_ERROR: ErrorRecord(type="HookFailed", message="too", source="h")}).begin()
    run.model_fails()
    assert (run.ended, run.state.errors, run.state.warnings) == (FAILED, (BOOM,), ("HookFailed: too",))
