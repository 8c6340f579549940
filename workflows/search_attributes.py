"""What runs and sessions can be listed by on the server: Temporal's search attributes. Decides nothing.

They are told when the status changes, at the end, and how far a run has come at a bounded rate.
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
"""After so many steps, or seconds of model calls, a run under way is listed anew by how far it has come.

One event each time: 12.05 events a step for quick ones, 13 at most where each takes half a minute.
"""

STATUS = SearchAttributeKey.for_keyword(search_attributes.STATUS)
STOP_REASON = SearchAttributeKey.for_keyword(search_attributes.STOP_REASON)
STEPS = SearchAttributeKey.for_int(search_attributes.STEPS)
TOKENS = SearchAttributeKey.for_int(search_attributes.TOKENS)
COST = SearchAttributeKey.for_float(search_attributes.COST)
ESTIMATED = SearchAttributeKey.for_int(search_attributes.ESTIMATED)
UNPRICED = SearchAttributeKey.for_keyword(search_attributes.UNPRICED)
TENANT = SearchAttributeKey.for_keyword(search_attributes.TENANT)
WAITING = SearchAttributeKey.for_keyword(search_attributes.WAITING)

Updates = Sequence[SearchAttributeUpdate[Any]]


class Rate:
    """How often a run under way is listed anew. `steps` are those it had when it was listed last.

    It goes by what a replay sees again, steps and the seconds that answers report, and never by the clock: where hooks
    run, a task of a replay can be at another time.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count how long a model call took."""
        self._seconds += seconds

    def is_due(self, steps: int) -> bool:
        """Return whether a run that has come so far is to be listed now; it counts as listed then."""
        since = steps - self._steps
        if since <= 0 or (since < LISTED_STEPS and self._seconds < LISTED_MODEL_SECONDS):
            return False
        self._steps, self._seconds = steps, 0.0
        return True


def child_at_start(agent: str) -> TypedSearchAttributes:
    """Return what a child's run can be listed by from its beginning: by whose it is, too."""
    tenant = workflow.info().typed_search_attributes.get(TENANT) or ""
    known = search_attributes.begun(agent, parent=own_id(workflow.info().workflow_id), tenant=tenant)
    return TypedSearchAttributes(
        [SearchAttributePair(SearchAttributeKey.for_keyword(name), value) for name, value in known.items()]
    )


def begun_by() -> str:
    """Return which Holdfast began this run, as its memo says; nothing for one that was begun without."""
    return workflow.memo_value(run_metadata.VERSION, "", type_hint=str)


def ended(state: AgentState) -> list[SearchAttributeUpdate[Any]]:
    """Return what an execution that has ended can be listed by."""
    return [
        STATUS.value_set(state.status),
        STOP_REASON.value_set(state.stop_reason or StopReason.UNKNOWN),
        *progress(state),
        WAITING.value_unset(),
    ]


def progress(state: AgentState) -> Updates:
    """Return how far an execution has come."""
    unpriced = state.running.unpriced
    return (
        STEPS.value_set(state.step_count),
        TOKENS.value_set(state.usage.total_tokens),
        COST.value_set(state.cost),
        *((ESTIMATED.value_set(state.usage.estimated_tokens),) if state.usage.estimated_tokens else ()),
        *((UNPRICED.value_set(clamped(", ".join(unpriced), WORD_CHARS_MAX)),) if unpriced else ()),
    )


async def tell(updates: Updates) -> tuple[()]:
    """Have the run listed by these, in turn with the calls that are begun."""
    show(*updates)
    return ()


def show(*updates: SearchAttributeUpdate[Any]) -> None:
    """Have the run listed by these from now on; not to be called where the server does not know our attributes."""
    workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]  # the SDK's own hint
