"""What runs and sessions can be listed by on the server: Temporal's search attributes, by name and type.

They are plain text to the server, codec or not: names, numbers and states, nothing that anybody has said.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.agent.execution_state import ExecutionStatus

AGENT: Final = "HoldfastAgent"
STATUS: Final = "HoldfastStatus"
STOP_REASON: Final = "HoldfastStopReason"
STEPS: Final = "HoldfastSteps"
TOKENS: Final = "HoldfastTokens"
COST: Final = "HoldfastCost"
ESTIMATED: Final = "HoldfastEstimatedTokens"
UNPRICED: Final = "HoldfastUnpriced"
TENANT: Final = "HoldfastTenant"
PARENT: Final = "HoldfastParent"
WAITING: Final = "HoldfastWaiting"

SEARCH_ATTRIBUTES: Final = {
    AGENT: "Keyword",
    STATUS: "Keyword",
    STOP_REASON: "Keyword",
    STEPS: "Int",
    TOKENS: "Int",
    COST: "Double",
    ESTIMATED: "Int",
    UNPRICED: "Keyword",
    TENANT: "Keyword",
    PARENT: "Keyword",
    WAITING: "Keyword",
}
"""What one can list and count by, with Temporal's type names."""

FOR_APPROVAL: Final = "approval"
"""The value of WAITING while calls of a run wait for a person; it has none at any other time."""


def begun(agent: str | None, *, parent: str = "", tenant: str = "", status: str = "") -> dict[str, str]:
    """Return what a run, or a session with that `status`, is listed by from its beginning.

    `parent` is the id of the run or session that began it.
    """
    known = {
        AGENT: agent or "",
        STATUS: status or ExecutionStatus.IN_PROGRESS.value,
        PARENT: parent,
        TENANT: tenant,
    }
    return {name: value for name, value in known.items() if value}
