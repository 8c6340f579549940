"""The workflow ids and types of runs and sessions. Their ids never overlap; the type names the agent.

A run's workflow id is its execution's id, a UUID. A session's is `session-` and its agent's id; no UUID begins so. The
agent's name is not in the id: a name can change, and a client that knows the UUID alone must reach the same workflow,
or one agent would have two sessions and one idempotency key two runs. So the name is in the workflow's type, which
identifies nothing: `AgentExecution:clerk`, `AgentSession:clerk`.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from holdfast.core.wire.contracts import AGENT_EXECUTION
from holdfast.core.wire.session_contracts import AGENT_SESSION

WorkflowKind: TypeAlias = Literal["run", "session"]

SESSION_PREFIX: Final = "session-"

LAST: Final = "@last"
"""Stands for the latest run or session. No agent has such a name, and no id begins so."""

TYPE_SEPARATOR: Final = ":"
"""Separates the type from the agent's name, which never contains it."""

KINDS: Final[dict[str, WorkflowKind]] = {AGENT_EXECUTION: "run", AGENT_SESSION: "session"}


def session_workflow_id(agent_id: str) -> str:
    """Return the workflow id of the agent's session."""
    return f"{SESSION_PREFIX}{agent_id}"


def is_session(workflow_id: str) -> bool:
    """Return whether a workflow of this id is an agent's session."""
    return workflow_id.startswith(SESSION_PREFIX)


def own_id(workflow_id: str) -> str:
    """Return the id used in states and records: a run's execution id, a session's agent id."""
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
    """Return the kind of a workflow of this type; none for one that is not ours."""
    return KINDS.get(base_type(workflow_type))


def type_filter(kind: str) -> str:
    """Return the list filter for workflows of the type AGENT_EXECUTION or AGENT_SESSION, whatever their agents."""
    return f"(WorkflowType = '{kind}' OR WorkflowType STARTS_WITH '{kind}{TYPE_SEPARATOR}')"
