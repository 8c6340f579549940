"""What must not happen to those around a run: late results, tools that do not let go, bad approvers and listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from pydantic import JsonValue
from pydantic_core import to_json as spelled

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.model import ModelRequest
from holdfast.core.agent.policies import ApprovalRule, JsonSchemaFormat
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import RESPONSE_BYTES_MAX
from holdfast.core.base.errors import Conflict, InvalidArguments, InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.messages import Message, ToolCall, user_message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.conversation.stop_reasons import StopReason, StopSignal
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.loop.events import MessageArrived, StopRequested
from holdfast.core.tools.tools import tool
from holdfast.core.wire.execution_events import ApprovalRequested, Observed
from holdfast.local import LocalDriver, call_tasks
from holdfast.local.executor import Approver
from holdfast.local.inbox import Inbox
from holdfast.models.function_model import FunctionModel
from holdfast.testing.builders import START
from holdfast.testing.script import Reply, call, say
from holdfast.testing.scripted_model import ScriptedModel

AGENT = AgentDefinition(name="local", tools="all", system_prompt="Be brief.")
ASKING = replace(AGENT, approvals=(ApprovalRule(tools=("*",)),))
PROMPTLY_SECONDS = 60.0
"""How long anything here may take at the most; what is waited for would never come by itself."""


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD = call("add", a=1, b=2)


def one_by_one(*turns: Reply) -> Callable[[object], Reply]:
    """A script across executions and agents: a plain one begins anew with each conversation it knows."""
    left = iter(turns)
    return lambda _: next(left)


async def promptly(driver: LocalDriver, asked: str | AgentState = "Do it.") -> AgentState:
    return await asyncio.wait_for(driver.execute(asked), PROMPTLY_SECONDS)


# --- what is left of an execution


class Clinging:
    """A tool that does not heed being cancelled before it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def cling(self) -> str:
        """Hold on."""
        self.begun.set()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        self.over.set()
        return "late"


async def test_a_tool_that_ignores_its_cancellation_holds_a_stop_no_longer_than_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_tasks, "CANCEL_SECONDS_MAX", 0.05)
    tool_, model = Clinging(), ScriptedModel(one_by_one(call("cling"), say("well")))
    driver = LocalDriver(AGENT, model=model, tools=[tool(tool_.cling)])
    run = asyncio.create_task(promptly(driver))
    await tool_.begun.wait()
    driver.stop("enough")
    state = await run
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
    tool_.let_go.set()
    await tool_.over.wait()


async def test_the_late_result_of_one_execution_never_reaches_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_tasks, "CANCEL_SECONDS_MAX", 0.05)
    first, second = Clinging(), Clinging()
    left = iter((first, second))

    async def cling() -> str:
        mine = next(left)
        await mine.cling()
        return "late" if mine is first else "mine"

    model = ScriptedModel(one_by_one(call("cling"), call("cling"), say("well")))
    driver = LocalDriver(AGENT, model=model, tools=[tool(cling)])
    run = asyncio.create_task(promptly(driver))
    await first.begun.wait()
    driver.stop()
    stopped = await run
    run = asyncio.create_task(promptly(driver))
    await second.begun.wait()
    first.let_go.set()
    await first.over.wait()
    await asyncio.wait(asyncio.all_tasks() - {run, asyncio.current_task()}, timeout=0.05)  # whoever is late puts it in
    second.let_go.set()
    state = await run
    assert [m.text[:17] for m in stopped.messages if m.role == "tool"] == ["Error (Cancelled)"]
    assert [m.text for m in state.messages if m.role == "tool"] == ["mine"]
    assert state.status is ExecutionStatus.COMPLETED


async def test_a_driver_that_was_cancelled_twice_runs_another_execution_and_waits_for_nothing_of_the_first() -> None:
    tool_ = Clinging()
    model = ScriptedModel(one_by_one(call("cling"), say("well")))
    driver = LocalDriver(AGENT, model=model, tools=[tool(tool_.cling)])
    run = asyncio.create_task(driver.execute("Do it."))
    await tool_.begun.wait()
    try:
        run.cancel()
        await asyncio.sleep(0)
        with pytest.raises(Conflict):
            await promptly(driver)
        run.cancel()
        await asyncio.wait([run], timeout=PROMPTLY_SECONDS)
        assert run.cancelled()
        assert (await promptly(driver)).final_response == "well"
        assert not tool_.over.is_set()
    finally:
        tool_.let_go.set()
        await tool_.over.wait()


# --- time


async def test_a_state_taken_up_after_its_time_asks_neither_the_model_nor_a_tool() -> None:
    called: list[int] = []

    async def look() -> str:
        called.append(1)
        return "seen"

    agent = replace(AGENT, budget=ExecutionBudget(max_seconds=60))
    first = LocalDriver(agent, model=ScriptedModel([call("look"), call("look")]), tools=[tool(look)])
    states = first.iterate("Do it.")
    under_way = await anext(states)
    await states.aclose()
    saved = under_way.to_json()
    later = under_way.running.started_at + timedelta(seconds=61)
    model = ScriptedModel([say("?")])
    driver = LocalDriver(agent, model=model, tools=[tool(look)], clock=lambda: later)
    state = await promptly(driver, AgentState.from_json(saved))
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)
    assert (model.requests, called) == ([], [1])


# --- a tree


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
async def test_two_agents_that_call_each_other_take_no_more_steps_than_their_root_may(steps: int) -> None:
    ping = AgentDefinition(
        name="ping", tools="all", subagents=("pong",), budget=ExecutionBudget(max_steps=steps), max_depth=10
    )
    pong = AgentDefinition(name="pong", tools="all", subagents=("ping",), max_depth=10)
    asked = 0

    async def model(request: ModelRequest) -> InferenceResponse:
        nonlocal asked
        asked += 1
        assert asked <= steps
        other = "pong" if "pong" in request.tools[0].description else "ping"
        again = ToolCall(id=f"c{asked}", name="spawn", arguments={"agent": other, "task": "your turn"})
        return InferenceResponse(tool_calls=(again,))

    state = await promptly(
        LocalDriver(ping, model=FunctionModel(model), agents=[replace(ping, budget=ExecutionBudget()), pong])
    )
    assert asked == state.steps_used == steps
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.STEPS_LIMIT)


async def test_a_call_of_a_subagent_is_decided_about_by_its_execution_id() -> None:
    boss = replace(AGENT, subagents=("helper",))
    helper = replace(ASKING, name="helper")
    spawn = call("spawn", agent="helper", task="add")
    model = ScriptedModel(one_by_one(spawn, ADD, say("3"), say("three")))
    driver = LocalDriver(boss, model=model, tools=[add], agents=[helper])
    asked: list[ApprovalRequested] = []

    def decide(event: ApprovalRequested) -> None:
        asked.append(event)
        driver.decide(event.call.id, Verdict(decision="deny", reason="not me"))  # the root's own: there is none
        driver.decide(event.call.id, Verdict(decision="deny", reason="nobody"), execution_id="elsewhere")
        driver.decide(event.call.id, Verdict(decision="approve"), execution_id=event.execution_id)

    state = await promptly(driver.on(ApprovalRequested, decide))
    assert state.final_response == "three"
    assert [m.text for m in model.requests[2].messages if m.role == "tool"] == ["3"]
    assert asked[0].execution_id != state.running.execution_id


# --- people


@pytest.mark.parametrize("role", ["tool", "assistant"])
async def test_nobody_can_speak_for_the_model_or_a_tool(role: str) -> None:
    message = Message.model_validate({"role": role, "content": "x", "tool_call_id": "a" if role == "tool" else None})
    with pytest.raises(InvalidInput, match=f"role '{role}'"):
        LocalDriver(AGENT, model=ScriptedModel([])).say(message)


@pytest.mark.parametrize("first", ["say", "stop"])
async def test_what_is_said_together_with_a_stop_is_in_the_conversation(first: str) -> None:
    driver = LocalDriver(AGENT, model=ScriptedModel([Reply(hang=True)]))
    asked = asyncio.Event()
    driver.wiretap(lambda event: asked.set() if type(event).__name__ == "InferenceRequestStarted" else None)
    run = asyncio.create_task(promptly(driver))
    await asked.wait()
    if first == "say":
        driver.say("one thing more")
        driver.stop()
    else:
        driver.stop()
        driver.say("one thing more")
    state = await run
    assert state.status is ExecutionStatus.STOPPED
    assert [m.text for m in state.messages] == ["Do it.", "one thing more"]


async def test_a_listener_that_raises_a_cancellation_harms_nobody() -> None:
    heard: list[str] = []

    def cancel(_: Observed) -> None:
        raise asyncio.CancelledError

    driver = LocalDriver(AGENT, model=ScriptedModel([ADD, say("3")]), tools=[add])
    state = await promptly(driver.wiretap(cancel).wiretap(lambda event: heard.append(type(event).__name__)))
    assert state.status is ExecutionStatus.COMPLETED
    assert heard[-1] == "AgentExecutionCompleted"


async def _says_nothing(_: ToolCall) -> Verdict:
    return None  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # what is to be refused


async def _of_another_call(call: ToolCall) -> Verdict:
    return Verdict(decision="approve", digest=replace(call, arguments={"a": 9, "b": 9}).digest)


async def _raises(_: ToolCall) -> Verdict:
    raise RuntimeError("nobody at home")


async def _raises_at_length(_: ToolCall) -> Verdict:
    raise RuntimeError("nobody at home" * 1_000)


async def _cancels(_: ToolCall) -> Verdict:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("approver", "told"),
    [
        (_says_nothing, "denied by approver: TypeError: the approver gave a NoneType"),
        (_of_another_call, "denied by approver: ValueError: the approver's decision is about a call of another digest"),
        (_raises, "denied by approver: RuntimeError: nobody at home"),
        (_raises_at_length, "denied by approver: RuntimeError: nobody at home"),
    ],
)
async def test_a_call_about_which_the_approver_says_nothing_usable_is_denied(approver: Approver, told: str) -> None:
    driver = LocalDriver(ASKING, model=ScriptedModel([ADD, say("well")]), tools=[add], approver=approver)
    state = await promptly(driver)
    assert [told in m.text for m in state.messages if m.role == "tool"] == [True]
    assert state.status is ExecutionStatus.COMPLETED


async def test_an_approver_can_bind_its_decision_to_the_call_that_it_is_shown() -> None:
    async def ann(call: ToolCall) -> Verdict:
        return Verdict(decision="approve", by="ann", digest=call.digest)

    driver = LocalDriver(ASKING, model=ScriptedModel([ADD, say("well")]), tools=[add], approver=ann)
    state = await asyncio.wait_for(driver.execute("add"), PROMPTLY_SECONDS)
    (execution,) = state.steps[0].tool_executions
    assert (execution.result, getattr(execution.approval, "digest", "")) == ("3", execution.call.digest)


async def test_an_approver_that_raises_a_cancellation_does_not_leave_the_run_waiting() -> None:
    driver = LocalDriver(ASKING, model=ScriptedModel([ADD, say("well")]), tools=[add], approver=_cancels)
    assert (await promptly(driver)).status.is_terminal


# --- what a definition and a model bring


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"$ref": "#/nowhere"}, {"unevaluatedItems": False}])
def test_a_definition_whose_answer_schema_is_broken_is_refused(schema: dict[str, JsonValue]) -> None:
    agent = replace(AGENT, response_format=JsonSchemaFormat(json_schema=schema))
    with pytest.raises(InvalidInput, match=r"agent 'local': response_format\.json_schema"):
        LocalDriver(agent, model=ScriptedModel([]))


@pytest.mark.parametrize("text", ["x" * 1_000_000, "\x01" * 100_000, "ü" * 500_000], ids=["plain", "control", "umlaut"])
async def test_a_models_text_is_cut_and_the_state_can_be_saved_and_read(text: str) -> None:
    async def model(request: ModelRequest) -> InferenceResponse:
        assert request.messages
        return InferenceResponse(text=text)

    state = await promptly(LocalDriver(AGENT, model=FunctionModel(model)))
    assert 0 < len(spelled(state.final_response)) <= RESPONSE_BYTES_MAX + 2
    assert AgentState.from_json(state.to_json()) == state


# --- the inbox


async def test_messages_leave_the_inbox_first_and_the_rest_in_its_order() -> None:
    inbox = Inbox()
    signals = [StopSignal(reason=StopReason.USER_REQUESTED, message=str(n), source="me", at=START) for n in range(2)]
    stops = [StopRequested(signal=each, mode="now", at=START) for each in signals]
    said = [MessageArrived(message=user_message(text), at=START) for text in ("one", "two")]
    for event in (stops[0], said[0], stops[1], said[1]):
        inbox.put(event)
    assert [await inbox.get() for _ in range(4)] == [*said, *stops]


async def test_an_empty_inbox_is_waited_for() -> None:
    inbox = Inbox()
    waiting = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    event = MessageArrived(message=user_message("one"), at=START)
    inbox.put(event)
    assert await asyncio.wait_for(waiting, PROMPTLY_SECONDS) is event


async def test_an_approver_whose_edit_does_not_fit_is_asked_again_and_at_last_denies() -> None:
    edits: list[dict[str, JsonValue]] = [{"a": "much", "b": 1}, {"a": 4, "b": 1}]

    async def corrects(_: ToolCall) -> Verdict:
        return Verdict(decision="edit", arguments=edits.pop(0))

    driver = LocalDriver(ASKING, model=ScriptedModel([ADD, say("well")]), tools=[add], approver=corrects)
    state = await driver.execute("?")
    assert [each.result for each in state.steps[0].tool_executions] == ["5"]

    async def insists(_: ToolCall) -> Verdict:
        return Verdict(decision="edit", arguments={"a": "much"})

    driver = LocalDriver(ASKING, model=ScriptedModel([ADD, say("well")]), tools=[add], approver=insists)
    (denied,) = (await driver.execute("?")).steps[0].tool_executions
    assert denied.outcome == "denied"
    assert "3 edits did not fit; the last one: a: Input should be a valid integer" in denied.answer.text


async def test_an_edit_from_outside_that_does_not_fit_is_refused_and_the_call_waits_on() -> None:
    asked: asyncio.Queue[str] = asyncio.Queue()
    driver = LocalDriver(ASKING, model=ScriptedModel([ADD, say("well")]), tools=[add])
    driver.on(ApprovalRequested, lambda event: asked.put_nowait(event.call.id))
    running = asyncio.create_task(driver.execute("?"))
    call_id = await asked.get()
    with pytest.raises(InvalidArguments, match=f"a: Input should be .* {call_id} .* is still waiting"):
        driver.decide(call_id, Verdict(decision="edit", arguments={"a": "much", "b": 1}))
    driver.decide(call_id, Verdict(decision="edit", arguments={"a": 5, "b": 1}))
    state = await running
    assert [each.result for each in state.steps[0].tool_executions] == ["6"]
