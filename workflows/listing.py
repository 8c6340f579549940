"""What runs and sessions can be listed by on the server: Temporal's search attributes. Decides nothing.

They are told when the status changes and at the end, never as often as anything grows.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, SearchAttributeUpdate, TypedSearchAttributes

with workflow.unsafe.imports_passed_through():
    from holdfast.core import cover, listing
    from holdfast.core.state import AgentState
    from holdfast.core.stopping import StopReason

STATUS = SearchAttributeKey.for_keyword(listing.STATUS)
STOP_REASON = SearchAttributeKey.for_keyword(listing.STOP_REASON)
STEPS = SearchAttributeKey.for_int(listing.STEPS)
TOKENS = SearchAttributeKey.for_int(listing.TOKENS)
COST = SearchAttributeKey.for_float(listing.COST)
TENANT = SearchAttributeKey.for_keyword(listing.TENANT)
WAITING = SearchAttributeKey.for_keyword(listing.WAITING)


def child_at_start(agent: str) -> TypedSearchAttributes:
    """Return what a child's run can be listed by from its beginning: by whose it is, too."""
    tenant = workflow.info().typed_search_attributes.get(TENANT) or ""
    known = listing.begun(agent, parent=workflow.info().workflow_id, tenant=tenant)
    return TypedSearchAttributes(
        [SearchAttributePair(SearchAttributeKey.for_keyword(name), value) for name, value in known.items()]
    )


def begun_by() -> str:
    """Return which Holdfast began this run, as its memo says; nothing for one that was begun without."""
    return workflow.memo_value(cover.VERSION, "", type_hint=str)


def ended(state: AgentState) -> list[SearchAttributeUpdate[Any]]:
    """Return what an execution that has ended can be listed by."""
    return [
        STATUS.value_set(state.status),
        STOP_REASON.value_set(state.stop_reason or StopReason.UNKNOWN),
        STEPS.value_set(state.step_count),
        TOKENS.value_set(state.usage.total_tokens),
        COST.value_set(state.cost),
        WAITING.value_unset(),
    ]


def show(*updates: SearchAttributeUpdate[Any]) -> None:
    """Have the run listed by these from now on; not to be called where the server does not know our attributes."""
    workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]  # the SDK's own hint
