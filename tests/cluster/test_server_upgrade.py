"""A minor version of the server, upwards, while sessions talk: nothing acknowledged is lost, nothing twice.

As Temporal's documentation has an operator do it: the schema first, with the new version's tool, then one process after
the other.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.state import AgentState
from holdfast.core.wire.session_contracts import CLOSE_UPDATE, SessionView
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply
from tests import forked
from tests.chaos.processes import worker
from tests.chaos.sessions import acknowledged, answered
from tests.cluster.binaries import PREVIOUS, VERSION, built
from tests.cluster.cluster import Cluster, cluster, update_schema
from tests.cluster.processes import Program, environment
from tests.cluster.talks import TELLER, WORKERS, answering
from tests.workflows.chats import Chat, ids

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

SESSIONS: Final = int(os.environ.get("HOLDFAST_TEST_SESSIONS", "20"))
MESSAGES_MAX: Final = 200
"""How many messages one session says at most: it goes on until the last process is replaced."""

AHEAD_MAX: Final = 2
"""How many messages of a session wait for their answer at most."""

PROGRESS_SECONDS_MAX: Final = 120.0
"""How long, at most, until the next model call after a process was replaced."""

END_SECONDS_MAX: Final = 600.0


@pytest.fixture(scope="module")
def old_cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    """A cluster that began on the previous minor version, and its schema."""
    built(VERSION)
    forked.begin()
    with cluster(tmp_path_factory.mktemp("upgrade"), version=PREVIOUS) as running:
        asyncio.run(running.until_ready())
        setup = [sys.executable, "-m", "holdfast", "setup", "--create-namespace", "--address", running.address]
        subprocess.run(setup, env=environment(), check=True, timeout=300)
        forked.ready()
        yield running


@dataclass
class Replacement:
    """One process after another becomes that of another version; `steps` has each, when it began and when it ended."""

    cluster: Cluster
    version: str
    steps: list[tuple[str, float, float]] = field(default_factory=list[tuple[str, float, float]])

    async def run(self, after_each: Callable[[], Any]) -> None:
        """Replace them all; a next one only when the cluster answers, and the model was asked since."""
        program = str(built(self.version).server)
        for node in self.cluster.programs:
            began = time.monotonic()
            await asyncio.to_thread(node.stop)
            node.start_again(program)
            await self.cluster.until_ready()
            assert await asyncio.to_thread(runs, node, program), node.name
            self.steps.append((node.name, began, time.monotonic()))
            await after_each()


async def versions(cluster: Cluster) -> set[str]:
    """Return what the frontends say is their version."""
    found: set[str] = set()
    for target in cluster.balancer.targets:
        client = await Client.connect(target)
        found.add((await client.workflow_service.get_system_info(GetSystemInfoRequest())).server_version)
    return found


@dataclass
class Talk:
    """A session, and what it was acknowledged."""

    chat: Chat
    said: list[str] = field(default_factory=list[str])

    async def until(self, over: asyncio.Event) -> AgentState:
        """Say one message after another until that is set, and return the state with the last answer."""
        while not over.is_set() or not self.said:
            if len(self.said) >= MESSAGES_MAX:
                await over.wait()
                break
            text = f"message {len(self.said)}"
            await acknowledged(self.chat, text)
            self.said.append(text)
            if len(self.said) > AHEAD_MAX:
                await self._answer(self.said[-1 - AHEAD_MAX])
        return await self._answer(self.said[-1])

    async def close(self) -> SessionView:
        """Close the session, and return its last view once its workflow has ended."""
        await self.chat.update(CLOSE_UPDATE)
        view: SessionView = await self.chat.client.temporal.get_workflow_handle(
            self.chat.handle.id, result_type=SessionView
        ).result()
        return view

    async def _answer(self, text: str) -> AgentState:
        return await answered(self.chat, await acknowledged(self.chat, text))  # with one id it is one message


def runs(node: Program, program: str) -> bool:
    """Return whether that is the program of a process."""
    return Path(f"/proc/{node.pid}/exe").samefile(program)


def told(steps: Sequence[tuple[str, float, float]], asked: Sequence[float]) -> str:
    """Return what is printed of each replaced process."""
    lines: list[str] = []
    for name, began, ended in steps:
        during = sum(began <= each < ended for each in asked)
        after = min(each - ended for each in asked if each >= ended)
        lines.append(
            f"{name}: away for {ended - began:.1f} s, {during} model calls meanwhile, the next {after:.1f} s after"
        )
    return "\n".join(lines)


async def test_sessions_go_on_while_the_server_is_upgraded(
    old_cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(
        address=old_cluster.address,
        task_queue=f"test-{uuid4()}",
        storage=(tmp_path / "objects").as_uri(),
        data_dir=tmp_path,
    )
    assert await versions(old_cluster) == {PREVIOUS}
    ledger, over = Ledger(tmp_path / "tools.jsonl"), asyncio.Event()
    async with AsyncExitStack() as stack:
        asked: list[float] = []

        def model(request: dict[str, Any]) -> Reply:
            asked.append(time.monotonic())
            return answering(request)

        endpoint = await stack.enter_async_context(FakeOpenAI(model))
        for _ in range(WORKERS):
            await stack.enter_async_context(worker(settings, endpoint, ledger.path))
        client = await Holdfast.connect(settings)
        talks = [Talk(Chat(client, TELLER)) for _ in range(SESSIONS)]
        talking = [asyncio.create_task(each.until(over)) for each in talks]
        await endpoint.until(lambda _: len(asked) >= SESSIONS, 300)
        schema = await asyncio.to_thread(update_schema, built(VERSION), old_cluster.postgres)
        replacement = Replacement(old_cluster, VERSION)

        async def progress() -> None:
            there = len(asked)
            await endpoint.until(lambda _: len(asked) > there, PROGRESS_SECONDS_MAX)

        await replacement.run(progress)
        assert await versions(old_cluster) == {VERSION}
        over.set()
        async with asyncio.timeout(END_SECONDS_MAX):
            states = await asyncio.gather(*talking)
            views = await asyncio.gather(*(each.close() for each in talks))
    count = sum(len(each.said) for each in talks)
    with capsys.disabled():
        print(f"\n{PREVIOUS} to {VERSION}, schema {schema}, {SESSIONS} sessions, {count} messages")
        print(told(replacement.steps, asked))
    for talk, state, view in zip(talks, states, views, strict=True):
        assert view.status == "closed"
        assert ids(state.messages) == talk.said
        assert [each.text for each in state.messages if each.role == "assistant" and each.text] == [
            f"re {text}" for text in talk.said
        ]
    paid = [entry.key for entry in ledger.entries(name="pay", phase="started")]
    assert len(paid) == len(set(paid)) == count, "what may run once ran twice, or not at all"
    noted = {entry.key for entry in ledger.entries(name="note", phase="finished")}
    assert len(noted) == count, "an effect that is repeated keeps its key"
