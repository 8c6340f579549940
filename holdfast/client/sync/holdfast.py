"""`Holdfast` without await; `holdfast.client.Holdfast` documents each method."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from holdfast.client import holdfast
from holdfast.client.execution_summaries import SessionSummary
from holdfast.client.sync.agent_handle import AgentHandle
from holdfast.client.sync.portal import Portal
from holdfast.client.sync.runs import Runs
from holdfast.connection.settings import Settings
from holdfast.core.agent.agent import Agent
from holdfast.core.agent.answer_types import AnswerT
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.attachments import Attachment
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.tools.tool_context import FilePath
from holdfast.core.wire.records import ExecutionRecord
from holdfast.core.wire.session_contracts import WhileRunning


class Holdfast(Runs):
    """A connection to the server on which agents live, for programs without an event loop.

    `with Holdfast.connect() as holdfast:` closes it at the end. Any thread may use it; Ctrl-C ends what is waited for,
    and nothing of what the server has been told is lost by that.
    """

    def __init__(self, portal: Portal, inner: holdfast.Holdfast) -> None:
        super().__init__(portal, inner)
        self._holdfast = inner

    @classmethod
    def connect(cls, settings: Settings | None = None) -> Self:
        """Return a connection; without `settings` they come from the environment. Raises ServerUnavailable."""
        portal = Portal()
        try:
            return cls(portal, portal.run(holdfast.Holdfast.connect(settings)))
        except BaseException:
            portal.close()
            raise

    def close(self) -> None:
        """Let go of the connection; whoever still waits for something is interrupted. Agents go on."""
        self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def agent(
        self,
        agent_id: str | None = None,
        definition: str | AgentDefinition | Agent[AnswerT] | None = None,
        *,
        subagents: Iterable[AgentDefinition | Agent[Any]] = (),
        while_running: WhileRunning = "queue",
        tenant: str = "",
        idle_seconds: float | None = None,
    ) -> AgentHandle[AnswerT]:
        """Return a handle on an agent; this asks nobody."""
        return AgentHandle(
            self._portal,
            self._holdfast.agent(
                agent_id,
                definition,
                subagents=subagents,
                while_running=while_running,
                tenant=tenant,
                idle_seconds=idle_seconds,
            ),
        )

    def find_session(self, reference: str) -> str:
        """Return the id, a UUID, of the agent that is meant: by its session."""
        return self._portal.run(self._holdfast.find_session(reference))

    def sessions(self, limit: int = 20, query: str | None = None) -> list[SessionSummary]:
        """Return the agents there are, each once: those on the server first, then the latest to leave it."""
        return self._portal.run(self._holdfast.sessions(limit, query))

    def records(
        self,
        limit: int = 20,
        agent_id: str | None = None,
        *,
        agent: str | None = None,
        status: ExecutionStatus | str | None = None,
        stop_reason: StopReason | str | None = None,
    ) -> list[ExecutionRecord]:
        """Return the records of the latest executions, the newest first."""
        return self._portal.run(
            self._holdfast.records(limit, agent_id, agent=agent, status=status, stop_reason=stop_reason)
        )

    def record(self, execution_id: str) -> ExecutionRecord:
        """Return the record of an execution, whose ever it was."""
        return self._portal.run(self._holdfast.record(execution_id))

    def recorded_state(self, record: ExecutionRecord) -> AgentState:
        """Return the agent as it was at the end of an execution, conversation and all."""
        return self._portal.run(self._holdfast.recorded_state(record))

    def attach(self, content: bytes | str | FilePath, *, name: str | None = None) -> Attachment:
        """Store a file for messages, and return what names it."""
        return self._portal.run(self._holdfast.attach(content, name=name))

    def attachment(self, attachment: Attachment | str) -> bytes:
        """Return a file that a tool has attached or a message came with: one of those, or of that SHA-256."""
        return self._portal.run(self._holdfast.attachment(attachment))
