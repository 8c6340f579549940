"""What runs and sessions can be listed by on the server: Temporal's search attributes. Decides nothing.

A session's steps are its executions, and what waits in it are messages.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, SearchAttributeUpdate, TypedSearchAttributes

with workflow.unsafe.imports_passed_through():
    from holdfast.core.state import ExecutionStatus

NAME = SearchAttributeKey.for_keyword("AgentName")
STATUS = SearchAttributeKey.for_keyword("AgentStatus")
STOP_REASON = SearchAttributeKey.for_keyword("AgentStopReason")
STEPS = SearchAttributeKey.for_int("AgentSteps")
TOKENS = SearchAttributeKey.for_int("AgentTokens")
WAITING = SearchAttributeKey.for_int("AgentWaiting")


def at_start(agent: str) -> TypedSearchAttributes:
    """Return what a child's run can be listed by from its beginning, as the client gives it to any other."""
    begun = SearchAttributePair(STATUS, ExecutionStatus.IN_PROGRESS.value)
    return TypedSearchAttributes([SearchAttributePair(NAME, agent), begun])


def show(*updates: SearchAttributeUpdate[Any]) -> None:
    """Have the run listed by these from now on; not to be called where the server does not know our attributes."""
    workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]  # the SDK's own hint
