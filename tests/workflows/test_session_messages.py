"""Messages to a session on a real server, at the worst moments: at once, twice, at an end, too large; and stops."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.service import RPCError

from holdfast import AgentDefinition, AgentState, ExecutionStatus, tool
from holdfast.client import AgentHandle
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.base.bounds import QUESTION_BYTES_MAX
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.session_contracts import SEND_UPDATE, SessionSettings
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.testing.script import Call, Reply, calls, say
from tests.server_credentials import plain_client
from tests.serving import Serve, Served
from tests.workflows.chats import Chat, ids

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="friend", tools=())
CLIENTS = 20
STOPS = 1_000
STOPS_AT_ONCE = 8
REFUSED_SECONDS_MAX = 90.0


def echo(request: dict[str, Any]) -> Reply:
    """Answer with the last message."""
    return say(f"re {request['messages'][-1]['content'][:40]}")


async def idle(chat: Chat) -> AgentState:
    """Wait until nothing runs and nothing waits; the state that the last execution left."""
    while True:
        view = await chat.view()
        if view.status == "idle" and not view.waiting:
            assert view.last_id is not None
            return await chat.client.result(view.last_id)
        await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_many_clients_that_send_to_one_new_id_at_once_talk_to_one_agent(serve: Serve) -> None:
    async with serve(echo) as served:
        agent_id = str(uuid4())
        agents = [served.client.agent(agent_id, AGENT) for _ in range(CLIENTS)]
        receipts = await asyncio.gather(*(each.send(f"m{number}") for number, each in enumerate(agents)))
        states = await asyncio.gather(*(each.answer(got) for each, got in zip(agents, receipts, strict=True)))
        view = await agents[0].view()
    last = max(states, key=lambda state: state.execution_count)
    assert Counter(ids(last.messages)) == Counter(each.message_id for each in receipts)
    assert (view.executions, {each.execution_count for each in states}) == (CLIENTS, {*range(1, CLIENTS + 1)})


async def test_the_same_message_from_many_clients_across_new_runs_is_one(serve: Serve) -> None:
    async with serve(echo) as served:
        chat = Chat(served.client, AGENT, SessionSettings(continue_events=1))
        rounds = [[chat.send("the same", "same"), chat.send(f"other {number}")] for number in range(8)]
        receipts = await asyncio.gather(*(each for pair in rounds for each in pair))
        state = await idle(chat)
        late = await chat.send("the same", "same")
        described = await chat.handle.describe()
    assert Counter(ids(state.messages)) == Counter({each.message_id for each in receipts})
    assert late.state == "answered"
    assert described.raw_description.workflow_execution_info.first_run_id != described.run_id, "it went on in new runs"


@pytest.mark.parametrize(
    "text",
    [
        "\x00 and \x1b[31m",
        "\U0001f9d1\U0001f3fd\u200d\U0001f680",
        "\u202eright to left \u05d0",
        "é" * (QUESTION_BYTES_MAX // 2),
    ],
    ids=["control", "emoji", "bidi", "largest"],
)
async def test_any_text_that_is_taken_comes_back_as_it_was(serve: Serve, text: str) -> None:
    async with serve(echo) as served:
        agent = served.client.agent(definition=AGENT)
        await agent.ask(text)
        state = await agent.ask("and now?")
    assert [each.text for each in state.messages if each.role == "user"] == [text, "and now?"]


async def sent_past_our_client(chat: Chat, size: int) -> None:
    """Send a message without any check of ours, and without our converter, which keeps what is large elsewhere."""
    plain = await plain_client(chat.client.address)
    raw: WorkflowHandle[Any, Any] = plain.get_workflow_handle(session_workflow_id(chat.agent_id))
    message = {"message_id": "large", "text": "x" * size}
    await raw.execute_update(  # pyright: ignore[reportUnknownMemberType]  # the SDK's own hint
        SEND_UPDATE, message, rpc_timeout=timedelta(seconds=REFUSED_SECONDS_MAX)
    )


@pytest.mark.slow
@pytest.mark.parametrize("size", [QUESTION_BYTES_MAX + 1, 1_100_000, 3 * 1024 * 1024, 5 * 1024 * 1024])
async def test_a_message_over_the_limit_that_is_sent_past_our_client_is_refused(serve: Serve, size: int) -> None:
    """One of 3 MB passes the server, and one of 5 MB does not."""
    async with serve(echo) as served:
        chat = Chat(served.client, AGENT)
        await chat.ask("before")
        with pytest.raises((WorkflowUpdateFailedError, RPCError)):
            await sent_past_our_client(chat, size)
        state = await chat.ask("after")
        history = await chat.handle.fetch_history()
    assert [each.text for each in state.messages if each.role == "user"] == ["before", "after"]
    failed = [each for each in history.events if each.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED]
    assert failed == [], "no task of the session failed over it"


@pytest.mark.slow
async def test_a_thousand_stops_are_one(serve: Serve) -> None:
    async with serve(slow) as served:
        agent = served.client.agent(definition=AGENT)
        receipt = await agent.send("slow")
        await served.endpoint.until(lambda requests: len(requests) == 1)
        handles = [served.client.agent(agent.agent_id) for _ in range(STOPS_AT_ONCE)]

        async def stops(handle: AgentHandle) -> None:
            for _ in range(STOPS // STOPS_AT_ONCE):
                await handle.stop("enough")

        await asyncio.gather(*map(stops, handles))
        state = await agent.answer(receipt)
        run = served.client.temporal.get_workflow_handle(state.running.execution_id)
        events = (await run.fetch_history()).events
        after = await agent.ask("still there?")
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
    assert (
        len([each for each in state.running.continuation.stop_signals if each.reason is StopReason.USER_REQUESTED]) == 1
    )
    signalled = [each for each in events if each.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED]
    assert len(signalled) == 1
    assert after.execution_id != state.running.execution_id


# --- stops, wherever an execution is


@tool
async def nap() -> str:
    """Sleep."""
    await asyncio.sleep(60)
    return "rested"


Reached = Callable[[Served, AgentHandle], Awaitable[object]]


async def a_request(served: Served, _: AgentHandle) -> None:
    await served.endpoint.until(lambda requests: len(requests) == 1)


async def a_second_request(served: Served, _: AgentHandle) -> None:
    await served.endpoint.until(lambda requests: len(requests) == 2)


async def at_once(_: Served, __: AgentHandle) -> None:
    """The message is acknowledged, and the execution may not even have been started."""


async def a_call(_: Served, agent: AgentHandle) -> None:
    while True:
        state = await agent.state()
        if state.execution is not None and state.execution.open_calls:
            return
        await asyncio.sleep(0.05)


async def a_question(_: Served, agent: AgentHandle) -> None:
    while True:
        if await agent.waiting():
            return
        await asyncio.sleep(0.05)


def fails_at_first(request: dict[str, Any]) -> Reply:
    """Fail three times with a second between; then answer."""
    return said_by(
        request, say("never", failures=tuple(Reply(status=503, headers={"retry-after": "30"}) for _ in range(3)))
    )


def said_by(request: dict[str, Any], turn: Reply) -> Reply:
    """Return the turn where the stop is to come; whatever is asked later is answered at once."""
    return say("here") if request["messages"][-1]["content"] == "still there?" else turn


HELPER = AgentDefinition(name="helper", tools=())
BOSS = AgentDefinition(name="boss", tools=(), subagents=("helper",))
NAPPER = AgentDefinition(name="napper", tools=("nap",))
CAUTIOUS = AgentDefinition(name="cautious", tools=("nap",), approvals=(ApprovalRule(tools=("*",)),))


def slow(request: dict[str, Any]) -> Reply:
    return said_by(request, say("late", delay_seconds=600))


def napping(request: dict[str, Any]) -> Reply:
    return said_by(request, calls(Call("nap")))


def spawning(request: dict[str, Any]) -> Reply:
    helps = request["messages"][-1]["content"] == "help"
    return (
        say("late", delay_seconds=600)
        if helps
        else said_by(request, calls(Call("spawn", {"agent": "helper", "task": "help"})))
    )


SPOTS: tuple[tuple[str, AgentDefinition, Callable[[dict[str, Any]], Reply], Reached], ...] = (
    ("before the first step", AGENT, slow, at_once),
    ("call", AGENT, slow, a_request),
    ("tool", NAPPER, napping, a_call),
    ("approval", CAUTIOUS, napping, a_question),
    ("subagent", BOSS, spawning, a_second_request),
    ("backoff", AGENT, fails_at_first, a_request),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("definition", "script", "reached"), [spot[1:] for spot in SPOTS], ids=[spot[0] for spot in SPOTS]
)
async def test_a_stop_ends_what_runs_wherever_it_is_and_the_agent_goes_on(
    serve: Serve, definition: AgentDefinition, script: Callable[[dict[str, Any]], Reply], reached: Reached
) -> None:
    async with serve(script, [nap]) as served:
        agent = served.client.agent(definition=definition, subagents=(HELPER,) if definition is BOSS else ())
        receipt = await agent.send("go")
        await reached(served, agent)
        await agent.stop("enough")
        state = await asyncio.wait_for(agent.answer(receipt), 90)
        after = await agent.ask("still there?")
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
    assert state.stop_signal is not None
    assert state.stop_signal.message == "enough"
    assert after.output == "here"
    assert every_call_answered(after.state)


def every_call_answered(state: AgentState) -> bool:
    asked = [call.id for each in state.messages for call in each.tool_calls]
    return sorted(asked) == sorted(each.tool_call_id or "" for each in state.messages if each.role == "tool")


async def test_a_stop_after_the_close_changes_nothing(serve: Serve) -> None:
    async with serve(echo) as served:
        agent = served.client.agent(definition=AGENT)
        await agent.ask("hello")
        await agent.close()
        await served.client.temporal.get_workflow_handle(session_workflow_id(agent.agent_id)).result()
        view = await agent.stop("too late")
    assert (view.status, view.executions) == ("closed", 1)
