"""Finding a run or session by a whole id, the beginning of one, an agent's name, or `@last`.

Whole ids are taken as they are. Everything else is looked for in the server's list, which can be late by a moment: what
is not there at once is looked for again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.execution_summaries import agent_of
from holdfast.client.workflow_queries import foreign
from holdfast.connection.executions import UNDER_WAY, described
from holdfast.connection.rpc_errors import answered, refusal
from holdfast.connection.workflow_reader import ASK_TIMEOUT, listed
from holdfast.core.agent.execution_state import checked_id
from holdfast.core.base.bounds import NAME_CHARS_MAX
from holdfast.core.base.errors import ExecutionNotFound, InvalidInput
from holdfast.core.wire.contracts import AGENT_EXECUTION
from holdfast.core.wire.session_contracts import AGENT_SESSION
from holdfast.core.wire.workflow_ids import (
    LAST,
    SESSION_PREFIX,
    WorkflowKind,
    kind_of,
    named_type,
    own_id,
    session_workflow_id,
    type_filter,
)

CANDIDATES_MAX: Final = 5
"""How many runs or sessions an error names that the beginning of an id can mean."""

BEGINNING: Final = re.compile(rf"({SESSION_PREFIX})?[0-9a-f-]{{1,36}}")
"""What an id of ours can begin with."""

NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS_MAX}}}")
"""An agent's name (`policies.Name`)."""

CUT: Final = "…"
"""What listings end an id with that they show the beginning of; it may be copied with it."""

PAUSES_SECONDS: Final = (0.1, 0.2, 0.4, 0.8)
"""How long to wait before looking once more for what the list does not have (yet)."""

LISTED_ROWS_MAX: Final = 50
"""How many rows of the list are read for one question: what went on in new Temporal runs has several."""

LATER_LOOKS_MAX: Final = 5
"""How often it is looked whether more began later than the latest one known; as a rule the first look finds none."""

TYPES: Final[dict[WorkflowKind, str]] = {"run": AGENT_EXECUTION, "session": AGENT_SESSION}

NOT_CONTINUED: Final = "ExecutionStatus != 'ContinuedAsNew'"

BEGUN_BY_PEOPLE: Final = f"(ParentWorkflowId IS NULL OR ParentWorkflowId STARTS_WITH '{SESSION_PREFIX}')"
"""Not a subagent's."""

WHERE_LISTED: Final[dict[WorkflowKind, str]] = {
    "run": "`holdfast list` shows the runs",
    "session": "`holdfast sessions` shows the sessions",
}


@dataclass(frozen=True, slots=True)
class FoundWorkflow:
    """A run or a session that the server knows. `id` is the execution's or the agent's, a UUID."""

    id: str
    kind: WorkflowKind
    agent: str
    under_way: bool
    started_at: datetime

    def __str__(self) -> str:
        agent = f" of agent {self.agent!r}" if self.agent else ""
        return f"{self.id} is a {self.kind}{agent}"


async def find(temporal: TemporalClient, reference: str, expected: WorkflowKind) -> str:
    """Return the id, a UUID, of the run or the session (then: of its agent) that is meant.

    A whole id is returned as it is, without asking anybody. Raises InvalidInput for what can mean none, several, or one
    of the other kind; ExecutionNotFound; ServerUnavailable.
    """
    whole = whole_id(reference, expected)
    return whole if whole is not None else (await _matched(temporal, reference, expected)).id


async def look_up(temporal: TemporalClient, reference: str, expected: WorkflowKind | None) -> FoundWorkflow | str:
    """Return the run or the session that is meant; a whole id as it is where the server knows nothing of it.

    Without an `expected` kind it may be of either. Raises as `find` does.
    """
    whole = _uuid(own_id(reference))
    if whole is None:
        return await _matched(temporal, reference, expected)
    first: WorkflowKind = "session" if expected == "session" or reference.startswith(SESSION_PREFIX) else "run"
    for kind in (first, "run" if first == "session" else "session"):
        if kind == "run" and reference.startswith(SESSION_PREFIX):
            continue
        match = await _described(temporal, whole, kind)
        if match is not None:
            if expected not in (None, match.kind):
                raise _other_kind(match, reference)
            return match
    return whole


def whole_id(reference: str, expected: WorkflowKind) -> str | None:
    """Return the UUID that is a whole id of that kind; none for what has to be looked up. Raises InvalidInput."""
    id_ = _uuid(own_id(reference))
    if id_ is not None and reference.startswith(SESSION_PREFIX) and expected == "run":
        raise InvalidInput(f"{id_} is a session, not a run: use `holdfast session show`")
    return id_


def check_reference(reference: str, expected: WorkflowKind | None) -> str:
    """Return what may mean a run or a session. Raises InvalidInput for what can mean none."""
    if expected is not None:
        whole_id(reference, expected)
    typed, reference = reference, reference.removesuffix(CUT)
    if reference != LAST and not (BEGINNING.fullmatch(reference.lower()) or NAME.fullmatch(reference)):
        kinds = "a run or a session" if expected is None else f"a {expected}"
        where = WHERE_LISTED[expected or "run"]
        raise InvalidInput(f"{typed[:80]!r} is not an id of {kinds}, the beginning of one, or an agent's name; {where}")
    return typed


async def _matched(temporal: TemporalClient, reference: str, expected: WorkflowKind | None) -> FoundWorkflow:
    """Return the one of the wanted kind that the list has for what is no whole id."""
    reference = check_reference(reference.removesuffix(CUT), expected)
    candidates = await _candidates(temporal, reference, expected)
    for pause in PAUSES_SECONDS:
        if candidates:
            break
        await asyncio.sleep(pause)
        candidates = await _candidates(temporal, reference, expected)
    matches = [each for each in candidates if expected in (None, each.kind)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise InvalidInput(_ambiguous(reference, matches))
    if candidates:
        raise _other_kind(candidates[0], reference)
    raise ExecutionNotFound(_none(reference, expected))


async def _candidates(temporal: TemporalClient, reference: str, expected: WorkflowKind | None) -> list[FoundWorkflow]:
    """Return whatever may be meant, of either kind, each once."""
    if reference == LAST:
        of_kind = type_filter(TYPES[expected or "run"])
        return await _latest(temporal, f"{of_kind} AND {BEGUN_BY_PEOPLE}" if expected != "session" else of_kind)
    matches: dict[tuple[WorkflowKind, str], FoundWorkflow] = {}
    if BEGINNING.fullmatch(beginning := reference.lower()):
        by_id = f"WorkflowId STARTS_WITH '{beginning}'"
        if not beginning.startswith(SESSION_PREFIX):
            by_id = f"({by_id} OR WorkflowId STARTS_WITH '{session_workflow_id(beginning)}')"
        matches |= {(each.kind, each.id): each for each in await _listed(temporal, by_id)}
    if NAME.fullmatch(reference):
        by_agent = await _of_agent(temporal, reference, expected)
        matches |= {(each.kind, each.id): each for each in by_agent}
    return list(matches.values())


async def _of_agent(temporal: TemporalClient, agent: str, expected: WorkflowKind | None) -> list[FoundWorkflow]:
    """Return the latest run of an agent of this name; of sessions all, for each is an agent of its own."""
    if expected == "session":
        by_name = f"WorkflowType = '{named_type(AGENT_SESSION, agent)}'"
        under_way = await _listed(temporal, f"{by_name} AND {UNDER_WAY}")
        return under_way or await _listed(temporal, by_name)
    return await _latest(temporal, f"WorkflowType = '{named_type(AGENT_EXECUTION, agent)}'")


async def _latest(temporal: TemporalClient, query: str) -> list[FoundWorkflow]:
    """Return the last to begin; the server lists those under way in that order, then the others as they ended."""
    latest = await _listed(temporal, query, limit=1)
    for _ in range(LATER_LOOKS_MAX if latest else 0):
        later = await _listed(temporal, f"{query} AND StartTime > '{latest[0].started_at.isoformat()}'")
        newest = max([*latest, *later], key=lambda each: each.started_at)
        if newest == latest[0]:
            break
        latest = [newest]
    return latest


async def _listed(temporal: TemporalClient, query: str, limit: int = LISTED_ROWS_MAX) -> list[FoundWorkflow]:
    """Return what of ours the list has, each once, the latest first."""
    matches: dict[tuple[WorkflowKind, str], FoundWorkflow] = {}
    for each in await listed(temporal, f"{query} AND {NOT_CONTINUED}", limit):
        if (match := _match(each)) is not None:
            matches.setdefault((match.kind, match.id), match)
        if len(matches) > CANDIDATES_MAX:
            break
    return list(matches.values())


async def _described(temporal: TemporalClient, id_: str, kind: WorkflowKind) -> FoundWorkflow | None:
    """Return what the server knows of a whole id; none where it knows nothing. Raises InvalidInput for others' own."""
    workflow_id = id_ if kind == "run" else session_workflow_id(id_)
    try:
        found = await described(temporal, workflow_id, rpc_timeout=ASK_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise refusal(error, id_, what=kind) from None
    match = _match(found)
    if match is None or match.kind != kind:
        raise foreign(workflow_id, found.workflow_type)
    return match


async def described_run(temporal: TemporalClient, execution_id: str) -> WorkflowExecution:
    """Return what the server knows of a run.

    Raises InvalidInput where it is a workflow of another kind; ExecutionNotFound, ServerUnavailable.
    """
    found = await answered(described(temporal, execution_id, rpc_timeout=ASK_TIMEOUT), execution_id)
    if kind_of(found.workflow_type) != "run":
        raise foreign(found.id, found.workflow_type)
    return found


def _match(workflow: WorkflowExecution) -> FoundWorkflow | None:
    kind, id_ = kind_of(workflow.workflow_type), _uuid(own_id(workflow.id))
    if kind is None or id_ is None:
        return None
    return FoundWorkflow(id_, kind, agent_of(workflow), workflow.close_time is None, workflow.start_time)


def _uuid(text: str) -> str | None:
    try:
        return checked_id(text)
    except ValueError:
        return None


def _other_kind(match: FoundWorkflow, reference: str) -> InvalidInput:
    """Return what to say of a run where a session is wanted, or the other way round."""
    use, other = ("holdfast show", "session") if match.kind == "run" else ("holdfast session show", "run")
    where = WHERE_LISTED["session" if match.kind == "run" else "run"]
    return InvalidInput(f"{match}, not a {other}: use `{use} {reference}`; {where}")


def _ambiguous(reference: str, matches: Sequence[FoundWorkflow]) -> str:
    listing = "; ".join(str(each) for each in matches[:CANDIDATES_MAX])
    more = "; and more" if len(matches) > CANDIDATES_MAX else ""
    return f"{reference!r} matches several: {listing}{more}; type more of the id"


def _none(reference: str, expected: WorkflowKind | None) -> str:
    kind = expected or "run"
    if reference == LAST:
        return f"there is no {kind} on this server yet"
    what = "run or session" if expected is None else expected
    begin = "" if kind == "run" else "; start one with `holdfast chat AGENT`, or with `send` and a new UUID"
    where = f"{WHERE_LISTED[kind]}{begin}"
    return f"no {what} has an id that begins with {reference!r} or an agent of that name; {where}"
