"""What listeners are told: which events, in which order, in which envelope, of whom (docs/spec.md, section 6)."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import typing
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from holdfast.client.events_from_state import reconstructed
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Changes, HookContext, hook
from holdfast.core.agent.policies import ApprovalRule, Critique
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import InvalidInput
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.tools.tools import tool
from holdfast.core.wire import execution_events
from holdfast.core.wire.execution_events import (
    AgentWentBack,
    AnswerJudged,
    Observed,
    StopSignalReceived,
    TodosChanged,
    ToolCallCompleted,
)
from holdfast.local import LocalDriver, listeners
from holdfast.testing.script import Call, Reply, call, calls, say
from holdfast.testing.scripted_model import ScriptedModel

AGENT = AgentDefinition(name="local", tools="all", hooks="all")
STEP = ["AgentStepStarted", "InferenceRequestStarted", "InferenceResponseReceived"]
STEP_END = ["AgentStepCompleted", "TokenUsageReported", "ContinuationEvaluated"]
START = datetime(2025, 1, 1, tzinfo=UTC)
NAMED = {
    *("AgentExecutionStarted", *STEP, "ToolCallStarted", "ToolCallCompleted", "ToolCallBlocked", *STEP_END),
    *("StopSignalReceived", "AgentExecutionStopped", "AgentExecutionCompleted", "AgentExecutionFailed"),
    *("SubagentSpawned", "SubagentCompleted", "ApprovalRequested", "ApprovalResolved", "MessageInjected"),
    *("HookExecuted", "ModelFellBack", "AgentHandedOff", "InputRequested", "InputResolved", "McpToolsChanged"),
    *("TodosChanged", "AnswerJudged", "AgentWentBack"),
}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD = call("add", a=1, b=2)


def names(events: list[Observed]) -> list[str]:
    return [type(event).__name__ for event in events]


async def told(driver: LocalDriver, budget: ExecutionBudget | None = None) -> tuple[list[Observed], AgentState]:
    events: list[Observed] = []
    state = await driver.wiretap(events.append).execute("Do it.", budget=budget)
    return events, state


def test_there_are_the_twenty_eight_events_of_the_specification() -> None:
    assert {kind.__name__ for kind in Observed.__subclasses__()} == NAMED
    assert len(NAMED) == 28


async def test_a_run_that_completes_is_told_in_order() -> None:
    events, _ = await told(LocalDriver(AGENT, model=ScriptedModel([ADD, say("done")]), tools=[add]))
    assert names(events) == [
        "AgentExecutionStarted",
        *STEP,
        "ToolCallStarted",
        "ToolCallCompleted",
        *STEP_END,
        *STEP,
        *STEP_END,
        *("AgentExecutionStopped", "AgentExecutionCompleted"),
    ]


async def test_a_run_that_stops_tells_its_signal_and_its_reason() -> None:
    driver = LocalDriver(AGENT, model=ScriptedModel([ADD, say("?")]), tools=[add])
    events, state = await told(driver, ExecutionBudget(max_steps=1))
    assert names(events)[-3:] == ["ContinuationEvaluated", "AgentExecutionStopped", "AgentExecutionCompleted"]
    assert names(events).count("StopSignalReceived") == 1
    (ending,) = (event for event in events if isinstance(event, execution_events.AgentExecutionStopped))
    assert ending.reason is state.stop_reason


async def test_a_run_that_fails_tells_its_error() -> None:
    events, state = await told(LocalDriver(AGENT, model=ScriptedModel([Reply(status=400)])))
    assert names(events) == [
        *("AgentExecutionStarted", *STEP[:2], "StopSignalReceived", *STEP_END[:2]),
        *("AgentExecutionStopped", "AgentExecutionFailed"),
    ]
    (ending,) = (event for event in events if isinstance(event, execution_events.AgentExecutionFailed))
    assert (ending.error,) == state.errors


async def test_every_signal_there_is_was_told() -> None:
    @hook("after_step")
    def enough(_: HookContext) -> Changes:
        return Changes(stop="enough")

    driver = LocalDriver(AGENT, model=ScriptedModel([ADD]), tools=[add], hooks=[enough])
    events, state = await told(driver, ExecutionBudget(max_steps=1))
    signals = tuple(event.signal for event in events if isinstance(event, StopSignalReceived))
    assert signals == state.running.continuation.stop_signals
    assert [signal.reason.value for signal in signals] == ["steps_limit", "stop_requested"]


async def test_an_approval_a_block_a_message_and_a_hook_are_told() -> None:
    async def ann(asked: ToolCall) -> Verdict:
        driver.say(f"I decide about {asked.name}.")
        return Verdict(decision="deny", by="Ann")

    @hook("on_stop")
    def note(_: HookContext) -> None:
        return None

    agent = AgentDefinition(name="local", tools="all", hooks="all", approvals=(ApprovalRule(tools=("add",)),))
    model = ScriptedModel([ADD, say("done")])
    driver = LocalDriver(agent, model=model, tools=[add], hooks=[note], approver=ann)
    events, _ = await told(driver)
    about = {"ApprovalRequested", "ApprovalResolved", "ToolCallBlocked", "MessageInjected", "HookExecuted"}
    assert [name for name in names(events) if name in about] == [
        *("ApprovalRequested", "MessageInjected", "ApprovalResolved", "ToolCallBlocked", "HookExecuted"),
    ]
    assert "ToolCallStarted" not in names(events)


async def test_each_event_says_whose_it_is_and_when_and_in_which_step() -> None:
    made = (str(UUID(int=number)) for number in count(1))
    times = (START + timedelta(seconds=second) for second in count())
    parent = str(UUID(int=99))
    driver = LocalDriver(
        AGENT,
        model=ScriptedModel([ADD, say("done")]),
        tools=[add],
        parent_agent_id=parent,
        clock=lambda: next(times),
        new_id=lambda: next(made),
    )
    events, state = await told(driver)
    assert {(event.agent_id, event.execution_id, event.parent_agent_id) for event in events} == {
        (state.agent_id, state.running.execution_id, parent)
    }
    assert [event.step_number for event in events] == [0, *[1] * 8, *[2] * 8]
    moments = [event.at for event in events]
    assert moments == sorted(moments)
    assert (moments[0], moments[-1]) == (state.running.started_at, state.running.completed_at)


def test_the_envelope_is_the_same_for_every_event() -> None:
    envelope = [field.name for field in dataclasses.fields(Observed)]
    assert envelope == ["agent_id", "execution_id", "parent_agent_id", "at", "step_number"]
    for kind in Observed.__subclasses__():
        assert [field.name for field in dataclasses.fields(kind)][: len(envelope)] == envelope
        assert typing.get_type_hints(kind)["at"] is datetime


async def test_a_listener_hears_its_kind_alone_and_a_wiretap_everything() -> None:
    heard: list[ToolCallCompleted] = []
    model = ScriptedModel([calls(Call("add", {"a": 1, "b": 2}), Call("add", {"a": 3, "b": 4})), say("done")])
    events, _ = await told(LocalDriver(AGENT, model=model, tools=[add]).on(ToolCallCompleted, heard.append))
    assert [event.tool_execution.result for event in heard] == ["3", "7"]
    assert len(events) == 19


async def test_a_childs_events_reach_its_parents_listeners() -> None:
    child = AgentDefinition(name="child", tools="all", hooks="all", llm=LLM(model="kid"))
    agent = AgentDefinition(name="local", tools="all", hooks="all", subagents=("child",))
    asking = [call("spawn", agent="child", task="A part."), say("done")]
    driver = LocalDriver(agent, model=ScriptedModel({"scripted": asking, "kid": [say("a part")]}), agents=[child])
    events, state = await told(driver)
    theirs = [event for event in events if event.parent_agent_id == state.agent_id]
    ends = ["AgentExecutionStopped", "AgentExecutionCompleted"]
    assert names(theirs) == ["AgentExecutionStarted", *STEP, *STEP_END, *ends]
    ours = [name for name in names([event for event in events if event not in theirs]) if "Subagent" in name]
    assert ours == ["SubagentSpawned", "SubagentCompleted"]
    spawned, ended = (index for index, name in enumerate(names(events)) if "Subagent" in name)
    assert all(spawned < events.index(event) < ended for event in theirs)


async def test_a_listener_that_raises_harms_nobody() -> None:
    def broken(_: Observed) -> None:
        raise RuntimeError("a broken listener")

    driver = LocalDriver(AGENT, model=ScriptedModel([say("done")])).wiretap(broken)
    events, state = await told(driver)
    assert (state.final_response, names(events)[-1]) == ("done", "AgentExecutionCompleted")


async def test_the_state_is_the_same_whether_somebody_listens_or_not() -> None:
    def driver() -> LocalDriver:
        made = (str(UUID(int=number)) for number in count(1))
        model = ScriptedModel([ADD, say("done")])
        return LocalDriver(AGENT, model=model, tools=[add], clock=lambda: START, new_id=lambda: next(made))

    assert (await told(driver()))[1] == await driver().execute("Do it.")


async def test_a_listener_can_name_its_kinds_and_want_several() -> None:
    heard: list[Observed] = []
    driver = LocalDriver(AGENT, model=ScriptedModel([ADD, say("done")]), tools=[add])
    driver.on("ToolCallStarted", heard.append).on((ToolCallCompleted, "AgentExecutionCompleted"), heard.append)
    await driver.execute("Do it.")
    assert names(heard) == ["ToolCallStarted", "ToolCallCompleted", "AgentExecutionCompleted"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("ToolCallStart", "there is no event 'ToolCallStart'; did you mean 'ToolCallStarted'"),
        (str, "<class 'str'> is not a kind of event; give a class of holdfast.core.wire.execution_events or a name"),
        ((), "a listener of no kind of event hears nothing"),
    ],
)
def test_what_is_no_kind_of_event_is_refused_at_once(kind: Any, said: str) -> None:  # noqa: ANN401  # whatever people give
    with pytest.raises(InvalidInput, match=re.escape(said)):
        LocalDriver(AGENT, model=ScriptedModel([])).on(kind, print)


async def test_a_listener_that_has_left_hears_nothing_more() -> None:
    first, second = list[Observed](), list[Observed]()
    driver = LocalDriver(AGENT, model=ScriptedModel([say("done")])).wiretap(first.append).wiretap(second.append)
    driver.on(ToolCallCompleted, first.append).off(first.append)
    await driver.execute("Do it.")
    assert (first, len(second)) == ([], 9)
    with pytest.raises(InvalidInput, match="does not listen here"):
        driver.off(first.append)


async def test_a_coroutine_listener_hears_everything_in_order_before_the_end(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Observed] = []

    async def slow(event: Observed) -> None:
        await asyncio.sleep(0)
        heard.append(event)
        if len(heard) in (2, 4):
            raise RuntimeError("not today")

    events, state = await told(LocalDriver(AGENT, model=ScriptedModel([ADD, say("done")]), tools=[add]).wiretap(slow))
    assert heard == events
    assert state.status is ExecutionStatus.COMPLETED
    [warning] = [each.getMessage() for each in caplog.records]
    assert "raised RuntimeError: not today" in warning


async def test_a_listener_that_raises_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Observed) -> None:
        raise RuntimeError("a broken listener")

    driver = LocalDriver(AGENT, model=ScriptedModel([say("done")])).wiretap(broken)
    await driver.execute("Do it.")
    await driver.execute("Do it again.")
    [warning] = [each.getMessage() for each in caplog.records]
    assert re.search(r"broken raised RuntimeError: a broken listener; .* logged once", warning)


async def test_a_coroutine_listener_that_does_not_end_is_left_behind(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "LISTENER_SECONDS_MAX", 0.05)
    monkeypatch.setattr(listeners, "LISTENER_EVENTS_MAX", 2)
    begun: list[Observed] = []

    async def stuck(event: Observed) -> None:
        begun.append(event)
        await asyncio.Event().wait()

    state = await LocalDriver(AGENT, model=ScriptedModel([say("done")])).wiretap(stuck).execute("Do it.")
    assert (state.final_response, len(begun)) == ("done", 1)
    assert "misses some" in caplog.text


def worker_on_a_list(request: dict[str, Any]) -> Reply:
    """Write a list, write it again, go back, and give two answers, of which the second is accepted."""
    text, first = str(request["messages"]), str(request["messages"][0]["content"])
    if first.startswith("You judge"):
        return say(
            '{"accepted": true, "reasons": []}' if "better" in text else '{"accepted": false, "reasons": ["too short"]}'
        )
    if "not accepted" in text:
        return say("a better answer")
    if "Your note" in text:
        return say("an answer")
    if "written:" not in text:
        return call("write_todos", items=[{"text": "look", "status": "in_progress"}, {"text": "write"}])
    if text.count("written:") == 1:
        return call("write_todos", items=[{"text": "look", "status": "in_progress"}, {"text": "write"}])
    return call("go_back", step=1, note="look elsewhere")


async def test_a_list_a_judgement_and_a_step_back_are_told() -> None:
    agent = AgentDefinition(name="clerk", capabilities=("todo", "go_back"), critique=Critique(rubric="It is long."))
    events, state = await told(LocalDriver(agent, model=ScriptedModel(worker_on_a_list)))
    own = [event for event in events if event.parent_agent_id is None]
    listed, back, *judged = [each for each in own if isinstance(each, TodosChanged | AgentWentBack | AnswerJudged)]
    assert isinstance(listed, TodosChanged)
    assert (listed.step_number, listed.todos) == (1, state.todos), "a list that stays the same is no change"
    assert isinstance(back, AgentWentBack)
    assert (back.step_number, back.step_back) == (3, state.running.steps_back[0])
    steps = [step for step in state.steps if step.judgement is not None]
    outcomes = [each.judgement.outcome for each in judged if isinstance(each, AnswerJudged)]
    assert outcomes == [step.judgement.outcome for step in steps if step.judgement] == ["refused", "accepted"]
    assert [each.step_number for each in judged] == [step.number for step in steps]
    after = [names(own)[own.index(each) + 1] for each in (listed, back, judged[0])]
    assert after == ["ToolCallCompleted", "ContinuationEvaluated", "AgentStepCompleted"]
    rebuilt = [each for each in reconstructed(state, "clerk") if isinstance(each, AgentWentBack | AnswerJudged)]
    assert [type(each) for each in rebuilt] == [AgentWentBack, AnswerJudged, AnswerJudged]
