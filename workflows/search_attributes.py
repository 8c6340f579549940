"""Updates Temporal's search attributes of runs and sessions. Decides nothing.

They are updated when the status changes, at the end, and at a bounded rate for the progress of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, SearchAttributeUpdate, TypedSearchAttributes

from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import WORD_CHARS_MAX
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire import run_metadata, search_attributes
from holdfast.core.wire.workflow_ids import own_id

LISTED_STEPS: Final = 20
LISTED_MODEL_SECONDS: Final = 30.0
"""After so many steps, or seconds of model calls, the progress of a run is updated.

One event each time: 12.05 events a step for quick ones, 13 at most where each takes half a minute.
"""

STATUS = SearchAttributeKey.for_keyword(search_attributes.STATUS)
STOP_REASON = SearchAttributeKey.for_keyword(search_attributes.STOP_REASON)
STEPS = SearchAttributeKey.for_int(search_attributes.STEPS)
TOKENS = SearchAttributeKey.for_int(search_attributes.TOKENS)
COST = SearchAttributeKey.for_float(search_attributes.COST)
ESTIMATED = SearchAttributeKey.for_int(search_attributes.ESTIMATED)
CACHED = SearchAttributeKey.for_float(search_attributes.CACHED)
UNPRICED = SearchAttributeKey.for_keyword(search_attributes.UNPRICED)
TENANT = SearchAttributeKey.for_keyword(search_attributes.TENANT)
WAITING = SearchAttributeKey.for_keyword(search_attributes.WAITING)

Updates = Sequence[SearchAttributeUpdate[Any]]


class Rate:
    """The rate of progress updates. `steps` is the count at the last update.

    It goes by values that a replay sees again, steps and the seconds that answers report, and never by the clock: where
    hooks run, a task of a replay can be at another time.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count how long a model call took."""
        self._seconds += seconds

    def is_due(self, steps: int) -> bool:
        """Return whether an update is due at `steps`, and mark it as done."""
        since = steps - self._steps
        if since <= 0 or (since < LISTED_STEPS and self._seconds < LISTED_MODEL_SECONDS):
            return False
        self._steps, self._seconds = steps, 0.0
        return True


def child_at_start(agent: str) -> TypedSearchAttributes:
    """Return the initial search attributes of a child's run, its parent and tenant included."""
    tenant = workflow.info().typed_search_attributes.get(TENANT) or ""
    attributes = search_attributes.begun(agent, parent=own_id(workflow.info().workflow_id), tenant=tenant)
    return TypedSearchAttributes(
        [SearchAttributePair(SearchAttributeKey.for_keyword(name), value) for name, value in attributes.items()]
    )


def begun_by() -> str:
    """Return the version of Holdfast that began this run, from its memo; empty for one without."""
    return workflow.memo_value(run_metadata.VERSION, "", type_hint=str)


def continued_memo(state: AgentState) -> dict[str, Any]:
    """Return the memo of the next Temporal run: this one's, and when the execution began."""
    return {**workflow.memo(), run_metadata.STARTED: state.running.started_at.isoformat()}


def ended(state: AgentState) -> list[SearchAttributeUpdate[Any]]:
    """Return the search attributes of an ended execution."""
    return [
        STATUS.value_set(state.status),
        STOP_REASON.value_set(state.stop_reason or StopReason.UNKNOWN),
        *progress(state),
        WAITING.value_unset(),
    ]


def progress(state: AgentState) -> Updates:
    """Return the search attributes for an execution's progress."""
    unpriced = state.running.unpriced
    return (
        STEPS.value_set(state.step_count),
        TOKENS.value_set(state.usage.total_tokens),
        COST.value_set(state.cost),
        *((ESTIMATED.value_set(state.usage.estimated_tokens),) if state.usage.estimated_tokens else ()),
        *((CACHED.value_set(float(state.usage.cached_tokens)),) if state.usage.cached_tokens else ()),
        *((UNPRICED.value_set(clamped(", ".join(unpriced), WORD_CHARS_MAX)),) if unpriced else ()),
    )


async def upsert_in_turn(updates: Updates) -> tuple[()]:
    """Update search attributes, in order with the calls that begin."""
    upsert(*updates)
    return ()


def upsert(*updates: SearchAttributeUpdate[Any]) -> None:
    """Update search attributes now; not to be called where the server does not know them."""
    workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]  # the SDK's own hint
