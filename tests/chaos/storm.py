"""Faults for some time, then quiet: a worker and a server that die again and again, and what their sessions come to."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast import AgentDefinition
from holdfast.client import Holdfast, Settings
from holdfast.client.agent_handle import AgentHandle
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ServerUnavailable
from holdfast.server.worker_process import WorkerProcess, worker_command, worker_environment
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply, say
from tests.chaos.test_server_lost import OwnServer

AnswerT = TypeVar("AnswerT")

FRIEND: Final = AgentDefinition(name="friend", tools=())
START_SECONDS_MAX: Final = 180.0
WORKER_SERVES: Final = (2.0, 4.0)
SERVER_SERVES: Final = (5.0, 10.0)


def echo(request: dict[str, Any]) -> Reply:
    """Answer what was said last."""
    return say(f"re {request['messages'][-1]['content']}", delay_seconds=0.2)


@dataclass
class Figures:
    """What was seen, in the order in which it is printed."""

    worker_kills: int = 0
    server_kills: int = 0
    acknowledged: dict[str, float] = field(default_factory=dict[str, float])
    """When each message was acknowledged, by its id."""
    answered: dict[str, float] = field(default_factory=dict[str, float])
    unavailable: Counter[str] = field(default_factory=Counter[str])
    """How often a sender was told that nobody answers, by the beginning of the reason."""
    states: dict[str, AgentState] = field(default_factory=dict[str, AgentState])
    quiet_at: float = 0.0

    def report(self, seed: int, requests: int) -> str:
        """Return all of it on some lines."""
        before = [each for each, at in self.acknowledged.items() if at <= self.quiet_at]
        drained = max((self.answered[each] for each in before if each in self.answered), default=self.quiet_at)
        return (
            f"seed {seed}: {self.worker_kills} workers and {self.server_kills} servers killed; "
            f"{len(self.acknowledged)} messages acknowledged ({len(before)} in the storm), "
            f"{len(self.answered)} answered, {requests} model calls; drained {max(0.0, drained - self.quiet_at):.1f} s "
            f"after quiet, all done {max(self.answered.values(), default=0.0) - self.quiet_at:.1f} s after it; "
            f"senders told that nobody answers: {dict(self.unavailable)}"
        )


@dataclass
class Storm:
    """One worker and one server that die after some time of serving, each again and again until `calm`."""

    settings: Settings
    own: OwnServer
    endpoint: FakeOpenAI
    seed: int
    log: Path
    """Where the workers' words are kept."""
    figures: Figures = field(default_factory=Figures)
    calm: asyncio.Event = field(default_factory=asyncio.Event)
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def raging(self) -> AsyncGenerator[None]:
        """Let them die for the length of the block; there is a worker and a server behind its end until `over`."""
        tasks = [asyncio.create_task(self._workers()), asyncio.create_task(self._servers())]
        try:
            yield
        finally:
            self.calm.set()
            self._over.set()
            await asyncio.gather(*tasks)

    async def rest(self, span: tuple[float, float], chance: random.Random) -> bool:
        """Wait for a time of that span; return whether it became calm meanwhile."""
        try:
            await asyncio.wait_for(self.calm.wait(), chance.uniform(*span))
        except TimeoutError:
            return False
        return True

    async def _workers(self) -> None:
        chance = random.Random(self.seed)  # noqa: S311  # repeatable
        environment = {**worker_environment(), "OPENAI_BASE_URL": self.endpoint.base_url, "HOLDFAST_MODEL": "scripted"}
        while True:
            command = worker_command(self.settings, ["tests.chaos.tools"])
            process = await asyncio.to_thread(WorkerProcess, command, self._heard, environment)
            try:
                assert await asyncio.to_thread(process.wait_until_ready, START_SECONDS_MAX), "no worker starts"
                if await self.rest(WORKER_SERVES, chance):
                    await self._over.wait()
                    return
                process.kill()
                self.figures.worker_kills += 1
            finally:
                await asyncio.to_thread(process.stop)

    def _heard(self, line: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{line}\n")

    async def _servers(self) -> None:
        chance = random.Random(self.seed + 1)  # noqa: S311  # repeatable
        while not await self.rest(SERVER_SERVES, chance):
            await asyncio.to_thread(self.own.kill)
            self.figures.server_kills += 1
            await asyncio.to_thread(self.own.start_again)


async def talk(holdfast: Holdfast, name: str, turns: int, figures: Figures) -> None:
    """Say so many things to an agent, one after the other as they are answered, whatever dies meanwhile."""
    agent = holdfast.agent(definition=FRIEND)
    for turn in range(turns):
        message_id = f"{name}.{turn}"
        answer = await _answered(agent, message_id, figures)
        figures.states[name] = answer
        assert answer.final_response == f"re {message_id}", f"{message_id} is answered with {answer.final_response!r}"
    await _retried(agent.close, figures)


async def _answered(agent: AgentHandle, message_id: str, figures: Figures) -> AgentState:
    receipt = await _retried(lambda: agent.send(message_id, message_id=message_id), figures)
    figures.acknowledged.setdefault(message_id, time.monotonic())
    answer = await _retried(lambda: agent.answer(receipt), figures)
    figures.answered.setdefault(message_id, time.monotonic())
    return answer


async def _retried(ask: Callable[[], Awaitable[AnswerT]], figures: Figures) -> AnswerT:
    """Return what was asked for, asking again for as long as nobody answers; any other error is a fault."""
    while True:
        try:
            return await ask()
        except ServerUnavailable as error:
            figures.unavailable[error.message.partition(" in time: ")[2][:40] or error.message[:60]] += 1
            await asyncio.sleep(0.2)
