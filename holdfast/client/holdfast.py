"""`Holdfast`: the client for agents: their handles, sessions and records, besides the single runs of `Runs`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable
from typing import Any, Final
from uuid import uuid4

from temporalio.service import RPCError

from holdfast.client.agent_handle import AgentHandle
from holdfast.client.execution_summaries import SessionSummary, session_summary
from holdfast.client.id_lookup import find
from holdfast.client.runs import Runs
from holdfast.client.sessions.updates import InitialSession
from holdfast.client.sessions.validation import check_query, check_settings
from holdfast.client.validation import check_definition, check_id, check_limit
from holdfast.connection.executions import executions
from holdfast.connection.rpc_errors import query_refusal, refusal
from holdfast.connection.workflow_reader import ASK_TIMEOUT
from holdfast.core.agent.agent import Agent, answers_of, definitions, with_subagents
from holdfast.core.agent.answer_types import AnswerT
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import LISTED_MAX
from holdfast.core.base.call_digest import DIGEST_PATTERN
from holdfast.core.base.errors import InvalidInput, RecordNotFound
from holdfast.core.conversation.attachments import Attachment
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.tools.tool_context import FilePath
from holdfast.core.wire.contracts import AGENT_EXECUTION
from holdfast.core.wire.records import ExecutionRecord
from holdfast.core.wire.session_contracts import AGENT_SESSION, WhileRunning
from holdfast.core.wire.workflow_ids import own_id, type_filter
from holdfast.runtime.files.message_files import message_file, stored_files

AT_ONCE_MAX: Final = 16
"""How many records are read at the same time."""

SCANNED_MAX: Final = 10_000
"""How many of the latest executions are looked through for those that have a record."""

FINAL: Final = (ExecutionStatus.COMPLETED, ExecutionStatus.STOPPED, ExecutionStatus.FAILED)


class Holdfast(Runs):
    """A connection to the server on which agents live. Make one with `await Holdfast.connect()`.

    Single runs: `run`, `start`, `result`, `state`, `watch`, `follow`, `message`, `stop`, `decide`, `runs`. Agents that
    outlive them: `agent`, `sessions`. Calls that wait for a person: `approvals`, `waiting`. What has ended: `records`,
    `record`. Files: `attach`, `attachment`.
    """

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
        """Return a handle on an agent; this asks nobody. The session begins with the first message, or with `open`.

        Everything but the id is for a new agent; an existing one keeps what it has until `change`.

        Args:
            agent_id: the agent's id, a UUID; that of a new agent by default. `find_session` finds it by less.
            definition: what the agent is: an agent, its definition, its name in the agents folder, or the path of a
                definition file.
            subagents: the agents that it, or one of them, may call; besides those of the agents folder.
            while_running: what becomes of a message that arrives while an execution runs: `queue` (its turn comes),
                `inject` (the model sees it with its next call), `interrupt` (the execution is stopped for it) or
                `reject` (it is refused).
            tenant: on whose account the agent works, at most 64 bytes: tenants share busy workers fairly.
            idle_seconds: after so long without work the session leaves the server; the next message brings it back.

        Raises InvalidInput, DefinitionInvalid.
        """
        initial: str | AgentDefinition | None
        if definition is None or isinstance(definition, str):
            initial, with_it = definition, definitions(subagents)
        else:
            initial, with_it = with_subagents(definition, subagents)
            initial = check_definition(initial)
        chosen = str(uuid4()) if agent_id is None else check_id(own_id(agent_id), "agent id")
        settings = check_settings(
            while_running=while_running,
            tenant=tenant,
            idle_seconds=idle_seconds,
            continue_events=self.settings.continue_events,
        )
        return AgentHandle(
            self, self._records, chosen, InitialSession(initial, with_it, settings), answers_of(definition)
        )

    async def find_session(self, reference: str) -> str:
        """Return the id, a UUID, of the agent that is meant: by its session.

        Args:
            reference: the agent's id, which is returned without asking anybody; the beginning of one; the agent's name,
                where one session has it; or `@last`, for the latest session.

        Raises InvalidInput for what can mean none or several sessions, or a run; ExecutionNotFound; ServerUnavailable.
        """
        return await find(self.temporal, reference, "session")

    async def sessions(self, limit: int = 20, query: str | None = None) -> list[SessionSummary]:
        """Return the agents there are, each once: those on the server first, then the latest to leave it.

        Args:
            limit: at most so many, 1 to 1,000.
            query: a further condition in Temporal's list filter, such as
                `HoldfastStatus = 'running'`.

        Asks no worker. What the server has forgotten (Temporal's retention) is not listed. Raises InvalidInput for a
        query that the server does not understand; ServerUnavailable.
        """
        check_limit(limit)
        condition = f"{type_filter(AGENT_SESSION)} AND ExecutionStatus != 'ContinuedAsNew'"
        condition += f" AND ({check_query(query)})" if query else ""
        summaries: dict[str, SessionSummary] = {}
        try:
            async for each in executions(self.temporal, condition, rpc_timeout=ASK_TIMEOUT):
                summaries.setdefault(each.id, session_summary(each))  # one that came back has left earlier runs
                if len(summaries) >= limit:
                    break
        except RPCError as error:
            raise query_refusal(error, query) from None
        return [*summaries.values()]

    async def records(
        self,
        limit: int = 20,
        agent_id: str | None = None,
        *,
        agent: str | None = None,
        status: ExecutionStatus | str | None = None,
        stop_reason: StopReason | str | None = None,
    ) -> list[ExecutionRecord]:
        """Return the records of the latest executions, the newest first.

        Args:
            limit: at most so many, 1 to 1,000.
            agent_id: only this agent's; they come from the store, however old they are.
            agent: only those of agents with this name.
            status: only those that ended as `completed`, `stopped` or `failed`.
            stop_reason: only those that ended for this reason, such as `token_limit`.

        Without an `agent_id` they are looked for among the latest 10,000 executions that the server remembers; one
        without a record is passed over. Asks no worker. Raises InvalidInput, ServerUnavailable, StorageFailed.
        """
        check_limit(limit)
        final = None if status is None else _status(status)
        reason = None if stop_reason is None else _reason(stop_reason)

        def fits(record: ExecutionRecord) -> bool:
            same_agent = agent is None or record.agent == agent
            return same_agent and final in (None, record.status) and reason in (None, record.stop_reason)

        if agent_id is not None:
            filtered = agent is not None or final is not None or reason is not None
            id_ = await self.find_session(agent_id)
            latest = await self._records.by_agent(id_, LISTED_MAX if filtered else limit)
            return [each for each in latest if fits(each)][:limit]
        return await self._latest(limit, _ended(agent, final, reason))

    async def record(self, execution_id: str) -> ExecutionRecord:
        """Return the record of an execution, whose ever it was. Raises InvalidInput, RecordNotFound, StorageFailed."""
        return await self._records.by_id(await self.find_run(execution_id))

    async def recorded_state(self, record: ExecutionRecord) -> AgentState:
        """Return the agent as it was at the end of an execution, conversation and all. Raises StorageFailed."""
        return await self._records.state(record.snapshot)

    async def attach(self, content: bytes | str | FilePath, *, name: str | None = None) -> Attachment:
        """Store a file for messages, and return what names it: `attachments` of `start`, `message` and `send` take it.

        Args:
            content: the file's bytes, or its path.
            name: what the model reads it is called; the path's last part by default. Of a text it must say the type.

        Raises InvalidInput for what no model takes, is too large or cannot be read; StorageFailed.
        """
        [stored] = await stored_files([await asyncio.to_thread(message_file, content, name)], self._records)
        return stored

    async def attachment(self, attachment: Attachment | str) -> bytes:
        """Return a file that a tool has attached or a message came with: one that a state names, or of that SHA-256.

        Raises InvalidInput for what is no digest; ObjectMissing; StorageFailed.
        """
        digest = attachment.digest if isinstance(attachment, Attachment) else attachment
        if re.fullmatch(DIGEST_PATTERN, digest) is None:
            raise InvalidInput(f"{digest[:80]!r} is no digest of a file; take one of `state.attachments`")
        return await self._records.read_attachment(digest)

    async def _latest(self, limit: int, query: str) -> list[ExecutionRecord]:
        """Return the records of executions that the server lists; those that have none are passed over."""
        records: list[ExecutionRecord] = []
        ids: list[str] = []
        async for execution_id in self._listed(query):
            ids.append(execution_id)
            if len(ids) == min(AT_ONCE_MAX, limit):
                records += await self._records_of(ids)
                ids.clear()
                if len(records) >= limit:
                    break
        records += await self._records_of(ids)
        return sorted(records, key=lambda each: each.completed_at, reverse=True)[:limit]

    async def _records_of(self, ids: Iterable[str]) -> list[ExecutionRecord]:
        async def read(execution_id: str) -> ExecutionRecord | None:
            try:
                return await self._records.by_id(execution_id)
            except RecordNotFound:
                return None

        return [each for each in await asyncio.gather(*map(read, ids)) if each is not None]

    async def _listed(self, query: str) -> AsyncGenerator[str, None]:
        try:
            async for each in executions(self.temporal, query, limit=SCANNED_MAX, rpc_timeout=ASK_TIMEOUT):
                yield each.id
        except RPCError as error:
            raise refusal(error) from None


def _status(value: ExecutionStatus | str) -> ExecutionStatus:
    if value not in FINAL:
        raise InvalidInput(f"{str(value)[:80]!r} is not a final status; choose one of {', '.join(FINAL)}")
    return ExecutionStatus(value)


def _reason(value: StopReason | str) -> StopReason:
    reasons = tuple(StopReason)
    if value not in reasons:
        raise InvalidInput(f"unknown stop reason {str(value)[:80]!r}; choose one of {', '.join(reasons)}")
    return StopReason(value)


def _ended(agent: str | None, status: ExecutionStatus | None, reason: StopReason | None) -> str:
    """Return the list filter for executions that have ended like that."""
    parts = [type_filter(AGENT_EXECUTION), "ExecutionStatus NOT IN ('Running', 'ContinuedAsNew')"]
    if agent is not None:
        parts.append(f"HoldfastAgent = {check_query(repr(agent))}")
    if status is not None:
        parts.append(f"HoldfastStatus = '{status.value}'")
    if reason is not None:
        parts.append(f"HoldfastStopReason = '{reason.value}'")
    return " AND ".join(parts)
