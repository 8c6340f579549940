"""A flood of signals on a real server: the surplus is dropped and counted, a stop is heard, replays do the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import AgentDefinition, ExecutionStatus, StopReason
from holdfast.client import Holdfast
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import MESSAGES_WAITING_MAX, STOP_SIGNALS_MAX
from holdfast.core.base.errors import StopRefused
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.wire.contracts import APPROVAL_SIGNAL, MESSAGE_SIGNAL, STOP_SIGNAL, ApprovalDecision, StopRequest
from holdfast.core.wire.session_contracts import STOP_UPDATE
from holdfast.testing.script import Reply, say
from tests.serving import Serve
from tests.workflows.chats import Chat
from tests.workflows.histories import replayed

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="flooded")
FLOOD = 600
SENDERS = 50
SIGNALS_MAX = 10_000
"""What the server takes for one run."""

HANGS = say("word " * 1_000, piece_chars=5, piece_seconds=1.0)


async def flood(client: Holdfast, execution_id: str, signal: str, value: object, count: int = FLOOD) -> None:
    handle: Any = client.temporal.get_workflow_handle(execution_id)
    at_once = asyncio.Semaphore(SENDERS)

    async def send() -> None:
        async with at_once:
            await handle.signal(signal, value)

    await asyncio.gather(*(send() for _ in range(count)))


async def stopped(client: Holdfast, execution_id: str) -> AgentState:
    assert await client.stop(execution_id, "enough")
    state = await client.result(execution_id)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
    await replayed(client, execution_id)
    return state


@pytest.mark.slow
async def test_messages_beyond_the_room_are_dropped_counted_and_told(serve: Serve) -> None:
    async with serve([HANGS]) as served:
        execution_id = await served.client.start(AGENT, "go")
        await served.endpoint.until(bool)
        await flood(served.client, execution_id, MESSAGE_SIGNAL, user_message("again"))
        state = await stopped(served.client, execution_id)
    assert sum(message.text == "again" for message in state.messages) == MESSAGES_WAITING_MAX
    warning = state.warnings[-1]
    assert warning.endswith(f"for one step: {FLOOD - MESSAGES_WAITING_MAX:,} that came by signal were not accepted")


async def test_large_messages_are_dropped_by_their_bytes_and_small_ones_still_fit(serve: Serve) -> None:
    async with serve([HANGS]) as served:
        execution_id = await served.client.start(AGENT, "go")
        await served.endpoint.until(bool)
        large = user_message("x" * 100_000)
        await flood(served.client, execution_id, MESSAGE_SIGNAL, large, count=20)
        await flood(served.client, execution_id, MESSAGE_SIGNAL, user_message("small"), count=1)
        state = await stopped(served.client, execution_id)
    kept = [len(message.text) for message in state.messages if message.role == "user"]
    assert kept[1:] == [100_000] * 5 + [5]
    warning = state.warnings[-1]
    assert "15 that came by signal were not accepted" in warning


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signal", "value"),
    [
        (STOP_SIGNAL, StopRequest(mode="after_step")),
        (APPROVAL_SIGNAL, ApprovalDecision(call_id="x", verdict=Verdict(decision="approve", by="eve"))),
    ],
    ids=["stops after the step", "decisions about nothing"],
)
async def test_a_stop_is_heard_after_a_flood(serve: Serve, signal: str, value: object) -> None:
    async with serve([HANGS]) as served:
        execution_id = await served.client.start(AGENT, "go")
        await served.endpoint.until(bool)
        await flood(served.client, execution_id, signal, value)
        state = await stopped(served.client, execution_id)
    assert len(state.running.continuation.stop_signals) <= STOP_SIGNALS_MAX


@pytest.mark.slow
async def test_room_is_there_again_for_the_next_step(serve: Serve) -> None:
    answers = [say("one " * 30, piece_chars=4, piece_seconds=0.1), say("two")]

    def script(request: dict[str, Any]) -> Reply:
        said = [each["content"] for each in request["messages"] if each["role"] == "user"]
        return answers[0] if len(said) == 1 else answers[1]

    async with serve(script) as served:
        execution_id = await served.client.start(AGENT, "go")
        await served.endpoint.until(bool)
        await flood(served.client, execution_id, MESSAGE_SIGNAL, user_message("again"), count=MESSAGES_WAITING_MAX + 10)
        state = await served.client.result(execution_id)
        await replayed(served.client, execution_id)
    assert sum(message.text == "again" for message in state.messages) == MESSAGES_WAITING_MAX
    assert "10 that came by signal" in state.warnings[-1]


@pytest.mark.chaos
@pytest.mark.timeout(600)
async def test_a_run_that_takes_no_more_signals_is_stopped_by_its_cancellation(serve: Serve) -> None:
    async with serve([HANGS]) as served:
        execution_id = await served.client.start(AGENT, "go")
        await served.endpoint.until(bool)
        with pytest.raises(Exception, match="exceeded workflow execution limit for signal events"):
            await flood(served.client, execution_id, MESSAGE_SIGNAL, user_message("again"), count=SIGNALS_MAX + 1)
        with pytest.raises(StopRefused, match="can only be stopped at once"):
            await served.client.stop(execution_id, mode="after_step")
        state = await stopped(served.client, execution_id)
    assert state.running.continuation.stop_signals[0].source == "cancelled"


@pytest.mark.chaos
@pytest.mark.timeout(600)
async def test_a_session_stops_a_turn_that_takes_no_more_signals(serve: Serve) -> None:
    async with serve([HANGS]) as served:
        chat = Chat(served.client, AGENT)
        slow = await chat.send("go")
        await served.endpoint.until(bool)
        running = (await chat.view()).running_id
        assert running is not None
        with pytest.raises(Exception, match="exceeded workflow execution limit for signal events"):
            await flood(served.client, running, MESSAGE_SIGNAL, user_message("again"), count=SIGNALS_MAX + 1)
        await chat.update(STOP_UPDATE, StopRequest(reason="enough"))
        state = await chat.answer(slow)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
