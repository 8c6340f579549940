"""The answers of people to what a call's server asks for: refused where they would change nothing."""

from __future__ import annotations

from collections.abc import Iterable

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from holdfast.core.agent.state import AgentState
from holdfast.core.loop.events import Event, InputAnswered
from holdfast.core.loop.input_waits import problem_with_answer
from holdfast.core.wire.mcp_contracts import CallAnswer


def answer_problem(answer: CallAnswer, state: AgentState, inbox: Iterable[Event]) -> str | None:
    """Return why an answer would change nothing, if so; `inbox` has the events not handled yet."""
    already = {event.call_id for event in inbox if isinstance(event, InputAnswered)}
    return problem_with_answer(answer.call_id, answer.answer, state, workflow.now(), already)


def refuse_answer(answer: CallAnswer, state: AgentState, inbox: Iterable[Event]) -> None:
    """Raise ApplicationError for an answer that would change nothing; `inbox` has the events not handled yet."""
    if (problem := answer_problem(answer, state, inbox)) is not None:
        raise ApplicationError(problem, type="DecisionRefused", non_retryable=True)
