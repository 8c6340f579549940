"""`AgentHandle`: a handle on a long-lived agent: send messages, await answers, steer, rewind. No workflow code.

The agent's session is the workflow `AgentSession`; `core.wire.workflow_ids` gives its id. Whatever is asked of it
starts it where it is not on the server: an idle session leaves, and comes back with the next message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypedDict, TypeVar, Unpack, cast, overload
from uuid import uuid4

from pydantic import JsonValue
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.answer_wait import AnswerWait
from holdfast.client.definition_files import find_subagents
from holdfast.client.runs import Runs
from holdfast.client.sessions.event_reader import session_events
from holdfast.client.sessions.poll import executions_of
from holdfast.client.sessions.updates import InitialSession, SessionUpdates, checked_agent
from holdfast.client.sessions.validation import checked, checked_message, update_id
from holdfast.client.validation import check_definition, check_id, check_stop
from holdfast.client.waiting_calls import WaitingCall, calls_of
from holdfast.client.watch_events import Watched
from holdfast.client.workflow_queries import queried
from holdfast.connection.executions import described
from holdfast.connection.rpc_errors import refusal
from holdfast.connection.workflow_reader import ASK_TIMEOUT
from holdfast.core.agent.agent import Agent, AnyAgent, definitions
from holdfast.core.agent.answer_types import Answers, AnswerT, AnyAnswers, format_of
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.initial_state import new_agent
from holdfast.core.agent.run_result import RunResult
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import DecisionRefused, ExecutionFailed, ExecutionNotFound, HoldfastError, InvalidInput
from holdfast.core.conversation.input_requests import InputAction
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.stop_reasons import StopMode
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.wire.contracts import StopRequest
from holdfast.core.wire.event_envelope import NumberedEvent
from holdfast.core.wire.records import ExecutionRecord
from holdfast.core.wire.session_contracts import (
    CHANGE_UPDATE,
    CLEAR_UPDATE,
    CLOSE_UPDATE,
    OPEN_UPDATE,
    RESUME_UPDATE,
    REWIND_UPDATE,
    SEND_UPDATE,
    SESSION_QUERY,
    STOP_UPDATE,
    SUSPEND_UPDATE,
    Branch,
    Receipt,
    SessionChange,
    SessionView,
    WhileRunning,
)
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.runtime.files.message_files import GivenFile, stored_files
from holdfast.storage.records import Records

OutputT = TypeVar("OutputT")

BRANCH_SECONDS_MAX: Final = 90.0
"""How long going to another place of a conversation may take: a worker reads all of it."""


class SendOptions(TypedDict, total=False):
    """What `send` takes besides the text."""

    message_id: str | None
    while_running: WhileRunning | None
    metadata: Mapping[str, JsonValue] | None
    attachments: Iterable[GivenFile]


class AgentHandle(Generic[AnswerT]):
    """One agent and its session. Make one with `Holdfast.agent`; making it asks nobody and starts nothing.

    Any number of handles, in any number of processes, may talk to one agent. What one handle sends arrives in order.
    """

    def __init__(
        self,
        client: Runs,
        records: Records,
        agent_id: str,
        initial: InitialSession,
        answers: Answers[AnswerT] | None = None,
    ) -> None:
        self.agent_id: Final = agent_id
        """The agent's id, a UUID."""
        self._client = client
        self._records = records
        self._initial = initial
        self._answers = answers
        self._session = SessionUpdates(client, records, agent_id, initial)
        self._sending = asyncio.Lock()

    # --- talking

    async def open(self) -> SessionView:
        """Open the session, creating it if there is none, and return its view. An existing agent keeps its definition.

        Raises UnknownAgent, DefinitionInvalid, ServerUnavailable; AgentNotFound with neither session nor definition.
        """
        seconds = BRANCH_SECONDS_MAX if self._initial.forked_from else None
        return await self._session.request_update(OPEN_UPDATE, None, SessionView, seconds_max=seconds)

    async def send(
        self,
        text: str,
        *,
        message_id: str | None = None,
        while_running: WhileRunning | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        attachments: Iterable[GivenFile] = (),
    ) -> Receipt:
        """Send a message to the agent, and return once it is stored: it will be answered, whatever crashes.

        Args:
            text: the message; 1 to 131,072 bytes of UTF-8.
            message_id: 1 to 64 characters; the same id again is the same message. A new UUID by default.
            while_running: what happens to it during an execution: `queue`, `inject`, `interrupt` or `reject`; by
                default the session's policy.
            metadata: of the execution that begins with it, as for `Runs.start`; an injected message keeps its own.
            attachments: files that come with it, as for `Runs.start`.

        A message sent again may return its first receipt; `answer` finds its state since. Raises InvalidInput;
        SessionClosed; SessionRefused if too many messages wait, or the policy is `reject`; ServerUnavailable if no
        answer came in time: the message may have been stored, and sending it again with its `message_id` is safe.
        """
        id_ = str(uuid4()) if message_id is None else message_id
        message = checked_message(text, id_, while_running, metadata)
        again = f"the message {message.message_id!r} may have been stored; sending it again under that id is safe"
        # files are read at once, but awaited in turn: a message without any must not overtake one with some
        stored = asyncio.create_task(stored_files(attachments, self._records))
        stored.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            async with self._sending:
                if files := await stored:
                    message = checked_message(text, id_, while_running, metadata, files)
                named = update_id(message.message_id)
                return await self._session.request_update(SEND_UPDATE, message, Receipt, id_=named, again=again)
        finally:
            stored.cancel()

    @overload
    async def ask(self, text: str, **options: Unpack[SendOptions]) -> RunResult[AnswerT]: ...
    @overload
    async def ask(
        self, text: str, *, answers: Answers[OutputT], **options: Unpack[SendOptions]
    ) -> RunResult[OutputT]: ...
    async def ask(self, text: str, *, answers: AnyAnswers = None, **options: Unpack[SendOptions]) -> RunResult[Any]:
        """Send a message and wait, however long, for the answer: the result of its run, with its `output`.

        The same `message_id` again returns the same answer. `answers` is the type that the answer is parsed as; the
        agent decides the form that the model is asked for (`Agent(answers=...)`). Raises as `send` and `answer` do.
        """
        if answers is not None:
            format_of(answers)
        receipt = await self.send(text, **options)
        return RunResult(await self.answer(receipt), answers or self._answers)

    async def answer(self, receipt: Receipt) -> AgentState:
        """Wait, however long, for the answer to a message: the final state of its execution.

        An absent worker is waited for without limit, an absent server for two minutes. Raises ExecutionFailed if the
        execution failed; SessionRefused if the session does not know the message (any more); ServerUnavailable.
        """
        execution_id = await AnswerWait(self._client, self._handle()).execution_of(receipt)
        return await self._ended(execution_id)

    # --- steering

    async def stop(
        self,
        reason: str = "",
        mode: StopMode = "now",
        source: str = "client",
        context: Mapping[str, JsonValue] | None = None,
    ) -> SessionView:
        """Stop the execution under way, if there is one; messages that wait go on after it.

        Args:
            reason: why, for whoever reads the state later; at most 1,000 characters.
            mode: `now` cancels what is in flight, `after_step` lets the step finish.
            source: who asks.
            context: what is to stand with it in the stop signal, as JSON of at most 2,000 bytes.
        """
        return await self._session.request_update(STOP_UPDATE, check_stop(reason, mode, source, context), SessionView)

    async def clear(self) -> SessionView:
        """Forget the conversation, at the end of what runs. Messages that wait stay, and so do records."""
        return await self._session.request_update(CLEAR_UPDATE, None, SessionView)

    async def suspend(self) -> SessionView:
        """Let messages wait until `resume`; an execution under way goes on to its end."""
        return await self._session.request_update(SUSPEND_UPDATE, None, SessionView)

    async def resume(self) -> SessionView:
        """Let messages have their turns again."""
        return await self._session.request_update(RESUME_UPDATE, None, SessionView)

    async def close(self, *, stop: bool = False) -> SessionView:
        """Close the session for good, after what it has accepted. Records stay, and the agent can be forked.

        With `stop`, the execution under way is stopped, and waiting messages are not answered.
        """
        request = StopRequest(reason="the session is closed", source="client") if stop else None
        return await self._session.request_update(CLOSE_UPDATE, request, SessionView)

    async def change(
        self,
        definition: AnyAgent | None = None,
        *,
        system_prompt: str | None = None,
        llm: LLM | None = None,
        budget: ExecutionBudget | None = None,
        while_running: WhileRunning | None = None,
        subagents: Iterable[AgentDefinition | Agent[Any]] | None = None,
    ) -> SessionView:
        """Change the agent, from the next step of an execution under way; what is not given stays.

        Args:
            definition: all of the agent anew, as `Holdfast.agent` takes it.
            system_prompt: its prompt alone.
            llm: its model alone.
            budget: its limits alone, all of them.
            while_running: what becomes of messages that arrive while an execution runs.
            subagents: the agents that it, or one of them, may call; with a `definition`, besides those of the folder.

        Raises InvalidInput, UnknownAgent, DefinitionInvalid before anything is asked; SessionClosed; ServerUnavailable.
        """
        resolved, own = checked_agent(definition, () if subagents is None else subagents, self._client.settings)
        reached = None if subagents is None and not own else tuple(check_definition(each) for each in own)
        if resolved is not None:
            reached = find_subagents(resolved, reached or self._initial.subagents, self._client.settings)
        fields = {
            "definition": resolved,
            "subagents": reached,
            "system_prompt": system_prompt,
            "llm": llm,
            "budget": budget,
            "while_running": while_running,
        }
        return await self._session.request_update(CHANGE_UPDATE, checked(SessionChange, "change", fields), SessionView)

    # --- approvals

    async def waiting(self) -> tuple[WaitingCall, ...]:
        """Return the tool calls of the execution under way that wait for a person; asks a worker.

        Those of its subagents wait in their own executions: `Holdfast.waiting` has them.
        """
        running_id = (await self.view()).running_id
        if running_id is not None:
            with suppress(ExecutionNotFound):  # it is about to begin
                return calls_of(await self._client.state(running_id))
        return ()

    async def approve(
        self, call_id: str, *, by: str = "", digest: str | None = None, tool_digest: str | None = None
    ) -> bool:
        """Approve a waiting call; False when the execution has ended. Raises as `Runs.decide` does.

        With a `digest`, only the call as it was looked at: one with other arguments is refused; with a `tool_digest`,
        one of another version of its MCP tool.
        """
        return await self._decide(call_id, by=by, digest=digest, tool_digest=tool_digest, decision="approve")

    async def deny(
        self,
        call_id: str,
        reason: str = "",
        *,
        by: str = "",
        digest: str | None = None,
        tool_digest: str | None = None,
    ) -> bool:
        """Deny a waiting call; the model is told the `reason`. Otherwise as `approve`."""
        return await self._decide(
            call_id, by=by, digest=digest, tool_digest=tool_digest, decision="deny", reason=reason
        )

    async def edit(
        self,
        call_id: str,
        arguments: dict[str, JsonValue],
        *,
        by: str = "",
        digest: str | None = None,
        tool_digest: str | None = None,
    ) -> bool:
        """Approve a waiting call with other arguments. Otherwise as `approve`."""
        return await self._decide(
            call_id, by=by, digest=digest, tool_digest=tool_digest, decision="edit", arguments=arguments
        )

    async def answer_question(
        self,
        call_id: str,
        values: Mapping[str, JsonValue] | None = None,
        *,
        action: InputAction = "accept",
        by: str = "",
        digest: str | None = None,
    ) -> bool:
        """Answer what the server of a waiting call asks; False when the execution has ended.

        Raises as `Runs.answer_question` does.
        """
        running_id = (await self.view()).running_id
        if running_id is None:
            return False
        answer = self._client.answer_question(running_id, call_id, values, action=action, by=by, digest=digest)
        return await _unless_starting(answer, running_id, call_id)

    # --- looking

    async def view(self) -> SessionView:
        """Return what the session is and does; asks a worker.

        Raises ExecutionNotFound for a session that the server does not know (any more): `open` brings it back.
        """
        queue = self._client.settings.task_queue
        kind = cast("type[SessionView | None]", SessionView)
        view = await queried(self._client.temporal, self._handle(), SESSION_QUERY, None, kind, queue, what="session")
        return view or await self.open()  # it is being found, or made

    async def state(self) -> AgentState:
        """Return the agent's state: within the execution under way, or as the last one left it."""
        view = await self.view()
        if view.running_id is not None:
            with suppress(ExecutionNotFound):  # it is about to begin
                return await self._client.state(view.running_id)
        if view.snapshot is not None:
            return await self._records.state(view.snapshot)
        return new_agent(view.definition, agent_id=self.agent_id, at=datetime.now(UTC))

    async def messages(self) -> Sequence[Message]:
        """Return the conversation so far."""
        return (await self.state()).messages

    async def events(self) -> list[NumberedEvent]:
        """Return what has happened to the session, the oldest first; asks a worker.

        At most the 10,000 latest. What happened in Temporal runs that the server has forgotten is missing, and the
        sequences tell. Raises ExecutionNotFound for a session that the server does not know (any more),
        ServerUnavailable.
        """
        return await session_events(self._client, self.agent_id)

    async def watch(self, *, subagents: bool = True) -> AsyncGenerator[Watched, None]:
        """Yield what happens from now on, until the session is closed: the execution under way and those that follow.

        Each execution's events come from its beginning to its end, as from `Runs.watch`; a failed one is followed by
        the next. A session that is not on the server is waited for; absent workers too. Raises ExecutionNotFound if
        there is no such session and none can be started; ServerUnavailable.
        """
        try:
            await described(self._client.temporal, self._handle().id, rpc_timeout=ASK_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND or self._initial.definition is None:
                raise refusal(error, self.agent_id, what="session") from None
            await self.open()
        async with aclosing(executions_of(self._client.temporal, self._handle().id)) as executions:
            async for execution_id in executions:
                async with aclosing(self._client.watch(execution_id, subagents=subagents)) as events:
                    try:
                        async for event in events:
                            yield event
                    except ExecutionFailed:
                        continue

    # --- records

    async def records(self, limit: int = 20) -> list[ExecutionRecord]:
        """Return the records of the agent's latest executions, the newest first; asks no server and no worker."""
        return await self._records.by_agent(self.agent_id, limit)

    async def record(self, execution_id: str) -> ExecutionRecord:
        """Return the record of one of the agent's executions. Raises RecordNotFound, StorageFailed."""
        return await self._records.of_agent(self.agent_id, await self._client.find_run(execution_id))

    async def rewind(self, execution_id: str, steps: int | None = None) -> SessionView:
        """Go back to the end of an execution, or to the end of its step number `steps`, and continue from there.

        Later executions stay in the records. Raises InvalidInput, ServerUnavailable, SessionRefused while an execution
        runs or if there is no such place.
        """
        branch = _branch(self.agent_id, await self._client.find_run(execution_id), steps)
        return await self._session.request_update(REWIND_UPDATE, branch, SessionView, seconds_max=BRANCH_SECONDS_MAX)

    async def fork(
        self,
        execution_id: str | None = None,
        steps: int | None = None,
        *,
        agent_id: str | None = None,
        subagents: Iterable[AgentDefinition | Agent[Any]] = (),
    ) -> AgentHandle[AnswerT]:
        """Begin another agent that goes on from a place of this one's conversation, and return its handle.

        Args:
            execution_id: one of this agent's executions; by default where its conversation stands.
            steps: where in it: after so many steps; by default its end.
            agent_id: the new agent's id, a UUID; a new one by default.
            subagents: the agents that it may call; besides those of this handle and of the agents folder.

        The new agent is what this one is now: its definition and settings. Raises as `rewind` does.
        """
        view = await self.view()
        place = view.place
        if execution_id is not None:
            place = _branch(self.agent_id, await self._client.find_run(execution_id), steps)
        if place is None or (execution_id is None and steps is not None):
            text = f"agent {self.agent_id} has no conversation to fork yet"
            text = text if place is None else "a number of steps needs a run to count in"
            raise InvalidInput(f"{text}; name a run by its id (`holdfast records` lists them)")
        fork = AgentHandle(
            self._client,
            self._records,
            str(uuid4()) if agent_id is None else check_id(agent_id, "agent id"),
            InitialSession(
                view.definition,
                (*definitions(subagents), *self._initial.subagents, *view.subagents),
                view.settings,
                place,
            ),
            self._answers,
        )
        await fork.open()
        return fork

    # --- how it is asked

    def _handle(self) -> WorkflowHandle[Any, Any]:
        return self._client.temporal.get_workflow_handle(session_workflow_id(self.agent_id))

    async def _ended(self, execution_id: str) -> AgentState:
        """Return the final state of an execution; of one that the server has forgotten from its record."""
        try:
            return await self._client.result(execution_id)
        except ExecutionNotFound as gone:
            try:
                record = await self._records.by_id(execution_id)
            except HoldfastError:
                raise gone from None
            state = await self._records.state(record.snapshot)
            if state.status is ExecutionStatus.FAILED:
                raise ExecutionFailed(f"run {execution_id} failed: {record.why}", state.to_dict()) from None
            return state

    async def _decide(self, call_id: str, **fields: Any) -> bool:  # noqa: ANN401
        running_id = (await self.view()).running_id
        if running_id is None:
            return False
        verdict = checked(Verdict, "decision", fields)
        return await _unless_starting(self._client.decide(running_id, call_id, verdict), running_id, call_id)


async def _unless_starting(answer: Awaitable[bool], running_id: str, call_id: str) -> bool:
    try:
        return await answer
    except ExecutionNotFound:
        raise DecisionRefused(f"run {running_id} is starting; the call {call_id!r} does not wait yet") from None


def _branch(agent_id: str, execution_id: str, steps: int | None) -> Branch:
    place = {"agent_id": agent_id, "execution_id": check_id(execution_id), "steps": steps}
    return checked(Branch, "place to go back to", place)
