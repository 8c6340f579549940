"""What listeners are told: twenty-eight kinds of events, in the order in which things happen, each with its origin."""

from __future__ import annotations

import inspect
from uuid import UUID

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition, FallbackRoute
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Changes
from holdfast.core.agent.initial_state import new_agent
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.conversation.input_requests import InputAnswer, InputRequest
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import Emit
from holdfast.core.loop.events import ExecutionStarted, InputAnswered, InputNeeded
from holdfast.core.tools.mcp_changes import McpToolsChange, PinnedCatalog
from holdfast.core.wire import execution_events
from holdfast.core.wire.execution_events import (
    AgentExecutionCompleted,
    AgentExecutionFailed,
    AgentExecutionStarted,
    AgentExecutionStopped,
    AgentStepCompleted,
    ApprovalResolved,
    ContinuationEvaluated,
    HookExecuted,
    InferenceResponseReceived,
    Observed,
    SubagentCompleted,
    SubagentSpawned,
    TokenUsageReported,
    ToolCallBlocked,
    ToolCallCompleted,
)
from tests.core.building import AGENT_ID, BOOM, START, USAGE, Run, call, handoff, hook_at, moment, spawn

HELPER = AgentDefinition(name="helper")
LINK = InputRequest(key="page", message="Allow it", url="https://example.com")
KINDS = {
    name for name, each in vars(execution_events).items() if inspect.isclass(each) and issubclass(each, Observed)
} - {"Observed"}


def rich() -> Run:
    """A run with a hook, an approval, a subagent, a blocked call, a message from outside, and a stop in the end."""
    run = Run(
        ExecutionBudget(max_steps=2),
        hooks=[hook_at("before_tool", "guard", tools=("echo",))],
        subagents=[HELPER],
        approvals=(ApprovalRule(tools=("add",)),),
        observed=True,
    )
    run.begin().answer("", call("a"), call("b", "echo"), spawn("c"))
    run.hooked(Changes(block="no")).says("by the way").decide("a").child("c").returns("a")
    return run.answer("", call("d", "echo")).hooked().fails("d")


def of(run: Run, kind: type[Observed]) -> list[Observed]:
    return [event for event in run.events if isinstance(event, kind)]


def test_there_are_twenty_eight_kinds() -> None:
    assert len(KINDS) == 28


def test_a_rich_run_tells_what_happens_in_the_order_in_which_it_does() -> None:
    assert rich().told == [
        "AgentExecutionStarted",
        *("AgentStepStarted", "InferenceRequestStarted", "InferenceResponseReceived"),
        *("ApprovalRequested", "ToolCallStarted", "SubagentSpawned"),
        *("HookExecuted", "ToolCallBlocked"),
        "MessageInjected",
        *("ApprovalResolved", "ToolCallStarted"),
        *("SubagentCompleted", "ToolCallCompleted", "ToolCallCompleted"),
        *("AgentStepCompleted", "TokenUsageReported", "ContinuationEvaluated"),
        *("AgentStepStarted", "InferenceRequestStarted", "InferenceResponseReceived"),
        *("HookExecuted", "ToolCallStarted", "ToolCallCompleted"),
        "StopSignalReceived",
        *("AgentStepCompleted", "TokenUsageReported", "ContinuationEvaluated"),
        *("AgentExecutionStopped", "AgentExecutionCompleted"),
    ]


def test_every_kind_is_told_by_some_run() -> None:
    told = {*rich().told, *Run(observed=True).begin().answer("x").told, *Run(observed=True).begin().model_fails().told}
    handed = Run(observed=True, handoffs=[HELPER]).begin().answer("", handoff("a")).hands_over()
    asking = Run(observed=True).begin().answer("", call("a"))
    asking.feed(InputNeeded("a", "theatre", (LINK,), seconds_max=9, started_at=moment(2), at=moment(2)))
    asking.feed(InputAnswered("a", InputAnswer(), at=moment(3)))
    change = McpToolsChange(server="theatre", changed=("theatre_book",))
    changed = Run(observed=True).begin(mcp=PinnedCatalog(digest="0" * 64, changes=(change,)))
    routes = LLM(model="first", fallback=(FallbackRoute(model="second"),))
    away = ErrorRecord(type="ProviderUnavailable", message="not now", source="model")
    fallen = Run(observed=True, llm=routes).begin().model_fails(away)
    of_capabilities = {"TodosChanged", "AnswerJudged", "AgentWentBack"}  # tests/local/test_listeners.py
    assert told | set(handed.told) | set(asking.told) | set(changed.told) | set(fallen.told) | of_capabilities == set(
        KINDS
    )


def test_every_event_tells_whose_it_is_when_and_in_which_step() -> None:
    run = rich()
    execution_id = run.state.running.execution_id
    assert {(event.agent_id, event.execution_id, event.parent_agent_id) for event in run.events} == {
        (AGENT_ID, execution_id, None)
    }
    times = [event.at for event in run.events]
    assert times == sorted(times)
    assert times[0] == moment(1)
    numbers = [event.step_number for event in run.events]
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[1], numbers[-1]) == (0, 1, 2)


def test_a_subagents_events_name_its_parent() -> None:
    run = Run(observed=True)
    parent = str(UUID(int=77))
    child = new_agent(run.loop.definition, agent_id=AGENT_ID, at=START, parent_agent_id=parent)
    _, commands = run.loop.step(
        child, ExecutionStarted(str(UUID(int=5)), (user_message("x"),), ExecutionBudget(), moment(1))
    )
    assert {command.event.parent_agent_id for command in commands if isinstance(command, Emit)} == {parent}


def test_without_listeners_nothing_is_told_and_the_state_is_the_same() -> None:
    silent, loud = Run().begin().answer("", call("a")), Run(observed=True).begin().answer("", call("a"))
    assert silent.wanted(Emit) == ()
    assert loud.wanted(Emit)
    assert silent.state == loud.state
    assert silent.commands == tuple(each for each in loud.commands if not isinstance(each, Emit))


def test_the_first_event_names_the_agent_and_whether_the_run_was_taken_up_again() -> None:
    run = Run(observed=True).begin().resume()
    first, again = of(run, AgentExecutionStarted)
    assert isinstance(first, AgentExecutionStarted)
    assert isinstance(again, AgentExecutionStarted)
    assert (first.agent, first.resumed, again.resumed) == ("tester", False, True)


def test_a_steps_usage_and_the_total_are_told() -> None:
    run = Run(observed=True).begin().answer("", call("a")).returns("a").answer("done")
    told = of(run, TokenUsageReported)
    assert [(t.usage.total_tokens, t.total.total_tokens) for t in told if isinstance(t, TokenUsageReported)] == [
        (120, 120),
        (120, 240),
    ]


def test_whether_the_loop_goes_on_is_told_and_whether_a_hook_wanted_that() -> None:
    run = Run(observed=True, hooks=[hook_at("after_step")]).begin().answer("x").hooked(Changes(go_on=True))
    run.answer("y").hooked()
    told = [
        (e.should_stop, e.overridden) for e in of(run, ContinuationEvaluated) if isinstance(e, ContinuationEvaluated)
    ]
    assert told == [(False, True), (True, False)]


def test_each_hook_that_ran_is_told_with_what_it_raised() -> None:
    run = Run(observed=True, hooks=[hook_at("before_step", "one"), hook_at("before_step", "two")]).begin()
    run.hooked(None, BOOM)
    told = [(e.hook, e.trigger.value, e.error) for e in of(run, HookExecuted) if isinstance(e, HookExecuted)]
    assert told == [("one", "before_step", None), ("two", "before_step", BOOM)]


def test_every_requested_call_is_told_to_have_ended_once() -> None:
    run = Run(observed=True, hooks=[hook_at("before_tool", tools=("echo",))]).begin()
    run.answer("", call("a"), call("b", "echo"), call("c", "nope"), call("d")).returns("d")
    run.hooked(Changes(block="no")).stop()
    ended = [e.tool_execution.call.id for e in run.events if isinstance(e, ToolCallCompleted | ToolCallBlocked)]
    assert sorted(ended) == ["a", "b", "c", "d"]


def test_every_decision_is_told_and_so_is_none() -> None:
    run = Run(observed=True, approvals=(ApprovalRule(tools=("*",)),)).begin()
    run.answer("", call("a"), call("b"), call("c"), call("d"))
    run.decide("a").decide("b", "deny", reason="no").decide("c", "edit", arguments={}).expires("d")
    told = [(e.decision, e.by, e.reason) for e in of(run, ApprovalResolved) if isinstance(e, ApprovalResolved)]
    assert told == [("approve", "ann", ""), ("deny", "ann", "no"), ("edit", "ann", ""), ("expired", "", "")]


def test_a_subagents_beginning_is_told_with_the_place_of_its_call() -> None:
    run = Run(observed=True, subagents=[HELPER]).begin().answer("", call("a"), spawn("b"))
    (told,) = of(run, SubagentSpawned)
    assert isinstance(told, SubagentSpawned)
    assert (told.call_id, told.index, told.step_number) == ("b", 1, 1)


def test_a_subagents_end_is_told_with_its_status() -> None:
    run = Run(observed=True, subagents=[HELPER]).begin().answer("", spawn("a"))
    run.child("a", status=ExecutionStatus.STOPPED)
    (told,) = of(run, SubagentCompleted)
    assert isinstance(told, SubagentCompleted)
    assert (told.call_id, told.agent, told.status) == ("a", "helper", ExecutionStatus.STOPPED)


def test_the_last_event_says_how_it_ended() -> None:
    done = Run(observed=True).begin().answer("42").events[-1]
    assert isinstance(done, AgentExecutionCompleted)
    assert (done.answer, done.status, done.reason) == ("42", ExecutionStatus.COMPLETED, StopReason.COMPLETED)
    ended = Run(observed=True).begin().stop("enough").events[-1]
    assert isinstance(ended, AgentExecutionCompleted)
    assert (ended.status, ended.reason, ended.message) == (
        ExecutionStatus.STOPPED,
        StopReason.USER_REQUESTED,
        "enough",
    )
    failed = Run(observed=True).begin().model_fails().events[-1]
    assert isinstance(failed, AgentExecutionFailed)
    assert failed.error == BOOM


def ends(run: Run) -> list[tuple[str, str, str]]:
    """Return the reasons and messages of the loop's end as they were told, and what was told after it."""
    told = of(run, AgentExecutionStopped)
    return [(e.reason, e.message, run.told[-1]) for e in told if isinstance(e, AgentExecutionStopped)]


def test_the_end_of_the_loop_is_told_once_at_every_end_before_the_end_of_all() -> None:
    assert ends(Run(observed=True).begin().answer("42")) == [("completed", "", "AgentExecutionCompleted")]
    assert ends(Run(observed=True).begin().stop("enough")) == [("user_requested", "enough", "AgentExecutionCompleted")]
    assert ends(Run(observed=True).begin().model_fails()) == [("error", "Boom: it broke", "AgentExecutionFailed")]
    assert ends(Run(ExecutionBudget(max_steps=0), observed=True).begin())[0][0] == "steps_limit"


def test_the_end_of_the_loop_is_told_before_the_hooks_of_the_end_and_the_end_of_all_after_them() -> None:
    hooks = [hook_at("on_stop"), hook_at("on_error"), hook_at("after_execution")]
    run = Run(observed=True, hooks=hooks).begin().answer("42").hooked().hooked()
    assert run.told[-4:] == ["AgentExecutionStopped", "HookExecuted", "HookExecuted", "AgentExecutionCompleted"]
    run = Run(observed=True, hooks=hooks).begin().answer("42").hooked(BOOM).hooked().hooked()
    assert ends(run) == [("completed", "", "AgentExecutionFailed")], "a hook of the end can fail what had ended well"
    run = Run(observed=True, hooks=hooks).begin().answer("42").hooked(Changes(stop="too dear"))
    last = run.hooked().events[-1]
    assert isinstance(last, AgentExecutionCompleted)
    assert (last.status, last.reason, last.message) == (
        ExecutionStatus.STOPPED,
        StopReason.STOP_REQUESTED,
        "too dear",
    )


def test_a_complete_step_is_told_with_its_times_and_what_it_used() -> None:
    run = Run(observed=True).begin().answer("", call("a"), after=3, wasted=USAGE).returns("a", after=4)
    (told,) = of(run, AgentStepCompleted)
    assert isinstance(told, AgentStepCompleted)
    done = run.state.step_executions[0]
    assert (told.started_at, told.completed_at, told.usage) == (done.started_at, done.completed_at, USAGE + USAGE)
    assert (told.duration_seconds, told.completed_at) == (7.0, moment(8))


def test_a_failure_without_an_error_of_its_own_tells_the_steps_error_or_the_reason() -> None:
    run = Run(observed=True, errors="fatal").begin().answer("", call("a"), call("b")).fails("a").stop()
    assert isinstance(run.events[-1], AgentExecutionFailed)
    assert run.events[-1].error == BOOM
    run = Run(observed=True, hooks=[hook_at("before_execution", "guard")]).begin()
    run.hooked(Changes(stop="the books do not add up", stop_reason="error"))
    assert isinstance(run.events[-1], AgentExecutionFailed)
    assert (run.events[-1].error.message, run.events[-1].error.source) == ("the books do not add up", "guard")


def test_a_step_that_is_cut_off_is_told_to_be_complete_once_the_model_has_answered_in_it() -> None:
    run = Run(observed=True).begin().answer("", call("a")).stop()
    (told,) = of(run, AgentStepCompleted)
    assert isinstance(told, AgentStepCompleted)
    assert told.step == run.state.last_step
    assert of(Run(observed=True).begin().stop(), AgentStepCompleted) == []


def test_a_hook_that_changed_the_answer_is_told_with_its_text() -> None:
    run = Run(observed=True, hooks=[hook_at("after_inference", "one"), hook_at("after_inference", "two")]).begin()
    run.answer("a secret").hooked(Changes(answer="a *****"), None)
    told = [(e.hook, e.answer) for e in of(run, HookExecuted) if isinstance(e, HookExecuted)]
    assert told == [("one", "a *****"), ("two", None)]
    (heard,) = [e for e in of(run, InferenceResponseReceived) if isinstance(e, InferenceResponseReceived)]
    assert heard.response.text == "a secret"
    (end,) = [e for e in of(run, AgentExecutionCompleted) if isinstance(e, AgentExecutionCompleted)]
    assert end.answer == "a *****"
