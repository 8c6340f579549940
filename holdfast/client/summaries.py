"""Runs as lines of a listing: what the server knows of them without asking a worker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

from temporalio.client import WorkflowExecution
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from holdfast.core.state import ExecutionStatus

ENDED_WELL: Final = frozenset({ExecutionStatus.COMPLETED, ExecutionStatus.STOPPED})


@dataclass(frozen=True, slots=True)
class ExecutionSummary:
    """One run; None where the server does not know."""

    execution_id: str
    agent: str | None
    status: str
    stop_reason: str | None
    steps: int | None
    tokens: int | None
    started_at: datetime
    closed_at: datetime | None


def summary(execution: WorkflowExecution) -> ExecutionSummary:
    """Return the line of one run."""
    known: dict[str, Any] = {
        pair.key.name: pair.value  # pyright: ignore[reportUnknownMemberType]  # the SDK's generic is left open
        for pair in cast("Iterable[SearchAttributePair[Any]]", execution.typed_search_attributes)
    }
    status = execution.status.name.lower() if execution.status else "unknown"
    # Ours is finer where a run is under way or ended well; of any other end the server knows, and ours may be stale.
    if status == "running":
        status = known.get("AgentStatus") or "in_progress"
    elif status == "completed" and known.get("AgentStatus") in ENDED_WELL:
        status = known["AgentStatus"]
    return ExecutionSummary(
        execution_id=execution.id,
        agent=known.get("AgentName"),
        status=status,
        stop_reason=known.get("AgentStopReason"),
        steps=known.get("AgentSteps"),
        tokens=known.get("AgentTokens"),
        started_at=execution.start_time,
        closed_at=execution.close_time,
    )


def at_start(agent: str) -> TypedSearchAttributes:
    """Return what a run can be listed by from its beginning."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(SearchAttributeKey.for_keyword("AgentName"), agent),
            SearchAttributePair(SearchAttributeKey.for_keyword("AgentStatus"), "in_progress"),
        ]
    )
