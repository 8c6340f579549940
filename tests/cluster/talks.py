"""Sessions that talk while a production server loses or moves its parts, and what must hold of them afterwards."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.state import AgentState
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, Reply, calls, say
from tests.chaos.processes import worker
from tests.chaos.sessions import talked
from tests.workflows.chats import Chat, ids

SESSIONS: Final = int(os.environ.get("HOLDFAST_TEST_SESSIONS", "40"))
MESSAGES: Final = 3
SAID: Final = [f"message {number}" for number in range(MESSAGES)]
WORKERS: Final = 3
CALLS_SECONDS_MAX: Final = 300.0
POLL_SECONDS: Final = 0.1
TELLER: Final = AgentDefinition(name="teller", tools=("note", "pay"))


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of what happened to the server, from its beginning to its end, on this machine's monotonic clock."""

    name: str
    began: float
    ended: float

    def line(self, asked: Sequence[float]) -> str:
        """Return what the tier prints of it, by the moments at which the model was asked."""
        during = sum(self.began <= each < self.ended for each in asked)
        after = [each - self.ended for each in asked if each >= self.ended]
        resumed = f"{min(after):.1f} s after it" if after else "never after it"
        pauses = [later - one for one, later in pairwise(sorted(asked)) if later >= self.began and one < self.ended]
        return (
            f"{self.name}: lasted {self.ended - self.began:.1f} s, {during} model calls meanwhile, the next {resumed}, "
            f"the longest pause {max(pauses, default=0.0):.1f} s"
        )


@dataclass
class Timeline:
    """What happened to the server, in its order."""

    calls: Callable[[], int]
    """Counts the model calls so far."""
    phases: list[Phase] = field(default_factory=list[Phase])

    def run(self, name: str, deed: Callable[[], None]) -> None:
        """Do something, and note when."""
        began = time.monotonic()
        deed()
        self.phases.append(Phase(name, began, time.monotonic()))

    def until_recovered(self) -> None:
        """Return once so many model calls have been made since that many of the sessions have gone on."""
        wanted, until = self.calls() + SESSIONS // 4, time.monotonic() + CALLS_SECONDS_MAX
        while self.calls() < wanted:
            done = ", ".join(each.name for each in self.phases)
            assert time.monotonic() < until, f"{self.calls()} model calls after {done}; {wanted} were awaited"
            time.sleep(POLL_SECONDS)


Fault = Callable[[Timeline], None]
"""Harms the server while sessions talk, from a thread of its own."""


def answering(request: dict[str, Any]) -> Reply:
    """Pay and note once for each message, then answer it."""
    messages = request["messages"]
    last = max(place for place, each in enumerate(messages) if each["role"] == "user")
    text = messages[last]["content"]
    if last == len(messages) - 1:
        return calls(Call("pay", {"amount": 1, "seconds": 0.05}), Call("note", {"text": text, "seconds": 0.05}))
    return say(f"re {text}", delay_seconds=0.1)


async def talk_through(fault: Fault, settings: Settings, folder: Path) -> list[str]:
    """Have sessions talk, harm the server in the middle, and check what must hold; return what to print of it."""
    ledger, started = Ledger(folder / "tools.jsonl"), time.monotonic()
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(FakeOpenAI(answering))
        for _ in range(WORKERS):
            await stack.enter_async_context(worker(settings, endpoint, ledger.path))
        client = await Holdfast.connect(settings)
        timeline = Timeline(lambda: len(endpoint.requests))
        talks = [asyncio.create_task(talked(Chat(client, TELLER), SAID)) for _ in range(SESSIONS)]
        await endpoint.until(lambda requests: len(requests) >= SESSIONS, CALLS_SECONDS_MAX)
        await asyncio.to_thread(fault, timeline)
        states = [await talk for talk in talks]
        asked = [each.started_at for each in endpoint.requests]
    check(states, ledger)
    before = sum(each < timeline.phases[-1].began for each in asked)
    assert before < SESSIONS * MESSAGES * 2, "the last fault came in the middle"
    load = os.getloadavg()[1]
    total = f"{SESSIONS} sessions, {time.monotonic() - started:.0f} s in all, load average {load:.0f}"
    return [*(phase.line(asked) for phase in timeline.phases), total]


def check(states: Sequence[AgentState], ledger: Ledger) -> None:
    """Check that nothing that was acknowledged is lost, and that nothing happened twice that must not."""
    for state in states:
        assert ids(state.messages) == SAID
        answers = [each.text for each in state.messages if each.role == "assistant" and each.text]
        assert answers == [f"re {text}" for text in SAID]
    paid = [entry.key for entry in ledger.entries(name="pay", phase="started")]
    assert len(paid) == len(set(paid)) <= SESSIONS * MESSAGES, "what may run once ran twice"
    noted = {entry.key for entry in ledger.entries(name="note", phase="finished")}
    assert len(noted) == SESSIONS * MESSAGES, "an effect that is repeated keeps its key"
