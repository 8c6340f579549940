"""A server that is killed or frozen under its runs: they go on where they were, and no limit is forgotten meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.server.embedded import EmbeddedServer
from holdfast.testing import assert_every_call_answered
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, Reply, call, calls, say
from tests.chaos.processes import READY_SECONDS_MAX, frozen, worker
from tests.chaos.sessions import talked
from tests.chaos.tools import note, pay
from tests.serving import served
from tests.workflows.chats import Chat, ids, texts

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(600)]

RUNS = 30
SESSIONS = 20
MESSAGES = 3
FROZEN_SECONDS = 8
AGENT = AgentDefinition(name="noter", tools=("note", "pay"))
SCRIPT = [
    call("note", text="first"),
    calls(Call("pay", {"amount": 5}), Call("note", {"text": "second"}), delay_seconds=0.5),
    say("all done", delay_seconds=0.5),
]


class OwnServer:
    """A server that a test may kill: it starts again on the same data and the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server = EmbeddedServer.start(folder, port=0, ui_port=0)

    @property
    def address(self) -> str:
        return self.server.address.address

    @property
    def pid(self) -> int:
        return self.server.address.pid

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        while self.server.alive:
            time.sleep(0.01)
        self.server.stop()  # what is left of it in this process: the port of its Web UI, with a thread and its files

    def start_again(self) -> None:
        port = int(self.address.rpartition(":")[2])
        self.server = EmbeddedServer.start(self._folder, port=port, ui_port=0)


@pytest.fixture
def own(tmp_path: Path) -> Generator[OwnServer]:
    own = OwnServer(tmp_path / "server")
    yield own
    own.server.stop()


def test_a_killed_server_leaves_nothing_in_the_process_that_started_it(own: OwnServer) -> None:
    web = urlsplit(own.server.address.ui)
    assert web.hostname is not None
    assert web.port is not None
    place = (web.hostname, web.port)
    socket.create_connection(place, 30).close()
    own.kill()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place, 30)
    own.start_again()
    assert own.server.alive


@pytest.mark.slow
async def test_a_server_killed_under_thirty_runs_loses_none_of_them(
    settings: Settings, own: OwnServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "tools.jsonl")
    monkeypatch.setenv("HOLDFAST_LEDGER", str(ledger.path))
    here = replace(settings, address=own.address)
    async with served(here, tmp_path / "model.jsonl", SCRIPT, Toolset(tools=(note, pay))) as serving:
        ids = await asyncio.gather(*(serving.client.start(AGENT, f"order {number}") for number in range(RUNS)))
        await serving.endpoint.until(lambda requests: len(requests) >= RUNS, READY_SECONDS_MAX)
        await asyncio.to_thread(own.kill)
        under_way = len(serving.endpoint.requests)
        await asyncio.to_thread(own.start_again)
        client = await Holdfast.connect(here)
        states = await asyncio.gather(*(client.result(execution_id) for execution_id in ids))
    assert under_way < RUNS * len(SCRIPT), "the server died in the middle"
    for state in states:
        assert (state.status, state.final_response, state.step_count) == (ExecutionStatus.COMPLETED, "all done", 3)
        assert_every_call_answered(state)
    paid = [entry.key for entry in ledger.entries(name="pay", phase="started")]
    assert len(paid) == len(set(paid)) <= RUNS, "what may run once ran twice"
    notes = {(entry.key, entry.detail["text"]) for entry in ledger.entries(name="note")}
    assert len(notes) == 2 * RUNS, "an effect that is repeated keeps its key"


def answering(request: dict[str, Any]) -> Reply:
    """Answer what was said last."""
    return say(f"re {request['messages'][-1]['content']}", delay_seconds=0.3)


@pytest.mark.slow
async def test_a_server_killed_under_twenty_sessions_loses_no_message(
    settings: Settings, own: OwnServer, tmp_path: Path
) -> None:
    here = replace(settings, address=own.address)
    said = [f"message {number}" for number in range(MESSAGES)]
    expected = [turn for text in said for turn in (("user", text), ("assistant", f"re {text}"))]
    async with served(here, tmp_path / "model.jsonl", answering, Toolset()) as serving:
        chats = [Chat(serving.client, AgentDefinition(name="friend", tools=())) for _ in range(SESSIONS)]
        talks = [asyncio.create_task(talked(chat, said)) for chat in chats]
        await serving.endpoint.until(lambda requests: len(requests) >= SESSIONS, READY_SECONDS_MAX)
        await asyncio.to_thread(own.kill)
        under_way = len(serving.endpoint.requests)
        await asyncio.to_thread(own.start_again)
        states = [await talk for talk in talks]
        asked = [str(each.body["messages"]) for each in serving.endpoint.requests]
    assert under_way < SESSIONS * MESSAGES, "the server died in the middle"
    for state in states:
        assert texts(state) == expected
        assert ids(state.messages) == said
    assert len(asked) <= SESSIONS * (MESSAGES + 1), "only the calls in flight may be asked again"


async def test_a_server_frozen_for_some_seconds_goes_on(settings: Settings, own: OwnServer, tmp_path: Path) -> None:
    here = replace(settings, address=own.address)
    script = [say("thawed", delay_seconds=1)]
    async with served(here, tmp_path / "model.jsonl", script, Toolset()) as serving:
        execution_id = await serving.client.start(AgentDefinition(name="speaker", tools="all"), "speak")
        await serving.endpoint.until(lambda requests: len(requests) == 1)
        with frozen(own.pid):
            await serving.endpoint.until(lambda requests: requests[0].ended_at is not None)
            await asyncio.sleep(FROZEN_SECONDS)  # the fault itself
        state = await serving.client.result(execution_id)
    assert [(message.role, message.text) for message in state.messages] == [("user", "speak"), ("assistant", "thawed")]
    assert len(serving.endpoint.requests) <= 2


@pytest.mark.slow
async def test_a_deadline_that_passes_while_everything_is_down_stops_the_run_before_another_model_call(
    settings: Settings, own: OwnServer, tmp_path: Path
) -> None:
    here, ledger = replace(settings, address=own.address), tmp_path / "tools.jsonl"
    async with FakeOpenAI([say("too late", delay_seconds=600)]) as endpoint:
        client = await Holdfast.connect(here)
        async with worker(here, endpoint, ledger) as process:
            deadline = datetime.now(UTC) + timedelta(seconds=6)
            execution_id = await client.start(AGENT, "wait", budget=ExecutionBudget(deadline=deadline))
            await endpoint.until(lambda requests: len(requests) == 1, READY_SECONDS_MAX)
            process.kill()
        await asyncio.to_thread(own.kill)
        assert datetime.now(UTC) < deadline, "everything was down when it passed"
        await asyncio.sleep((deadline - datetime.now(UTC)).total_seconds() + 0.1)  # nobody is there to tell
        await asyncio.to_thread(own.start_again)
        client = await Holdfast.connect(here)
        async with worker(here, endpoint, ledger):
            state = await client.result(execution_id)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)
    assert len(endpoint.requests) == 1
