"""Agents that live, through the client on a real server: talking, waiting for answers, steering, going back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, cast
from uuid import uuid4

import pytest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from holdfast import AgentDefinition, AgentState, ExecutionBudget, ExecutionStatus, tool
from holdfast.client import AgentHandle, Holdfast, Settings, workflow_updates
from holdfast.client.execution_summaries import SessionSummary
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import MESSAGE_ID_CHARS_MAX, QUESTION_BYTES_MAX
from holdfast.core.base.errors import (
    AgentNotFound,
    DecisionRefused,
    ExecutionFailed,
    ExecutionNotFound,
    InvalidInput,
    RecordNotFound,
    ServerUnavailable,
    SessionClosed,
    SessionRefused,
)
from holdfast.core.wire.execution_events import AgentExecutionFailed
from holdfast.core.wire.session_contracts import Receipt, SessionView
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.storage.data_converter import converter
from holdfast.testing.script import Reply, call, say
from tests.serving import Serve, served

pytestmark = pytest.mark.temporal

FRIEND = AgentDefinition(name="friend", tools=())
NOBODY = "00000000-0000-4000-8000-000000000000"
SENT = 40
WAITERS = 12
PATIENCE_SECONDS = 60


def echo(request: dict[str, Any]) -> Reply:
    """Answer with how many messages there were, and the last of them."""
    messages = request["messages"]
    return say(f"{len(messages)}: {messages[-1]['content']}")


def slow(request: dict[str, Any]) -> Reply:
    """The same, after a while."""
    return say(f"to {request['messages'][-1]['content']}", delay_seconds=0.4)


def by_number(request: dict[str, Any]) -> Reply:
    """Be slow with the first, refuse the second, answer the third at once."""
    match request["messages"][-1]["content"]:
        case "one":
            return say("first", delay_seconds=0.3)
        case "two":
            return Reply(status=401, text="no such key")
        case _:
            return say("third")


def heard(state: AgentState) -> list[str]:
    return [message.text for message in state.messages if message.role == "user"]


# --- talking


async def listed_as(holdfast: Holdfast, agent_id: str, status: str) -> SessionSummary:
    """The agent's line in the list, once the server has it there with that status: it lists a moment later."""
    async with asyncio.timeout(90):
        while True:
            found = [each for each in await holdfast.sessions(1_000) if each.agent_id == agent_id]
            if [each.status for each in found] == [status]:
                return found[0]
            await asyncio.sleep(0.05)


async def test_an_agent_answers_and_remembers(serve: Serve) -> None:
    async with serve(echo) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        first = await agent.ask("one")
        second = await agent.ask("two")
        view = await agent.view()
        now = await agent.state()
        messages = await agent.messages()
    assert (first.state.final_response, second.state.final_response) == ("1: one", "3: two")
    assert (first.state.agent_id, second.state.agent_id) == (agent.agent_id, agent.agent_id)
    assert (view.status, view.executions, view.running_id) == ("idle", 2, None)
    assert now.messages == second.messages == messages
    assert heard(now) == ["one", "two"]


async def test_making_a_handle_asks_nobody_and_an_agent_can_be_looked_up_by_its_id(serve: Serve) -> None:
    async with serve(echo) as at_work:
        holdfast = at_work.client
        first = holdfast.agent(definition=FRIEND, while_running="inject", tenant="acme")
        with pytest.raises(ExecutionNotFound, match=f"no session {first.agent_id} on this server"):
            await first.view()
        opened = await first.open()
        again = await holdfast.agent(first.agent_id.upper()).open()
    assert opened.definition == again.definition == FRIEND
    assert (again.settings.while_running, again.settings.tenant) == ("inject", "acme")


async def test_an_agent_that_was_never_there_needs_a_definition_and_leaves_nothing_behind(serve: Serve) -> None:
    async with serve([say("done")]) as at_work:
        holdfast = at_work.client
        run_id = await at_work.client.start(FRIEND, "hello")
        for agent_id in (str(uuid4()), run_id):
            agent = holdfast.agent(agent_id)
            for asked in (
                agent.send("hello?"),
                agent.open(),
                agent.stop(),
                agent.clear(),
                agent.suspend(),
                agent.close(),
            ):
                with pytest.raises(AgentNotFound, match=f"there is no agent {agent_id}"):
                    await asked
            with pytest.raises(RPCError):
                await at_work.client.temporal.get_workflow_handle(session_workflow_id(agent_id)).describe()


async def test_the_same_message_id_twice_is_one_message_and_one_answer(serve: Serve) -> None:
    async with serve(echo) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        for message_id in ("plain-1", "an id of ours / \N{SNOWMAN} ../"):
            one = agent.ask("hello", message_id=message_id)
            other = at_work.client.agent(agent.agent_id, FRIEND).ask("hello", message_id=message_id)
            first, second = await asyncio.gather(one, other)
            assert first.execution_id == second.execution_id
            late = await agent.answer(await agent.send("hello", message_id=message_id))
            assert late.running.execution_id == first.execution_id
        state = await agent.state()
    assert heard(state) == ["hello", "hello"]


async def test_a_message_with_files_is_not_overtaken_by_later_ones_of_its_sender(serve: Serve, tmp_path: Path) -> None:
    large = tmp_path / "large.txt"
    large.write_text("text " * 10_000, encoding="utf-8")
    async with serve(echo) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        await agent.suspend()
        receipts = await asyncio.gather(agent.send("first", attachments=[large]), agent.send("second"))
        await agent.close(stop=True)
    assert [each.ahead for each in receipts] == [0, 1]


async def test_files_are_read_when_they_are_sent_though_earlier_messages_are_still_on_their_way(
    serve: Serve, tmp_path: Path
) -> None:
    note, was_read = tmp_path / "note.txt", Event()
    note.write_text("as it was", encoding="utf-8")

    def slow_to_come() -> Iterator[Path]:
        assert was_read.wait(PATIENCE_SECONDS), "the second message's file waits for the first one's"
        yield note

    def watched() -> Iterator[Path]:
        yield note
        was_read.set()

    async with serve(echo) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        await agent.suspend()
        sends = agent.send("first", attachments=slow_to_come()), agent.send("second", attachments=watched())
        receipts = await asyncio.gather(*sends)
        await agent.close(stop=True)
    assert [each.ahead for each in receipts] == [0, 1]


async def test_a_message_whose_file_cannot_be_sent_holds_up_no_other(serve: Serve, tmp_path: Path) -> None:
    async with serve(echo) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        await agent.suspend()
        sends = agent.send("first"), agent.send("second", attachments=[tmp_path / "none"]), agent.send("third")
        first, refused, third = await asyncio.gather(*sends, return_exceptions=True)
        await agent.close(stop=True)
    assert isinstance(refused, InvalidInput)
    assert isinstance(first, Receipt)
    assert isinstance(third, Receipt)
    assert (first.ahead, third.ahead) == (0, 1)


@pytest.mark.slow
async def test_what_one_sender_sends_arrives_in_order_and_nothing_is_lost(serve: Serve) -> None:
    """More than the ten updates that the server lets a workflow have under way at once."""
    async with serve(echo) as at_work:
        holdfast = at_work.client
        agent = holdfast.agent(definition=FRIEND)
        await agent.suspend()
        others = [holdfast.agent(agent.agent_id) for _ in range(SENT // 2)]
        sends = [agent.send(f"mine {number}") for number in range(SENT)]
        sends += [other.send(f"other {number}") for number, other in enumerate(others)]
        receipts = await asyncio.gather(*sends)
        view = await agent.view()
        await agent.close(stop=True)
    assert {each.state for each in receipts} == {"waiting"}
    assert set(view.waiting) == {each.message_id for each in receipts}
    places = [view.waiting.index(each.message_id) for each in receipts[:SENT]]
    assert places == sorted(places)


@pytest.mark.slow
async def test_a_waiting_message_is_waited_for_by_any_number(serve: Serve) -> None:
    async with serve(slow) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        await agent.suspend()
        first, last = await agent.send("first"), await agent.send("last")
        assert (first.ahead, last.ahead, last.execution_id) == (0, 1, None)
        waiters = [asyncio.create_task(agent.answer(last)) for _ in range(WAITERS)]
        await asyncio.sleep(1)  # so that they have come to rest
        await agent.resume()
        states = await asyncio.gather(*waiters)
        assert (await agent.answer(first)).final_response == "to first"
    assert {state.final_response for state in states} == {"to last"}
    assert {state.running.execution_id for state in states} != {None}


@pytest.mark.slow
async def test_an_answer_outlasts_workers_and_new_runs(settings: Settings, tmp_path: Path) -> None:
    """Everything goes on in a new run after every step, and each answer is given by another worker."""
    chosen = Settings(settings.address, task_queue=settings.task_queue, storage=settings.storage, continue_events=1)
    holdfast = await Holdfast.connect(chosen)
    agent = holdfast.agent(definition=FRIEND)
    asking = [asyncio.create_task(agent.ask(text)) for text in ("one", "two", "three")]
    for number in range(3):
        async with served(chosen, tmp_path / "ledger.jsonl", slow, Toolset()):
            await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            assert (await asking.pop(0)).output == f"to {('one', 'two', 'three')[number]}"


@pytest.mark.slow
async def test_the_tenant_is_the_fairness_key_of_the_session_and_its_executions_in_every_run(
    settings: Settings, tmp_path: Path
) -> None:
    short = replace(settings, continue_events=1)
    async with served(short, tmp_path / "ledger.jsonl", echo, Toolset()) as at_work:
        agent = at_work.client.agent(definition=FRIEND, tenant="acme")
        states = [await agent.ask(text) for text in ("one", "two", "three")]
        ids = [session_workflow_id(agent.agent_id), *(each.execution_id for each in states)]
        described = [await at_work.client.temporal.get_workflow_handle(each).describe() for each in ids]
    infos = [each.raw_description.workflow_execution_info for each in described]
    assert [each.priority.fairness_key for each in infos] == ["acme"] * 4
    assert infos[0].first_run_id != described[0].run_id, "the session went on in a new run"


async def test_a_failed_answer_is_raised_and_the_agent_lives_on(serve: Serve) -> None:
    async with serve(by_number) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        with pytest.raises(ExecutionFailed, match="no such key"):
            await agent.ask("two")
        assert (await agent.view()).last_status is ExecutionStatus.FAILED
        assert (await agent.ask("three")).output == "third"


async def test_an_idle_session_leaves_and_comes_back_with_the_next_message(serve: Serve) -> None:
    async with serve(echo) as at_work:
        holdfast = at_work.client
        agent = holdfast.agent(definition=FRIEND, idle_seconds=0.1)
        kept = await agent.send("one", message_id="first")
        await agent.answer(kept)
        left = await at_work.client.temporal.get_workflow_handle(session_workflow_id(agent.agent_id)).result()
        assert left["status"] == "idle"
        line = await listed_as(holdfast, agent.agent_id, "away")
        back = holdfast.agent(agent.agent_id)
        assert (await back.ask("two")).output == "3: two"
        assert (await back.answer(kept)).final_response == "1: one", "it remembers what was answered before"
        assert (await back.send("one", message_id="first")).state == "answered"
    assert (line.status, line.agent) == ("away", "friend")


async def test_a_message_that_was_injected_is_answered_by_what_ran(serve: Serve) -> None:
    async with serve([say("first", delay_seconds=0.5), say("both")]) as at_work:
        agent = at_work.client.agent(definition=FRIEND, while_running="inject")
        first = await agent.send("one")
        await at_work.endpoint.until(lambda requests: len(requests) == 1)
        second = await agent.send("two")
        states = await asyncio.gather(agent.answer(first), agent.answer(second))
    assert [state.final_response for state in states] == ["both", "both"]
    assert heard(states[0]) == ["one", "two"]


async def test_an_answer_that_the_server_has_forgotten_comes_from_its_record(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forgotten(_: Holdfast, execution_id: str) -> AgentState:  # as after the retention
        raise ExecutionNotFound(f"no run {execution_id}")

    async with serve(by_number) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        good, bad = await agent.send("three"), await agent.send("two")
        assert (await agent.answer(good)).final_response == "third"
        with pytest.raises(ExecutionFailed):
            await agent.answer(bad)
        monkeypatch.setattr(Holdfast, "result", forgotten)
        assert (await agent.answer(good)).final_response == "third"
        with pytest.raises(ExecutionFailed, match="failed: ") as caught:
            await agent.answer(bad)
    assert caught.value.state is not None
    assert "no such key" in str(caught.value.state["execution"])


# --- refusing


BAD_IDS = {
    "empty": "",
    "long": "x" * 1001,
    "path": "/../",
    "newline": f"{NOBODY}\n",
    "NUL": f"{NOBODY}\0",
    "half a character": "\ud800",
}


class Unasked:
    """In place of a connection: any call of it is a fault."""

    def __init__(self) -> None:
        self.data_converter = converter("memory://", None)

    def __getattr__(self, name: str) -> Callable[..., None]:
        def called(*_: object, **__: object) -> None:
            raise AssertionError(f"Temporal was asked: {name}")

        return called


def unasked() -> Holdfast:
    return Holdfast(cast("TemporalClient", Unasked()), Settings())


@pytest.mark.parametrize("bad", BAD_IDS.values(), ids=BAD_IDS)
async def test_a_bad_agent_id_is_refused_before_temporal_is_asked(bad: str) -> None:
    holdfast = unasked()
    asked: list[Callable[[], object]] = [
        lambda: holdfast.agent(bad),
        lambda: holdfast.records(agent_id=bad),
        lambda: holdfast.agent().record(bad),
        lambda: holdfast.agent().rewind(bad),
    ]
    for each in asked:
        with pytest.raises(InvalidInput, match=r"is not a UUID|is not an id of a (run|session)"):
            await _awaited(each())


async def _awaited(given: object) -> None:
    if isinstance(given, Awaitable):
        await given


SAYINGS: dict[str, tuple[str, str, str]] = {
    "empty": ("", "id", "the message is empty"),
    "blank": (" \n", "id", "the message is empty"),
    "long": ("x" * (QUESTION_BYTES_MAX + 1), "id", "131,073 bytes"),
    "escapes": ("\1" * 99_999, "id", "as JSON, at most 262,144"),
    "half a character": ("a\ud800", "id", "not valid Unicode"),
    "no id": ("hi", "", "has 0 characters"),
    "long id": ("hi", "x" * 1001, "has 1,001 characters"),
    "id too long by one": ("hi", "x" * (MESSAGE_ID_CHARS_MAX + 1), "has 65 characters"),
    "id with a newline": ("hi", "a\nb", "unprintable characters"),
    "id with NUL": ("hi", "a\0b", "unprintable characters"),
    "half an id": ("hi", "\ud800", "unprintable characters"),
}


@pytest.mark.parametrize(("text", "message_id", "words"), SAYINGS.values(), ids=SAYINGS)
async def test_what_cannot_be_said_is_refused_before_temporal_is_asked(text: str, message_id: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        await unasked().agent(definition=FRIEND).send(text, message_id=message_id)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


SETTINGS: dict[str, dict[str, Any]] = {
    "policy": {"while_running": "later"},
    "idle": {"idle_seconds": 0},
    "tenant": {"tenant": "x" * 65},
    "tenant in bytes": {"tenant": "é" * 33},
    "half a tenant": {"tenant": "\ud800"},
    "tenant with NUL": {"tenant": "a\0"},
}


@pytest.mark.parametrize("given", SETTINGS.values(), ids=SETTINGS)
def test_settings_that_cannot_be_are_refused_at_once(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        unasked().agent(definition=FRIEND, **given)


async def test_changes_that_cannot_be_are_refused_before_temporal_is_asked() -> None:
    agent = unasked().agent(definition=FRIEND)
    for given in ({"system_prompt": "a\ud800"}, {"system_prompt": "x" * 300_000}, {"while_running": "later"}):
        with pytest.raises(InvalidInput):
            await agent.change(**cast("Any", given))
    with pytest.raises(InvalidInput):
        await agent.stop("x" * 1_001)


@pytest.mark.slow
async def test_a_session_that_was_closed_takes_nothing(serve: Serve) -> None:
    async with serve(echo) as at_work:
        holdfast = at_work.client
        agent = holdfast.agent(definition=FRIEND)
        receipt = await agent.send("one")
        await agent.close()
        assert (await agent.answer(receipt)).final_response == "1: one"
        for again in (agent, holdfast.agent(agent.agent_id, FRIEND)):
            with pytest.raises(SessionClosed, match=f"the session of agent {agent.agent_id} is closed"):
                await again.send("two")
        [record] = await agent.records()
        fork = await agent.fork(record.execution_id)
        assert (await fork.ask("two")).output == "3: two"
        assert (await agent.view()).status == "closed"


async def test_the_policy_of_a_message_is_its_own(serve: Serve) -> None:
    def answer(request: dict[str, Any]) -> Reply:
        late = request["messages"][-1]["content"] == "one"
        return say("too late", delay_seconds=30) if late else say("at once")

    async with serve(answer) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        first = await agent.send("one")
        await at_work.endpoint.until(lambda requests: len(requests) == 1)
        with pytest.raises(SessionRefused, match="the policy is `reject`"):
            await agent.send("two", while_running="reject")
        assert (await agent.ask("three", while_running="interrupt")).output == "at once"
        assert (await agent.answer(first)).status is ExecutionStatus.STOPPED


async def test_without_a_worker_nobody_is_told_that_a_message_is_kept_and_sending_it_again_is_safe(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = (await Holdfast.connect(settings)).agent(definition=FRIEND)
    with monkeypatch.context() as patched:
        patched.setattr(workflow_updates, "ASKED_TIMEOUT", workflow_updates.ASKED_TIMEOUT / 20)
        with pytest.raises(ServerUnavailable) as caught:
            await agent.send("one", message_id="m1")
    assert f"start one with `holdfast worker --task-queue {settings.task_queue}`" in str(caught.value)
    assert "'m1' may have been stored; sending it again under that id is safe" in str(caught.value)
    async with served(settings, tmp_path / "ledger.jsonl", echo, Toolset()):
        assert (await agent.ask("one", message_id="m1")).output == "1: one"
        assert heard(await agent.state()) == ["one"]


async def test_the_cause_of_a_sessions_silence_is_told(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(settings, tmp_path / "ledger", echo, Toolset()) as before:
        agent = before.client.agent(definition=FRIEND)
        await agent.ask("hi")
    monkeypatch.setattr(workflow_updates, "UPDATE_SECONDS_MAX", 1.0)
    with pytest.raises(ServerUnavailable, match=r"its task has waited for a worker .*: it is too busy, or gone"):
        await (await Holdfast.connect(settings)).agent(agent.agent_id).suspend()


async def test_a_message_that_the_session_never_had_has_no_answer(serve: Serve) -> None:
    async with serve(echo) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        await agent.open()
        with pytest.raises(SessionRefused, match="does not know the message 'never'"):
            await agent.answer(Receipt(message_id="never", state="waiting"))


async def test_who_waits_for_a_session_that_was_terminated_is_told(serve: Serve) -> None:
    async with serve(echo) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        await agent.suspend()
        waiting = asyncio.create_task(agent.answer(await agent.send("one")))
        await asyncio.sleep(1)  # so that it has come to rest
        await at_work.client.temporal.get_workflow_handle(session_workflow_id(agent.agent_id)).terminate()
        with pytest.raises(SessionRefused, match="ended from outside before the message"):
            await waiting


@pytest.mark.slow
async def test_who_waits_for_a_message_that_a_close_at_once_left_waiting_is_told(serve: Serve) -> None:
    async with serve(echo) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        await agent.suspend()
        receipt = await agent.send("one")
        waiting = asyncio.create_task(agent.answer(receipt))
        await agent.close(stop=True)
        for each in (waiting, agent.answer(receipt)):
            with pytest.raises(SessionClosed, match=r"closed before the message .* was processed; fork"):
                await asyncio.wait_for(each, 90)


# --- steering


@pytest.mark.slow
async def test_an_agent_is_changed_cleared_and_stopped(serve: Serve) -> None:
    async with serve(echo) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        await agent.ask("one")
        changed = await agent.change(system_prompt="Be brief.", budget=ExecutionBudget(max_steps=3))
        assert (await agent.ask("two")).output == "4: two", "with the prompt"
        await agent.clear()
        assert (await agent.ask("three")).output == "2: three"
        assert len(await agent.records()) == 3
        renamed = await agent.change(AgentDefinition(name="other", tools="all"), while_running="inject")
        assert (await agent.stop("nothing runs")).status == "idle"
    assert (changed.definition.system_prompt, changed.definition.budget.max_steps) == ("Be brief.", 3)
    assert (renamed.definition.name, renamed.settings.while_running) == ("other", "inject")


async def test_no_call_waits_of_a_run_that_is_about_to_begin(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve([say("done")]) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        opened = await agent.open()

        async def begins(_: AgentHandle) -> SessionView:
            return opened.model_copy(update={"running_id": str(uuid4())})

        monkeypatch.setattr(AgentHandle, "view", begins)
        assert await agent.waiting() == ()
        with pytest.raises(DecisionRefused, match="is starting"):
            await agent.approve("call_0")


@pytest.mark.slow
async def test_calls_that_wait_are_listed_and_decided(serve: Serve) -> None:
    paid: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    careful = AgentDefinition.model_validate({"name": "careful", "tools": "all", "approvals": [{"tools": ["pay"]}]})
    script = [call("pay", amount=5), call("pay", amount=6), call("pay", amount=7), say("done")]
    async with serve(script, [pay]) as at_work:
        holdfast = at_work.client
        agent = holdfast.agent(definition=careful)
        await agent.open()
        assert not await agent.approve("call_0"), "nothing runs"
        asking = asyncio.create_task(agent.ask("pay"))
        first = await _waits(agent)
        await _listed(holdfast, agent, first)
        assert await agent.approve(first, by="ann")
        second = await _waits(agent, first)
        assert await agent.deny(second, "too dear", by="ann")
        third = await _waits(agent, first, second)
        assert await agent.edit(third, {"amount": 1}, by="ann")
        assert (await asking).output == "done"
    assert paid == [5, 1]


async def _waits(agent: AgentHandle, *decided: str) -> str:
    async with asyncio.timeout(90):
        while not (new := [each.call_id for each in await agent.waiting() if each.call_id not in decided]):  # noqa: ASYNC110  # nothing tells a client
            await asyncio.sleep(0.05)
    return new[0]


async def _listed(holdfast: Holdfast, agent: AgentHandle, call_id: str) -> None:
    """The listing follows the run by some milliseconds."""
    async with asyncio.timeout(90):
        while not [each for each in await holdfast.waiting(1_000) if each.agent_id == agent.agent_id]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    [line] = [each for each in await holdfast.waiting(1_000) if each.agent_id == agent.agent_id]
    assert (line.call_id, line.agent) == (call_id, "careful")
    assert line.execution_id == (await agent.view()).running_id


# --- watching


@pytest.mark.slow
async def test_a_watch_tells_every_execution_until_the_close(serve: Serve) -> None:
    async with serve(by_number) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        first = await agent.send("one")
        await at_work.endpoint.until(lambda requests: len(requests) == 1)
        told: list[Any] = []

        async def watch() -> None:
            told.extend([event async for event in agent.watch()])

        watching = [asyncio.create_task(watch())]
        await agent.answer(first)
        with pytest.raises(ExecutionFailed):
            await agent.ask("two")
        last = await agent.ask("three")
        await agent.close()
        await asyncio.gather(*watching)
    begun = [each.execution_id for each in told if each.kind == "AgentExecutionStarted"]
    assert len(begun) == len(set(begun)) == 3
    assert begun[-1] == last.execution_id
    assert [each.execution_id for each in told if isinstance(each, AgentExecutionFailed)] == [begun[1]]
    assert told[-1].kind == "AgentExecutionCompleted"
    assert "".join(each.text for each in told if each.kind == "TextDelta" and each.execution_id == begun[0]) == "first"


@pytest.mark.slow
async def test_a_watch_tells_nothing_of_what_ended_before_and_outlasts_leaving(serve: Serve) -> None:
    async with serve(echo) as at_work:
        holdfast = at_work.client
        agent = holdfast.agent(definition=FRIEND, idle_seconds=0.1)
        before = await agent.ask("one")
        watching = agent.watch()
        coming = asyncio.ensure_future(anext(watching))
        await at_work.client.temporal.get_workflow_handle(session_workflow_id(agent.agent_id)).result()  # it has left
        after = await holdfast.agent(agent.agent_id).ask("two")
        first = await coming
        await watching.aclose()
    assert first.execution_id == after.execution_id != before.execution_id


async def test_watching_an_agent_that_is_not_there_is_refused_or_begins_it(serve: Serve) -> None:
    async with serve(echo) as at_work:
        holdfast = at_work.client
        with pytest.raises(ExecutionNotFound):
            await anext(holdfast.agent(NOBODY).watch())
        agent = holdfast.agent(definition=FRIEND)
        coming = asyncio.ensure_future(anext(watching := agent.watch()))
        state = await agent.ask("one")
        assert (await coming).execution_id == state.execution_id
        await watching.aclose()


# --- records


@pytest.mark.slow
async def test_records_are_read_without_a_worker(serve: Serve, settings: Settings) -> None:
    async with serve(echo) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        states = [await agent.ask(text) for text in ("one", "two", "three")]
    holdfast = await Holdfast.connect(settings)
    again = holdfast.agent(agent.agent_id)
    latest, *older = await again.records()
    assert [(each.number, each.task, each.answer) for each in (latest, *older)] == [
        (3, "three", "5: three"),
        (2, "two", "3: two"),
        (1, "one", "1: one"),
    ]
    assert latest.execution_id == states[-1].execution_id
    assert await again.record(latest.execution_id) == latest
    assert await again.records(1) == [latest]
    assert await holdfast.records(agent_id=agent.agent_id, status="completed") == [latest, *older]
    assert await holdfast.records(agent_id=agent.agent_id, stop_reason="token_limit") == []
    found = await holdfast.records(1_000, agent="friend", status="completed", stop_reason="completed")
    assert [each for each in found if each.agent_id == agent.agent_id] == [latest, *older]
    assert (await holdfast.records(1_000, agent="nobody-of-this-name")) == []
    with pytest.raises(RecordNotFound):
        await again.record(NOBODY)
    with pytest.raises(RecordNotFound, match=f"is not the agent {NOBODY}'s but {agent.agent_id}'s"):
        await holdfast.agent(NOBODY).record(latest.execution_id)
    for bad in ({"status": "pending"}, {"stop_reason": "tired"}, {"limit": 0}):
        with pytest.raises(InvalidInput):
            await holdfast.records(**cast("Any", bad))


@pytest.mark.slow
async def test_an_agent_goes_back_and_another_one_goes_on_from_there(serve: Serve) -> None:
    async with serve(echo) as at_work:
        agent = at_work.client.agent(definition=FRIEND, tenant="acme")
        first = await agent.ask("one")
        await agent.ask("two")
        fork = await agent.fork(agent_id="11111111-1111-4111-8111-" + agent.agent_id[-12:])
        await agent.rewind(first.execution_id)
        assert heard(await agent.state()) == ["one"]
        assert (await agent.ask("three")).output == "3: three"
        assert (await fork.ask("four")).output == "5: four"
        view = await fork.view()
        with pytest.raises(RecordNotFound, match=NOBODY):
            await agent.rewind(NOBODY)
        with pytest.raises(SessionRefused, match="step"):
            await agent.rewind(first.execution_id, steps=7)
    assert fork.agent_id.startswith("11111111-1111-4111-8111-")
    assert (view.definition, view.settings.tenant, view.executions) == (FRIEND, "acme", 1)


async def test_an_agent_that_has_done_nothing_has_a_state_and_no_fork(serve: Serve) -> None:
    async with serve(echo) as at_work:
        agent = at_work.client.agent(definition=FRIEND)
        await agent.open()
        state = await agent.state()
        with pytest.raises(InvalidInput, match="has no conversation to fork yet"):
            await agent.fork()
    assert (state.agent_id, state.status, [*state.messages]) == (agent.agent_id, ExecutionStatus.PENDING, [])


# --- listing


@pytest.mark.slow
async def test_sessions_are_listed_once_each_and_by_a_query(serve: Serve) -> None:
    name = f"listed-{uuid4()}"[:40]
    async with serve(echo) as at_work:
        holdfast = at_work.client
        agents = [holdfast.agent(definition=AgentDefinition(name=name, tools=())) for _ in range(2)]
        for agent in agents:
            await agent.ask("one")
        await agents[0].close()
        await at_work.client.temporal.get_workflow_handle(session_workflow_id(agents[0].agent_id)).result()
        async with asyncio.timeout(90):
            named, ends = f"HoldfastAgent = '{name}'", {"idle", "closed"}
            while {each.status for each in await holdfast.sessions(5, named)} != ends:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        found = await holdfast.sessions(5, f"HoldfastAgent = '{name}'")
        assert {each.agent_id for each in found} == {each.agent_id for each in agents}
        assert len(await holdfast.sessions(1)) == 1
        for bad in ("HoldfastAgent = ", "Nonsense = 'x'", ") OR ("):
            with pytest.raises(InvalidInput, match="does not understand the query"):
                await holdfast.sessions(5, bad)
        with pytest.raises(InvalidInput, match="Unicode"):
            await holdfast.sessions(5, "HoldfastAgent = '\ud800'")
