"""Questions of the agent itself to a person: they wait as the forms of MCP servers do (`input_waits`)."""

from __future__ import annotations

from holdfast.core.base.frozen import replace
from holdfast.core.conversation.questions import answer_text, question_of
from holdfast.core.conversation.steps import CallStage, ErrorRecord, OpenCall
from holdfast.core.loop import input_waits
from holdfast.core.loop.events import InputNeeded
from holdfast.core.loop.transition import Transition

Answer = tuple[str | None, ErrorRecord | None]


def ask(transition: Transition, each: OpenCall) -> Answer | OpenCall:
    """Return the call as it waits for a person, or why it asks nothing."""
    question, problem = question_of(each.call.arguments)
    if question is None:
        return None, ErrorRecord(type="InvalidArguments", message=problem, source=each.call.name)
    seconds, at = transition.rules.definition.answer_seconds, transition.at
    needed = InputNeeded(each.call.id, "", (question.request,), seconds, started_at=at, at=at)
    begun = input_waits.moved(transition, replace(each, stage=CallStage.RUNNING), needed)
    return begun[0] if begun is not None else each


def answer(each: OpenCall) -> Answer | None:
    """Return what the model is told once the person has answered; none while the call waits, or for other calls."""
    pending = each.pending_input
    if pending is None or pending.server or each.stage is not CallStage.RUNNING:
        return None
    return answer_text(pending.responses), None
