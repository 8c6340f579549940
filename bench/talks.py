"""Sessions as the benchmark of sessions talks to them: by their own updates and queries. Measures nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client as TemporalClient
from temporalio.client import (
    WithStartWorkflowOperation,
    WorkflowHandle,
    WorkflowHistory,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from bench.runs import Run, histories, measured
from bench.stage import fresh_id
from bench.task import page_text
from holdfast import AgentDefinition
from holdfast.client import Holdfast
from holdfast.core.session.session_state import SessionInput
from holdfast.core.wire.session_contracts import (
    AGENT_SESSION,
    OPEN_UPDATE,
    RECEIPT_QUERY,
    SEND_UPDATE,
    SESSION_QUERY,
    Branch,
    Receipt,
    SessionMessage,
    SessionSettings,
    SessionView,
    WhileRunning,
)
from holdfast.core.wire.workflow_ids import session_workflow_id

ATTEMPTS_MAX: Final = 5
LOOK_SECONDS: Final = 0.02
RUNS_READ_AT_ONCE: Final = 20
CHILD: Final = int(EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED)
AGENT: Final = AgentDefinition.model_validate(
    {"name": "friend", "system_prompt": "Be a friend.", "tools": [], "context": {"compiler": "latest"}}
)
"""Its model sees the end of the conversation alone, as one of 4 MB would hardly be sent again with every turn."""

AnswerT = TypeVar("AnswerT")


def words(size: int, number: int) -> str:
    """Return a message of `size` bytes that asks for an answer of as many."""
    request = f"answer with {size} bytes: "
    return request + page_text(number, max(0, size - len(request)))


class Connected(Protocol):
    """What a session is talked to through."""

    @property
    def client(self) -> Holdfast:
        """Connected to the server, with the workers' task queue."""
        ...


class Talk:
    """One session."""

    def __init__(
        self, stage: Connected, *, forked_from: Branch | None = None, settings: SessionSettings | None = None
    ) -> None:
        self.stage = stage
        self.agent_id = fresh_id()
        self._start = SessionInput(definition=AGENT, settings=settings or SessionSettings(), forked_from=forked_from)

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        """Its workflow."""
        return self.stage.client.temporal.get_workflow_handle(session_workflow_id(self.agent_id))

    async def open(self) -> SessionView:
        """Have it be there."""
        return await self._update(OPEN_UPDATE, SessionView)

    async def send(self, text: str, policy: WhileRunning | None = None) -> Receipt:
        """Say something; return when it is acknowledged. Where nobody answers it is said again: it is one message."""
        message = SessionMessage(message_id=fresh_id(), text=text, while_running=policy)
        for _ in range(ATTEMPTS_MAX - 1):
            with suppress(RPCError, WorkflowUpdateRPCTimeoutOrCancelledError):
                return await self._update(SEND_UPDATE, Receipt, message)
        return await self._update(SEND_UPDATE, Receipt, message)

    async def answered(self, receipt: Receipt) -> str:
        """Wait for the end of the execution that has taken a message; return its id."""
        while True:
            now = await self.handle.query(RECEIPT_QUERY, receipt.message_id, result_type=Receipt)
            if now.state == "answered" and now.execution_id:
                return str(now.execution_id)
            await asyncio.sleep(LOOK_SECONDS)

    async def ask(self, text: str) -> str:
        """Say something and wait for the end of what comes of it; return the execution's id."""
        return await self.answered(await self.send(text))

    async def view(self) -> SessionView:
        """Return what it is."""
        view: SessionView = await self.handle.query(SESSION_QUERY, result_type=SessionView)
        return view

    async def _update(self, name: str, kind: type[AnswerT], *args: object) -> AnswerT:
        starting: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            AGENT_SESSION,
            self._start,
            id=session_workflow_id(self.agent_id),
            task_queue=self.stage.client.settings.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        answer: AnswerT = await self.stage.client.temporal.execute_update_with_start_workflow(  # pyright: ignore[reportUnknownMemberType]  # the SDK's own hint
            name, args=list(args), start_workflow_operation=starting, result_type=kind
        )
        return answer


async def all_runs(client: TemporalClient, agent_id: str) -> tuple[list[Run], list[tuple[Run, int]]]:
    """Return the session's runs, and its executions' in their order, each with the bytes of its input."""
    own: list[Run] = []
    children: list[str] = []
    async for history in histories(client, session_workflow_id(agent_id)):
        own.append(measured(history))
        started = (event.start_child_workflow_execution_initiated_event_attributes for event in history.events)
        children += [each.workflow_id for each in started if each.workflow_id]
    child_histories = [each async for each in _read(client, children)]
    return own, [(measured(history), input_bytes(history)) for history in child_histories]


async def accepted(client: TemporalClient, agent_id: str) -> list[str]:
    """Return the ids of a session's messages in the order of their acknowledgement."""
    message_ids: list[str] = []
    async for history in histories(client, session_workflow_id(agent_id)):
        taken = (event.workflow_execution_update_accepted_event_attributes for event in history.events)
        payloads = (payload.data for each in taken for payload in each.accepted_request.input.args.payloads)
        message_ids += [str(json.loads(data)["message_id"]) for data in payloads]
    return message_ids


async def _read(client: TemporalClient, ids: Sequence[str]) -> AsyncIterator[WorkflowHistory]:
    for place in range(0, len(ids), RUNS_READ_AT_ONCE):
        some = ids[place : place + RUNS_READ_AT_ONCE]
        for history in await asyncio.gather(*(client.get_workflow_handle(each).fetch_history() for each in some)):
            yield history


def input_bytes(history: WorkflowHistory) -> int:
    """Return the bytes of a run's arguments, as its history has them."""
    return history.events[0].workflow_execution_started_event_attributes.input.ByteSize()


def bytes_in(folder: Path) -> int:
    """Return what the files below `folder` hold."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def resident_bytes(pid: int) -> int:
    """Return how much memory a process takes (Linux), 0 where that cannot be read."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((1_024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)
