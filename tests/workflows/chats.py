"""A session as tests talk to it: by the workflow's own updates and queries, without the client on top."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count
from typing import Any, TypeVar
from uuid import uuid4

from temporalio.client import WithStartWorkflowOperation, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client import Holdfast
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.messages import Message
from holdfast.core.session.session_state import MESSAGE_ID, SessionInput
from holdfast.core.wire.session_contracts import (
    AGENT_SESSION,
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

LOOK_SECONDS = 0.02
PAUSES = (LOOK_SECONDS, 0.05, 0.1, 0.2, 0.5)
"""How long to wait before the next look; the last for all further ones: many who look at once keep a worker busy."""

BUSY_TRIES_MAX = 6

AnswerT = TypeVar("AnswerT")


class Chat:
    """One agent's session on a real server."""

    def __init__(
        self,
        client: Holdfast,
        definition: AgentDefinition | None,
        settings: SessionSettings | None = None,
        *,
        agent_id: str | None = None,
        forked_from: Branch | None = None,
        subagents: tuple[AgentDefinition, ...] = (),
    ) -> None:
        self.client = client
        self.agent_id = agent_id or str(uuid4())
        self.start = SessionInput(
            definition=definition, subagents=subagents, settings=settings or SessionSettings(), forked_from=forked_from
        )

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        """The session's workflow."""
        return self.client.temporal.get_workflow_handle(session_workflow_id(self.agent_id))

    async def update(self, name: str, *args: object) -> SessionView:
        """Ask the session for something and return what it is then."""
        return await self._asked(name, SessionView, *args)

    async def _asked(self, name: str, kind: type[AnswerT], *args: object) -> AnswerT:
        """Ask for something; the session is started where it is not there.

        The server takes ten updates of a workflow at a time and refuses others, which the SDK repeats for 10 s.
        """
        update_id = str(uuid4())
        for _ in range(BUSY_TRIES_MAX):
            try:
                return await self._asked_once(update_id, name, kind, *args)
            except RPCError as error:
                if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED:
                    raise
        raise AssertionError(f"the session was busy {BUSY_TRIES_MAX} times")

    async def _asked_once(self, update_id: str, name: str, kind: type[AnswerT], *args: object) -> AnswerT:
        starting: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            AGENT_SESSION,
            self.start,
            id=session_workflow_id(self.agent_id),
            task_queue=self.client.settings.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        answer: AnswerT = await self.client.temporal.execute_update_with_start_workflow(  # pyright: ignore[reportUnknownMemberType]  # the SDK's own hint
            name, args=list(args), id=update_id, start_workflow_operation=starting, result_type=kind
        )
        return answer

    async def send(self, text: str, message_id: str | None = None, policy: WhileRunning | None = None) -> Receipt:
        """Say something and return its receipt."""
        message = SessionMessage(message_id=message_id or str(uuid4()), text=text, while_running=policy)
        return await self._asked(SEND_UPDATE, Receipt, message)

    async def answer(self, receipt: Receipt) -> AgentState:
        """Wait for the execution that has taken a message, and return its final state."""
        for looked in count():
            now = await self.handle.query(RECEIPT_QUERY, receipt.message_id, result_type=Receipt)
            if now.state == "answered":
                assert now.execution_id is not None
                return await self.client.result(now.execution_id)
            await asyncio.sleep(PAUSES[min(looked, len(PAUSES) - 1)])
        raise AssertionError("it counts for ever")

    async def ask(self, text: str) -> AgentState:
        """Say something and wait for the answer."""
        return await self.answer(await self.send(text))

    async def view(self) -> SessionView:
        """Return what the session is."""
        view: SessionView = await self.handle.query(SESSION_QUERY, result_type=SessionView)
        return view


def texts(state: AgentState) -> list[tuple[str, str]]:
    """Return who said what."""
    return [(message.role, message.text) for message in state.messages]


def ids(messages: Iterable[Message]) -> list[str]:
    """Return the ids of a session's messages, in the order in which they were said."""
    return [str(each.metadata[MESSAGE_ID]) for each in messages if MESSAGE_ID in each.metadata]
