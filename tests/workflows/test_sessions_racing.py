"""Messages that race the end of an execution, and many senders at once: what is acknowledged is said once, in order."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from holdfast import AgentDefinition
from holdfast.core.agent.state import AgentState
from holdfast.core.wire.contracts import StopRequest
from holdfast.core.wire.session_contracts import (
    CLOSE_UPDATE,
    REWIND_UPDATE,
    Branch,
    Receipt,
    SessionSettings,
    SessionView,
    WhileRunning,
)
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.testing.script import Reply, say
from tests.serving import Serve, Served
from tests.workflows.chats import Chat, ids
from tests.workflows.histories import history_of, replayed

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]

AGENT = AgentDefinition(name="friend", tools=())
ROUNDS = 9
ROUNDS_MANY = 50
AT_ONCE = 5
SENDERS = 20
ANSWER_SECONDS = 0.05
IDLE_SECONDS = 3.0
"""Long enough for a busy machine to notice an answer, and take the store away, before the session leaves."""
SEED = int(os.environ.get("HOLDFAST_FUZZ_SEED", str(random.SystemRandom().randrange(10**6))))


def quick(request: dict[str, Any]) -> Reply:
    """Answer soon what was said last."""
    return say(f"re {request['messages'][-1]['content']}", delay_seconds=ANSWER_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("number_of_rounds", [ROUNDS, pytest.param(ROUNDS_MANY, marks=pytest.mark.chaos)])
async def test_messages_that_race_the_end_of_an_execution_are_said_once(serve: Serve, number_of_rounds: int) -> None:
    rng, at_once = random.Random(SEED), asyncio.Semaphore(AT_ONCE)  # noqa: S311  # no secret hangs on it
    async with serve(quick) as served:

        async def one(number: int) -> tuple[int, int]:
            policy: WhileRunning = ("queue", "inject", "interrupt")[number % 3]
            pauses = [rng.uniform(0, 4 * ANSWER_SECONDS) for _ in range(4)]
            async with at_once:
                return await raced(served, number, policy, pauses)

        rounds = await asyncio.gather(*(one(number) for number in range(number_of_rounds)))
    assert sum(executions for executions, _ in rounds) > number_of_rounds, f"seed {SEED}"
    assert sum(ended for _, ended in rounds) > 0, f"some came when the one before had ended; seed {SEED}"


async def raced(served: Served, number: int, policy: WhileRunning, pauses: list[float]) -> tuple[int, int]:
    """Send messages around the ends of executions; return how many executions there were, and how many had ended."""
    chat = Chat(served.client, AGENT, SessionSettings(while_running=policy, continue_events=1))
    ended, receipts = 0, list[Receipt]()
    for place, pause in enumerate(pauses):
        receipt = await chat.send(f"m{number}-{place}")
        receipts.append(receipt)
        ended += receipt.running_id is None
        await asyncio.sleep(pause)
    state = AgentState.model_validate(await chat.answer(receipts[-1]))
    for receipt in receipts:
        latest = await chat.answer(receipt)
        state = latest if len(latest.messages) > len(state.messages) else state
    said = ids(state.messages)
    told = f"round {number}, {policy}, seed {SEED}"
    assert sorted(said) == sorted(each.message_id for each in receipts), told
    if policy != "interrupt":
        assert said == [each.message_id for each in receipts], told
    return (await chat.view()).executions, ended


@pytest.mark.slow
@pytest.mark.parametrize("stop", [None, StopRequest(reason="enough")], ids=["at the end", "at once"])
async def test_messages_that_race_the_close_are_said_or_kept_or_refused(serve: Serve, stop: StopRequest | None) -> None:
    async with serve(quick) as served:
        for _ in range(5):
            chat = Chat(served.client, AGENT)
            await chat.send("first", "first")
            closing = asyncio.create_task(chat.update(CLOSE_UPDATE, *([stop] if stop else [])))
            sends = await asyncio.gather(*(_sent(chat, f"m{place}") for place in range(5)))
            await closing
            end = await chat.handle.result()
            state = await served.client.result(str(end["last_id"])) if end["last_id"] else None
            there = {*(ids(state.messages) if state else ()), *end["waiting"]}
            assert there == {"first", *(each for each in sends if each is not None)}
            assert stop is not None or not end["waiting"]


@pytest.mark.slow
async def test_a_rewind_that_races_a_message_is_done_before_it_or_refused(serve: Serve) -> None:
    async with serve(quick) as served:
        for _ in range(6):
            chat = Chat(served.client, AGENT)
            ends = [(await chat.ask(text)).running.execution_id for text in ("one", "two", "three")]
            places = [Branch(agent_id=chat.agent_id, execution_id=each) for each in ends[:2]]
            rewinds = [asyncio.create_task(chat.update(REWIND_UPDATE, place)) for place in reversed(places)]
            sending = asyncio.create_task(chat.send("next"))
            done = await asyncio.gather(*rewinds, return_exceptions=True)
            receipt = await sending
            refused = [each for each in done if not isinstance(each, SessionView)]
            assert all(isinstance(each, WorkflowUpdateFailedError) for each in refused), refused
            said = [each.text for each in (await chat.answer(receipt)).messages if each.role == "user"]
            after = [each.text for each in (await chat.ask("after")).messages if each.role == "user"]
            places_said = {1: ["one"], 2: ["one", "two"], 3: ["one", "two", "three"]}
            before = said[: said.index("next")]
            assert before in places_said.values()
            assert (len(refused) == 2) == (before == places_said[3]), "what was acknowledged was done"
            assert after == [*said, "after"]


@contextmanager
def away(objects: Path) -> Generator[None]:
    """Have the storage be no folder."""
    kept = objects.rename(objects.with_name("away"))
    objects.touch()
    try:
        yield
    finally:
        objects.unlink()
        kept.rename(objects)


async def _asks_the_store(chat: Chat) -> None:
    while True:
        if (await chat.handle.describe()).raw_description.pending_activities:
            return
        await asyncio.sleep(ANSWER_SECONDS)


@pytest.mark.slow
async def test_a_cancel_that_finds_a_session_leaving_closes_it_with_what_came_meanwhile(
    serve: Serve, tmp_path: Path
) -> None:
    async with serve(quick) as served:
        chat = Chat(served.client, AGENT, SessionSettings(idle_seconds=IDLE_SECONDS))
        await chat.ask("one")
        with away(tmp_path / "objects"):
            await _asks_the_store(chat)
            receipt = await chat.send("two")
            await chat.handle.cancel()
        view = await chat.handle.result()
        await replayed(served.client, session_workflow_id(chat.agent_id))
    assert (view["status"], view["waiting"], view["executions"]) == ("closed", [receipt.message_id], 1)


@pytest.mark.slow
async def test_a_cancel_while_a_closing_session_waits_for_a_rewind_leaves_it_kept(serve: Serve, tmp_path: Path) -> None:
    async with serve(quick) as served:
        chat = Chat(served.client, AGENT)
        place = Branch(agent_id=chat.agent_id, execution_id=(await chat.ask("one")).running.execution_id)
        with away(tmp_path / "objects"):
            rewinding = asyncio.create_task(chat.update(REWIND_UPDATE, place))
            await _asks_the_store(chat)
            await chat.update(CLOSE_UPDATE)
            await chat.handle.cancel()
            with pytest.raises(WorkflowUpdateFailedError):
                await rewinding
        view = await chat.handle.result()
        await replayed(served.client, session_workflow_id(chat.agent_id))
    assert view["status"] == "closed"
    assert (tmp_path / "objects" / "sessions" / chat.agent_id).exists()


async def _sent(chat: Chat, text: str) -> str | None:
    """Say something; return its id when it was acknowledged, none when it was refused."""
    try:
        return (await chat.send(text, text)).message_id
    except WorkflowUpdateFailedError:
        return None


@pytest.mark.slow
async def test_twenty_senders_at_once_are_acknowledged_in_one_order_and_all_are_said(serve: Serve) -> None:
    async with serve(quick) as served:
        chat = Chat(served.client, AGENT)
        receipts = await asyncio.gather(*(chat.send(f"m{number}") for number in range(SENDERS)))
        states = [await chat.answer(each) for each in receipts]
        history = await history_of(served.client, chat.handle.id)
    accepted = (event.workflow_execution_update_accepted_event_attributes for event in history.events)
    payloads = (payload.data for each in accepted for payload in each.accepted_request.input.args.payloads)
    taken = [json.loads(data)["message_id"] for data in payloads]
    last = max(states, key=lambda state: len(state.messages))
    said = ids(last.messages)
    assert sorted(said) == sorted(each.message_id for each in receipts)
    assert said == taken, "in the order in which they were acknowledged"
