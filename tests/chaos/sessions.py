"""A session that does everything once, a person who decides in it, and all that is seen of it from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.client import (
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError

from holdfast.client import Holdfast
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ServerUnavailable
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.wire.contracts import APPROVAL_SIGNAL, INFERENCE_ACTIVITY, STATE_QUERY, ApprovalDecision, StatePage
from holdfast.core.wire.session_contracts import SESSION_QUERY, Receipt, SessionSettings, SessionView
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.testing.openai_server import RequestRecord
from holdfast.testing.script import Call, Reply, calls, say
from tests.chaos.processes import events_of
from tests.workflows.chats import Chat

HELPER: Final = AgentDefinition(name="helper", system_prompt="helper", tools=())
CLERK: Final = AgentDefinition(
    name="clerk",
    system_prompt="clerk",
    tools=("note", "sign"),
    subagents=("helper",),
    approvals=(ApprovalRule(tools=("sign",)),),
)
RESTLESS: Final = SessionSettings(continue_events=1, searchable=False)
"""A new run of the session after each execution, and of each execution after each step."""

ASKED: Final = (("go", 0), ("go", 2), ("go", 4), ("go", 6), ("and on", 0), ("and on", 2))
"""The clerk's model calls in their order: what the person said last, and how many messages came since."""

SAID: Final = [
    ("user", "go"),
    ("assistant", ""),
    ("tool", "noted one"),
    ("assistant", ""),
    ("tool", "signed two"),
    ("assistant", ""),
    ("tool", "helped"),
    ("assistant", "went"),
    ("user", "and on"),
    ("assistant", ""),
    ("tool", "noted three"),
    ("assistant", "went on"),
]
PATIENCE: Final = timedelta(seconds=2)
PAUSE_SECONDS: Final = 0.05
COMPLETED: Final = int(EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
SCHEDULED: Final = int(EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
CHILD: Final = int(EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED)
OUT_OF_REACH: Final = (RPCError, WorkflowUpdateRPCTimeoutOrCancelledError, WorkflowQueryFailedError)
"""What a client is told while no worker lives."""


def place_of(request: dict[str, Any]) -> tuple[str, int]:
    """Return what a person said last before this request, and how many messages came since."""
    messages = request["messages"]
    last = max(place for place, each in enumerate(messages) if each["role"] == "user")
    return messages[last]["content"], len(messages) - 1 - last


def model(request: dict[str, Any]) -> Reply:
    """Say what both agents say."""
    turns = {
        ("help", 0): say("helped", delay_seconds=0.1),
        ("go", 0): calls(Call("note", {"text": "one"}), delay_seconds=0.1),
        ("go", 2): calls(Call("sign", {"text": "two"}), delay_seconds=0.1),
        ("go", 4): calls(Call("spawn", {"agent": "helper", "task": "help"}), delay_seconds=0.1),
        ("go", 6): say("went", delay_seconds=0.1),
        ("and on", 0): calls(Call("note", {"text": "three"}), delay_seconds=0.1),
        ("and on", 2): say("went on", delay_seconds=0.1),
    }
    return turns[place_of(request)]


@dataclass
class Seen:
    """What the histories of a session, its executions and their subagents have shown so far."""

    client: Holdfast
    agent_id: str
    events: int = 0
    calls_answered: dict[str, int] = field(default_factory=dict[str, int])
    """How many model calls have ended, by the workflow's type of agent: the session's own, and the helper's."""
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def watch(self) -> None:
        """Follow the session, and all that it starts."""
        self._follow(session_workflow_id(self.agent_id), depth=0)

    async def until(self, there: Callable[[Seen], bool]) -> None:
        """Return once `there` holds."""
        async with self._changed:
            await self._changed.wait_for(lambda: there(self))

    async def close(self) -> None:
        """Follow nothing any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _follow(self, workflow_id: str, depth: int) -> None:
        self._tasks.append(asyncio.create_task(self._followed(workflow_id, depth)))

    async def _followed(self, workflow_id: str, depth: int) -> None:
        while True:
            with suppress(RPCError):  # it is not there yet
                await self._events(workflow_id, depth)
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _events(self, workflow_id: str, depth: int) -> None:
        model_calls: set[int] = set()
        async for event in events_of(self.client, workflow_id):
            if event.event_id == 1:
                model_calls.clear()  # another run: it counts from there
            async with self._changed:
                self.events += 1
                if event.event_type == SCHEDULED:
                    if event.activity_task_scheduled_event_attributes.activity_type.name == INFERENCE_ACTIVITY:
                        model_calls.add(event.event_id)
                elif event.event_type == COMPLETED:
                    if event.activity_task_completed_event_attributes.scheduled_event_id in model_calls:
                        who = "helper" if depth > 1 else "clerk"
                        self.calls_answered[who] = self.calls_answered.get(who, 0) + 1
                elif event.event_type == CHILD:
                    started = event.start_child_workflow_execution_initiated_event_attributes
                    self._follow(started.workflow_id, depth + 1)
                self._changed.notify_all()


async def acknowledged(chat: Chat, text: str) -> Receipt:
    """Say something, again and again until it is acknowledged: with one id it is one message."""
    while True:
        with suppress(*OUT_OF_REACH, TimeoutError):
            return await asyncio.wait_for(chat.send(text, message_id=text), PATIENCE.total_seconds() * 3)
        await asyncio.sleep(PAUSE_SECONDS)


async def talked(chat: Chat, said: Sequence[str]) -> AgentState:
    """Say everything, one after the other as it is acknowledged, and return the state with the last answer."""
    receipts = [await acknowledged(chat, text) for text in said]
    return await answered(chat, receipts[-1])


async def answered(chat: Chat, receipt: Receipt) -> AgentState:
    """Return the state with the answer to a message, as long as it takes.

    The client follows histories: hundreds who asked by query, again and again, would leave workers no time for tasks.
    """
    agent = chat.client.agent(chat.agent_id)
    while True:
        with suppress(*OUT_OF_REACH, ServerUnavailable):
            return await agent.answer(receipt)
        await asyncio.sleep(PAUSE_SECONDS)


async def person(chat: Chat) -> None:
    """Allow whatever waits for a person, as long as it takes."""
    while True:
        with suppress(*OUT_OF_REACH, TimeoutError, WorkflowUpdateFailedError):
            view = await chat.handle.query(SESSION_QUERY, result_type=SessionView, rpc_timeout=PATIENCE)
            if view is not None and view.running_id is not None:  # pyright: ignore[reportUnnecessaryComparison]  # none before it is there
                handle = chat.client.temporal.get_workflow_handle(view.running_id)
                page = await handle.query(STATE_QUERY, result_type=StatePage, rpc_timeout=PATIENCE)
                for each in page.head.waiting_calls:
                    decision = ApprovalDecision(call_id=each.call.id, verdict=Verdict(decision="approve", by="ann"))
                    await handle.signal(APPROVAL_SIGNAL, decision)
        await asyncio.sleep(PAUSE_SECONDS)


def asked_by(requests: Sequence[RequestRecord], who: str) -> list[tuple[str, int]]:
    """Return the places in the conversation of all requests of one agent."""
    bodies = [each.body for each in requests]
    return [place_of(body) for body in bodies if body["messages"][0]["content"] == who]
