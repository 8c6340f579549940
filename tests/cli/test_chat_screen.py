"""What somebody types in a chat while events come in, on a real terminal with an agent that answers at once."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO, cast

import pytest
from prompt_toolkit.application import create_app_session

from holdfast.cli.screens.chat_screen import Conversation
from holdfast.cli.screens.terminal_input import LeaveRequest
from holdfast.client.watch_events import Watched
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.errors import Conflict
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.execution_events import AgentExecutionCompleted, AgentStepStarted
from holdfast.core.wire.session_contracts import Receipt, SessionSettings, SessionView
from tests.cli.terminal import CTRL_C, ENTER, ESCAPES, PROMPT

AGENT_ID: Final = "0199d0a1-5a7e-7c3e-8f5e-1b2c3d4e5f60"
FIRST: Final = "0199d0a1-5a7e-7c3e-8f5e-1b2c3d4e5f61"
SECOND: Final = "0199d0a1-5a7e-7c3e-8f5e-1b2c3d4e5f62"
AT: Final = datetime(2026, 11, 24, tzinfo=UTC)
STEP: Final = AgentStepStarted(AGENT_ID, "e", None, AT, 1)
COMPLETED: Final = ExecutionStatus.COMPLETED
HEARD_SECONDS_MAX: Final = 30
TURNS: Final = 8
"""A prompt takes fewer turns of the event loop than these to hand over its line."""


class Agent:
    """An agent whose executions end as soon as they begin."""

    agent_id = AGENT_ID

    def __init__(self) -> None:
        self.happens: asyncio.Queue[Watched] = asyncio.Queue()
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self.looks: asyncio.Queue[asyncio.Future[SessionView]] = asyncio.Queue()
        """Who asks for the session and waits for it, where `answers` is false."""
        self.answers = True
        self.stops = 0

    async def watch(self) -> AsyncGenerator[Watched]:
        while True:
            yield await self.happens.get()

    async def view(self) -> SessionView:
        if self.answers:
            return session()
        asked: asyncio.Future[SessionView] = asyncio.get_running_loop().create_future()
        self.looks.put_nowait(asked)
        return await asked

    async def send(self, text: str) -> Receipt:
        self.heard.put_nowait(text)
        self.happens.put_nowait(completed(text))
        return Receipt(message_id="m", state="running")

    async def stop(self, source: str) -> None:
        assert source == "cli"
        self.stops += 1


def session(running_id: str | None = None) -> SessionView:
    return SessionView(
        agent_id=AGENT_ID,
        status="idle" if running_id is None else "running",
        definition=AgentDefinition(name="agent"),
        settings=SessionSettings(),
        running_id=running_id,
        updated_at=AT,
    )


def completed(execution_id: str) -> AgentExecutionCompleted:
    return AgentExecutionCompleted(
        AGENT_ID, execution_id, None, AT, 1, answer="", status=COMPLETED, reason=StopReason.COMPLETED, message=""
    )


class Chat:
    """A chat with `agent`, somebody's `fingers` at its keys, and what it shows."""

    def __init__(self, agent: Agent, fingers: int) -> None:
        self.agent = agent
        self._fingers = fingers
        self._shown = ""
        self._seen = 0
        self._screen = asyncio.Event()
        self.held = asyncio.create_task(Conversation(cast("Any", agent), cast("Any", agent), {}, "me").hold())
        self.held.add_done_callback(lambda _: self._screen.set())
        asyncio.get_running_loop().add_reader(fingers, self._read)

    def _read(self) -> None:
        self._shown += os.read(self._fingers, 65_536).decode()
        self._screen.set()

    async def prompts(self) -> None:
        """Return once one can type, behind what was waited for before."""
        async with asyncio.timeout(HEARD_SECONDS_MAX):
            while (found := PROMPT.search(ESCAPES.sub("", self._shown), self._seen)) is None:
                assert not self.held.done(), f"the conversation is over: {self.held!r}"
                self._screen.clear()
                await self._screen.wait()
        self._seen = found.end()

    def types(self, keys: str) -> None:
        os.write(self._fingers, keys.encode())


def terminal_output() -> TextIO:
    return open(sys.stdin.fileno(), "w", closefd=False)


@asynccontextmanager
async def chat(agent: Agent, fingers: int) -> AsyncGenerator[Chat]:
    # pytest has put back its own output, and prompt_toolkit would go on with the terminal of the test before
    with terminal_output() as screen, redirect_stdout(screen), create_app_session():
        opened = Chat(agent, fingers)
        try:
            yield opened
        finally:
            opened.held.cancel()
            await asyncio.gather(opened.held, return_exceptions=True)
            asyncio.get_running_loop().remove_reader(fingers)


class Refusing(Agent):
    """Refuses the first message, and remembers what came with each."""

    def __init__(self) -> None:
        super().__init__()
        self.attached = list[int]()

    async def send(self, text: str, attachments: Sequence[object] = ()) -> Receipt:
        self.attached.append(len(attachments))
        if len(self.attached) == 1:
            raise Conflict("too many messages wait")
        return await super().send(text)


async def test_a_refused_message_leaves_its_files_to_the_next_one(fingers: int, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    agent = Refusing()
    async with chat(agent, fingers) as talk:
        for typed in (f"/attach {tmp_path / 'a.txt'}", "one", "two", "three"):
            await talk.prompts()
            talk.types(typed + ENTER)
        async with asyncio.timeout(HEARD_SECONDS_MAX):
            assert [await agent.heard.get(), await agent.heard.get()] == ["two", "three"]
    assert agent.attached == [1, 1, 0]


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("ahead", range(-TURNS, TURNS))
async def test_a_line_is_heard_whatever_happens_in_the_moment_of_enter(fingers: int, ahead: int) -> None:
    async with chat(Agent(), fingers) as talk:
        await talk.prompts()
        if ahead < 0:
            talk.types("one" + ENTER)
            await turns(-ahead)
        talk.agent.happens.put_nowait(STEP)
        if ahead >= 0:
            await turns(ahead)
            talk.types("one" + ENTER)
        async with asyncio.timeout(HEARD_SECONDS_MAX):
            assert await talk.agent.heard.get() == "one"


async def test_what_is_reported_late_of_the_session_does_not_count(fingers: int) -> None:
    agent = Agent()
    async with chat(agent, fingers) as talk:
        await talk.prompts()
        agent.answers = False
        async with asyncio.timeout(HEARD_SECONDS_MAX):
            agent.happens.put_nowait(completed(FIRST))
            late = await agent.looks.get()
            agent.happens.put_nowait(completed(SECOND))
            (await agent.looks.get()).set_result(session())
            await talk.prompts()
            if not late.done():
                late.set_result(session(running_id=SECOND))
            await turns(TURNS)
        talk.types(CTRL_C)
        with pytest.raises(LeaveRequest):
            await asyncio.wait_for(asyncio.shield(talk.held), HEARD_SECONDS_MAX)
        assert agent.stops == 0
