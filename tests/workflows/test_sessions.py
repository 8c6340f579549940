"""Sessions on a real server: one agent over many executions, whatever comes between."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from holdfast import AgentDefinition, tool
from holdfast.client.workflow_updates import UPDATES_AT_ONCE
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.conversation.messages import Message
from holdfast.core.session import session_state
from holdfast.core.wire.contracts import StopRequest
from holdfast.core.wire.session_contracts import (
    CHANGE_UPDATE,
    CLEAR_UPDATE,
    CLOSE_UPDATE,
    OPEN_UPDATE,
    RESUME_UPDATE,
    REWIND_UPDATE,
    SESSION_CLOSED,
    SESSION_REFUSED,
    STOP_UPDATE,
    SUSPEND_UPDATE,
    Branch,
    Receipt,
    SessionChange,
    SessionSettings,
)
from holdfast.testing.script import Reply, call, say
from tests.serving import Serve
from tests.workflows.chats import Chat, ids, texts
from workflows.session.agent_session import UPDATES_PER_RUN
from workflows.session.child_execution import ChildExecution

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="friend", tools=())
INJECTED = 60


def echo(request: dict[str, Any]) -> Reply:
    """Answer with how many messages there were, and the last of them."""
    messages = request["messages"]
    return say(f"{len(messages)}: {messages[-1]['content']}")


def long_answer(request: dict[str, Any]) -> Reply:
    """Answer with 2,000 characters, whatever the question."""
    return say("x" * 2_000) if request["messages"] else say("")


@pytest.mark.slow
async def test_an_agent_remembers_what_was_said_before(serve: Serve) -> None:
    async with serve(echo) as served:
        chat = Chat(served.client, AGENT)
        first = await chat.ask("one")
        second = await chat.ask("two")
        view = await chat.view()
    assert texts(first) == [("user", "one"), ("assistant", "1: one")]
    assert texts(second) == [*texts(first), ("user", "two"), ("assistant", "3: two")]
    assert (first.agent_id, first.execution_count, second.execution_count) == (chat.agent_id, 1, 2)
    assert (view.status, view.executions, view.last_id) == ("idle", 2, second.running.execution_id)
    assert view.usage == first.usage + second.usage


async def test_a_fault_in_the_end_of_a_turn_ends_the_session_with_its_cause(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("the end of a turn is broken")

    async with serve(echo) as served:
        chat = Chat(served.client, AGENT)
        with monkeypatch.context() as patched:
            patched.setattr(session_state, "ended", broken)
            await chat.send("one")
            with pytest.raises(WorkflowFailureError) as failed:
                await chat.handle.result()
    assert "the end of a turn is broken" in str(failed.value.cause)


@pytest.mark.slow
async def test_messages_wait_for_their_turn_in_order(serve: Serve) -> None:
    async with serve(echo) as served:
        chat = Chat(served.client, AGENT)
        receipts = [await chat.send(f"m{number}") for number in range(4)]
        states = [await chat.answer(each) for each in receipts]
    assert [text for role, text in texts(states[-1]) if role == "user"] == ["m0", "m1", "m2", "m3"]
    assert len({each.running.execution_id for each in states}) == 4


@pytest.mark.slow
async def test_the_same_message_twice_is_one_turn_also_in_another_run(serve: Serve) -> None:
    async with serve(echo) as served:
        chat = Chat(served.client, AGENT, SessionSettings(continue_events=1))
        first = await chat.answer(await chat.send("hello", "the-id"))
        await chat.ask("again")
        again: Receipt = await chat.send("hello", "the-id")
        state = await chat.ask("last")
        described = await chat.handle.describe()
    assert again.state == "answered"
    assert again.execution_id == first.running.execution_id
    assert [text for role, text in texts(state) if role == "user"] == ["hello", "again", "last"]
    assert described.raw_description.workflow_execution_info.first_run_id != described.run_id, "it went on in a new run"


async def test_an_injected_message_is_seen_with_the_next_call_and_answered_in_the_same_execution(serve: Serve) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool
    async def wait() -> str:
        """Wait."""
        loop.call_soon_threadsafe(begun.set)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go_on.wait(), loop))
        return "waited"

    async with serve([call("wait"), say("done")], [wait]) as served:
        chat = Chat(served.client, AgentDefinition(name="friend", tools="all"))
        first = await chat.send("go")
        await begun.wait()
        second = await chat.send("and this", policy="inject")
        go_on.set()
        state = await chat.answer(second)
        assert (await chat.answer(first)) == state
    assert [role for role, _ in texts(state)] == ["user", "assistant", "tool", "user", "assistant"]
    assert ids(state.messages) == [first.message_id, second.message_id]


@pytest.mark.slow
async def test_a_message_that_interrupts_stops_what_runs_and_is_next(serve: Serve) -> None:
    def model(request: dict[str, Any]) -> Reply:
        last = request["messages"][-1]["content"]
        return say("late", delay_seconds=600) if last == "slow" else say(f"re {last}")

    async with serve(model) as served:
        chat = Chat(served.client, AGENT)
        slow = await chat.send("slow")
        queued = await chat.send("queued")
        await served.endpoint.until(lambda requests: len(requests) == 1)
        urgent = await chat.send("urgent", policy="interrupt")
        states = [await chat.answer(each) for each in (slow, urgent, queued)]
    assert [each.status for each in states] == [
        ExecutionStatus.STOPPED,
        ExecutionStatus.COMPLETED,
        ExecutionStatus.COMPLETED,
    ]
    assert [text for role, text in texts(states[-1]) if role == "user"] == ["slow", "urgent", "queued"]


@pytest.mark.slow
async def test_what_runs_can_be_made_to_refuse_messages(serve: Serve) -> None:
    async with serve([say("late", delay_seconds=600)]) as served:
        chat = Chat(served.client, AGENT, SessionSettings(while_running="reject"))
        running = await chat.send("slow")
        await served.endpoint.until(lambda requests: len(requests) == 1)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await chat.send("no")
        await chat.update(STOP_UPDATE, StopRequest(reason="enough"))
        state = await chat.answer(running)
    cause = refused.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == SESSION_REFUSED
    assert "the policy is `reject`" in cause.message
    assert state.stop_signal is not None
    assert state.stop_signal.message == "enough"


async def test_a_session_is_suspended_and_resumed(serve: Serve) -> None:
    async with serve(echo) as served:
        chat = Chat(served.client, AGENT)
        await chat.update(SUSPEND_UPDATE)
        receipt = await chat.send("later")
        assert (receipt.state, (await chat.view()).status) == ("waiting", "suspended")
        await chat.update(RESUME_UPDATE)
        state = await chat.answer(receipt)
    assert texts(state) == [("user", "later"), ("assistant", "1: later")]


async def test_a_cleared_session_forgets_and_counts_on(serve: Serve) -> None:
    async with serve(echo) as served:
        chat = Chat(served.client, AGENT)
        await chat.ask("one")
        await chat.update(CLEAR_UPDATE)
        state = await chat.ask("two")
    assert texts(state) == [("user", "two"), ("assistant", "1: two")]


async def test_another_prompt_and_model_hold_from_the_next_execution_on(serve: Serve) -> None:
    async with serve({"scripted": echo, "other": echo}) as served:
        chat = Chat(served.client, AGENT)
        await chat.ask("one")
        await chat.update(CHANGE_UPDATE, SessionChange(system_prompt="Be brief.", llm=LLM(model="other")))
        state = await chat.ask("two")
        asked = served.endpoint.requests[-1].body
    assert asked["model"] == "other"
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."}
    assert len(state.messages) == 4


@pytest.mark.slow
async def test_a_closed_session_answers_what_waits_and_takes_nothing_more(serve: Serve) -> None:
    async with serve(echo) as served:
        chat = Chat(served.client, AGENT)
        receipts = [await chat.send(f"m{number}") for number in range(3)]
        await chat.update(CLOSE_UPDATE)
        view = await chat.handle.result()
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await chat.send("too late")
        states = [await chat.answer(each) for each in receipts]
    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == SESSION_CLOSED
    assert len(states[-1].messages) == 6
    assert view["status"] == "closed"


@pytest.mark.slow
async def test_an_idle_session_leaves_the_server_and_the_next_message_brings_it_back(serve: Serve) -> None:
    async with serve(echo) as served:
        chat = Chat(served.client, AGENT, SessionSettings(idle_seconds=0.2))
        await chat.ask("one")
        await chat.update(CHANGE_UPDATE, SessionChange(system_prompt="Be brief."))
        await chat.handle.result()
        again = Chat(served.client, None, agent_id=chat.agent_id)
        state = await again.ask("two")
        view = await again.view()
    assert [text for role, text in texts(state) if role == "user"] == ["one", "two"]
    assert (view.executions, view.definition.system_prompt) == (2, "Be brief.")


async def test_an_agent_that_was_never_there_is_told_of(serve: Serve) -> None:
    async with serve(echo) as served:
        chat = Chat(served.client, None)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await chat.send("hello?")
    assert isinstance(refused.value.cause, ApplicationError)
    assert f"there is no agent {chat.agent_id}; give its definition" in refused.value.cause.message


@pytest.mark.slow
async def test_a_session_goes_back_and_another_one_goes_on_from_the_same_place(serve: Serve) -> None:
    async with serve(echo) as served:
        chat = Chat(served.client, AGENT)
        first = await chat.ask("one")
        await chat.ask("two")
        place = Branch(agent_id=chat.agent_id, execution_id=first.running.execution_id)
        await chat.update(REWIND_UPDATE, place)
        back = await chat.ask("three")
        fork = Chat(served.client, AGENT, forked_from=place)
        await fork.update(OPEN_UPDATE)
        size = (await fork.handle.describe()).raw_description.workflow_execution_info.history_size_bytes
        forked = await fork.ask("four")
    assert [text for role, text in texts(back) if role == "user"] == ["one", "three"]
    assert back.execution_count == 3, "each record has a number of its own"
    assert [text for role, text in texts(forked) if role == "user"] == ["one", "four"]
    assert forked.agent_id == fork.agent_id
    assert size < 10_000


@pytest.mark.slow
async def test_an_execution_that_was_terminated_loses_no_message(serve: Serve) -> None:
    def model(request: dict[str, Any]) -> Reply:
        last = request["messages"][-1]["content"]
        return say("late", delay_seconds=600) if last == "slow" else say(f"re {last}")

    async with serve(model) as served:
        chat = Chat(served.client, AGENT)
        slow = await chat.send("slow")
        await served.endpoint.until(lambda requests: len(requests) == 1)
        injected = await chat.send("extra", policy="inject")
        running = (await chat.view()).running_id
        assert running is not None
        await served.client.temporal.get_workflow_handle(running).terminate("by an operator")
        state = await chat.ask("and now?")
    assert ids(state.messages)[:2] == [slow.message_id, injected.message_id]
    assert state.status is ExecutionStatus.COMPLETED


def test_a_stop_is_told_before_the_messages_that_wait_to_be_told() -> None:
    child, stop = ChildExecution(), StopRequest(reason="enough")
    said = [Message(role="user", content=text) for text in ("one", "two")]
    for each in said:
        child.send(each)
    child.send(stop)
    assert list(child._outbox) == [stop, *said]  # pyright: ignore[reportPrivateUsage]  # when each is sent, the server decides


@pytest.mark.slow
async def test_a_stop_among_messages_to_be_injected_loses_none_of_them(serve: Serve) -> None:
    def model(request: dict[str, Any]) -> Reply:
        last = request["messages"][-1]["content"]
        return say("late", delay_seconds=600) if last == "slow" else say("done")

    async with serve(model) as served:
        chat = Chat(served.client, AGENT)
        slow = await chat.send("slow")
        await served.endpoint.until(lambda requests: len(requests) == 1)
        turns = asyncio.Semaphore(UPDATES_AT_ONCE)
        sent = await asyncio.gather(*(_injected(chat, f"m{number}", turns) for number in range(INJECTED)))
        await chat.update(STOP_UPDATE, StopRequest(reason="enough"))
        stopped = await chat.answer(slow)
        whole = max([ids((await chat.answer(each)).messages) for each in sent], key=len)
    assert stopped.status is ExecutionStatus.STOPPED
    assert sorted(whole) == sorted((slow.message_id, *(each.message_id for each in sent))), "none is lost"


async def _injected(chat: Chat, text: str, turns: asyncio.Semaphore) -> Receipt:
    async with turns:
        return await chat.send(text, policy="inject")


@pytest.mark.slow
async def test_a_sessions_history_does_not_grow_with_its_conversation(serve: Serve) -> None:
    async with serve(long_answer) as served:
        chat = Chat(served.client, AGENT)
        sizes: list[int] = []
        inputs: list[int] = []
        for _ in range(24):
            state = await chat.ask("y" * 500)
            handle = served.client.temporal.get_workflow_handle(state.running.execution_id)
            first = (await handle.fetch_history()).events[0]
            assert first.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
            inputs.append(first.workflow_execution_started_event_attributes.input.ByteSize())
            sizes.append((await chat.handle.describe()).raw_description.workflow_execution_info.history_size_bytes)
    grown = [after - before for before, after in pairwise(sizes)]
    assert max(grown[12:]) < min(grown[2:12]) * 1.1, "each turn costs the session the same"
    assert max(inputs) < 8_192
    assert max(inputs[12:]) <= min(inputs[2:]) + 100


@pytest.mark.slow
async def test_a_session_that_only_rests_takes_any_number_of_requests(serve: Serve) -> None:
    """Temporal takes 2,000 updates in one run; it would refuse every message, and the close, for ever after."""
    async with serve(echo) as served:
        chat = Chat(served.client, AGENT)
        await chat.update(SUSPEND_UPDATE)
        waiting = await chat.send("one")

        async def looks() -> None:
            for _ in range(UPDATES_PER_RUN // 4):
                await chat.update(OPEN_UPDATE)

        await asyncio.gather(*(looks() for _ in range(4)))
        await chat.update(RESUME_UPDATE)
        state = await chat.answer(waiting)
        described = await chat.handle.describe()
    assert texts(state) == [("user", "one"), ("assistant", "1: one")]
    assert described.raw_description.workflow_execution_info.first_run_id != described.run_id, "it went on in a new run"
    assert described.history_length < UPDATES_PER_RUN


@pytest.mark.slow
async def test_requests_without_end_leave_room_for_messages_and_the_stop(serve: Serve) -> None:
    def slow(request: dict[str, Any]) -> Reply:
        return say("late", delay_seconds=240) if request["messages"][-1]["content"] == "slow" else say("done")

    async with serve(slow) as served:
        chat = Chat(served.client, AGENT)
        running = await chat.send("slow")

        async def looks() -> None:
            for _ in range(UPDATES_PER_RUN):
                await chat.update(OPEN_UPDATE)

        looking = await asyncio.gather(*(looks() for _ in range(4)), return_exceptions=True)
        queued = await chat.send("next")
        await chat.update(STOP_UPDATE, StopRequest(reason="enough"))
        states = [await chat.answer(each) for each in (running, queued)]
        view = await chat.update(OPEN_UPDATE)
    causes = [getattr(each, "cause", None) for each in looking]
    assert all(isinstance(each, ApplicationError) and each.type == SESSION_REFUSED for each in causes), looking
    assert [each.status for each in states] == [ExecutionStatus.STOPPED, ExecutionStatus.COMPLETED]
    assert view.executions == 2


async def test_a_cancelled_session_stops_what_runs_and_is_kept(serve: Serve) -> None:
    async with serve([say("late", delay_seconds=600)]) as served:
        chat = Chat(served.client, AGENT)
        running = await chat.send("slow")
        queued = await chat.send("queued")
        await served.endpoint.until(lambda requests: len(requests) == 1)
        await chat.handle.cancel(reason="by the button")
        view = await chat.handle.result()
        state = await chat.answer(running)
    assert state.status is ExecutionStatus.STOPPED
    assert view["waiting"] == [queued.message_id]
