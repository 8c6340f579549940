"""The calls of a run that wait for a person: how many there are, as it can be listed by, and which decisions count."""

from __future__ import annotations

from collections.abc import Iterable

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from holdfast.core.approving import problem_with_decision
    from holdfast.core.contracts import ApprovalDecision
    from holdfast.core.events import ApprovalGiven, Event
    from holdfast.core.state import AgentState
    from workflows.listing import WAITING, show


class Waiting:
    """Tells the server how many calls of a run wait, whenever that has changed; tells nothing if not `searchable`."""

    def __init__(self, *, searchable: bool) -> None:
        self._searchable = searchable
        self._told = 0

    def tell(self, state: AgentState) -> None:
        """Tell what is new; to be called before the run begins to wait, and once it has ended."""
        count = len(state.waiting_calls)
        if self._searchable and count != self._told:
            self._told = count
            show(WAITING.value_set(count))


def refuse_decision(decision: ApprovalDecision, state: AgentState, inbox: Iterable[Event]) -> None:
    """Raise ApplicationError for a decision that would decide nothing; `inbox` is what has come in already."""
    already = {event.call_id for event in inbox if isinstance(event, ApprovalGiven)}
    problem = problem_with_decision(decision.call_id, decision.verdict, state, already)
    if problem is not None:
        raise ApplicationError(problem, type="DecisionRefused", non_retryable=True)
