"""The ids and types by which Temporal knows runs and sessions. The two id spaces never meet; a type names its agent.

A run's workflow id is its execution's id, a UUID. A session's is its agent's id behind `session-`, which no UUID begins
with. An id says nothing of the agent's name: a name can change, and whoever knows the UUID alone has to reach the same
workflow, or one agent would have two sessions and one idempotency key two runs. So the name stands in the workflow's
type, which identifies nothing: `AgentExecution:clerk`, `AgentSession:clerk`.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from holdfast.core.wire.contracts import AGENT_EXECUTION
from holdfast.core.wire.session_contracts import AGENT_SESSION

WorkflowKind: TypeAlias = Literal["run", "session"]

SESSION_PREFIX: Final = "session-"

LAST: Final = "@last"
"""Means the run, or the session, that was the last to begin. No agent has such a name, and no id begins so."""

TYPE_SEPARATOR: Final = ":"
"""What no agent's name contains."""

KINDS: Final[dict[str, WorkflowKind]] = {AGENT_EXECUTION: "run", AGENT_SESSION: "session"}


def session_workflow_id(agent_id: str) -> str:
    """Return the workflow id of the agent's session."""
    return f"{SESSION_PREFIX}{agent_id}"


def own_id(workflow_id: str) -> str:
    """Return the id that stands in states and records: the execution's of a run, the agent's of a session."""
    return workflow_id.removeprefix(SESSION_PREFIX)


def named_type(kind: str, agent: str | None) -> str:
    """Return the workflow type AGENT_EXECUTION or AGENT_SESSION with the agent's name, where that is known."""
    return f"{kind}{TYPE_SEPARATOR}{agent}" if agent else kind


def base_type(workflow_type: str) -> str:
    """Return the type without an agent's name."""
    return workflow_type.partition(TYPE_SEPARATOR)[0]


def agent_in(workflow_type: str) -> str:
    """Return the agent's name that the type has; empty where it has none."""
    return workflow_type.partition(TYPE_SEPARATOR)[2]


def kind_of(workflow_type: str) -> WorkflowKind | None:
    """Return what a workflow of this type is; none for one that is not ours."""
    return KINDS.get(base_type(workflow_type))


def type_filter(kind: str) -> str:
    """Return the list filter for workflows of the type AGENT_EXECUTION or AGENT_SESSION, whatever their agents."""
    return f"(WorkflowType = '{kind}' OR WorkflowType STARTS_WITH '{kind}{TYPE_SEPARATOR}')"
