"""Updates of an agent's session, each of which starts the session where it is not on the server.

An idle session leaves the server; so does one that was closed. The next update starts a run, which finds the session as
it was kept, or makes a new one of what the update brings with it. An update that brings no definition starts one only
where something is kept: the id of nobody, or of a run, leaves nothing behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast
from uuid import uuid4

from temporalio.client import (
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import Priority, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import __version__
from holdfast.client.definition_files import find_subagents, given_agents
from holdfast.client.execution_summaries import at_start
from holdfast.client.runs import Runs
from holdfast.client.validation import check_definition, check_size
from holdfast.client.worker_presence import cause_of_silence, is_served
from holdfast.client.workflow_updates import AGAIN, Unanswered, refusal_text, updated
from holdfast.connection.rpc_errors import refusal
from holdfast.connection.settings import Settings
from holdfast.core.agent.agent import Agent, AnyAgent, definitions
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.errors import (
    AgentNotFound,
    HoldfastError,
    RecordNotFound,
    ServerUnavailable,
    SessionClosed,
    SessionRefused,
)
from holdfast.core.base.frozen import replace
from holdfast.core.session.session_state import SessionInput
from holdfast.core.wire import run_metadata
from holdfast.core.wire.session_contracts import AGENT_SESSION, SESSION_CLOSED, SESSION_MISSING, Branch, SessionSettings
from holdfast.core.wire.workflow_ids import named_type, session_workflow_id
from holdfast.storage.records import Records

T = TypeVar("T")

START_SECONDS: Final = 0.1
"""How long to wait for the end of a start whose update has failed: it is there already, or never comes."""

WITH_START_AGAIN: Final = AGAIN | {RPCStatusCode.NOT_FOUND}
"""A session that leaves the server just then is not found for a moment, and begun anew by the next try."""

REFUSALS: Final[Mapping[str, type[HoldfastError]]] = {
    SESSION_CLOSED: SessionClosed,
    SESSION_MISSING: AgentNotFound,
    RecordNotFound.__name__: RecordNotFound,
}
"""What a session's refusals are here, by their types; any other is a SessionRefused."""


@dataclass(frozen=True, slots=True)
class InitialSession:
    """What a session is to begin with where there is none; without a definition it has to be there, or kept."""

    definition: str | AgentDefinition | None
    """A name in the agents folder, the path of a file, or what it names."""
    subagents: tuple[AgentDefinition, ...]
    settings: SessionSettings
    forked_from: Branch | None = None


@dataclass(frozen=True, slots=True)
class _Update(Generic[T]):
    """An update's name, what it carries, and the type of its answer."""

    name: str
    payload: object
    kind: type[T]


class SessionUpdates:
    """Asks the session of one agent."""

    def __init__(self, client: Runs, records: Records, agent_id: str, first_session: InitialSession) -> None:
        self._client = client
        self._records = records
        self._agent_id = agent_id
        self._first_session = first_session
        self._input: SessionInput | None = None

    async def request_update(
        self,
        update: str,
        payload: object,
        kind: type[T],
        *,
        id_: str | None = None,
        seconds_max: float | None = None,
        again: str = "",
    ) -> T:
        """Return the session's answer to an update; where it is not on the server it begins with it."""
        start_input, request = await self._start_input(), _Update(update, payload, kind)
        queue, session_id = self._client.settings.task_queue, session_workflow_id(self._agent_id)
        turns = nullcontext() if id_ is None else self._client.update_queues.of(self._agent_id)

        async def ask(update_id: str, limit: timedelta) -> T:
            async with turns:
                if start_input.definition is not None:
                    return await self._ask_with_start(request, update_id, limit, start_input)
                try:
                    return await self._ask(request, update_id, limit)
                except RPCError as error:
                    if error.status is not RPCStatusCode.NOT_FOUND:
                        raise
                await self._check_kept()
                return await self._ask_with_start(request, update_id, limit, start_input)

        try:
            return await updated(
                ask,
                id_ or str(uuid4()),
                served=partial(is_served, self._client.temporal, queue, session_id),
                again=WITH_START_AGAIN,
                lost_again=True,
                stored=id_ is not None,
                seconds_max=seconds_max,
            )
        except WorkflowUpdateFailedError as error:
            raise _refused(error) from None
        except RPCError as error:
            raise refusal(error, self._agent_id, what="session") from None
        except Unanswered:
            why = await cause_of_silence(self._client.temporal, queue, session_id)
            again = again or f"the {update} may have been applied; repeating it is safe"
            raise ServerUnavailable(f"no answer for agent {self._agent_id} in time: {why}; {again}") from None

    async def _ask(self, update: _Update[T], update_id: str, limit: timedelta) -> T:
        """Return the answer of a session that is on the server."""
        session: Any = self._client.temporal.get_workflow_handle(session_workflow_id(self._agent_id))
        answer = await session.execute_update(
            update.name, update.payload, id=update_id, result_type=update.kind, rpc_timeout=limit
        )
        return cast("T", answer)

    async def _ask_with_start(
        self, update: _Update[T], update_id: str, limit: timedelta, start_input: SessionInput
    ) -> T:
        """Return the session's answer, and start the session where it is not on the server."""
        operation, temporal = self._start(start_input), cast("Any", self._client.temporal)
        try:
            answer = await temporal.execute_update_with_start_workflow(
                update.name,
                args=[update.payload],
                id=update_id,
                start_workflow_operation=operation,
                result_type=update.kind,
                rpc_timeout=limit,
            )
        except (RPCError, WorkflowUpdateRPCTimeoutOrCancelledError):
            with suppress(Exception):  # the same error once more, which asyncio would complain of at the end
                async with asyncio.timeout(START_SECONDS):  # cancelled, it would never come
                    await operation.workflow_handle()
            raise
        return cast("T", answer)

    async def _check_kept(self) -> None:
        """Raise AgentNotFound unless the agent's session was kept when it left the server."""
        if await self._records.read_session(self._agent_id) is None:
            text = f"there is no agent {self._agent_id} on this server or in its storage"
            raise AgentNotFound(f"{text}; give its definition (`--agent`), or begin one with `holdfast chat`")

    async def _start_input(self) -> SessionInput:
        """Return what the session begins with where it is not there."""
        if self._input is None:
            initial, settings = self._first_session, self._client.settings
            definition, extra = checked_agent(initial.definition, initial.subagents, settings)
            subagents = find_subagents(definition, extra, settings) if definition else ()
            searchable = await self._client.has_search_attributes()
            start = SessionInput(
                definition=definition,
                subagents=subagents,
                settings=replace(initial.settings, searchable=searchable),
                forked_from=initial.forked_from,
            )
            self._input = check_size(start, "definition and subagents take")
        return self._input

    def _start(self, start_input: SessionInput) -> WithStartWorkflowOperation[Any, Any]:
        """Return the start that goes with an update; each can be used once."""
        settings, name = start_input.settings, start_input.definition.name if start_input.definition else None
        about = run_metadata.of_session(start_input.definition, __version__)
        return WithStartWorkflowOperation(
            named_type(AGENT_SESSION, name),
            start_input,
            id=session_workflow_id(self._agent_id),
            task_queue=self._client.settings.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            search_attributes=at_start(name, tenant=settings.tenant, status="idle") if settings.searchable else None,
            static_summary=about.summary,
            static_details=about.details or None,
            memo=about.memo,
            priority=Priority(fairness_key=settings.tenant or None),
        )


def checked_agent(
    agent: AnyAgent | None, subagents: Iterable[AgentDefinition | Agent[Any]], settings: Settings
) -> tuple[AgentDefinition | None, tuple[AgentDefinition, ...]]:
    """Return the agent's definition, found where it is only named, and those of the agents given with it.

    Raises UnknownAgent, DefinitionInvalid, InvalidInput.
    """
    if agent is None:
        return None, definitions(subagents)
    definition, extra = given_agents(agent, subagents, settings)
    return check_definition(definition), extra


def _refused(error: WorkflowUpdateFailedError) -> HoldfastError:
    kind = error.cause.type if isinstance(error.cause, ApplicationError) else None
    return REFUSALS.get(kind or "", SessionRefused)(refusal_text(error))
