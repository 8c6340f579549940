"""`AgentHandle` without await; `holdfast.client.AgentHandle` documents each method."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, Unpack, cast, overload

from pydantic import JsonValue

from holdfast.client import agent_handle
from holdfast.client.agent_handle import SendOptions
from holdfast.client.sync.portal import Portal
from holdfast.client.waiting_calls import WaitingCall
from holdfast.client.watch_events import Watched
from holdfast.core.agent.agent import Agent, AnyAgent
from holdfast.core.agent.answer_types import Answers, AnswerT, AnyAnswers
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.run_result import RunResult
from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.input_requests import InputAction
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.stop_reasons import StopMode
from holdfast.core.wire.event_envelope import NumberedEvent
from holdfast.core.wire.records import ExecutionRecord
from holdfast.core.wire.session_contracts import Receipt, SessionView, WhileRunning
from holdfast.runtime.files.message_files import GivenFile

OutputT = TypeVar("OutputT")


class AgentHandle(Generic[AnswerT]):
    """One agent and its session. Make one with `Holdfast.agent`; any thread may use it."""

    def __init__(self, portal: Portal, inner: agent_handle.AgentHandle[AnswerT]) -> None:
        self._portal = portal
        self._inner = inner

    @property
    def agent_id(self) -> str:
        """The agent's id, a UUID."""
        return self._inner.agent_id

    def open(self) -> SessionView:
        """Make the session, or attach to the one there is, and return what it is."""
        return self._portal.run(self._inner.open())

    def send(
        self,
        text: str,
        *,
        message_id: str | None = None,
        while_running: WhileRunning | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        attachments: Iterable[GivenFile] = (),
    ) -> Receipt:
        """Send a message to the agent, and return once it is stored: it will be answered, whatever crashes."""
        return self._portal.run(
            self._inner.send(
                text,
                message_id=message_id,
                while_running=while_running,
                metadata=metadata,
                attachments=attachments,
            )
        )

    @overload
    def ask(self, text: str, **options: Unpack[SendOptions]) -> RunResult[AnswerT]: ...
    @overload
    def ask(self, text: str, *, answers: Answers[OutputT], **options: Unpack[SendOptions]) -> RunResult[OutputT]: ...
    def ask(self, text: str, *, answers: AnyAnswers = None, **options: Unpack[SendOptions]) -> RunResult[Any]:
        """Send a message and wait, however long, for the answer: the result of its run, with its `output`."""
        return self._portal.run(self._inner.ask(text, answers=cast("type[Any]", answers), **options))

    def answer(self, receipt: Receipt) -> AgentState:
        """Wait, however long, for the answer to a message: the final state of its execution."""
        return self._portal.run(self._inner.answer(receipt))

    def stop(
        self,
        reason: str = "",
        mode: StopMode = "now",
        source: str = "client",
        context: Mapping[str, JsonValue] | None = None,
    ) -> SessionView:
        """Stop the execution under way, if there is one; messages that wait go on after it."""
        return self._portal.run(self._inner.stop(reason, mode, source, context))

    def clear(self) -> SessionView:
        """Forget the conversation, at the end of what runs."""
        return self._portal.run(self._inner.clear())

    def suspend(self) -> SessionView:
        """Let messages wait until `resume`; an execution under way goes on to its end."""
        return self._portal.run(self._inner.suspend())

    def resume(self) -> SessionView:
        """Let messages have their turns again."""
        return self._portal.run(self._inner.resume())

    def close(self, *, stop: bool = False) -> SessionView:
        """Close the session for good, after what it has accepted."""
        return self._portal.run(self._inner.close(stop=stop))

    def change(
        self,
        definition: AnyAgent | None = None,
        *,
        system_prompt: str | None = None,
        llm: LLM | None = None,
        budget: ExecutionBudget | None = None,
        while_running: WhileRunning | None = None,
        subagents: Iterable[AgentDefinition | Agent[Any]] | None = None,
    ) -> SessionView:
        """Change the agent, from the next step of an execution under way; what is not given stays."""
        return self._portal.run(
            self._inner.change(
                definition,
                system_prompt=system_prompt,
                llm=llm,
                budget=budget,
                while_running=while_running,
                subagents=subagents,
            )
        )

    def waiting(self) -> tuple[WaitingCall, ...]:
        """Return the tool calls of the execution under way that wait for a person."""
        return self._portal.run(self._inner.waiting())

    def approve(self, call_id: str, *, by: str = "", digest: str | None = None, tool_digest: str | None = None) -> bool:
        """Approve a waiting call; False when the execution has ended."""
        return self._portal.run(self._inner.approve(call_id, by=by, digest=digest, tool_digest=tool_digest))

    def deny(
        self,
        call_id: str,
        reason: str = "",
        *,
        by: str = "",
        digest: str | None = None,
        tool_digest: str | None = None,
    ) -> bool:
        """Deny a waiting call; the model is told the `reason`."""
        denying = self._inner.deny(call_id, reason, by=by, digest=digest, tool_digest=tool_digest)
        return self._portal.run(denying)

    def answer_question(
        self,
        call_id: str,
        values: Mapping[str, JsonValue] | None = None,
        *,
        action: InputAction = "accept",
        by: str = "",
        digest: str | None = None,
    ) -> bool:
        """Answer what the server of a waiting call asks; False when the execution has ended."""
        answering = self._inner.answer_question(call_id, values, action=action, by=by, digest=digest)
        return self._portal.run(answering)

    def edit(
        self,
        call_id: str,
        arguments: dict[str, JsonValue],
        *,
        by: str = "",
        digest: str | None = None,
        tool_digest: str | None = None,
    ) -> bool:
        """Approve a waiting call with other arguments."""
        editing = self._inner.edit(call_id, arguments, by=by, digest=digest, tool_digest=tool_digest)
        return self._portal.run(editing)

    def view(self) -> SessionView:
        """Return what the session is and does; asks a worker."""
        return self._portal.run(self._inner.view())

    def state(self) -> AgentState:
        """Return the agent's state: within the execution under way, or as the last one left it."""
        return self._portal.run(self._inner.state())

    def events(self) -> list[NumberedEvent]:
        """Return what has happened to the session, the oldest first."""
        return self._portal.run(self._inner.events())

    def messages(self) -> Sequence[Message]:
        """Return the conversation so far."""
        return self._portal.run(self._inner.messages())

    def watch(self, *, subagents: bool = True) -> Generator[Watched, None, None]:
        """Yield what happens from now on until the session is closed: in the execution under way and those after it."""
        return self._portal.each(self._inner.watch(subagents=subagents))

    def records(self, limit: int = 20) -> list[ExecutionRecord]:
        """Return the records of the agent's latest executions, the newest first; asks no server and no worker."""
        return self._portal.run(self._inner.records(limit))

    def record(self, execution_id: str) -> ExecutionRecord:
        """Return the record of one of the agent's executions."""
        return self._portal.run(self._inner.record(execution_id))

    def rewind(self, execution_id: str, steps: int | None = None) -> SessionView:
        """Go back to the end of an execution, or to where it had taken so many `steps`, and go on from there."""
        return self._portal.run(self._inner.rewind(execution_id, steps))

    def fork(
        self,
        execution_id: str | None = None,
        steps: int | None = None,
        *,
        agent_id: str | None = None,
        subagents: Iterable[AgentDefinition | Agent[Any]] = (),
    ) -> AgentHandle[AnswerT]:
        """Begin another agent that goes on from a place of this one's conversation, and return its handle."""
        return AgentHandle(
            self._portal,
            self._portal.run(self._inner.fork(execution_id, steps, agent_id=agent_id, subagents=subagents)),
        )
