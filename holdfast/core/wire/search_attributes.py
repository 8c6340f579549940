"""The search attributes of runs and sessions, by name and type.

The server stores them in plain text, codec or not: names, numbers and states, no conversation text.
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
CACHED: Final = "HoldfastCachedTokens"
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
    CACHED: "Double",  # SQL databases have columns for three attributes of type Int, and those are taken
    UNPRICED: "Keyword",
    TENANT: "Keyword",
    PARENT: "Keyword",
    WAITING: "Keyword",
}
"""All search attributes, with Temporal's type names."""

FOR_APPROVAL: Final = "approval"
"""The value of WAITING while calls of a run wait for a decision; without calls that wait it has none."""

FOR_INPUT: Final = "input"
"""Its value while calls wait for an answer to what their server asks, and none for a decision."""


def begun(agent: str | None, *, parent: str = "", tenant: str = "", status: str = "") -> dict[str, str]:
    """Return the initial search attributes of a run, or of a session with that `status`.

    `parent` is the id of the run or session that began it.
    """
    attributes = {
        AGENT: agent or "",
        STATUS: status or ExecutionStatus.IN_PROGRESS.value,
        PARENT: parent,
        TENANT: tenant,
    }
    return {name: value for name, value in attributes.items() if value}
