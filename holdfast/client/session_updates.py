"""What is asked of an agent's session: updates, each of which begins the session where it is not on the server.

An idle session leaves the server; so does one that was closed. The next update starts a run, which finds the session as
it was kept, or makes a new one of what the update brings with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar, cast
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
from holdfast.client.definitions import find_agent, find_subagents
from holdfast.client.executions import Client
from holdfast.client.refusals import refusal, worker_for
from holdfast.client.requests import check_definition, check_size
from holdfast.client.summaries import at_start
from holdfast.client.updates import AGAIN, UPDATE_SECONDS_MAX, Unanswered, told_of, updated
from holdfast.core import cover
from holdfast.core.definition import AgentDefinition
from holdfast.core.errors import (
    AgentNotFound,
    HoldfastError,
    RecordNotFound,
    ServerUnavailable,
    SessionClosed,
    SessionRefused,
)
from holdfast.core.frozen import replace
from holdfast.core.session import SessionInput
from holdfast.core.session_contracts import (
    AGENT_SESSION,
    SESSION_CLOSED,
    SESSION_MISSING,
    Branch,
    SessionSettings,
)

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
class Beginning:
    """What a session is to begin with where there is none; without a definition it has to be there, or kept."""

    definition: str | AgentDefinition | None
    """A name in the agents folder, the path of a file, or what it names."""
    subagents: tuple[AgentDefinition, ...]
    settings: SessionSettings
    forked_from: Branch | None = None


class SessionUpdates:
    """Asks the session of one agent."""

    def __init__(self, client: Client, agent_id: str, beginning: Beginning) -> None:
        self._client = client
        self._agent_id = agent_id
        self._beginning = beginning
        self._input: SessionInput | None = None

    async def asked(
        self,
        update: str,
        told: object,
        kind: type[T],
        *,
        id_: str | None = None,
        seconds_max: float = UPDATE_SECONDS_MAX,
        again: str = "",
    ) -> T:
        """Return the session's answer to an update; where it is not on the server it begins with it."""
        given, temporal = await self._given(), cast("Any", self._client.temporal)
        args = [] if told is None else [told]

        async def ask(id_: str, limit: timedelta) -> T:
            begun = self._start(given)
            try:
                answer = await temporal.execute_update_with_start_workflow(
                    update, args=args, id=id_, start_workflow_operation=begun, result_type=kind, rpc_timeout=limit
                )
            except (RPCError, WorkflowUpdateRPCTimeoutOrCancelledError):
                with suppress(Exception):  # the same error once more, which asyncio would complain of at the end
                    await asyncio.wait_for(begun.workflow_handle(), START_SECONDS)  # cancelled, it would never come
                raise
            return cast("T", answer)

        try:
            return await updated(
                ask, id_ or str(uuid4()), again=WITH_START_AGAIN, lost_again=True, seconds_max=seconds_max
            )
        except WorkflowUpdateFailedError as error:
            raise _refused(error) from None
        except RPCError as error:
            raise refusal(error, self._agent_id, what="session") from None
        except Unanswered:
            text = f"no worker has answered for agent {self._agent_id} in time"
            again = again or f"the {update} may have been taken all the same: asking again is safe"
            raise ServerUnavailable(f"{text}; {worker_for(self._client.settings.task_queue)}; {again}") from None

    async def _given(self) -> SessionInput:
        """Return what the session begins with where it is not there."""
        if self._input is None:
            wanted, folder = self._beginning, self._client.settings.agents_dir
            definition = checked_definition(wanted.definition, folder)
            subagents = find_subagents(definition, wanted.subagents, folder) if definition else ()
            searchable = await self._client.has_search_attributes()
            start = SessionInput(
                definition=definition,
                subagents=subagents,
                settings=replace(wanted.settings, searchable=searchable),
                forked_from=wanted.forked_from,
            )
            self._input = check_size(start, "definition and subagents take")
        return self._input

    def _start(self, given: SessionInput) -> WithStartWorkflowOperation[Any, Any]:
        """Return the start that goes with an update; each can be used once."""
        settings, name = given.settings, given.definition.name if given.definition else None
        about = cover.of_session(given.definition, __version__)
        return WithStartWorkflowOperation(
            AGENT_SESSION,
            given,
            id=self._agent_id,
            task_queue=self._client.settings.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            search_attributes=at_start(name, tenant=settings.tenant, status="idle") if settings.searchable else None,
            static_summary=about.summary,
            static_details=about.details or None,
            memo=about.memo,
            priority=Priority(fairness_key=settings.tenant or None),
        )


def checked_definition(definition: str | AgentDefinition | None, agents_dir: Path) -> AgentDefinition | None:
    """Return the definition, found where it is only named. Raises UnknownAgent, DefinitionInvalid, InvalidInput."""
    if isinstance(definition, str):
        definition = find_agent(definition, agents_dir)
    return None if definition is None else check_definition(definition)


def _refused(error: WorkflowUpdateFailedError) -> HoldfastError:
    kind = error.cause.type if isinstance(error.cause, ApplicationError) else None
    return REFUSALS.get(kind or "", SessionRefused)(told_of(error))
