"""What a production server loses of its parts while sessions talk: nothing that was acknowledged, nothing twice."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, Reply, calls, say
from tests.chaos.processes import worker
from tests.chaos.sessions import talked
from tests.cluster.cluster import Cluster
from tests.workflows.chats import Chat, ids

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

SESSIONS: Final = int(os.environ.get("HOLDFAST_TEST_SESSIONS", "40"))
MESSAGES: Final = 3
WORKERS: Final = 3
DOWN_SECONDS: Final = 3.0
SLOW_SECONDS: Final = 0.1
TELLER: Final = AgentDefinition(name="teller", tools=("note", "pay"))

Fault = Callable[[Cluster], None]


def answering(request: dict[str, Any]) -> Reply:
    """Pay and note once for each message, then answer it."""
    messages = request["messages"]
    last = max(place for place, each in enumerate(messages) if each["role"] == "user")
    text = messages[last]["content"]
    if last == len(messages) - 1:
        return calls(Call("pay", {"amount": 1, "seconds": 0.05}), Call("note", {"text": text, "seconds": 0.05}))
    return say(f"re {text}", delay_seconds=0.1)


def losing(role: str) -> Fault:
    """Kill the processes of a role, one after the other, and start each again."""

    def fault(cluster: Cluster) -> None:
        for node in cluster.nodes[role]:
            node.kill()
            time.sleep(DOWN_SECONDS)  # the fault itself
            node.start_again()
            asyncio.run(cluster.until_ready())

    return fault


def losing_the_database(cluster: Cluster) -> None:
    """Kill PostgreSQL as a power cut does, and start it again."""
    cluster.postgres.kill()
    time.sleep(DOWN_SECONDS)
    cluster.postgres.start_again()


def cut_off(cluster: Cluster) -> None:
    """Cut workers and clients off from every frontend."""
    cluster.balancer.cut()
    time.sleep(DOWN_SECONDS * 3)
    cluster.balancer.heal()


def slowed(cluster: Cluster) -> None:
    """Make every statement take a tenth of a second longer."""
    cluster.database.delay_seconds = SLOW_SECONDS
    time.sleep(DOWN_SECONDS * 5)
    cluster.database.delay_seconds = 0.0


FAULTS: Final[dict[str, Fault]] = {
    "frontend": losing("frontend"),
    "history": losing("history"),
    "matching": losing("matching"),
    "worker": losing("worker"),
    "database": losing_the_database,
    "network": cut_off,
    "slow database": slowed,
}


@dataclass(frozen=True, slots=True)
class Progress:
    """When the model was asked, as seconds before and after a fault began and ended."""

    asked: Sequence[float]
    began: float
    ended: float

    def line(self, name: str, seconds: float) -> str:
        """Return what the tier prints of a fault."""
        during = sum(self.began <= each < self.ended for each in self.asked)
        after = [each - self.ended for each in self.asked if each >= self.ended]
        resumed = f"{min(after):.1f} s after it" if after else "never after it"
        lasted = self.ended - self.began
        return (
            f"{name}: lasted {lasted:.1f} s, {during} model calls meanwhile, the next {resumed}; {seconds:.0f} s in all"
        )


@pytest.mark.parametrize("name", FAULTS)
async def test_sessions_go_on_through_a_fault(
    name: str, settings: Settings, running: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [f"message {number}" for number in range(MESSAGES)]
    ledger, started = Ledger(tmp_path / "tools.jsonl"), time.monotonic()
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(FakeOpenAI(answering))
        for _ in range(WORKERS):
            await stack.enter_async_context(worker(settings, endpoint, ledger.path))
        client = await Holdfast.connect(settings)
        talks = [asyncio.create_task(talked(Chat(client, TELLER), said)) for _ in range(SESSIONS)]
        await endpoint.until(lambda requests: len(requests) >= SESSIONS, 300)
        began = time.monotonic()
        await asyncio.to_thread(FAULTS[name], running)
        ended = time.monotonic()
        states = [await talk for talk in talks]
        asked = [each.started_at for each in endpoint.requests]
    with capsys.disabled():
        print("\n" + Progress(asked, began, ended).line(name, time.monotonic() - started))
    assert sum(each < began for each in asked) < SESSIONS * MESSAGES * 2, "the fault came in the middle"
    for state in states:
        assert ids(state.messages) == said
        assert [each.text for each in state.messages if each.role == "assistant" and each.text] == [
            f"re {text}" for text in said
        ]
    paid = [entry.key for entry in ledger.entries(name="pay", phase="started")]
    assert len(paid) == len(set(paid)) <= SESSIONS * MESSAGES, "what may run once ran twice"
    noted = {entry.key for entry in ledger.entries(name="note", phase="finished")}
    assert len(noted) == SESSIONS * MESSAGES, "an effect that is repeated keeps its key"
