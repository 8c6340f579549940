"""A run that is taken up again from JSON, at every moment of it: the same execution, nothing twice, the same end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from pydantic import JsonValue

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.hooks import Changes, Trigger
from holdfast.core.agent.policies import ApprovalRule, ContextPolicy, SummaryPolicy
from holdfast.core.agent.state import AgentState
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import (
    CallModel,
    CallTool,
    Command,
    RequestApproval,
    RunHooks,
    SpawnSubagent,
    StartTimer,
    SummariseBuffer,
)
from holdfast.core.tools.tool_traits import ToolTraits
from tests.core.building import COMPLETED, Run, call, hook_at, moment, spawn, stopped

HELPER = AgentDefinition(name="helper")
PAY = ToolTraits(name="pay", at_most_once=True)
ASKED = (CallModel, SummariseBuffer, CallTool, SpawnSubagent, RequestApproval, RunHooks)
QUIET = Usage(input_tokens=10, output_tokens=5)
LOUD = Usage(input_tokens=200, output_tokens=5)


def rich_run() -> Run:
    """Every kind of work in one run: hooks everywhere, approvals, a subagent, a sequential tool, a summary."""
    return Run(
        ExecutionBudget(max_steps=10, max_tokens=100_000, max_seconds=10_000),
        tools=["add", "echo", ToolTraits(name="lift", sequential=True)],
        hooks=[hook_at(trigger) for trigger in Trigger],
        subagents=[HELPER],
        approvals=(ApprovalRule(tools=("echo",), expires_seconds=500),),
        context=ContextPolicy(summary=SummaryPolicy(above_input_tokens=100, keep_messages=1)),
        pause_while_waiting=True,
    )


ANSWERS = [
    ("", (call("a"), call("b", "echo"), call("c", "lift"), spawn("d"), call("e", "nope")), LOUD),
    ("", (call("f"), call("g", "lift"), call("h", "lift")), QUIET),
    ("half of it", (), QUIET),
    ("all of it", (), QUIET),
]


class Shell:
    """Carries out what was asked, oldest first, always in the same way; after a restart it knows only what it is told.

    Every answer depends on what was asked alone, so that a run that was interrupted can be compared with one that was
    not.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.waiting: list[Command] = []
        self.seen: list[str] = []
        self.hooked = 0
        self.take_over()

    def take_over(self) -> None:
        """Note what the latest event brought."""
        self.waiting += [command for command in self.run.commands if isinstance(command, ASKED)]

    def restart(self) -> None:
        """Lose everything but the state."""
        self.waiting = []
        self.run.resume()
        self.take_over()

    def carry_out(self) -> None:
        """Do the first thing in the order of its name, whatever order it was asked for in."""
        self.waiting.sort(key=_name)
        command = self.waiting.pop(0)
        self.seen.append(_name(command))
        run = self.run
        match command:
            case CallModel():
                text, calls, usage = ANSWERS[command.step_number - 1]
                run.answer(text, *calls, usage=usage)
                if command.step_number == 3:
                    self.take_over()
                    run.says("one thing more")
            case SummariseBuffer():
                run.summarises("they talked", QUIET)
            case CallTool():
                run.fails(command.call.id) if command.call.id == "f" else run.returns(command.call.id)
            case SpawnSubagent():
                run.child(command.call_id, cost=0.5)
            case RequestApproval():
                run.decide(command.call.id)
            case RunHooks():
                run.hooks_asked.remove(command)
                run.hooks_asked.insert(0, command)
                run.hooked(_changes(command))
            case _:
                raise AssertionError(command)
        self.take_over()


def _name(command: Command) -> str:
    match command:
        case CallModel() | SummariseBuffer():
            return f"{command.step_number}-{type(command).__name__}"
        case CallTool() | RequestApproval():
            return f"{command.step_number}-{command.index}-{type(command).__name__}"
        case SpawnSubagent():
            return f"{command.step_number}-{command.index}-spawn"
        case RunHooks():
            return f"{command.context.step_number}-hooks-{command.name}"
        case _:
            raise AssertionError(command)


def _changes(command: RunHooks) -> Changes | None:
    context = command.context
    noted = {str(context.trigger): context.step_number}
    if context.trigger is Trigger.BEFORE_TOOL and context.call and context.call.id == "g":
        return Changes(metadata=noted, block="not today")
    if context.trigger is Trigger.BEFORE_TOOL and context.call and context.call.id == "h":
        return Changes(metadata=noted, arguments={"a": 5})
    if context.trigger is Trigger.AFTER_TOOL:
        return Changes(metadata=noted, messages=(user_message(f"noted {context.call.id if context.call else ''}"),))
    return Changes(metadata=noted)


def led_to_its_end(interrupted_at: int | None) -> tuple[Shell, int]:
    """Return a rich run that has ended, restarted before its event of that number, and how many events it took."""
    shell = Shell(rich_run().begin("Do it all."))
    events = 0
    while not shell.run.state.status.is_terminal:
        if events == interrupted_at:
            shell.restart()
        shell.carry_out()
        events += 1
        assert events < 200, "the run does not end"
    return shell, events


def without_times(state: AgentState) -> AgentState:
    """The state with every moment and duration set to one and the same."""
    return AgentState.from_dict({name: _flat(value) for name, value in state.to_dict().items()})


def _flat(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {name: 0.0 if name == "paused_seconds" else _flat(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_flat(each) for each in value]
    if isinstance(value, str):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            return value
        return moment(0).isoformat()
    return value


WHOLE, EVENTS = led_to_its_end(None)


def test_the_rich_run_is_one() -> None:
    state = WHOLE.run.state
    assert WHOLE.run.ended == COMPLETED
    assert EVENTS > 40
    assert state.final_response == "all of it"
    assert [execution.outcome.value for step in state.steps for execution in step.tool_executions] == [
        *("succeeded", "succeeded", "succeeded", "succeeded", "failed"),
        *("failed", "blocked", "succeeded"),
    ]
    assert state.running.compactions == 1
    assert state.running.paused_seconds > 0
    assert len(set(WHOLE.seen)) == len(WHOLE.seen), "without an interruption nothing is asked for twice"


@pytest.mark.parametrize("at", range(EVENTS))
def test_a_run_taken_up_at_any_moment_is_the_same_and_ends_in_the_same_state(at: int) -> None:
    shell, events = led_to_its_end(at)
    assert events == EVENTS, "nothing that had ended was done again"
    assert shell.seen == WHOLE.seen
    assert without_times(shell.run.state) == without_times(WHOLE.run.state)
    assert shell.run.state.execution_count == 1


def test_a_run_that_is_taken_up_before_every_event_ends_in_the_same_state() -> None:
    shell = Shell(rich_run().begin("Do it all."))
    while not shell.run.state.status.is_terminal:
        shell.restart()
        shell.carry_out()
    assert without_times(shell.run.state) == without_times(WHOLE.run.state)


def test_a_call_that_must_not_be_repeated_is_told_to_have_an_unknown_end() -> None:
    run = Run(tools=["add", PAY]).begin().answer("", call("a", "pay"), call("b")).resume()
    assert run.called == ["b"]
    run.returns("b")
    assert run.answers["a"].startswith("Error (OutcomeUnknown): the call was begun and its outcome is unknown")
    assert run.outcomes == [("a", "failed"), ("b", "succeeded")]
    assert run.model_call.step_number == 2


def test_a_call_that_must_not_be_repeated_runs_when_it_had_not_begun() -> None:
    run = Run(tools=["add", PAY], sequential=True).begin().answer("", call("a"), call("b", "pay")).resume()
    assert run.called == ["a"]
    assert run.returns("a").called == ["b"]
    run = Run(tools=[PAY], approvals=(ApprovalRule(tools=("*",)),)).begin().answer("", call("a", "pay")).resume()
    assert run.asked == ["a"]
    assert run.decide("a").called == ["a"]


def test_the_calls_behind_one_of_an_unknown_end_begin() -> None:
    run = Run(tools=["add", PAY], sequential=True).begin().answer("", call("a", "pay"), call("b")).resume()
    assert run.called == ["b"]


def test_when_every_call_had_an_unknown_end_the_model_is_asked_at_once() -> None:
    run = Run(tools=[PAY]).begin().answer("", call("a", "pay")).resume()
    assert run.model_call.step_number == 2


@pytest.mark.parametrize(
    ("rules", "told"),
    [({}, "; whether it has run is not known"), ({"approvals": (ApprovalRule(tools=("*",)),)}, "'add'")],
    ids=["running", "waiting for a person"],
)
def test_calls_of_a_tool_that_is_not_there_any_more_are_answered(rules: dict[str, Any], told: str) -> None:
    run = Run(**rules).begin().answer("", call("a"), call("b", "echo"))
    run.loop = Run(tools=["echo"], **rules).loop
    run.resume()
    step = run.state.running.current_step
    assert step is not None
    (execution,) = step.tool_executions
    assert execution.call.id == "a"
    assert execution.error is not None
    assert execution.error.type == "UnknownTool"
    assert execution.error.message.endswith(told) or told in execution.error.message
    assert (run.called or run.asked) == ["b"]


def test_when_no_call_has_its_tool_any_more_the_model_is_asked_at_once() -> None:
    run = Run(tools=[PAY]).begin().answer("", call("a", "pay"))
    run.loop = Run(tools=["echo"]).loop
    assert run.resume().model_call.step_number == 2


def test_calls_that_have_ended_are_not_asked_for_again() -> None:
    run = Run().begin().answer("", call("a"), call("b"), call("c")).returns("b", "kept").fails("c").resume()
    assert run.called == ["a"]
    run.returns("a")
    assert run.answers["b"] == "kept"


def test_the_execution_keeps_its_id_its_budget_its_usage_its_signals_and_its_time() -> None:
    budget = ExecutionBudget(max_steps=5, max_seconds=60)
    run = Run(budget).begin().answer("", call("a")).returns("a").stop(mode="after_step")
    before = run.state
    run.tick(20)
    run.resume()
    assert run.state.execution_count == 1
    for kept in ("execution_id", "budget", "usage", "started_at", "continuation", "step_executions", "current_step"):
        assert getattr(run.state.running, kept) == getattr(before.running, kept)
    assert run.state.budget_remaining.max_seconds == 60 - 23
    assert run.answer("", call("b")).returns("b").ended == stopped(StopReason.USER_REQUESTED)


LATE = ExecutionBudget(max_seconds=10)


def resumed_late(run: Run) -> Run:
    """The same run, taken up from JSON long after its time was over."""
    run.tick(100)
    return run.resume()


def test_the_timer_is_set_anew_to_the_same_moment() -> None:
    run = Run(LATE).begin()
    run.tick(3)
    run.resume()
    assert run.commands[0] == StartTimer(fires_at=moment(11))
    assert run.timer(10).ended == stopped(StopReason.TIME_LIMIT)


@pytest.mark.parametrize(
    "under_way",
    [
        lambda: Run(LATE).begin(),
        lambda: Run(LATE).begin().answer("", call("a"), call("b")).returns("b"),
        lambda: Run(LATE, approvals=(ApprovalRule(tools=("*",)),)).begin().answer("", call("a")),
        lambda: Run(LATE, subagents=[HELPER]).begin().answer("", spawn("a")),
        lambda: Run(LATE, hooks=[hook_at(Trigger.BEFORE_STEP)]).begin(),
        lambda: Run(LATE, hooks=[hook_at(Trigger.AFTER_STEP)]).begin().answer("", call("a")).returns("a"),
        lambda: Run(LATE, hooks=[hook_at(Trigger.AFTER_INFERENCE)]).begin().answer("", call("a")),
        lambda: Run(LATE, hooks=[hook_at(Trigger.BEFORE_TOOL)]).begin().answer("", call("a")),
    ],
    ids=["model", "tool", "approval", "subagent", "before_step", "after_step", "after_inference", "before_tool"],
)
def test_an_execution_taken_up_after_its_time_asks_for_nothing_again(under_way: Callable[[], Run]) -> None:
    run = resumed_late(under_way())
    assert run.ended == stopped(StopReason.TIME_LIMIT)
    assert not any(isinstance(command, (*ASKED, StartTimer)) for command in run.commands)
    assert all(outcome in ("cancelled", "succeeded") for _, outcome in run.outcomes)
    assert len(run.state.messages) == 1 + len(run.answers) + run.state.step_count, "every call has its answer"


def test_a_call_that_must_not_be_repeated_has_an_unknown_end_also_when_time_is_over() -> None:
    run = resumed_late(Run(LATE, tools=["add", PAY]).begin().answer("", call("a", "pay"), call("b")))
    assert run.ended == stopped(StopReason.TIME_LIMIT)
    assert run.outcomes == [("a", "failed"), ("b", "cancelled")]
    assert run.answers["a"].startswith("Error (OutcomeUnknown)")
    assert run.answers["b"].startswith("Error (Cancelled)")


def test_a_call_that_must_not_be_repeated_and_had_not_begun_is_cancelled_when_time_is_over() -> None:
    run = Run(LATE, tools=[PAY], approvals=(ApprovalRule(tools=("*",)),)).begin().answer("", call("a", "pay"))
    assert resumed_late(run).outcomes == [("a", "cancelled")]


def test_the_last_hooks_run_also_when_time_is_over_before_the_resumption() -> None:
    run = Run(LATE, hooks=[hook_at(Trigger.ON_STOP), hook_at(Trigger.AFTER_EXECUTION)]).begin()
    run.answer("", call("a"))
    assert resumed_late(run).hook_context.trigger is Trigger.ON_STOP
    assert resumed_late(run).hook_context.trigger is Trigger.ON_STOP, "it is the end that is gone on with"
    assert run.hooked().hook_context.trigger is Trigger.AFTER_EXECUTION
    assert run.hooked().ended == stopped(StopReason.TIME_LIMIT)


def test_what_is_said_with_the_resumption_is_seen_by_the_next_model_call() -> None:
    run = Run().begin("one").answer("", call("a")).resume("two").returns("a")
    assert run.said == ["one", "", "fine", "two"]


def test_the_session_alone_begins_afresh() -> None:
    run = Run().begin("one").answer("first").begin("two").answer("", call("a"))
    run.state = AgentState.from_dict(run.state.to_dict(session_only=True))
    run.begin("three")
    assert run.state.execution_count == 3
    assert run.state.step_count == 0
    assert run.said == ["one", "first", "two", "three"]


def test_what_is_said_on_taking_up_is_not_asked_about_beyond_the_budget() -> None:
    run = Run(ExecutionBudget(max_tokens=900)).begin().answer("", call("a")).returns("a")
    assert run.wanted(CallModel)
    assert run.resume("a long word " * 100).ended == stopped(StopReason.TOKEN_LIMIT)
    assert run.wanted(CallModel) == ()
