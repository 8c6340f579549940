"""Pending approvals: the search attribute of runs that wait for a person, and the check of decisions."""

from __future__ import annotations

from collections.abc import Iterable

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from holdfast.core.agent.handoffs import HANDOFF_TOOL
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.subagents import SPAWN_TOOL
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.loop.approvals import problem_with_decision, problem_with_edit
from holdfast.core.loop.events import ApprovalDecided, Event
from holdfast.core.loop.execution_rules import Rules
from holdfast.core.wire.contracts import ApprovalDecision
from holdfast.core.wire.search_attributes import FOR_APPROVAL, FOR_INPUT
from workflows.execution.activity_calls import check_arguments
from workflows.search_attributes import WAITING, Updates, progress


class PendingApprovals:
    """Tracks what the run waits for a person for, for its search attribute."""

    def __init__(self) -> None:
        self._listed: str | None = None

    def has_changed(self, state: AgentState) -> bool:
        """Return whether the search attribute is out of date, and mark it as updated.

        Call it after each event. How many events one workflow task handles differs in a replay where several hooks ran
        at once: the update, and its place among the commands, must not depend on that.
        """
        waits = _what_waits(state)
        before, self._listed = self._listed, waits
        return waits != before

    def updates(self, state: AgentState) -> Updates:
        """Return the search attributes, progress included, as a run may wait for days."""
        waits = _what_waits(state)
        return (WAITING.value_set(waits) if waits else WAITING.value_unset(), *progress(state))


def _what_waits(state: AgentState) -> str | None:
    """Return the search attribute's value; none while no call waits for a person."""
    if state.waiting_calls:
        return FOR_APPROVAL
    return FOR_INPUT if state.input_calls else None


def decision_problem(decision: ApprovalDecision, state: AgentState, inbox: Iterable[Event]) -> str | None:
    """Return why a decision matches no waiting call, if so; `inbox` has the events not handled yet."""
    already = {event.call_id for event in inbox if isinstance(event, ApprovalDecided) and event.problem is None}
    return problem_with_decision(decision.call_id, decision.verdict, state, workflow.now(), already)


def refuse_decision(decision: ApprovalDecision, state: AgentState, inbox: Iterable[Event], rules: Rules) -> None:
    """Raise ApplicationError for a decision that would decide nothing; `inbox` has the events not handled yet."""
    problem = decision_problem(decision, state, inbox)
    if problem is not None:
        raise ApplicationError(problem, type="DecisionRefused", non_retryable=True)
    step, call = state.running.current_step, _waiting_call(decision, state)
    call_count = len(step.requested_tool_calls) if step else 1
    refuse_arguments(problem_with_edit(rules, call, decision.verdict, call_count) if call else None)


def refuse_arguments(problem: str | None) -> None:
    """Raise ApplicationError where there is a `problem` with the arguments of an edit."""
    if problem is not None:
        raise ApplicationError(f"{problem}; the call is still waiting", type="InvalidArguments", non_retryable=True)


async def tool_problem(decision: ApprovalDecision, state: AgentState, mcp: str | None) -> str | None:
    """Return the tool's objection to edited arguments, as checked by its worker; recorded.

    `mcp` is the digest of the catalog of MCP tools that the run has pinned.
    """
    arguments, call = decision.verdict.arguments, _waiting_call(decision, state)
    if arguments is None or call is None or call.name in (SPAWN_TOOL, HANDOFF_TOOL):  # the core checks those
        return None
    return await check_arguments(call.name, arguments, mcp)


def _waiting_call(decision: ApprovalDecision, state: AgentState) -> ToolCall | None:
    return next((each.call for each in state.waiting_calls if each.call.id == decision.call_id), None)
