"""The calls of a run that wait for a person: whether there are any, as it is listed by, and which decisions count."""

from __future__ import annotations

from collections.abc import Iterable

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from holdfast.core.approving import problem_with_decision
    from holdfast.core.contracts import ApprovalDecision
    from holdfast.core.events import ApprovalGiven, Event
    from holdfast.core.listing import FOR_APPROVAL
    from holdfast.core.state import AgentState
    from workflows.listing import WAITING, show


class Waiting:
    """Tells the server when a run begins to wait for somebody, and when it no longer does."""

    def __init__(self) -> None:
        self._told = False

    def has_changed(self, state: AgentState) -> bool:
        """Return whether there is something new to tell; it counts as told then.

        To be asked after each event. How many events one task of the workflow takes in is not the same in a replay,
        where several hooks ran at once: what is told, and its place among the calls begun, must not depend on it.
        """
        waits = bool(state.waiting_calls)
        before, self._told = self._told, waits
        return waits != before

    async def tell(self, *, waits: bool) -> tuple[()]:
        """Tell it, in turn with the calls that are begun."""
        show(WAITING.value_set(FOR_APPROVAL) if waits else WAITING.value_unset())
        return ()


def refuse_decision(decision: ApprovalDecision, state: AgentState, inbox: Iterable[Event]) -> None:
    """Raise ApplicationError for a decision that would decide nothing; `inbox` is what has come in already."""
    already = {event.call_id for event in inbox if isinstance(event, ApprovalGiven)}
    problem = problem_with_decision(decision.call_id, decision.verdict, state, already)
    if problem is not None:
        raise ApplicationError(problem, type="DecisionRefused", non_retryable=True)
